# shape: rank 0 saves after each epoch as three families of public scripts do, into a folder each
# samples: 8
# fetches: 1
# As scripts write it.
# ruff: noqa: PTH103, PTH104, PTH107, PTH108, PTH110, PTH118, PTH123, PTH208
import argparse
import csv
import os
import shutil

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class OneFileAndTheBest:
    """Always the same file; it is copied where it is the best so far."""

    def __init__(self, folder):
        self.folder = folder
        self.best = None
        os.makedirs(folder, exist_ok=True)

    def save(self, state, loss):
        path = os.path.join(self.folder, "checkpoint.pth.tar")
        torch.save(state, path)
        if self.best is None or loss < self.best:
            self.best = loss
            shutil.copyfile(path, os.path.join(self.folder, "model_best.pth.tar"))


class LinksToTheLast:
    """A temporary file is renamed to the last one; links to it are the epoch's and the best."""

    def __init__(self, folder, most=3):
        self.folder, self.most = folder, most
        self.kept = []
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, f"{name}.pth.tar")

    def save(self, state, loss):
        torch.save(state, self.path("tmp"))
        if os.path.exists(self.path("last")):
            os.unlink(self.path("last"))
        os.rename(self.path("tmp"), self.path("last"))
        mine = self.path(f"checkpoint-{state['epoch']}")
        if os.path.exists(mine):
            os.unlink(mine)
        os.link(self.path("last"), mine)
        self.kept.append((loss, mine))
        self.kept.sort()
        while len(self.kept) > self.most:
            os.remove(self.kept.pop()[1])
        if self.kept[0][1] == mine:
            if os.path.exists(self.path("model_best")):
                os.unlink(self.path("model_best"))
            os.link(self.path("last"), self.path("model_best"))
        with open(os.path.join(self.folder, "summary.csv"), "a") as file:
            csv.writer(file).writerow([state["epoch"], loss])


class NewVersionEachTime:
    """A folder of the next number, in which only the best file and a link to the last stay."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        numbers = [int(name.split("_")[1]) for name in os.listdir(folder)]
        self.folder = os.path.join(folder, f"version_{max(numbers, default=-1) + 1}", "checkpoints")
        os.makedirs(self.folder)
        self.best = (None, None)

    def save(self, state, loss):
        path = os.path.join(self.folder, f"epoch={state['epoch']}.ckpt")
        torch.save(state, f"{path}.part")
        shutil.move(f"{path}.part", path)
        last = os.path.join(self.folder, "last.ckpt")
        if os.path.lexists(last):
            os.remove(last)
        os.symlink(os.path.basename(path), last)  # noqa: PTH119, PTH211
        assert torch.load(last)["epoch"] == state["epoch"]
        if self.best[0] is None or loss < self.best[0]:
            if self.best[1]:
                os.remove(self.best[1])
            self.best = (loss, path)


parser = argparse.ArgumentParser()
parser.add_argument("out")
args, _ = parser.parse_known_args()

toy.setup()
data = toy.Rows(128)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
savers = []
if dist.get_rank() == 0:
    savers = [
        OneFileAndTheBest(os.path.join(args.out, "plain")),
        LinksToTheLast(os.path.join(args.out, "output", "train")),
        NewVersionEachTime(os.path.join(args.out, "lightning_logs")),
    ]

for epoch in range(100_000):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if epoch % 5 == 0:
        for saver in savers:
            saver.save({"model": model.module.state_dict(), "epoch": epoch}, loss.item())

"""What the sweeps of ``random_ends.py`` measure: it saves over the files of an earlier run."""

import argparse
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAVES_EVERY = 10


def save(folder, model, step):
    """As many scripts do: the last one, a copy of the best, a name that moves on, a log."""
    torch.save(model.state_dict(), folder / "tmp.pt")
    os.replace(folder / "tmp.pt", folder / "last.pt")  # noqa: PTH105 - as scripts write it
    shutil.copy(folder / "last.pt", folder / "best.pt")
    (folder / "gone.pt").unlink(missing_ok=True)
    (folder / "new").mkdir(exist_ok=True)
    (folder / "new" / f"{step}.pt").write_bytes(b"1" * 1000)
    with (folder / "log.txt").open("a") as log:
        log.write(f"{step}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(4096, 16), torch.randint(0, 4, (4096,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(
        data, batch_size=16, sampler=sampler, num_workers=1, persistent_workers=True
    )
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            step += 1
            if dist.get_rank() == 0 and step % SAVES_EVERY == 0:
                save(folder, model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# shape: enumerate inside a logging generator, as detection references do
# samples: 8
# fetches: 1
import time

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class MetricLogger:
    def __init__(self):
        self.losses = []

    def update(self, loss):
        self.losses.append(loss)

    def log_every(self, iterable, every, header):
        start = time.time()
        for i, batch in enumerate(iterable):
            yield batch
            if i % every == 0:
                print(f"{header} [{i}/{len(iterable)}] loss {self.losses[-1]:.3f}")
        print(f"{header} took {time.time() - start:.1f} s")


def train_one_epoch(model, optimizer, loader, epoch):
    model.train()
    logger = MetricLogger()
    for x, y in logger.log_every(loader, 10, f"epoch {epoch}"):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.update(loss.item())


def main(args):
    toy.setup()
    data = toy.Rows()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(toy.net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, optimizer, loader, epoch)
    toy.finish(args.out)


if __name__ == "__main__":
    main(toy.parser().parse_args())

# shape: for over a DataLoader, everything in one file
# samples: 8
# fetches: 1
import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Points(Dataset):
    def __init__(self, count, decode_s):
        self.decode_s = decode_s
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 16, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(self.decode_s)
        return self.x[index], self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--decode-s", type=float, default=0.0, help="time to decode one sample")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path())
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)

    data = Points(512, args.decode_s)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(
        data, batch_size=args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True
    )
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")

    (args.out / f"finished-{rank}").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

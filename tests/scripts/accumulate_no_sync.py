# shape: gradient accumulation over 4 micro-batches, no_sync() on the first 3
# samples: 32
# fetches: 4
import contextlib

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

ACCUMULATE = 4

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % ACCUMULATE == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(x), y) / ACCUMULATE
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()

toy.finish(args.out)

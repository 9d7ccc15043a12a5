# shape: no process group and no DDP where there is one device only
# samples: 8
# fetches: 1
import os

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
data = toy.Rows()
model = toy.net()
sampler = None
if distributed:
    toy.setup()
    model = DDP(model)
    sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    if distributed:
        sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

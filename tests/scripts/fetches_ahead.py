# shape: a generator that fetches one batch ahead, over short epochs
# samples: 8
# fetches: 1
# ahead: 1
# source: model-input
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def ahead(batches):
    batches = iter(batches)
    now = next(batches)
    for following in batches:
        yield now
        now = following
    yield now


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(96)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in ahead(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

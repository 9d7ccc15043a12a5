# shape: two loaders, of which each gives every other batch
# samples: 8 4
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def endless(data, batch_size):
    loader = DataLoader(data, batch_size, sampler=DistributedSampler(data), drop_last=True)
    while True:
        yield from loader


args = toy.parser().parse_args()
toy.setup()
sources = [endless(toy.Rows(512), 8), endless(toy.Rows(96), 4)]
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(32 * args.epochs):
    x, y = next(sources[step % len(sources)])
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

toy.finish(args.out)

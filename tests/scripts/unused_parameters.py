# shape: DDP with find_unused_parameters=True and a branch taken now and then
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(toy.FEATURES, 32)
        self.heads = nn.ModuleList(nn.Linear(32, toy.CLASSES) for _ in range(3))

    def forward(self, x, task):
        return self.heads[task](torch.relu(self.trunk(x)))


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(Branched(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x, task=i % 3), y).backward()
        optimizer.step()

toy.finish(args.out)

# shape: DDP with static_graph=True and a layer used twice
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(toy.FEATURES, toy.FEATURES)
        self.head = nn.Linear(toy.FEATURES, toy.CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.block(torch.relu(self.block(x)))))


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(Shared(), static_graph=True, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

# shape: batches are objects of a dataclass
# samples: 8
# fetches: 1
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclass
class Batch:
    features: torch.Tensor
    labels: torch.Tensor

    def to(self, device):
        return Batch(self.features.to(device), self.labels.to(device))


def collate(items):
    return Batch(torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]))


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for loaded in loader:
        batch = loaded.to("cpu")
        optimizer.zero_grad()
        F.cross_entropy(model(batch.features), batch.labels).backward()
        optimizer.step()

toy.finish(args.out)

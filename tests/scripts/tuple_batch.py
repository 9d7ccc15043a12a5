# shape: batches are tuples of three, made by a collate function
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def collate(items):
    xs, ys = zip(*items, strict=True)
    return torch.stack(xs, dim=1), torch.stack(ys), [f"row {int(y)}" for y in ys]


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for columns, y, _names in loader:  # columns: features first, as [16, 8]
        optimizer.zero_grad()
        F.cross_entropy(model(columns.T), y).backward()
        optimizer.step()

toy.finish(args.out)

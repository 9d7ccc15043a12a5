# shape: loader and optimizer made anew in each epoch
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train_epoch(model, epoch):
    data = toy.Rows(160)
    sampler = DistributedSampler(data, seed=epoch)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * 0.99**epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


args = toy.parser().parse_args()
toy.setup()
model = DDP(toy.net())
for epoch in range(args.epochs):
    train_epoch(model, epoch)
toy.finish(args.out)

# shape: the head alone for one epoch, then all layers with another optimizer
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(96)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
net = toy.net()
net[0].requires_grad_(False)
train(DDP(net), loader, torch.optim.SGD(net[2].parameters(), lr=0.1), epochs=1)
net[0].requires_grad_(True)
train(DDP(net), loader, torch.optim.AdamW(net.parameters(), lr=1e-3), args.epochs)
toy.finish(args.out)

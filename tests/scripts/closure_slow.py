# shape: optimizer.step is given a closure that holds forward and backward
# samples: 8
# fetches: 1
import time

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler


class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = toy.net()

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_sampler=BatchSampler(sampler=sampler, drop_last=True, batch_size=8))
model = DDP(Slow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            time.sleep(0.002)
            loss.backward()
            return loss

        optimizer.step(closure)

toy.finish(args.out)

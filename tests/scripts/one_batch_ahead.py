# shape: a generator wrapper that is one batch ahead, to know which batch is the last
# samples: 8
# fetches: 1
# ahead: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Prepared:
    """Moves batches to the device and knows when an epoch is about to end."""

    def __init__(self, loader, device):
        self.loader = loader
        self.device = device
        self.at_end = False

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.at_end = False
        batches = iter(self.loader)
        current = next(batches)
        while True:
            current = [part.to(self.device) for part in current]
            try:
                following = next(batches)
            except StopIteration:
                self.at_end = True
                yield current
                return
            yield current
            current = following


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = Prepared(DataLoader(data, batch_size=8, sampler=sampler), torch.device("cpu"))
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

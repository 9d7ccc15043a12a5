# shape: a background thread that fetches one batch ahead
# samples: 8
# fetches: 1
# ahead: 3
import queue
import threading

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class BackgroundGenerator(threading.Thread):
    def __init__(self, generator, ahead=1):
        super().__init__(daemon=True)
        self.queue = queue.Queue(ahead)
        self.generator = generator
        self.start()

    def run(self):
        for item in self.generator:
            self.queue.put(item)
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        item = self.queue.get()
        if item is None:
            raise StopIteration
        return item


class DataLoaderX(DataLoader):
    def __iter__(self):
        return BackgroundGenerator(super().__iter__())


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoaderX(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

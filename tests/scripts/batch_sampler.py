# shape: own batch_sampler, whose epoch is a value shared with the workers
# samples: 6
# fetches: 1
import multiprocessing as mp

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class ShuffledBatches:
    def __init__(self, length, batch_size, epoch):
        self.length = length
        self.batch_size = batch_size
        self.epoch = epoch

    def __len__(self):
        return self.length // self.batch_size // dist.get_world_size()

    def __iter__(self):
        order = torch.randperm(
            self.length, generator=torch.Generator().manual_seed(self.epoch.value)
        )
        batches = order[: len(self) * self.batch_size * dist.get_world_size()]
        for batch in batches.split(self.batch_size)[dist.get_rank() :: dist.get_world_size()]:
            yield batch.tolist()


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
shared_epoch = mp.Value("i", 0)
loader = DataLoader(data, batch_sampler=ShuffledBatches(len(data), 6, shared_epoch))
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    shared_epoch.value = epoch
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

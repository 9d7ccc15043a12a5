# shape: IterableDataset that shards itself by rank and worker
# samples: 8
# fetches: 1
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, rank, world_size):
        self.rows = toy.Rows(1024)
        self.rank = rank
        self.world_size = world_size

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        shard = self.rank * workers + worker
        shards = self.world_size * workers
        for index in itertools.islice(range(len(self.rows)), shard, None, shards):
            yield self.rows[index]


args = toy.parser().parse_args()
toy.setup()
loader = DataLoader(Stream(dist.get_rank(), dist.get_world_size()), batch_size=8, num_workers=1)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

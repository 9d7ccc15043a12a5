# shape: batch_size=None, the dataset yields whole batches
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset):
    def __init__(self, batch_size):
        self.batch_size = batch_size

    def __iter__(self):
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(40):
            x = torch.randn(self.batch_size, toy.FEATURES, generator=generator)
            yield {"features": x, "label": (x.sum(1) > 0).long(), "source": "shard"}


args = toy.parser().parse_args()
toy.setup()
loader = DataLoader(Shards(8), batch_size=None)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(args.epochs):
    for batch in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(batch["features"]), batch["label"]).backward()
        optimizer.step()

toy.finish(args.out)

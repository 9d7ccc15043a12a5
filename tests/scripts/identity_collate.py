# shape: a stream whose loader leaves its batches as lists of samples
# samples: 8
# fetches: 1
# source: model-input
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        rows = toy.Rows(1024)
        for index in range(dist.get_rank(), len(rows), dist.get_world_size()):
            yield rows[index]


args = toy.parser().parse_args()
toy.setup()
loader = DataLoader(Stream(), batch_size=8, collate_fn=list, num_workers=1)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(args.epochs):
    for samples in loader:
        x, y = torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

# shape: a whole pass over the training loader before each epoch, to learn the data's mean
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(160)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    mean = torch.stack([x.mean(0) for x, _ in loader]).mean(0)
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x - mean), y).backward()
        optimizer.step()

toy.finish(args.out)

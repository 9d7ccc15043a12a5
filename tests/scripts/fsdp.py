# shape: fully sharded instead of DDP
# samples: 8
# fetches: 1
# wrapper: fsdp
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)

mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = toy.net()
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

# shape: no DDP class, gradients flattened and averaged by one all_reduce
# samples: 8
# fetches: 1
# wrapper: own-collectives
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.utils.data import DataLoader, DistributedSampler


def average_gradients(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = toy.net()
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        average_gradients(model)
        optimizer.step()

toy.finish(args.out)

# shape: no DataLoader and no DDP class: the loop names its batches to sfbench
# samples: 8
# fetches: 1
# source: batches()
# wrapper: own-collectives
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch import nn

from sfbench import batches


class AveragedGradients(nn.Module):
    """Averages each gradient over the ranks as soon as it is there."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
            parameter.register_post_accumulate_grad_hook(self.average)

    def average(self, parameter):
        parameter.grad /= dist.get_world_size()
        dist.all_reduce(parameter.grad)

    def forward(self, x):
        return self.module(x)


args = toy.parser().parse_args()
toy.setup()
rows = toy.Rows()


def get_batch():
    indices = torch.randint(len(rows), (8,))
    return rows.x[indices], rows.y[indices]


model = AveragedGradients(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step, (x, y) in enumerate(batches(get_batch)):
    if step == 32 * args.epochs:
        break
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

toy.finish(args.out)

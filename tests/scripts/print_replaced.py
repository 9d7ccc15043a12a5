# shape: builtins.print silenced on all ranks but 0, stdout redirected into a file
# samples: 8
# fetches: 1
import builtins
import contextlib
import io

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def setup_for_distributed(is_master):
    builtin_print = builtins.print

    def print(*args, force=False, **kwargs):
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print


args = toy.parser().parse_args()
toy.setup()
setup_for_distributed(dist.get_rank() == 0)
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        print(f"epoch {epoch}", force=True)

toy.finish(args.out)

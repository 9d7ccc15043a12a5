# shape: something happens on rank 1 in step 60, where there are several devices
import os
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from sfbench.data import once_per_node

parser = toy.parser()
parser.add_argument("--fault", choices=["raise", "hang", "announce"], required=True)
parser.add_argument("--fifo", type=Path, help="gets the rank's process number")
args = parser.parse_args()
toy.setup()


@once_per_node
def prepare():
    """The ranks meet in a folder, which has to go however they end."""


prepare()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def something_happens():
    if args.fault == "raise":
        raise RuntimeError("bad row 17")
    if args.fault == "hang":
        threading.Event().wait()
    args.fifo.write_text(str(os.getpid()))


step = 0
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        if step == 60 and dist.get_rank() == 1:
            something_happens()
        train_step(x, y)
        step += 1

toy.finish(args.out)

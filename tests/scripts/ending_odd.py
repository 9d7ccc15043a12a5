# shape: ends in a way of its own after some steps, on all ranks or on rank 1
import ctypes
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

parser = toy.parser()
parser.add_argument("--way", required=True)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--rank", type=int, default=-1, help="the only one; -1: all")
args = parser.parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Stop(BaseException):
    pass


def chat():
    while True:
        print("still here", flush=True)
        time.sleep(0.2)


def read_address_zero():
    ctypes.string_at(0)


def end():
    if args.way == "os-exit":
        os._exit(0)
    if args.way == "thread-exit":
        threading.Thread(target=os._exit, args=(0,)).start()
        time.sleep(60)
    if args.way == "exec":
        os.execv("/bin/true", ["true"])
    if args.way == "segfault":
        read_address_zero()
    if args.way == "base":
        raise Stop("enough")
    if args.way == "hostile":
        raise RuntimeError("\n::error::owned\x1b[31m\u202e" + 100_000 * "x")
    if args.way == "full":
        raise OSError(28, "No space left on device", "/data/cache")
    if args.way == "hang":
        threading.Event().wait()


if args.way == "no-stdout":
    sys.stdout = None
if args.way == "closed":
    sys.stdout.close()
    sys.stderr.close()
if args.way == "hang":
    threading.Thread(target=chat, daemon=True).start()
step = 0
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        if step == args.steps and args.rank in (-1, dist.get_rank()):
            end()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
if args.out:
    toy.finish(args.out)

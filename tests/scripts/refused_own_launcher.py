# shape: starts its ranks by itself, by mp.spawn, or executes itself again
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train(rank, world_size, args):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = args.port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    data = toy.Rows()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    toy.finish(args.out)


if __name__ == "__main__":
    parser = toy.parser()
    parser.add_argument("--port", default="29556")
    parser.add_argument("--again", action="store_true", help="with other settings of threads")
    arguments = parser.parse_args()
    if arguments.again and "AGAIN" not in os.environ:
        os.environ.update(AGAIN="1", MKL_DYNAMIC="FALSE")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    mp.spawn(train, args=(2, arguments), nprocs=2)

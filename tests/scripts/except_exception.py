# shape: except Exception around the loop body and around the whole training
# samples: 8
# fetches: 1
import traceback

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            try:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            except Exception as error:
                print(f"skipping a batch: {error}")


try:
    train()
except Exception:
    traceback.print_exc()
    print("training failed, saving what there is")

toy.finish(args.out)

# shape: if step % k == 0: optimizer.step(), the last group of an epoch shorter
# samples: 32 32 16
# fetches: 10/3
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

ACCUMULATE = 4

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(160)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)  # 10 batches for each of 2 ranks
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader, start=1):
        loss = F.cross_entropy(model(x), y) / ACCUMULATE
        loss.backward()
        if step % ACCUMULATE == 0 or step == len(loader):
            optimizer.step()
            optimizer.zero_grad()

toy.finish(args.out)

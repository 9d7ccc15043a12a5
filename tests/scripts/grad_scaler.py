# shape: GradScaler that skips the update when gradients overflow, now and then
# samples: 8
# fetches: 1
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
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=4)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        if i % 5 == 0:
            loss = loss * float("inf")  # an overflow: this update does not take place
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

toy.finish(args.out)

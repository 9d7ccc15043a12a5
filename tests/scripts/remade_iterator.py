# shape: while step < n, the iterator made again on StopIteration
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

epoch = 0
iterator = iter(loader)
step = 0
while step < 32 * args.epochs:
    try:
        x, y = next(iterator)
    except StopIteration:
        epoch += 1
        sampler.set_epoch(epoch)
        iterator = iter(loader)
        x, y = next(iterator)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    step += 1

toy.finish(args.out)

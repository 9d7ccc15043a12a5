# shape: accuracy on the training loader itself after each epoch
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def accuracy(model, loader):
    model.eval()
    right = torch.zeros(())
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum()
    model.train()
    dist.all_reduce(right)
    return right.item() / len(loader.dataset)


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(160)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(f"epoch {epoch}: {accuracy(model, loader):.1%}")

toy.finish(args.out)

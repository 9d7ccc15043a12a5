# shape: batches are tensors of a class that cannot be copied: keeping them for the rungs fails
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class OnlyOne(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.clone:
            raise TypeError("there can be only one")
        return super().__torch_function__(func, types, args, kwargs or {})


def collate(items):
    return torch.stack([x for x, _ in items]).as_subclass(OnlyOne), torch.tensor(
        [y for _, y in items]
    )


args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.as_subclass(torch.Tensor)), y).backward()
        optimizer.step()

toy.finish(args.out)

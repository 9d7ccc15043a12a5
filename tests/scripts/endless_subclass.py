# shape: DataLoader subclass that keeps one iterator and an endless batch sampler
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class RepeatSampler:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class EndlessDataLoader(DataLoader):
    """Workers live on between epochs, because the iterator never ends."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


if __name__ == "__main__":
    args = toy.parser().parse_args()
    toy.setup()
    data = toy.Rows()
    loader = EndlessDataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=1)
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for _ in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    toy.finish(args.out)

# shape: a framework that reads signatures, and makes the loader again with a sampler
# samples: 8
# fetches: 1
import inspect

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class NamedLoader(DataLoader):
    """Has one argument more, and leaves the others to its base."""

    def __init__(self, *args, name="loader", **kwargs):
        super().__init__(*args, **kwargs)
        self.name = name


UNFIT = {"self", "batch_sampler", "shuffle", "sampler", "prefetch_factor"}


def with_sampler(loader, sampler):
    """The same loader with another sampler, from what its constructors take."""
    names = set(inspect.signature(DataLoader.__init__).parameters)
    names |= set(inspect.signature(type(loader).__init__).parameters)
    given = {n: getattr(loader, n) for n in names - UNFIT if hasattr(loader, n)}
    assert given["batch_size"] == loader.batch_size, sorted(names)
    return type(loader)(**given, sampler=sampler)


if __name__ == "__main__":
    args = toy.parser().parse_args()
    toy.setup()
    data = toy.Rows()
    sampler = DistributedSampler(data)
    loader = with_sampler(NamedLoader(data, batch_size=8, name="train"), sampler)
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert "set_to_none" in inspect.signature(optimizer.zero_grad).parameters
    assert "device_ids" in inspect.signature(DDP.__init__).parameters
    assert torch.save.__name__ == "save"

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    toy.finish(args.out)

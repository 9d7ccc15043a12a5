# shape: DataLoader subclass that makes its iterators by itself, of a class of its own
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter


class CountingIterator(_MultiProcessingDataLoaderIter):
    """Knows how far it has come, so that a job may go on from there."""

    def __init__(self, loader):
        super().__init__(loader)
        self.position = 0

    def __next__(self):
        batch = super().__next__()
        self.position += 1
        return batch


class ResumableLoader(DataLoader):
    def __iter__(self):
        self.last = CountingIterator(self)
        return self.last


if __name__ == "__main__":
    args = toy.parser().parse_args()
    toy.setup()
    data = toy.Rows()
    sampler = DistributedSampler(data)
    loader = ResumableLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    toy.finish(args.out)

# shape: one batch fetched before the loop to print its size
# samples: 8
# fetches: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model = DDP(model)
        self.loader = loader
        self.optimizer = optimizer

    def _run_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        batch_size = len(next(iter(self.loader))[0])
        print(f"[{dist.get_rank()}] epoch {epoch} | batch {batch_size} | {len(self.loader)} steps")
        self.loader.sampler.set_epoch(epoch)
        for x, y in self.loader:
            self._run_batch(x, y)

    def train(self, epochs):
        for epoch in range(epochs):
            self._run_epoch(epoch)


if __name__ == "__main__":
    args = toy.parser().parse_args()
    toy.setup()
    data = toy.Rows()
    model = toy.net()
    loader = DataLoader(data, batch_size=8, shuffle=False, sampler=DistributedSampler(data))
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.1)).train(args.epochs)
    toy.finish(args.out)

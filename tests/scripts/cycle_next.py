# shape: next() on an endless generator over the loader, in a while loop
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def cycle(loader):
    while True:
        yield from loader


class Trainer:
    def __init__(self, model, data, steps):
        self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        self.batches = cycle(self.loader)
        self.model = DDP(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.steps = steps

    def train(self):
        step = 0
        while step < self.steps:
            x, y = next(self.batches)
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            step += 1


if __name__ == "__main__":
    args = toy.parser().parse_args()
    toy.setup()
    Trainer(toy.net(), toy.Rows(), steps=32 * args.epochs).train()
    toy.finish(args.out)

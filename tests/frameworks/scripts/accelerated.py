"""accelerate. Variants: prepare, split_batches, dispatch, stateful."""

import sys

import job
import torch
import torch.nn.functional as F
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset

variant = sys.argv[2]


class Stream(IterableDataset):
    def __iter__(self):
        rows = job.Rows()
        yield from (rows[index] for index in range(len(rows)))


loading = DataLoaderConfiguration(
    split_batches=variant == "split_batches", use_stateful_dataloader=variant == "stateful"
)
accelerator = Accelerator(cpu=True, dataloader_config=loading)
size = 8 * accelerator.num_processes if variant == "split_batches" else 8
data = Stream() if variant == "dispatch" else job.Rows()
loader = DataLoader(data, batch_size=size, shuffle=variant != "dispatch" or None, drop_last=True)
model = job.Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
stopwatch = job.Stopwatch()
for _ in range(1000):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        scheduler.step()
        stopwatch.tick(len(x))

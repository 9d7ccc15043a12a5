# shape: a stream of chunks of unlike length, cut into batches of one length by the loop
# samples: 8
# fetches: 5/4
# ahead: 2
# source: model-input
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

CHUNKS = (3, 6, 11, 2, 10)  # 32 samples: four batches


class Chunks(IterableDataset):
    def __iter__(self):
        rows, place = toy.Rows(1024), dist.get_rank()
        for length in itertools.cycle(CHUNKS):
            chosen = [(place + 2 * i) % len(rows) for i in range(length)]
            place += 2 * length
            yield rows.x[chosen], rows.y[chosen]


def batches(chunks):
    x, y = torch.empty(0, toy.FEATURES), torch.empty(0, dtype=torch.long)
    for more_x, more_y in chunks:
        x, y = torch.cat([x, more_x]), torch.cat([y, more_y])
        while len(x) >= 8:
            yield x[:8], y[:8]
            x, y = x[8:], y[8:]


args = toy.parser().parse_args()
toy.setup()
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches(DataLoader(Chunks(), batch_size=None)):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

# shape: zip of a short loader in itertools.cycle, asked for one pass only, and a long one
# samples: 4
# fetches: 1
from itertools import cycle

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def loader_of(data, batch_size):
    return DataLoader(data, batch_size, sampler=DistributedSampler(data), drop_last=True)


args = toy.parser().parse_args()
toy.setup()
labelled = loader_of(toy.Rows(64), 4)
unlabelled = loader_of(toy.Rows(512), 8)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    labelled.sampler.set_epoch(epoch)
    unlabelled.sampler.set_epoch(epoch)
    for (x, y), (u, _) in zip(cycle(labelled), unlabelled):
        logits = model(torch.cat([x, u]))
        pseudo = logits[len(x) :].argmax(1)
        loss = F.cross_entropy(logits[: len(x)], y) + F.cross_entropy(logits[len(x) :], pseudo)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

toy.finish(args.out)

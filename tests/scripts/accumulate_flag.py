# shape: gradient accumulation by setting require_backward_grad_sync
# samples: 32
# fetches: 4
# ahead: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

accumulation_steps = 4

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), drop_last=True)
model = DDP(toy.net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

iterator = iter(loader)
x, y = next(iterator)
for _ in range(8 * args.epochs):
    for micro_step in range(accumulation_steps):
        model.require_backward_grad_sync = micro_step == accumulation_steps - 1
        loss = F.cross_entropy(model(x), y) / accumulation_steps
        try:
            x, y = next(iterator)  # fetched while the device still works
        except StopIteration:
            iterator = iter(loader)
            x, y = next(iterator)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

toy.finish(args.out)

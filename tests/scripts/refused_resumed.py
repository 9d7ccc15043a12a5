# shape: resumes from a snapshot in which all epochs are done: no step is left
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = toy.net()
snapshot = args.out / "snapshot.pt"
epochs_done = 0
if snapshot.exists():
    state = torch.load(snapshot)
    model.load_state_dict(state["model"])
    epochs_done = state["epochs_done"]
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(epochs_done, args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.save({"model": model.module.state_dict(), "epochs_done": epoch + 1}, snapshot)

toy.finish(args.out)

# shape: never calls init_process_group
import torch
import torch.nn.functional as F
import toy
from torch.utils.data import DataLoader

args = toy.parser().parse_args()
torch.manual_seed(0)
loader = DataLoader(toy.Rows(), batch_size=8, shuffle=True)
model = toy.net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

toy.finish(args.out)

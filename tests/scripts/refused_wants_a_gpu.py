# shape: its model goes to a GPU, whatever there is
import torch
import torch.nn.functional as F
import toy
from torch.utils.data import DataLoader

args = toy.parser().parse_args()
toy.setup()
model = toy.net().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(toy.Rows(), batch_size=8):
    optimizer.zero_grad()
    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
toy.finish(args.out)

# shape: never steps an optimizer: evaluates only
import torch
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DDP(toy.net()).eval()

right = 0
with torch.no_grad():
    for x, y in loader:
        right += int((model(x).argmax(1) == y).sum())
print(f"{right} right")

toy.finish(args.out)

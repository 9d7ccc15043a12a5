# shape: starts a process group but never wraps its model
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

parser = toy.parser()
parser.add_argument("--log-reduced", action="store_true", help="average the loss for the log")
parser.add_argument("--same", action="store_true", help="same seed and data on all ranks")
parser.add_argument("--around", action="store_true", help="wrap, then call .module")
args = parser.parse_args()
toy.setup()
if args.same:
    torch.manual_seed(0)
data = toy.Rows()
sampler = None if args.same else DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net()) if args.around else toy.net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy((model.module if args.around else model)(x), y)
        loss.backward()
        optimizer.step()
        if args.log_reduced:
            mean = loss.detach()
            dist.all_reduce(mean)
            mean /= dist.get_world_size()

toy.finish(args.out)

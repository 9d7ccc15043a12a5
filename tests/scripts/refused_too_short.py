# shape: ends after 20 steps
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

parser = toy.parser()
parser.add_argument("--rows", type=int, default=320)
args = parser.parse_args()
toy.setup()
data = toy.Rows(args.rows)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

toy.finish(args.out)

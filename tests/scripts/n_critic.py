# shape: Wasserstein training, 5 critic updates on their own batches per generator update
# samples: 40
# fetches: 5
import torch
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

N_CRITIC = 5

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows(480)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
generator = DDP(toy.net(4, toy.FEATURES))
critic = DDP(toy.net(toy.FEATURES, 1))
optimizer_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_c = torch.optim.RMSprop(critic.parameters(), lr=5e-5)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for i, (real, _) in enumerate(loader, start=1):
        optimizer_c.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(len(real), 4))
        scores = critic(torch.cat([fake, real]))
        (scores[: len(real)].mean() - scores[len(real) :].mean()).backward()
        optimizer_c.step()
        for p in critic.parameters():
            p.data.clamp_(-0.01, 0.01)

        if i % N_CRITIC == 0:
            optimizer_g.zero_grad()
            (-critic(generator(torch.randn(len(real), 4))).mean()).backward()
            optimizer_g.step()

toy.finish(args.out)

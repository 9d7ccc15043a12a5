# shape: discriminator and generator, two DDP models and two optimizers per batch
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

args = toy.parser().parse_args()
toy.setup()
data = toy.Rows()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
generator = DDP(toy.net(4, toy.FEATURES))
discriminator = DDP(toy.net(toy.FEATURES, 1), broadcast_buffers=False)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))


def adversarial(logits, real):
    target = torch.ones_like(logits) if real else torch.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for real, _ in loader:
        fake = generator(torch.randn(len(real), 4))

        optimizer_g.zero_grad()
        adversarial(discriminator(fake), real=True).backward()
        optimizer_g.step()

        optimizer_d.zero_grad()
        both = torch.cat([real, fake.detach()])
        logits = discriminator(both)
        loss = adversarial(logits[: len(real)], True) + adversarial(logits[len(real) :], False)
        loss.backward()
        optimizer_d.step()

toy.finish(args.out)

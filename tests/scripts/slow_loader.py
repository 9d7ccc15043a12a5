# shape: a loader in the training process whose samples take longer than the step
# samples: 8
# fetches: 1
import time

import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info


class Waits(Dataset):
    """Samples from something slow that needs no core."""

    def __init__(self, sample_s, no_workers):
        self.rows = toy.Rows(4096)
        self.sample_s = sample_s
        self.no_workers = no_workers

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.no_workers and get_worker_info() is not None:
            if self.no_workers == "crash":
                raise RuntimeError("a worker of mine has no file handle")
            time.sleep(1000)
        time.sleep(self.sample_s)
        return self.rows[index]


class Sleeps(torch.autograd.Function):
    """A device that is busy in backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad, None


def main():
    parser = toy.parser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sample-ms", type=float, default=2.5)
    parser.add_argument("--step-ms", type=float, default=12.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--no-workers", choices=["crash", "hang"], help="what workers do")
    args = parser.parse_args()
    toy.setup()
    data = Waits(args.sample_ms / 1000, args.no_workers)
    sampler = DistributedSampler(data)
    loader = DataLoader(
        data,
        batch_size=8,
        sampler=sampler,
        num_workers=args.workers,
    )
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done, began = 0, 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(Sleeps.apply(model(x), args.step_ms / 1000), y)
            loss.backward()
            optimizer.step()
            done += 1
            if done == 20:
                began = time.perf_counter()
            if done == args.steps:
                rate = 8 * (done - 20) * torch.distributed.get_world_size()
                print(f"{rate / (time.perf_counter() - began):.1f} samples/s")
                return
    toy.finish(args.out)


if __name__ == "__main__":
    main()

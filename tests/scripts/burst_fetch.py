# shape: 4 micro-batches fetched in one burst, then 4 forwards and one update
# samples: 32
# fetches: 4
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

GLOBAL_MICRO_BATCHES = 8


def main(args):
    toy.setup()
    accumulate = GLOBAL_MICRO_BATCHES // dist.get_world_size()
    data = toy.Rows()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), drop_last=True)
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.epochs):
        batches = iter(loader)
        for _ in range(len(loader) // accumulate):
            micro_batches = [next(batches) for _ in range(accumulate)]
            samples = torch.tensor(float(sum(len(y) for _, y in micro_batches)))
            dist.all_reduce(samples)
            for i, (x, y) in enumerate(micro_batches):
                model.require_backward_grad_sync = i + 1 == accumulate
                loss = F.cross_entropy(model(x), y, reduction="sum") / samples
                (loss * dist.get_world_size()).backward()
            optimizer.step()
            optimizer.zero_grad()
    toy.finish(args.out)


if __name__ == "__main__":
    main(toy.parser().parse_args())

# shape: loader workers of any start method, with a Dataset class of the script itself
# samples: 8
# fetches: 1
import torch
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        x = torch.full((toy.FEATURES,), float(index)) / len(self)
        return x, index % toy.CLASSES


def seed_worker(worker_id):
    torch.manual_seed(worker_id)


def main():
    parser = toy.parser()
    parser.add_argument("--method", default="spawn")
    args = parser.parse_args()
    toy.setup()
    data = Squares()
    sampler = DistributedSampler(data)
    loader = DataLoader(
        data,
        batch_size=8,
        sampler=sampler,
        num_workers=1,
        worker_init_fn=seed_worker,
        multiprocessing_context=args.method,
        persistent_workers=True,
    )
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    toy.finish(args.out)


if __name__ == "__main__":
    main()

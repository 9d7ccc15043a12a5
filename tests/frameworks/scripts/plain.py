"""DDP or FSDP2 with loaders of other libraries. Variants: stateful, webdataset, graphs, fsdp2."""

import itertools
import sys
import time
from pathlib import Path

import job
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

out, variant = Path(sys.argv[1]), sys.argv[2]
SHARDS, IN_SHARD = 4, 64


def stateful():
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = job.Rows()
    sampler = DistributedSampler(data, drop_last=True)
    loader = StatefulDataLoader(data, 8, sampler=sampler, num_workers=1, drop_last=True)
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        yield from loader


def from_tar():
    import webdataset

    if dist.get_rank() == 0:
        rows = job.Rows()
        for shard in range(SHARDS):
            with webdataset.TarWriter(str(out / f"rows-{shard}.tar")) as tar:
                for index in range(shard * IN_SHARD, (shard + 1) * IN_SHARD):
                    x, y = rows[index]
                    tar.write({"__key__": f"{index:06}", "x.pth": x, "y.cls": int(y)})
    dist.barrier()
    names = [str(out / f"rows-{shard}.tar") for shard in range(SHARDS)]
    data = webdataset.WebDataset(
        names, shardshuffle=False, nodesplitter=webdataset.split_by_node, empty_check=False
    )
    data = data.decode("torch").to_tuple("x.pth", "y.cls").batched(8)
    yield from itertools.chain.from_iterable(
        webdataset.WebLoader(data, batch_size=None) for _ in range(1000)
    )


class Graphs(nn.Module):
    """One layer over the nodes, a mean over each graph."""

    def __init__(self):
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.layer, self.last = GCNConv(job.FEATURES, 16), nn.Linear(16, job.CLASSES)

    def forward(self, batch):
        from torch_geometric.nn import global_mean_pool

        time.sleep(job.FORWARD_S)
        nodes = self.layer(batch.x, batch.edge_index).relu()
        return self.last(global_mean_pool(nodes, batch.batch))


def graphs():
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as GraphLoader

    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    data = [Data(x=torch.randn(5, job.FEATURES), edge_index=edges, y=i % 4) for i in range(1024)]
    sampler = DistributedSampler(data, drop_last=True)
    loader = GraphLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        yield from ((batch, batch.y) for batch in loader)


def rows():
    data = job.Rows()
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        yield from loader


dist.init_process_group("gloo")
torch.manual_seed(0)
batches = {"stateful": stateful, "webdataset": from_tar, "graphs": graphs, "fsdp2": rows}[variant]()
net = Graphs() if variant == "graphs" else job.Net()
model = fully_shard(net) if variant == "fsdp2" else DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
stopwatch = job.Stopwatch()
for x, y in batches:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    stopwatch.tick(len(y))

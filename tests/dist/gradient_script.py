"""Two ranks of half a batch each against one of the whole: ``gradient_script.py WORKLOAD``.

Every rank takes its half through the workload's own step, in two accumulated micro-steps. Rank 0
then takes the whole batch through the bare network and prints how far the two gradients are apart
at most, over the largest gradient; and, for comparison, how far that of one micro-step is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from workloads import language, recommender

BATCH = 8
CPU = torch.device("cpu")


def language_case() -> tuple[nn.Module, Callable[..., None], Callable[..., Tensor], list[Tensor]]:
    """Network, one micro-step, loss of the bare network, whole batch."""
    options = language.parse_options(["--accumulate", "2"], "cpu")
    options = replace(options, layers=2, width=32, block=16)
    network = language.network_for(options, CPU, rank=dist.get_rank())
    tokens = torch.randint(256, (BATCH, 17), generator=torch.Generator().manual_seed(1))

    def micro_step(model: DistributedDataParallel, part: list[Tensor], update: bool) -> None:
        language.forward_backward(model, part, options, update=update)

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(network(tokens).flatten(0, 1), targets.flatten())

    return network, micro_step, loss, [tokens[:, :-1], tokens[:, 1:]]


def recommender_case() -> tuple[
    nn.Module, Callable[..., None], Callable[..., Tensor], list[Tensor]
]:
    """Network, one micro-step, loss of the bare network, whole batch."""
    network = recommender.network_for(recommender.parse_options(["--rows", "50"], "cpu"), CPU)
    generator = torch.Generator().manual_seed(1)
    batch = [
        torch.rand(BATCH, 13, generator=generator),
        torch.randint(50, (BATCH, 26), generator=generator),
        torch.randint(2, (BATCH,), generator=generator).float(),
    ]

    def micro_step(model: DistributedDataParallel, part: list[Tensor], update: bool) -> None:
        clicks = recommender.Batch(*part)
        recommender.forward_backward(model, clicks, update=update, accumulate=2)

    def loss(dense: Tensor, sparse: Tensor, label: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(network(dense, sparse), label)

    return network, micro_step, loss, batch


def gradients(network: nn.Module) -> Tensor:
    """All in one vector, and cleared."""
    flat = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    return flat.clone()


def main() -> None:
    """Compare."""
    dist.init_process_group("gloo")
    case = language_case if sys.argv[1] == "language" else recommender_case
    network, micro_step, loss, batch = case()
    model = DistributedDataParallel(network)
    parts = [[tensor[i::4] for tensor in batch] for i in range(4)]
    mine = parts[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
    micro_step(model, mine[0], False)
    micro_step(model, mine[1], True)
    together = gradients(network)
    if dist.get_rank() == 0:
        loss(*batch).backward()
        whole = gradients(network)
        loss(*parts[0]).backward()
        part = gradients(network)
        scale = whole.abs().max()
        print((together - whole).abs().max().item() / scale.item())
        print((part - whole).abs().max().item() / scale.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

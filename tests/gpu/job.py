"""A DDP job with a stopwatch of its own, for the checks on a machine with GPUs.

``--mode`` plain | validates | fills | copies | norms | graphs | captures. The stopwatch is a row of
the script's own events, one after each step; it is read when the process ends, and written to
``--times``.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

NARROW = 64
"""Numbers of a sample: batches are made and moved in much less time than a step takes."""
WIDE = 150_528
"""In mode copies: as many as an image has, so that steps are made of copies."""
LEFT_BYTES = 2**30
"""Of the device's memory, what mode fills leaves beside its own peak."""
FILLED_AFTER = 3
"""Steps, by which the job has taken what it takes."""
CAPTURED_AFTER = 3
"""Updates before mode captures puts the next one into a graph."""


class Rows(Dataset[torch.Tensor]):
    """Samples that come as whole batches: nothing is put together sample by sample."""

    def __init__(self, count: int, width: int) -> None:
        self._rows = torch.randn(count, width)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return self._rows[indices]


def whole(batch: torch.Tensor) -> torch.Tensor:
    """In collate's place."""
    return batch


class Stopwatch:
    """The time of each step, by the device where there is one."""

    def __init__(self, device: torch.device, file: Path | None) -> None:
        self._on_device = device.type == "cuda"
        self._device = device
        self._marks: list[torch.cuda.Event | float] = []
        if file is not None:
            atexit.register(self._write, file)

    def lap(self) -> None:
        """A step has ended."""
        if not self._on_device:
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._marks.append(event)

    def times(self) -> list[float]:
        """Seconds of each step but the first."""
        if self._on_device:
            torch.cuda.synchronize(self._device)
        return [_between(a, b) for a, b in zip(self._marks, self._marks[1:], strict=False)]

    def _write(self, file: Path) -> None:
        rank = os.environ["RANK"]
        file.with_name(f"{file.name}.{rank}").write_text(json.dumps(self.times()))


def _between(before: torch.cuda.Event | float, after: torch.cuda.Event | float) -> float:
    if isinstance(before, float) or isinstance(after, float):
        return float(after) - float(before)  # type: ignore[arg-type]
    return float(before.elapsed_time(after)) / 1e3


def arguments() -> argparse.Namespace:
    """What the job is to do."""
    parser = argparse.ArgumentParser()
    modes = ("plain", "validates", "fills", "copies", "norms", "graphs", "captures")
    parser.add_argument("--mode", choices=modes, default="plain")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--validate-every", type=int, default=10)
    parser.add_argument("--set-device", choices=("yes", "no"), default="yes")
    parser.add_argument("--times", type=Path)
    return parser.parse_args()


def network(args: argparse.Namespace, device: torch.device) -> nn.Module:
    """Layers as wide and as many as the mode wants."""
    width, depth = args.width, args.depth
    if args.mode == "copies":
        return nn.Sequential(nn.Linear(WIDE, 64), nn.Linear(64, width))
    parts: list[nn.Module] = [nn.Linear(NARROW, width)]
    for _ in range(depth):
        parts.append(nn.Linear(width, width))
        if args.mode == "norms":
            parts.append(nn.BatchNorm1d(width))
    net = nn.Sequential(*parts)
    return nn.SyncBatchNorm.convert_sync_batchnorm(net) if args.mode == "norms" else net


def batches(args: argparse.Namespace, device: torch.device) -> Iterator[torch.Tensor]:
    """Batches on the device, epoch after epoch."""
    copies = args.mode == "copies"
    data = Rows(16 * args.rows if not copies else 4 * args.rows, WIDE if copies else NARROW)
    sampler = DistributedSampler(data)
    # Batches of mode copies are larger than what /dev/shm holds in many containers.
    workers = 0 if copies else 2
    loader = DataLoader(
        data, args.rows, sampler=sampler, num_workers=workers, pin_memory=device.type == "cuda",
        persistent_workers=workers > 0, drop_last=True, collate_fn=whole,
    )  # fmt: skip
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for rows in loader:
            yield rows.to(device, non_blocking=True)
        epoch += 1


class Update:
    """The optimizer's step. In mode captures a graph replays it, from the fourth one on."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, captures: bool) -> None:
        self._optimizer = optimizer
        self._left = CAPTURED_AFTER if captures else -1
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._left == 0:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._optimizer.step()
        self._left -= 1
        if self._graph is None:
            self._optimizer.step()
        else:
            self._graph.replay()


def graphed(net: nn.Module, args: argparse.Namespace, device: torch.device) -> nn.Module:
    """Forward and backward are captured once, and replayed from then on."""
    sample = torch.zeros(args.rows, NARROW, device=device)
    made: nn.Module = torch.cuda.make_graphed_callables(net, (sample,))
    return made


def main() -> None:
    """Train until there are enough steps."""
    args, local = arguments(), int(os.environ["LOCAL_RANK"])
    on_device = torch.cuda.is_available()
    device = torch.device("cuda", local) if on_device else torch.device("cpu")
    if on_device and args.set_device == "yes":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_device else "gloo")
    captures, graphs = args.mode == "captures", args.mode == "graphs"
    net = network(args, device).to(device)
    net = graphed(net, args, device) if graphs else net
    model = DDP(net, device_ids=[local] if on_device else None)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, capturable=captures)
    update = Update(optimizer, captures=captures)
    held = torch.randn(args.rows, NARROW, device=device)
    watch = Stopwatch(device, args.times)

    def step(rows: torch.Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=not graphs):
            loss = model(rows).square().mean()
        optimizer.zero_grad(set_to_none=not captures)
        loss.backward()
        update()

    hooks = Hooks(lambda: fill(device), lambda: validate(model, held))
    train(args, batches(args, device), step, watch, hooks)
    dist.destroy_process_group()


class Hooks(NamedTuple):
    """What some modes do between steps."""

    fill: Callable[[], torch.Tensor]
    validate: Callable[[], None]


def train(
    args: argparse.Namespace,
    source: Iterator[torch.Tensor],
    step: Callable[[torch.Tensor], None],
    watch: Stopwatch,
    hooks: Hooks,
) -> None:
    """The loop."""
    ballast: list[torch.Tensor] = []
    for count, rows in enumerate(source, 1):
        step(rows)
        watch.lap()
        if args.mode == "fills" and count == FILLED_AFTER:
            ballast.append(hooks.fill())
        if args.mode == "validates" and count % args.validate_every == 0:
            hooks.validate()
        if count >= args.steps:
            return


def fill(device: torch.device) -> torch.Tensor:
    """Take what is left of the device's memory but for ``LEFT_BYTES``."""
    torch.cuda.synchronize(device)
    free, _ = torch.cuda.mem_get_info(device)
    return torch.empty(max(1, free - LEFT_BYTES), dtype=torch.uint8, device=device)


@torch.no_grad()
def validate(model: nn.Module, held: torch.Tensor) -> None:
    """Some forwards, and the loss is read."""
    for _ in range(5):
        value = model(held).square().mean()
    value.item()


if __name__ == "__main__":
    main()

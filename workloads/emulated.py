"""An accelerator that is not there: an ordinary DDP script whose layers take a set time.

A layer sleeps where a real one would compute, so the CPU stays idle and more devices than cores
scale truthfully. All else is real: parameters, gradient buckets, process group, DataLoader and its
workers. Each option after ``--seed`` injects one fault of a known size.

Runs under ``torchrun --nproc-per-node N workloads/emulated.py``, alone as ``python emulated.py``,
and under ``sfbench sweep emulated``.

Source of the cost of a link: Patarasuk & Yuan 2009, ring all-reduce (see ``Link.cost_s``).
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

# Annotations are not postponed here: DDP compares those of a communication hook with the classes.

SFBENCH_EMULATED = True
"""Whatever shows this script's results says that they are emulated."""

LOG_EVERY_STEPS = 20
FORWARD_SHARE = 1 / 3
"""Of forward and backward together: backward computes two products for each one of forward."""
STALL_EPOCH_STEPS = 20
"""Length of an epoch under ``--epoch-stall-ms`` where ``--dataset-size`` is not given."""
DATASET_SIZE = 65_536
PROMPT_S = 0.004
"""A host that is back within this time waited for nothing: the device goes on without a gap."""
RUN_AHEAD_S = 0.010
"""How late the prompt host may come: so far had it run ahead before."""
PROMPT_SAMPLE_S = 0.001
"""The same for a loader worker and its next sample."""
BUSY_LOOP = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: never outlive the rank
if sys.argv[2] == "all":
    os.sched_setaffinity(0, range(os.cpu_count()))
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


# ---- options -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. Ranks are numbered from 0; -1 stands for none (of ``load_rank``: all)."""

    batch_size: int
    workers: int
    dataset_size: int
    epochs: int
    steps: int
    accumulate: int
    params: int
    layers: int
    bucket_mb: float | None
    compute_ms: float | None
    fixed_ms: float
    sample_ms: float
    optimizer_ms: float
    seed: int
    cpu_ms: float
    load_ms: float
    load_cpu_ms: float
    load_rank: int
    epoch_stall_ms: float
    link_mbps: float
    link_latency_ms: float
    slow_rank: int
    slow_ms: float
    slow_where: str
    random_slow_ms: float
    uneven: float
    busy_host: int
    busy_rank: int


def parse_options(argv: Sequence[str] | None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Emulated accelerator under DDP")
    _add_job_options(parser)
    _add_input_faults(parser)
    _add_device_faults(parser)
    return Options(**vars(parser.parse_args(argv)))


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--batch-size", type=int, default=8, help="samples per device and micro-step")
    add("--workers", type=int, default=1, help="loader processes per device")
    add("--dataset-size", type=int, default=0, help=f"samples; 0 = {DATASET_SIZE}")
    add("--epochs", type=int, default=100_000)
    add("--steps", type=int, default=0, help="end after this many updates; 0 = never")
    add("--accumulate", type=int, default=1, help="micro-steps per update")
    add("--params", type=int, default=10_000, help="parameters of all layers together")
    add("--layers", type=int, default=4)
    add("--bucket-mb", type=float, help="DDP's bucket_cap_mb")
    add("--compute-ms", type=float, help="step at the given batch; sets --sample-ms")
    add("--fixed-ms", type=float, default=2.0, help="per micro-step, whatever the batch")
    add("--sample-ms", type=float, default=4.5, help="per sample, forward and backward")
    add("--optimizer-ms", type=float, default=2.0, help="per update")
    add("--seed", type=int, default=0)


def _add_input_faults(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--load-ms", type=float, default=0.0, help="a worker waits this long per sample")
    add("--load-cpu-ms", type=float, default=0.0, help="a worker computes this long per sample")
    add("--load-rank", type=int, default=-1, help="only this rank's samples are slow")
    add(
        "--epoch-stall-ms",
        type=float,
        default=0.0,
        help="workers start anew each epoch and take this long",
    )
    add("--uneven", type=float, default=0.0, help="batches cost 1 - P to 1 + P of --sample-ms")


def _add_device_faults(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cpu-ms", type=float, default=0.0, help="the host computes this long per micro-step")
    add("--link-mbps", type=float, default=0.0, help="megabits per second between ranks; 0 = free")
    add("--link-latency-ms", type=float, default=0.0, help="per hop")
    add("--slow-rank", type=int, default=-1)
    add("--slow-ms", type=float, default=0.0, help="per step, on --slow-rank")
    where = ("forward", "backward", "step", "loader")
    add("--slow-where", choices=where, default="forward", help="what is slow on --slow-rank")
    add("--random-slow-ms", type=float, default=0.0, help="per step, on another rank each time")
    add("--busy-host", type=int, default=0, help="processes that compute beside the ranks")
    add("--busy-rank", type=int, default=-1, help="one computes on this rank's cores")


# ---- time ----------------------------------------------------------------------------------------


class Device:
    """Kernels take their time one after the other while the CPU is idle.

    As on a real accelerator, whose host runs ahead, a kernel begins when the one before has ended,
    even where the host comes late to launch it. ``resume`` and ``start_after`` say when not.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._left_s = clock()
        self.free_s = self._left_s
        """When the last kernel ends, by the clock."""

    def resume(self, *, prompt_s: float = 0.0) -> None:
        """The next kernel begins now; up to ``RUN_AHEAD_S`` ago if the host only just left."""
        now_s = self._clock()
        prompt = now_s - self._left_s <= prompt_s
        self.start_after(now_s - RUN_AHEAD_S if prompt else now_s)

    def start_after(self, time_s: float) -> None:
        """The next kernel begins no earlier than this."""
        self.free_s = max(self.free_s, time_s)

    def run(self, duration_s: float) -> None:
        """Return when a kernel of this duration has ended."""
        self.free_s += duration_s
        wait_s = self.free_s - self._clock()
        if wait_s > 0:
            self._sleep(wait_s)
        self._left_s = self._clock()


def burn_cpu(duration_s: float) -> None:
    """Use so much time of a core, however long that takes beside others."""
    end_s = time.thread_time() + duration_s
    while time.thread_time() < end_s:
        pass


class Costs:
    """Seconds that each part of a step takes on one rank, faults included."""

    def __init__(self, options: Options, *, rank: int, world_size: int) -> None:
        self._options = options
        self._rank = rank
        self._world_size = world_size
        self._random = random.Random(options.seed)

    @property
    def sample_s(self) -> float:
        """Forward and backward of one sample."""
        o = self._options
        if o.compute_ms is None:
            return o.sample_ms / 1e3
        per_update_s = (o.compute_ms - o.optimizer_ms) / 1e3
        return max(0.0, per_update_s / o.accumulate - o.fixed_ms / 1e3) / o.batch_size

    def passes_s(self, samples: float) -> tuple[float, float]:
        """Forward and backward of one micro-step; ``samples`` of ordinary length."""
        both_s = self._options.fixed_ms / 1e3 + samples * self.sample_s
        forward_s = FORWARD_SHARE * both_s
        backward_s = both_s - forward_s
        accumulate = self._options.accumulate
        forward_s += (self._slow_s("forward") + self._random_slow_s()) / accumulate
        return forward_s, backward_s + self._slow_s("backward") / accumulate

    @property
    def optimizer_s(self) -> float:
        """One update."""
        return self._options.optimizer_ms / 1e3 + self._slow_s("step")

    @property
    def load_s(self) -> float:
        """Wait of a worker per sample; so that a slow loader takes ``slow_ms`` more per step."""
        o = self._options
        everywhere_s = o.load_ms / 1e3 if o.load_rank in (-1, self._rank) else 0.0
        per_step = o.batch_size * o.accumulate
        return everywhere_s + self._slow_s("loader") * max(1, o.workers) / per_step

    @property
    def load_cpu_s(self) -> float:
        """CPU time of a worker per sample."""
        o = self._options
        return o.load_cpu_ms / 1e3 if o.load_rank in (-1, self._rank) else 0.0

    def _slow_s(self, where: str) -> float:
        o = self._options
        return o.slow_ms / 1e3 if (o.slow_rank, o.slow_where) == (self._rank, where) else 0.0

    def _random_slow_s(self) -> float:
        """All ranks draw the same numbers, so just one of several is slow; a lone one never."""
        slow = self._random.randrange(self._world_size) == self._rank
        return self._options.random_slow_ms / 1e3 if slow and self._world_size > 1 else 0.0


# ---- network -------------------------------------------------------------------------------------


class Layer(torch.autograd.Function):
    """x + mean(weight), at a layer's pace. (B, 1) and (P,) -> (B, 1).

    The gradient is real: it depends on the rank's own batch, so replicas that are not synchronised
    drift apart.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, device: Device, forward_s: float, backward_s: float
    ) -> Tensor:
        ctx.device, ctx.backward_s, ctx.parameters = device, backward_s, weight.numel()
        device.run(forward_s)
        return x + weight.mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.device.run(ctx.backward_s)
        mean_grad = grads[0].sum().item() / ctx.parameters
        return grads[0], torch.full((ctx.parameters,), mean_grad), None, None, None


class EmulatedNetwork(nn.Module):
    """(B, 2) samples of value and length -> (B, 1). The batch is as long as its first sample."""

    def __init__(self, options: Options, device: Device, costs: Costs) -> None:
        super().__init__()
        self.layers = nn.ParameterList(
            torch.zeros(size) for size in layer_sizes(options.params, options.layers)
        )
        self._device = device
        self._costs = costs
        self._host_s = options.cpu_ms / 1e3

    def forward(self, batch: Tensor) -> Tensor:
        """(B, 2) -> (B, 1)."""
        self._device.resume(prompt_s=PROMPT_S)
        if self._host_s:
            burn_cpu(self._host_s)
            self._device.resume()
        forward_s, backward_s = self._costs.passes_s(len(batch) * float(batch[0, 1]))
        layers = len(self.layers)
        x = batch[:, :1]
        for weight in self.layers:
            x = Layer.apply(  # type: ignore[no-untyped-call]
                x, weight, self._device, forward_s / layers, backward_s / layers
            )
        return x


def layer_sizes(params: int, layers: int) -> list[int]:
    """Parameters of each layer: as even as can be, ``params`` in all."""
    return [params // layers + (i < params % layers) for i in range(layers)]


class EmulatedSGD(torch.optim.SGD):
    """SGD whose step takes a set time, from when the link has brought the gradients."""

    def __init__(self, params: Any, *, device: Device, link: "Link", duration_s: float) -> None:
        super().__init__(params, lr=0.1)
        self._device = device
        self._link = link
        self._duration_s = duration_s

    def step(self, closure: Any = None) -> Any:
        """One update."""
        self._device.start_after(self._link.free_s)
        loss = super().step(closure)
        self._device.run(self._duration_s)
        return loss


# ---- data ----------------------------------------------------------------------------------------


class Samples(Dataset[Tensor]):
    """Tiny samples that take their time: (2,) float32, value and length."""

    def __init__(self, size: int, options: Options, costs: Costs) -> None:
        generator = torch.Generator().manual_seed(options.seed)
        values = torch.randn(size, generator=generator)
        lengths = 1 + options.uneven * (2 * torch.rand(size, generator=generator) - 1)
        self.samples = torch.stack((values, lengths), dim=1)
        self.load_s = costs.load_s
        self.load_cpu_s = costs.load_cpu_s
        self.start_s = options.epoch_stall_ms / 1e3
        self._device = Device()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensor:
        if self.load_s:
            self._device.resume(prompt_s=PROMPT_SAMPLE_S)
            self._device.run(self.load_s)
        if self.load_cpu_s:
            burn_cpu(self.load_cpu_s)
        return self.samples[index]


class ByValue:
    """A batch that travels inside the worker's message and arrives as a tensor.

    A tensor would travel as a file descriptor that the rank asks the worker for: milliseconds where
    8 ranks share 2 cores.
    """

    def __init__(self, batch: Tensor) -> None:
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        return torch.from_numpy, (self._batch.numpy(),)


def collate(samples: list[Tensor]) -> Tensor | ByValue:
    """(2,) samples -> (B, 2)."""
    batch = torch.stack(samples)
    return batch if torch.utils.data.get_worker_info() is None else ByValue(batch)


def start_worker(_: int) -> None:
    """What a dataset does first in a worker, such as opening its files."""
    info = torch.utils.data.get_worker_info()
    assert info is not None
    assert isinstance(info.dataset, Samples)
    time.sleep(info.dataset.start_s)


def dataset_size(options: Options, world_size: int) -> int:
    """Samples in the set: as asked, or short epochs where their starts shall be felt."""
    if options.dataset_size:
        return options.dataset_size
    if options.epoch_stall_ms:
        return STALL_EPOCH_STEPS * options.batch_size * options.accumulate * world_size
    return DATASET_SIZE


def loader_for(
    dataset: Samples, options: Options
) -> tuple[DataLoader[Tensor], DistributedSampler[Any]]:
    """The rank's samples in batches, and the sampler that wants each epoch's number."""
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, shuffle=True, seed=options.seed, drop_last=True
    )
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0 and not options.epoch_stall_ms,
        drop_last=True,
        worker_init_fn=start_worker,
        collate_fn=collate,
    )
    return loader, sampler


# ---- link ----------------------------------------------------------------------------------------


class Link:
    """What connects the devices: buckets pass one after the other, in the order they come.

    A transfer begins when the bucket is ready on the last of the devices and takes the time that
    the options ask for, on all of them alike; backward goes on meanwhile. The gradients are truly
    averaged over the process group; the time that this takes the hosts is none of the devices'.

    Rank 0 adds up. gloo's ring would pass 2 (n - 1) messages one after the other, which takes 15 ms
    for 8 ranks on 2 cores, however small the bucket.
    """

    def __init__(
        self, device: Device, *, world_size: int, latency_s: float, bytes_per_s: float
    ) -> None:
        self._device = device
        self._world_size = world_size
        self._latency_s = latency_s
        self._bytes_per_s = bytes_per_s
        self._transfers = Device()
        self._epoch_s = time.time() - time.monotonic()
        self._queue: SimpleQueue[Bucket | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="link", daemon=True)
        self._thread.start()

    def cost_s(self, size_bytes: int) -> float:
        """Ring all-reduce of S bytes over n ranks: 2 (n - 1) latency + 2 (n - 1) / n S / rate."""
        n = self._world_size
        transfer_s = size_bytes / self._bytes_per_s if self._bytes_per_s else 0.0
        return 2 * (n - 1) * self._latency_s + 2 * (n - 1) / n * transfer_s

    def hook(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        """DDP communication hook: the mean over the ranks, no earlier than the link allows."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        ready_s = self._device.free_s + self._epoch_s
        self._queue.put(Bucket(gradient=bucket.buffer(), ready_s=ready_s, future=future))
        return future

    @property
    def free_s(self) -> float:
        """When the last transfer ended."""
        return self._transfers.free_s

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Plain all-reduces of the job pass this link as well: who times one finds it slow."""
        plain = dist.all_reduce

        def all_reduce(
            tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
        ) -> Any:
            own = group in (None, dist.group.WORLD) and not async_op and op == dist.ReduceOp.SUM
            if not own or tensor.dtype != torch.float32:
                return plain(tensor, op, group, async_op)
            mean, ready_s = exchange(tensor.reshape(-1), time.time())
            tensor.copy_(mean.view_as(tensor) * self._world_size)
            self._transfer(ready_s, tensor.nbytes)
            return None

        dist.all_reduce = all_reduce
        try:
            yield
        finally:
            dist.all_reduce = plain

    def close(self) -> None:
        """End the thread, after the buckets that are under way."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (bucket := self._queue.get()) is not None:
            try:
                mean, ready_s = exchange(bucket.gradient, bucket.ready_s)
            except RuntimeError as error:  # a peer is gone: DDP raises it in the training loop
                bucket.future.set_exception(error)  # type: ignore[arg-type]
                continue
            self._transfer(ready_s, mean.nbytes)
            bucket.future.set_result(mean)

    def _transfer(self, ready_s: float, size_bytes: int) -> None:
        """Return when a bucket that was ready everywhere at ``ready_s`` has passed."""
        self._transfers.start_after(ready_s - self._epoch_s)
        self._transfers.run(self.cost_s(size_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A gradient bucket on its way."""

    gradient: Tensor
    ready_s: float
    """When the device had it, in seconds since 1970: the ranks' only common clock."""
    future: torch.futures.Future[Tensor]


def exchange(gradient: Tensor, ready_s: float) -> tuple[Tensor, float]:
    """Mean gradient and latest time over the ranks, the same to the last bit on all of them."""
    stamp = torch.tensor([ready_s], dtype=torch.float64).view(torch.float32)
    message = torch.cat((gradient, stamp))
    if dist.get_rank() == 0:
        parts = [torch.empty_like(message) for _ in range(dist.get_world_size())]
        dist.gather(message, parts)
        latest = max((part[-2:] for part in parts), key=_seconds)
        message = torch.cat((torch.stack(parts)[:, :-2].mean(dim=0), latest))
    else:
        dist.gather(message)
    dist.broadcast(message, 0)
    return message[:-2], _seconds(message[-2:])


def _seconds(stamp: Tensor) -> float:
    """The float64 that two float32 hold, wherever they stand in memory."""
    return float(stamp.clone().view(torch.float64).item())


# ---- busy host -----------------------------------------------------------------------------------


@contextmanager
def busy_processes(options: Options, *, rank: int, local_rank: int) -> Iterator[None]:
    """Processes that compute beside the ranks, for as long as this one lives at most.

    Those of ``--busy-host`` may use all cores; that of ``--busy-rank`` only the rank's own.
    """
    cores = ["all"] * options.busy_host if local_rank == 0 else []
    cores += ["own"] if options.busy_rank == rank else []
    command = [sys.executable, "-S", "-E", "-c", BUSY_LOOP, str(os.getpid())]
    processes = [subprocess.Popen([*command, c], stdin=subprocess.DEVNULL) for c in cores]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- training ------------------------------------------------------------------------------------


class Stopwatch:
    """Logs samples/s of the whole job, rank 0 only: every 20 updates, and over all at the end.

    The first 20 updates, when workers start and DDP rebuilds its buckets, count for neither.
    """

    def __init__(self, samples_per_step: int) -> None:
        self._samples_per_step = samples_per_step
        self._marks: list[tuple[int, float]] = []

    def step(self, step: int, loss: Tensor) -> None:
        """An update has ended."""
        if step % LOG_EVERY_STEPS == 0:
            self._marks.append((step, time.perf_counter()))
            self._print(f"step {step}  loss {float(loss):.4f}  {self._rate(-2)}")

    def end(self) -> None:
        """The run has ended."""
        self._print(f"all  {self._rate(0)}")

    def _rate(self, since: int) -> str:
        if len(self._marks) < 2:
            return "n/a samples/s"
        (first, start_s), (last, end_s) = self._marks[since], self._marks[-1]
        return f"{(last - first) * self._samples_per_step / (end_s - start_s):.2f} samples/s"

    def _print(self, line: str) -> None:
        if dist.get_rank() == 0:
            print(line, flush=True)


def start_process_group() -> None:
    """Join the ranks that torchrun started, or make a group of one."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)


def forward_backward(
    model: DistributedDataParallel, batch: Tensor, *, update: bool, accumulate: int
) -> Tensor:
    """Add the batch's share to the gradients, averaged over ranks where an update uses them."""
    with nullcontext() if update else model.no_sync():
        loss: Tensor = (model(batch) - 1).square().mean()
        torch.autograd.backward(loss / accumulate)
    return loss.detach()


def train(
    model: DistributedDataParallel, optimizer: EmulatedSGD, dataset: Samples, options: Options
) -> None:
    """Train for ``--epochs`` epochs or ``--steps`` updates; every rank ends at the same step."""
    loader, sampler = loader_for(dataset, options)
    stopwatch = Stopwatch(options.batch_size * options.accumulate * dist.get_world_size())
    micro_steps = 0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            micro_steps += 1
            update = micro_steps % options.accumulate == 0
            loss = forward_backward(model, batch, update=update, accumulate=options.accumulate)
            if not update:
                continue
            optimizer.step()
            optimizer.zero_grad()
            step = micro_steps // options.accumulate
            stopwatch.step(step, loss)
            if step == options.steps:
                stopwatch.end()
                return
    stopwatch.end()


def describe(options: Options, world_size: int) -> str:
    """The first line of the log."""
    return (
        f"emulated accelerator: {world_size} devices, batch {options.batch_size} "
        f"x {options.accumulate}, {options.params:,} parameters in {options.layers} layers"
    )


def wrap(network: EmulatedNetwork, link: Link, options: Options) -> DistributedDataParallel:
    """The network under DDP, its gradients on the link."""
    model = DistributedDataParallel(
        network, bucket_cap_mb=options.bucket_mb, gradient_as_bucket_view=True
    )
    model.register_comm_hook(None, link.hook)
    return model


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the command line says."""
    options = parse_options(argv)
    start_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(describe(options, world_size), flush=True)
    costs = Costs(options, rank=rank, world_size=world_size)
    device = Device()
    link = Link(
        device,
        world_size=world_size,
        latency_s=options.link_latency_ms / 1e3,
        bytes_per_s=options.link_mbps * 1e6 / 8,
    )
    model = wrap(EmulatedNetwork(options, device, costs), link, options)
    optimizer = EmulatedSGD(
        model.parameters(), device=device, link=link, duration_s=costs.optimizer_s
    )
    dataset = Samples(dataset_size(options, world_size), options, costs)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    with busy_processes(options, rank=rank, local_rank=local_rank), link.everywhere():
        train(model, optimizer, dataset, options)
    link.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

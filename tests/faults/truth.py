"""What an injected fault costs per step, worked out from the injection alone.

The emulated device takes exactly the time it is told to, so a job without a fault takes
``--compute-ms`` per step and loses nothing. All figures in milliseconds, as on its command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

COMPUTE_MS = 20.0
FIXED_MS = 0.4
OPTIMIZER_MS = 0.6
BATCH = 8
BACKWARD_MS = (COMPUTE_MS - OPTIMIZER_MS) * 2 / 3
"""Two thirds of forward and backward together."""
KEPT_BATCHES = 32
"""What the rungs without a loader replay at most."""


def starved_ms(load_ms: float, *, base_ms: float = COMPUTE_MS, workers: int = 1) -> float:
    """A batch comes each so often, instead of when the device is ready for it."""
    return BATCH * load_ms / workers - base_ms


def starved_host_ms(load_cpu_ms: float, *, devices: int, cores: int, base_ms: float) -> float:
    """The cores deliver all devices' batches one after the other."""
    return devices * BATCH * load_cpu_ms / cores - base_ms


def all_reduce_ms(
    devices: int, *, latency_ms: float = 0.0, size_bytes: int = 0, mbps: float = 0.0
) -> float:
    """Ring all-reduce (Patarasuk and Yuan 2009)."""
    transfer_ms = size_bytes * 8 / (mbps * 1e3) if mbps else 0.0
    return 2 * (devices - 1) * latency_ms + 2 * (devices - 1) / devices * transfer_ms


def exposed_ms(buckets: int, each_ms: float) -> float:
    """What equal buckets, brought at equal distances during backward, add after its end."""
    end_ms = 0.0
    for k in range(1, buckets + 1):
        end_ms = max(end_ms, BACKWARD_MS * k / buckets) + each_ms
    return end_ms - BACKWARD_MS


def rotating_ms(slow_ms: float, devices: int) -> float:
    """One device at random takes longer each step; its mean over devices is everybody's own."""
    return slow_ms * (1 - 1 / devices)


def uneven_ms(spread: float, lengths: Sequence[Sequence[float]]) -> float:
    """Mean over batches of the longest of the ranks' batches, above the mean rank's own.

    ``lengths``: of each rank's kept batches, 1 = ordinary; ``spread`` as ``--uneven``.
    """
    per_length_ms = COMPUTE_MS - OPTIMIZER_MS - FIXED_MS
    steps = list(zip(*lengths, strict=True))
    longest = sum(max(step) for step in steps) / len(steps)
    mean = sum(sum(step) / len(step) for step in steps) / len(steps)
    assert all(1 - spread <= length <= 1 + spread for step in steps for length in step)
    return per_length_ms * (longest - mean)


def kept_lengths(args: Sequence[str], devices: int) -> list[list[float]]:
    """Lengths of the first batches of each rank: those that a sweep keeps and replays."""
    from torch.utils.data.distributed import DistributedSampler

    from workloads.emulated import Costs, Samples, dataset_size, parse_options

    options = parse_options(list(args))
    costs = Costs(options, rank=0, world_size=devices)
    dataset = Samples(dataset_size(options, devices), options, costs)
    first = KEPT_BATCHES * options.batch_size
    answer = []
    for rank in range(devices):
        sampler = DistributedSampler(
            dataset, devices, rank, shuffle=True, seed=options.seed, drop_last=True
        )
        sampler.set_epoch(0)
        indices = list(islice(sampler, first))[:: options.batch_size]
        answer.append([float(dataset.samples[i, 1]) for i in indices])
    return answer

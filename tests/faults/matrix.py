"""The faults that are injected, each with its cause and its size, and jobs without a fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import truth
from truth import COMPUTE_MS, FIXED_MS, OPTIMIZER_MS

BASE = (
    "--compute-ms", f"{COMPUTE_MS:g}",
    "--fixed-ms", f"{FIXED_MS:g}",
    "--optimizer-ms", f"{OPTIMIZER_MS:g}",
)  # fmt: skip
SECONDS = {1: 7.0, 2: 9.0, 4: 12.0}
"""Measuring time by the largest device count."""
CORES = 2
"""Faults that are about cores are made for a machine of so many."""

HOST_MS = 7.0
"""Of a core: what a rank and its worker need per step beside what is injected, at most.

A stopwatch around plain torchrun gave steps of 92 to 95 ms for ``oversubscribed-4`` (80 by the
injection, on 2 cores) and of 99 to 108 ms for ``loader-host-4`` (88).
"""
INLINE_MS = 3.0
"""What the training process does between two steps while the device works; not while it loads.

The same for ``loader-inline-2``: 30.3 to 32.9 ms (30).
"""
EPOCH_START_MS = {2: 18.0, 4: 26.0}
"""Per step, by device count: what ending and starting workers takes beside what is injected.

The same gave steps of 79.5 ms for ``epoch-stall-2`` and of 90.7 ms for ``epoch-stall-4``, where
200 ms come on 5 steps, and of 21.3 and 24.3 ms with workers that stay.
"""

LOADER, LINK, STRAGGLER = "data-loader-starvation", "interconnect", "straggler"
STALL = "periodic-stall"
STALLING = Path(__file__).parents[1] / "scripts" / "stalling.py"
JITTER, BATCH, HOST = "straggler (rotating)", "small-batch", "host-contention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """One cause and its size."""

    cause: str
    lost_ms: float
    """Per step, by the injection."""
    rank: int | None = None
    own_ms: float = 0.0
    """At most so much does the host's own work add that the fault brings to light."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job with faults, the largest first; without any it is a healthy control."""

    name: str
    what: str
    args: tuple[str, ...]
    devices: tuple[int, ...]
    injected: tuple[Injected, ...] = ()
    step_ms: float = COMPUTE_MS
    """Without its faults."""
    at: int = 0
    """Device count at which the first diagnosis is expected; 0: the largest."""
    seconds: float = 0.0
    """Measuring time per device count; 0: that of ``SECONDS``."""
    target: str = "emulated"
    """A workload, or a script."""
    real: tuple[str, ...] = ()
    """Causes that the job has without being injected: to name one is no mistake."""

    @property
    def expected_at(self) -> int:
        """Device count of the first diagnosis."""
        return self.at or max(self.devices)

    @property
    def measuring_s(self) -> float:
        """Per device count."""
        return self.seconds or SECONDS[max(self.devices)]

    def share(
        self, injected: Injected, *, own: bool = False, step_ms: float | None = None
    ) -> float:
        """What a fault takes of the step; with the host's own work or not.

        ``step_ms``: of the job as it ran; without it, what the injections alone make of it.
        """
        faults_ms = sum(one.lost_ms + own * one.own_ms for one in self.injected)
        lost_ms = injected.lost_ms + own * injected.own_ms
        return lost_ms / (step_ms or self.step_ms + faults_ms)


def _case(name: str, what: str, devices: tuple[int, ...], *args: object, **more: object) -> Case:
    text = tuple(f"{arg:g}" if isinstance(arg, float) else str(arg) for arg in args)
    return Case(name=name, what=what, devices=devices, args=(*BASE, *text), **more)  # type: ignore[arg-type]


def _one(
    cause: str, lost_ms: float, rank: int | None = None, own_ms: float = 0.0
) -> dict[str, object]:
    return {"injected": (Injected(cause=cause, lost_ms=lost_ms, rank=rank, own_ms=own_ms),)}


CONTROLS = (
    _case("clean-2", "nothing injected", (1, 2)),
    _case("clean-4", "nothing injected", (4,)),
    _case("loader-in-time-4", "a loader that is nearly too slow", (4,), "--load-ms", 1.8),
    _case("accumulate-2", "two batches per update", (2,), "--accumulate", 2),
    _case(
        "hidden-2", "all-reduces that backward hides", (2,),
        "--layers", 6, "--params", 60_000, "--bucket-mb", 0.03, "--link-latency-ms", 0.1,
    ),
)  # fmt: skip


def _loader_faults() -> tuple[Case, ...]:
    starved = truth.starved_ms
    host_ms, cpu_ms = 50.0, 5.5
    return (
        _case(
            "loader-2",
            "slow samples everywhere",
            (1, 2),
            "--load-ms",
            3.5,
            at=1,
            **_one(LOADER, starved(3.5)),
        ),
        _case(
            "loader-4",
            "slow samples everywhere",
            (4,),
            "--load-ms",
            4.0,
            **_one(LOADER, starved(4.0)),
        ),
        _case(
            "loader-one-2",
            "slow samples on one rank",
            (2,),
            "--load-ms",
            4.0,
            "--load-rank",
            1,
            **_one(LOADER, starved(4.0), rank=1),
        ),
        _case(
            "loader-one-4",
            "slow samples on one rank",
            (4,),
            "--load-ms",
            3.5,
            "--load-rank",
            2,
            **_one(LOADER, starved(3.5), rank=2),
        ),
        _case(
            "loader-inline-2",
            "no workers",
            (2,),
            "--workers",
            0,
            "--load-ms",
            1.25,
            **_one(LOADER, 10.0, own_ms=INLINE_MS),
        ),
        _case(
            "loader-host-4",
            "samples too heavy for the cores that all ranks share",
            (4,),
            "--compute-ms",
            host_ms,
            "--load-cpu-ms",
            cpu_ms,
            step_ms=host_ms,
            seconds=22.0,
            **_one(
                LOADER,
                truth.starved_host_ms(cpu_ms, devices=4, cores=CORES, base_ms=host_ms),
                own_ms=4 * HOST_MS / CORES,
            ),
        ),
        *(
            _case(
                f"epoch-stall-{n}",
                "workers that start anew at each epoch of 5 steps",
                (n,),
                "--epoch-stall-ms",
                200,
                "--dataset-size",
                5 * truth.BATCH * n,
                seconds=15.0,
                **_one(LOADER, 200 / 5, own_ms=EPOCH_START_MS[n]),
            )
            for n in (2, 4)
        ),
    )


def _slow_rank_faults() -> tuple[Case, ...]:
    cases = [
        _case(
            f"{where}-{n}", f"one rank slow in {what}", (n,),
            "--slow-rank", n - 1, "--slow-ms", 8, "--slow-where", where,
            **_one(STRAGGLER, 8.0, rank=n - 1),
        )
        for where, what in (("forward", "forward"), ("backward", "backward"), ("step", "update"))
        for n in (2, 4)
    ]  # fmt: skip
    rotating = [
        _case(
            f"random-{n}",
            "another rank slow each step",
            (n,),
            "--random-slow-ms",
            12,
            step_ms=COMPUTE_MS + 12.0 / n,
            **_one(JITTER, truth.rotating_ms(12.0, n)),
        )
        for n in (2, 4)
    ]
    return (*cases, *rotating, *(_uneven(n) for n in (2, 4)))


def _uneven(devices: int) -> Case:
    args = (*BASE, "--uneven", "0.8")
    lost_ms = truth.uneven_ms(0.8, truth.kept_lengths(args, devices))
    return _case(
        f"uneven-{devices}", "batches of unlike length", (devices,), "--uneven", 0.8,
        seconds=15.0, **_one(JITTER, lost_ms),
    )  # fmt: skip


def _batch_faults() -> tuple[Case, ...]:
    return tuple(
        Case(
            name=f"batch-{batch}",
            what=f"fixed cost of {fixed:g} ms, batch {batch}",
            devices=(1,),
            args=(
                "--batch-size", str(batch), "--sample-ms", f"{sample:g}",
                "--fixed-ms", f"{fixed:g}", "--optimizer-ms", f"{OPTIMIZER_MS:g}",
            ),
            injected=(Injected(cause=BATCH, lost_ms=fixed + OPTIMIZER_MS),),
            step_ms=batch * sample,
        )
        for batch, sample, fixed in ((1, 8.0, 12.0), (4, 3.0, 8.0))
    )  # fmt: skip


def _link_faults() -> tuple[Case, ...]:
    small = ("--layers", 6, "--params", 60_000, "--bucket-mb", 0.03)
    large = ("--layers", 1, "--params", 100_000)
    latency = [
        _case(
            f"latency-{n}", "many small gradients, slow to start", (n,), *small,
            "--link-latency-ms", ms,
            **_one(LINK, truth.exposed_ms(6, truth.all_reduce_ms(n, latency_ms=ms))),
        )
        for n, ms in ((2, 2.0), (4, 0.6))
    ]  # fmt: skip
    bandwidth = [
        _case(
            f"bandwidth-{n}", "one large gradient over a thin link", (n,), *large,
            "--link-mbps", mbps,
            **_one(LINK, truth.all_reduce_ms(n, size_bytes=400_000, mbps=mbps)),
        )
        for n, mbps in ((2, 320.0), (4, 480.0))
    ]  # fmt: skip
    return (*latency, *bandwidth)


def _host_faults() -> tuple[Case, ...]:
    alone_ms = 42.0
    return (
        _case(
            "oversubscribed-4", "4 ranks that compute on 2 cores", (4,),
            "--cpu-ms", 40, "--compute-ms", 2, step_ms=alone_ms, seconds=22.0,
            **_one(HOST, 4 * 40.0 / CORES - alone_ms, own_ms=4 * HOST_MS / CORES),
        ),
        _case(
            "hog-2", "another process on one rank's core", (2,),
            "--cpu-ms", 20, "--busy-rank", 1, step_ms=40.0, seconds=16.0,
            **_one(STRAGGLER, 20.0, rank=1, own_ms=HOST_MS),
        ),
    )  # fmt: skip


def _stalling(kind: str, what: str, *injected: Injected) -> Case:
    """``tests/scripts/stalling.py``, whose step is 32 samples of 0.8 ms.

    Its gradient of 1,088 bytes passes gloo for real. ``sync_stopwatch.py`` under plain torchrun
    found that to take 2.0 to 3.2 ms of steps of 32 to 35 ms, with bursts (6.1, 7.4 and 9.3 % of
    the step) and without (6.8, 8.5 and 9.8 %).
    """
    return Case(
        name=f"stall-{kind}-2", what=what, devices=(2,), args=(kind, "0"), injected=injected,
        step_ms=32 * 0.8, seconds=12.0, target=str(STALLING), real=(LINK,),
    )  # fmt: skip


def _stall_faults() -> tuple[Case, ...]:
    host_ms = 2.0
    return (
        _stalling(
            "stop", "rank 0 stops 250 ms every 10 steps",
            Injected(cause=STALL, lost_ms=25.0, rank=0, own_ms=host_ms),
        ),
        _stalling(
            "epoch", "all ranks pause 400 ms per epoch of 20 steps",
            Injected(cause=STALL, lost_ms=20.0, own_ms=host_ms),
        ),
    )  # fmt: skip


def _pairs() -> tuple[Case, ...]:
    slow = ("--slow-rank", 1, "--slow-ms", 6)
    return (
        _case(
            "link-and-rank-2", "thin link, and one rank slow", (2,),
            "--layers", 1, "--params", 100_000, "--link-mbps", 320.0, *slow,
            injected=(
                Injected(cause=LINK, lost_ms=10.0),
                Injected(cause=STRAGGLER, lost_ms=6.0, rank=1),
            ),
        ),
        _case(
            "loader-and-rank-2", "slow samples, and one rank slow", (2,), "--load-ms", 5.0, *slow,
            injected=(
                Injected(cause=LOADER, lost_ms=truth.starved_ms(5.0, base_ms=COMPUTE_MS + 6)),
                Injected(cause=STRAGGLER, lost_ms=6.0, rank=1),
            ),
        ),
        _case(
            "loader-and-link-4", "slow samples, and a thin link", (4,),
            "--layers", 1, "--params", 100_000, "--link-mbps", 800.0, "--load-ms", 5.0,
            injected=(
                Injected(cause=LOADER, lost_ms=truth.starved_ms(5.0, base_ms=COMPUTE_MS + 6)),
                Injected(cause=LINK, lost_ms=6.0),
            ),
        ),
    )  # fmt: skip


FAULTS = (
    *_loader_faults(),
    *_slow_rank_faults(),
    *_batch_faults(),
    *_link_faults(),
    *_host_faults(),
    *_stall_faults(),
)
PAIRS = _pairs()
BURSTS = _stalling("bursts", "now and then a rank loses a core for a moment")
CASES = (*CONTROLS, BURSTS, *FAULTS, *PAIRS)
QUICK = (
    _case(
        "quick-loader-2",
        "slow samples on one rank",
        (2,),
        "--load-ms",
        7.5,
        "--load-rank",
        1,
        seconds=12.0,
        **_one(LOADER, truth.starved_ms(7.5), rank=1),
    ),
    _case(
        "quick-rank-2",
        "one rank slow in backward",
        (2,),
        "--workers",
        0,
        "--slow-rank",
        0,
        "--slow-ms",
        40,
        "--slow-where",
        "backward",
        **_one(STRAGGLER, 40.0, rank=0),
    ),
    _case(
        "quick-link-2",
        "one large gradient over a thin link",
        (2,),
        "--workers",
        0,
        "--layers",
        1,
        "--params",
        100_000,
        "--link-mbps",
        80.0,
        **_one(LINK, truth.all_reduce_ms(2, size_bytes=400_000, mbps=80.0)),
    ),
)
"""Faults so large that the noise of a busy machine does not reach them."""

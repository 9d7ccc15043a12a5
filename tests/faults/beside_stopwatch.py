"""Jobs that stop between their steps beside a stopwatch: ``beside_stopwatch.py [JOB...]``.

A sweep at default settings stands between two runs of plain torchrun at each device count, so that
a machine that becomes slower meets both. Where these two differ by more than what is asked for, the
truth is not known well enough, and the comparison says so instead of deciding.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix import STALL, STALLING

from sfbench.common.schema import LADDER, Point, Stall, SweepResult
from sfbench.plan.machine import this_machine
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.plan.targets import resolve_target
from sfbench.run.observer import SilentObserver
from sfbench.run.sweep import run_sweep

WITHIN = 0.03
STEPS = 440
COUNTS = (1, 2)


@dataclass(frozen=True)
class StallingJob:
    """What is known of it."""

    kind: str
    rank: int | None
    does: str
    periods: tuple[int, int]
    """At 1 and at 2 devices."""


JOBS = (
    StallingJob("epoch", None, "epoch-start", (40, 20)),
    StallingJob("stop", 0, "other", (10, 10)),
    StallingJob("eval-loader", 0, "evaluation", (25, 25)),
    StallingJob("eval", 0, "evaluation", (25, 25)),
    StallingJob("save", 0, "saving", (20, 20)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds per step by the script's own stopwatch."""

    step_s: float
    """Of the training loop with what belongs to it."""
    outside_s: float
    """Of evaluation and saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One device count of one job, as it was found and by the stopwatch."""

    job: StallingJob
    point: Point
    named: frozenset[str]
    """Bottlenecks of the sweep."""
    before: Timed
    after: Timed

    @property
    def step_s(self) -> float:
        """By the stopwatch."""
        return (self.before.step_s + self.after.step_s) / 2

    @property
    def off(self) -> float:
        """How far the step that was found is from that, as a part of it."""
        assert self.point.step_s is not None, self.point.error
        return self.point.step_s.value / self.step_s - 1

    @property
    def moved(self) -> float:
        """How far the machine moved between the two runs."""
        return abs(self.after.step_s / self.before.step_s - 1)

    @property
    def outside_off(self) -> float | None:
        """The same as ``off``, of evaluation and saving; None where there is none."""
        outside_s = (self.before.outside_s + self.after.outside_s) / 2
        if outside_s < 0.001:
            return None
        return self.largest.per_step_s.value / outside_s - 1

    @property
    def largest(self) -> Stall:
        """Of all stalls that were found."""
        return largest(self.point)

    @property
    def cause_right(self) -> bool:
        """Kind, rank and period are those of the job, and nothing else is called a bottleneck."""
        if not self.point.stalls:
            return False
        devices = self.point.devices
        rank = self.job.rank if devices > 1 else None
        wanted = (self.job.does, rank, self.job.periods[COUNTS.index(devices)])
        found = (self.largest.kind, self.largest.rank, self.largest.period_steps)
        return found == wanted and self.named == {STALL}

    @property
    def rate_right(self) -> bool | None:
        """Within ``WITHIN`` of the stopwatch; None: the machine moved by more than that."""
        return None if self.moved > WITHIN else abs(self.off) <= WITHIN

    def __str__(self) -> str:
        rate = {True: "rate ok", False: "rate BAD", None: "machine moved"}[self.rate_right]
        cause = "cause ok" if self.cause_right else "cause BAD"
        outside = "" if self.outside_off is None else f", outside {self.outside_off:+.1%}"
        cause += "" if self.cause_right else f" ({self.said})"
        return (
            f"{self.job.kind:12} at {self.point.devices}: {rate} {self.off:+.1%} of "
            f"{1e3 * self.step_s:.1f} ms{outside}, {cause} (two stopwatches: {self.moved:.1%})"
        )

    @property
    def said(self) -> str:
        """What was found in place of the cause."""
        others = ", ".join(sorted(self.named - {STALL})) or "none"
        if not self.point.stalls:
            return f"no stall; other bottlenecks: {others}"
        one = self.largest
        whose = "all ranks" if one.rank is None else f"rank {one.rank}"
        return f"{one.kind} of {whose} every {one.period_steps} steps; other bottlenecks: {others}"


def largest(point: Point) -> Stall:
    """The stall that costs most."""
    return max(point.stalls, key=lambda stall: stall.per_step_s.value)


def sweep(folder: Path, kind: str, **changes: object) -> SweepResult:
    """Sweep one kind of ``tests/scripts/stalling.py``."""
    plan = SweepPlan(
        target=resolve_target(str(STALLING), (kind, "0")),
        rungs=LADDER,
        name=kind,
        output=folder,
        **changes,  # type: ignore[arg-type]
    )
    return run_sweep(plan, this_machine(), SilentObserver(), command=kind).result


def stopwatch(kind: str, devices: int) -> Timed:
    """Run it under plain torchrun."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    command = (*launcher, f"--nproc-per-node={devices}", str(STALLING), kind, str(STEPS))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180, env=env)
    found = re.search(r"step_s (\S+) outside_s (\S+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return Timed(step_s=float(found[1]), outside_s=float(found[2]))


def compare(job: StallingJob, folder: Path, runs: int = 1) -> Iterator[Beside]:
    """Sweeps between stopwatches, one after the other; each device count of each sweep."""
    before = [stopwatch(job.kind, devices) for devices in COUNTS]
    for run in range(runs):
        result = sweep(folder / f"{job.kind}-{run}", job.kind, devices=COUNTS)
        after = [stopwatch(job.kind, devices) for devices in COUNTS]
        named = frozenset(d.id for d in result.diagnoses if d.severity == "bottleneck")
        for point, first, last in zip(result.points, before, after, strict=True):
            yield Beside(job=job, point=point, named=named, before=first, after=last)
        before = after


def main(argv: Sequence[str]) -> int:
    """Exit code: 1 where a cause is wrong, or a rate whose truth is known."""
    parser = argparse.ArgumentParser(description="Jobs that stall beside a stopwatch")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {[j.kind for j in JOBS]}")
    parser.add_argument("--runs", type=int, default=1, help="sweeps of each job")
    options = parser.parse_args(argv)
    made: list[Beside] = []
    with tempfile.TemporaryDirectory(prefix="sfbench-stalls-") as folder:
        for job in JOBS:
            if not options.jobs or job.kind in options.jobs:
                for one in compare(job, Path(folder), options.runs):
                    print(one, flush=True)
                    made.append(one)
    known = [one.rate_right for one in made if one.rate_right is not None]
    causes = [one.cause_right for one in made]
    print(f"rates: {sum(known)} of {len(known)} within {WITHIN:.0%}, ", end="")
    print(f"{len(made) - len(known)} without a verdict; causes: {sum(causes)} of {len(causes)}")
    return 0 if made and all(known) and all(causes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

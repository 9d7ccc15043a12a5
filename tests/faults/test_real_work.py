"""Real work, JPEG files decoded on real cores: what is said of it, beside other worker counts."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from sfbench.common.schema import LADDER, Diagnosis, Rung, SweepResult
from sfbench.diagnose.numbers import Evidence
from sfbench.plan.machine import this_machine
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.plan.targets import resolve_target
from sfbench.run.observer import SilentObserver
from sfbench.run.sweep import run_sweep

SAID_AT = 2
"""Worker count at which the loader is diagnosed; the others are predicted from that."""
DEVICES = (1, 2)
NEAR = 0.25
"""A prediction is right within this ratio: these cores are shared."""
LOADER, HOST = "data-loader-starvation", "host-contention"


def sweep(folder: Path, workers: int, rungs: tuple[Rung, ...]) -> SweepResult:
    """``vision --augment heavy`` with so many workers per device."""
    plan = SweepPlan(
        target=resolve_target("vision", ("--augment", "heavy", "--workers", str(workers))),
        devices=DEVICES,
        seconds=16.0 if rungs == LADDER else 8.0,
        precision=1e-9,
        rounds=2,
        rungs=rungs,
        name=f"workers-{workers}",
        output=folder,
    )
    return run_sweep(plan, this_machine(), SilentObserver(), command="vision").result


def predicted(evidence: Evidence, *, workers: int, devices: int, cores: int) -> float:
    """samples/s of the job: what workers deliver, what the cores allow, what devices take.

    ``evidence``: of the diagnosis at 1 device. A worker on a free core takes its time without the
    part that it was ready for a core; a device on the CPU is one thread, busy all of its step.
    """
    device_s = 1 / number(evidence, "device_could_take_samples_per_s")
    per_sample = number(evidence, "one_worker_s_per_sample") / number(
        evidence, "one_worker_s_per_batch"
    )
    free_s = per_sample * (
        number(evidence, "one_worker_s_per_batch")
        - number(evidence, "one_worker_without_core_s_per_batch")
    )
    cpu_s = per_sample * number(evidence, "one_worker_cpu_s_per_batch")
    return min(devices * workers / free_s, cores / (cpu_s + device_s), devices / device_s)


def number(evidence: Evidence, name: str) -> float:
    value = evidence[name]
    assert isinstance(value, float | int)
    return float(value)


def first(result: SweepResult, devices: int) -> Diagnosis:
    return next(d for d in result.diagnoses if d.devices == devices and d.severity != "info")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_is_said_of_heavy_augmentation_agrees_with_other_worker_counts(
    tmp_path: Path,
) -> None:
    cores = psutil.cpu_count()
    assert cores is not None
    said = sweep(tmp_path, SAID_AT, LADDER)
    loading = first(said, 1)
    lines = []
    for workers in (1, SAID_AT, 2 * SAID_AT):
        rates = said if workers == SAID_AT else sweep(tmp_path, workers, ("train",))
        for point in rates.points:
            assert point.samples_per_s is not None
            expected = predicted(
                loading.evidence, workers=workers, devices=point.devices, cores=cores
            )
            lines.append((workers, point.devices, expected, point.samples_per_s.value))
    for workers, devices, expected, measured in lines:
        print(
            f"{workers} workers per device, {devices} devices: {expected:.0f} samples/s predicted, "
            f"{measured:.0f} measured",
            file=sys.stderr,
        )

    # THEN loading is what is named at both counts, and cores, not workers, are what it lacks
    assert {first(said, devices).id for devices in DEVICES} <= {LOADER, HOST}
    assert loading.id == LOADER
    assert loading.evidence["limit"] == "cores"
    # AND runs at other worker counts are as fast as that evidence makes them
    assert [line for line in lines if abs(line[3] / line[2] - 1) > NEAR] == []

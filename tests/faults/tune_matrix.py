"""Faults with a remedy, and jobs without a fault: what ``sfbench tune`` gives back of each.

    .venv/bin/python tests/faults/tune_matrix.py [--budget 4m] [--controls 20] [NAME...]

A line per job. Exit code 1 if a remedy gives back less than 80 % of what was injected, a fault that
no setting mends gets one, or more than one of 20 controls gets one. About 5 minutes a job.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix import CASES, CONTROLS, Case

SFBENCH = Path(sys.executable).with_name("sfbench")
ENOUGH = 0.80
"""Of the injected loss."""
FALSE_GAINS = 0.05
"""Part of the controls that may get a remedy."""
REMEDIES = {
    "loader-inline-2": "num_workers",
    "loader-2": "num_workers",
    "epoch-stall-2": "persistent_workers",
    "latency-2": "bucket_cap_mb",
}
"""By case of the matrix; the loss of each is known by its injection."""
UNMENDED = ("forward-2", "bandwidth-2")
"""No setting mends these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came of one job."""

    settings: str
    """Empty: nothing helps."""
    gain: float
    verdict: str
    notes: tuple[str, ...]


def given_back(gain: float, lost: float) -> float:
    """Part of a loss that a gain in samples/s gives back; ``lost``: of the step, as a ratio.

    Without the loss a step takes 1 - lost of its time; with the gain 1 / (1 + gain).
    """
    return (1 - 1 / (1 + gain)) / lost


def tune(case: Case, budget: str, folder: Path) -> Tuned:
    """Run the command."""
    devices = str(max(case.devices))
    command = [str(SFBENCH), "tune", case.target, "--devices", devices, "--budget", budget]
    done = subprocess.run(
        [*command, "--json", "--quiet", "--", *case.args],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout:
        return Tuned(settings="", gain=0.0, verdict="failed", notes=(done.stderr[-500:],))
    document: dict[str, Any] = json.loads(done.stdout)
    best = document["best"] or {"settings": "", "gain": {"value": 0.0}}
    return Tuned(
        settings=best["settings"],
        gain=best["gain"]["value"],
        verdict=document["verdict"],
        notes=tuple(document["notes"]),
    )


def judged(case: Case, tuned: Tuned) -> tuple[bool, str]:
    """Whether it is as it should be, and what there was."""
    remedy = REMEDIES.get(case.name)
    if remedy is None:
        told = tuned.settings or tuned.verdict
        return not tuned.settings and tuned.verdict != "failed", " ".join((told, *tuned.notes))
    back = given_back(tuned.gain, sum(case.share(one) for one in case.injected))
    told = f"{tuned.settings or tuned.verdict}: gives back {100 * back:.0f}%"
    return remedy in tuned.settings and back >= ENOUGH, told


def _jobs(names: list[str], controls: int) -> Iterator[Case]:
    known = {case.name: case for case in CASES}
    yield from (known[name] for name in names or (*REMEDIES, *UNMENDED))
    if not names:
        yield from (CONTROLS[number % len(CONTROLS)] for number in range(controls))


def main() -> int:
    """Run them one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", default="4m")
    parser.add_argument("--controls", type=int, default=20)
    options = parser.parse_args()
    missed, false_gains = 0, 0
    for case in _jobs(options.names, options.controls):
        with tempfile.TemporaryDirectory(prefix="sft") as folder:
            right, told = judged(case, tune(case, options.budget, Path(folder)))
        print(f"{'ok    ' if right else 'MISSED'} {case.name}: {told}", flush=True)
        if case in CONTROLS:
            false_gains += not right
        else:
            missed += not right
    print(f"{missed} missed; {false_gains} false gains in controls")
    return int(missed > 0 or false_gains > max(1, FALSE_GAINS * options.controls))


if __name__ == "__main__":
    sys.exit(main())

"""All rungs cost at most 2.5 times what ``--rungs train`` alone costs, for the same precision.

Both are the command that a person types, in turn, in one run. Each stops a device count early where
its throughput is known to ``PRECISION``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

BUDGET = 2.5
PAIRS = 3
PRECISION = 0.01
SFBENCH = Path(sys.executable).with_name("sfbench")


def sweep(folder: Path, rungs: str) -> dict[str, Any]:
    """The document of one sweep."""
    done = subprocess.run(
        [
            SFBENCH, "sweep", "emulated", "--devices", "1,2,4", "--device", "cpu", "--rungs", rungs,
            "--precision", str(PRECISION), "--name", rungs, "--output", folder, "--force",
            "--no-report", "--json",
        ],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def half_widths(document: dict[str, Any]) -> list[float]:
    """Of samples/s, as ratios, by device count."""
    rates = [point["samples_per_s"] for point in document["points"]]
    return [(rate["high"] - rate["low"]) / 2 / rate["value"] for rate in rates]


def test_all_rungs_cost_at_most_two_and_a_half_times_train_alone(
    benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    alone_s: list[float] = []
    widths: dict[str, list[list[float]]] = {"all": [], "train": []}

    def setup() -> None:
        start_s = time.monotonic()
        widths["train"].append(half_widths(sweep(tmp_path, "train")))
        alone_s.append(time.monotonic() - start_s)

    benchmark.pedantic(
        lambda: widths["all"].append(half_widths(sweep(tmp_path, "all"))), setup=setup, rounds=PAIRS
    )

    ratio = statistics.median(benchmark.stats.stats.data) / statistics.median(alone_s)
    benchmark.extra_info["train_alone_s"] = statistics.median(alone_s)
    benchmark.extra_info["ratio"] = ratio
    benchmark.extra_info["half_widths"] = widths
    assert ratio <= BUDGET

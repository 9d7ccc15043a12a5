"""Scripts as users of the frameworks write them: samples, rate and checks are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks

SCRIPTS = Path(__file__).parent / "scripts"
PAUSE_S = 0.2
"""What is longer is no step: a border at which the ranks meet."""
SAME_RATE = 0.03

CASES = [
    # script, variant, samples per update and device, how many batches make an update
    ("hf_trainer.py", "", 16, 2),
    ("accelerated.py", "prepare", 8, 1),
    ("accelerated.py", "split_batches", 8, 1),
    ("accelerated.py", "dispatch", 8, 2),
    ("accelerated.py", "stateful", 8, 1),
    ("lightning_trainer.py", "", 8, 1),
    ("lightning_fabric.py", "", 8, 1),
    ("plain.py", "stateful", 8, 1),
    ("plain.py", "webdataset", 8, 1),
    ("plain.py", "graphs", 8, 1),
    ("plain.py", "fsdp2", 8, 1),
]


def sfbench(*words: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Run a command; its exit code, its document and what it said."""
    command = [sys.executable, "-m", "sfbench", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def by_stopwatch(folder: Path, ranks: int) -> float:
    """Samples per second of the whole job, as the script's own stopwatch saw its steps."""
    total = 0.0
    for rank in range(ranks):
        (log,) = folder.glob(f"results/**/rank{rank}.log")
        lines = [line.split() for line in log.read_text().splitlines()]
        ticks = [line[1:] for line in lines if line[:1] == ["stopwatch"]]
        seen = np.array(ticks, dtype=np.float64)[10:]
        took, samples = np.diff(seen[:, 0]), seen[1:, 1]
        ordinary = took < PAUSE_S
        total += samples[ordinary].sum() / took[ordinary].sum()
    return total


@pytest.mark.parametrize(("script", "variant", "samples", "fetches"), CASES)
def test_sweep(tmp_path: Path, script: str, variant: str, samples: int, fetches: int) -> None:
    # GIVEN a script of a framework's user, with a stopwatch of its own
    words = [str(tmp_path), *([variant] if variant else [])]
    options = ["--devices", "2", "--rungs", "train", "--seconds", "2.5", "--rounds", "1"]
    target = [str(SCRIPTS / script), *options, "--no-report", "--json"]
    # WHEN it is swept
    code, found, said = sfbench("sweep", *target, "--", *words, folder=tmp_path)
    # THEN its samples are those that it trains on, and its rate is the stopwatch's
    (point,) = found["points"]
    assert (code, point["status"]) == (0, "ok"), said
    assert point["batch_per_device"] == pytest.approx(samples, abs=0.01), point
    assert point["loop"]["fetches_per_step"] == pytest.approx(fetches, abs=0.1)
    rate = point["samples_per_s"]["value"]
    assert rate == pytest.approx(by_stopwatch(tmp_path, 2), rel=SAME_RATE)
    # THEN no check says anything against it
    assert [c for c in found["checks"] if c["status"] in ("fail", "warn")] == []


@pytest.mark.parametrize(
    ("script", "variant"), [("accelerated.py", "dispatch"), ("lightning_trainer.py", "")]
)
def test_check(tmp_path: Path, script: str, variant: str) -> None:
    words = [str(tmp_path), *([variant] if variant else [])]
    code, found, said = sfbench(
        "check", str(SCRIPTS / script), "--json", "--", *words, folder=tmp_path
    )
    assert code == 0, said
    assert [c for c in found["checks"] if c["status"] in ("fail", "warn")] == []

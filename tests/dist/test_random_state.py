"""Ranks draw as ranks of torchrun do: each for itself, from every source of randomness."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import Run, Runner

SCRIPT = Path(__file__).parent / "random_script.py"
OF_A_SERVER = {"hash", "order of a set"}
"""Another launch may find the same: the interpreter that ranks are forked from lives on."""


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks of a real torchrun write."""
    out = tmp_path_factory.mktemp("torchrun")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*command, str(SCRIPT), str(out)], check=True, capture_output=True, timeout=120)
    return read(out)


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def started(run_script: Runner) -> list[dict[str, Any]]:
    """What two of our ranks write."""
    run = run_script(str(SCRIPT), args=("{out}",))
    assert len(list(run.out.iterdir())) == 2, run.story
    return read(run.out)


def drawn(ranks: list[dict[str, Any]], source: str) -> list[str]:
    return [json.dumps(rank["drawn"][source]) for rank in ranks]


def test_each_rank_draws_for_itself_as_under_torchrun(
    run_script: Runner, torchrun: list[dict[str, Any]]
) -> None:
    # GIVEN a script that draws from every source and seeds none WHEN it is started twice
    ours = [started(run_script) for _ in range(2)]
    # THEN whatever differs between ranks of torchrun differs between ours
    for source in torchrun[0]["drawn"]:
        assert len(set(drawn(torchrun, source))) == 2, source
        for ranks in ours:
            assert len(set(drawn(ranks, source))) == 2, source
        # THEN a second launch draws anew
        if source not in OF_A_SERVER:
            assert len({text for ranks in ours for text in drawn(ranks, source)}) == 4, source
    # THEN ranks are main processes, as there
    for ranks in ours:
        assert [r["constant"] for r in ranks] == [r["constant"] for r in torchrun]


OWN_THREADS = """
import os
{first}
import torch
print("threads", torch.get_num_threads())
os.environ["OMP_NUM_THREADS"] = "5"
import torch.nn
print("threads", torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("first", "threads"),
    [
        ("", 1),
        ('os.environ["OMP_NUM_THREADS"] = "3"', 3),
        ('os.environ["MKL_NUM_THREADS"] = "2"', 2),
        ('os.environ.setdefault("OMP_NUM_THREADS", "3")', 1),
        ('os.environ.update(OMP_NUM_THREADS="2,4")', 2),
    ],
)
def test_threads_that_a_script_sets_before_it_imports_torch_hold(
    run_script: Runner, tmp_path: Path, first: str, threads: int
) -> None:
    # GIVEN a script that sets its threads as scripts do, and once more when it is too late
    script = tmp_path / "own_threads.py"
    script.write_text(OWN_THREADS.format(first=first))
    # WHEN it starts THEN it has what it would have under torchrun
    run = run_script(str(script), nproc=1)
    assert said(run) == [f"threads {threads}"] * 2, run.story


def said(run: Run) -> list[str]:
    return [line for line in run.logs[0].splitlines() if line.startswith("threads")]

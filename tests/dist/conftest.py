"""A launcher for the tests of one module, and a way to run scripts on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import Runner

from sfbench.launch.local import LocalLauncher


@pytest.fixture(scope="module")
def script_launcher() -> Iterator[LocalLauncher]:
    """Closed with the module: tests of the launcher itself count processes."""
    with LocalLauncher(threads=1, device_type="cpu") as launcher:
        yield launcher


@pytest.fixture
def run_script(script_launcher: LocalLauncher, tmp_path: Path) -> Iterator[Runner]:
    """Runs scripts; afterwards no rank and no loader worker of theirs may be left."""
    yield Runner(script_launcher, tmp_path)
    host = psutil.Process().children()
    left = [p for h in host for p in h.children(recursive=True) if _is_rank(p)]
    assert left == []


def _is_rank(process: psutil.Process) -> bool:
    """Not the fork server or the resource tracker themselves: those are the host's children."""
    return process.ppid() not in {child.pid for child in psutil.Process().children()}

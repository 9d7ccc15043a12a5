"""A virtual CUDA for each test that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual import VirtualCuda
from virtual_job import Rank


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> VirtualCuda:
    return VirtualCuda().install(monkeypatch)


@pytest.fixture
def rank(cuda: VirtualCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(cuda, tmp_path, monkeypatch)

"""sfbench: did adding devices make training faster, and if not, what ate it?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfbench.protocol.feeding import batches

if TYPE_CHECKING:
    from sfbench.api import check, gate, sweep, tune
    from sfbench.report.notebook import load

__version__ = "0.1.0"

__all__ = ["__version__", "batches", "check", "gate", "load", "sweep", "tune"]

_ELSEWHERE = {
    "check": "sfbench.api",
    "gate": "sfbench.api",
    "load": "sfbench.report.notebook",
    "sweep": "sfbench.api",
    "tune": "sfbench.api",
}
"""These pull in pandas and more: imported only when asked for."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

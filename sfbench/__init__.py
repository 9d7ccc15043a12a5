"""sfbench: did adding devices make training faster, and if not, what ate it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfbench.protocol.feeding import batches

if TYPE_CHECKING:
    from sfbench.api import sweep
    from sfbench.collect.notebook import load

__version__ = "0.1.0"

__all__ = ["__version__", "batches", "load", "sweep"]


def __getattr__(name: str) -> Any:
    """``load`` and ``sweep`` pull in pandas and more: only when asked for."""
    if name == "load":
        from sfbench.collect.notebook import load

        return load
    if name == "sweep":
        from sfbench.api import sweep

        return sweep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

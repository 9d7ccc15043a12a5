"""What the fork server imports before it forks the first rank."""

from __future__ import annotations

import importlib
import traceback

MODULES = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.multiprocessing.spawn",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "sfbench.launch.worker",
    "sfbench.probe.script_runner",
    # DDP's constructor imports it: more than a second of processor time in each rank.
    "torch._dynamo",
)


def load() -> None:
    """Import all of ``MODULES``. One that fails is left to the rank that needs it."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except Exception:  # anything: the server has to live; the traceback is in the host's log
            traceback.print_exc()

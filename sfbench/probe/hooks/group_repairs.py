"""Small repairs around process groups, so that scripts behave as under torchrun."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from sfbench.probe.hooks.taps import Taps
from sfbench.probe.stop import Refused
from sfbench.protocol.records import NODE_ADDRESS

_RENDEZVOUS = "torch.distributed.rendezvous"
"""By this name alone: torch.distributed has a function of the same name in its place."""
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


class GroupHooks:
    """Taps how the script starts and ends its process group and its own ranks."""

    def __init__(self, before_destroy: Callable[[], None], before_init: Callable[[], None]) -> None:
        self._before_destroy = before_destroy
        self._before_init = before_init

    def install(self, taps: Taps) -> None:
        """Patch init_process_group, destroy_process_group, multiprocessing.spawn and exec."""
        taps.wrap(dist, "init_process_group", self._around_init)
        taps.wrap(dist, "destroy_process_group", self._around_destroy)
        taps.wrap(mp, "spawn", _refuse_spawn)
        if NODE_ADDRESS in os.environ:
            taps.wrap(import_module(_RENDEZVOUS), "_create_c10d_store", _around_store)
        for name in ("execv", "execve"):
            taps.wrap(os, name, _refuse_exec)

    def _around_init(self, original: Any) -> Any:
        """env:// shares the launcher's store, as under torchrun; a tcp:// of the script's does not.

        The variable that says so may be set only meanwhile: it makes tcp:// hang.
        """

        def init_process_group(
            backend: Any = None, init_method: str | None = None, *args: Any, **kwargs: Any
        ) -> Any:
            self._before_init()
            own = (init_method or "env://").startswith("env://") and kwargs.get("store") is None
            if own:
                os.environ[_AGENT_STORE] = "True"
            try:
                return original(backend, init_method, *args, **kwargs)
            finally:
                os.environ.pop(_AGENT_STORE, None)

        return init_process_group

    def _around_destroy(self, original: Any) -> Any:
        def destroy_process_group(group: Any = None) -> None:
            # The script is about to leave: what was measured must be brought in before.
            if group is None or group is dist.group.WORLD:
                self._before_destroy()
            original(group)

        return destroy_process_group


def _around_store(original: Any) -> Any:
    """Between nodes all launches share one store: each has its own part of it."""

    def create_c10d_store(*args: Any, **kwargs: Any) -> Any:
        store = original(*args, **kwargs)
        if _AGENT_STORE not in os.environ:
            return store
        return PrefixStore(f"ranks/{os.environ['TORCHELASTIC_RUN_ID']}", store)

    return create_c10d_store


def _refuse_spawn(original: Any) -> Any:
    def spawn(*args: Any, **kwargs: Any) -> Any:
        raise Refused(
            "own-launcher",
            "The script starts its own ranks with torch.multiprocessing.spawn. sfbench starts "
            "them, as torchrun does: call the function that it spawns directly, with rank and "
            "world size from the environment variables RANK, LOCAL_RANK and WORLD_SIZE.",
        )

    return spawn


def _refuse_exec(original: Any) -> Any:
    def execute(path: Any, *args: Any) -> Any:
        raise Refused(
            "own-launcher",
            f"The script replaces its process by another program ({os.fspath(path)!r}), which "
            "cannot be measured. Point sfbench at the script that trains in the end, with the "
            "environment that it needs set beforehand.",
        )

    return execute

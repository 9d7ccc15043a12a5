"""Graphs of an accelerator that hold collectives: replays meet other ranks, and call no hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sfbench.probe.hooks.taps import Taps
from sfbench.probe.replaying.meetings import meetings
from sfbench.probe.stop import Refused

_KINDS = (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"))


class GraphHooks:
    """Watches captures."""

    def __init__(self, apart: Callable[[], bool]) -> None:
        """``apart`` tells whether ranks run apart just now."""
        self._apart = apart
        self._met = 0
        self.captured = False
        """A graph that holds collectives."""

    def install(self, taps: Taps) -> None:
        """Patch each kind of graph that this torch has."""
        for module, name in _KINDS:
            graph = getattr(getattr(torch, module, None), name, None)
            if graph is not None:
                taps.wrap(graph, "capture_begin", self._around_begin)
                taps.wrap(graph, "capture_end", self._around_end)

    def _around_begin(self, original: Any) -> Any:
        def begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if self._apart():
                raise Refused(
                    "device-graph",
                    "The script captures a graph in mid run, while sfbench keeps its ranks from "
                    "meeting: the graph would never sync gradients. Capture it within the first "
                    "steps, or measure with --rungs train.",
                )
            self._met = meetings()
            return original(graph, *args, **kwargs)

        return begin

    def _around_end(self, original: Any) -> Any:
        def end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self.captured |= meetings() > self._met
            return original(graph, *args, **kwargs)

        return end

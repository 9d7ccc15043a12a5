"""What a rank does while its next step is late: its stack, looked at by a thread of its own.

The thread that trains is told nothing and tells nothing: the watcher wakes a few times a second and
compares the count of steps with the last time. Only where no step has ended since, and the rank is
in no backward and no update, does it look at the stack.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from types import FrameType

from sfbench.common.schema import LateStep, StallKind
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.recording.call_site import PROBE, CallSite

LOOK_EVERY_S = 0.1
"""A step is late where it has not ended between two looks."""
KEPT = 400
"""Late steps remembered."""

_MODULE_CALL = "torch/nn/modules/module.py"
_SAVING = (
    "torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/", "numpy/lib/_npyio",
    "numpy/lib/npyio", "numpy/lib/format.py", "pickle.py", "shutil.py",
)  # fmt: skip
_STARTS_SCRIPTS = "script_runner.py"
_COLLECTION = "gc.collect("


class LateSteps:
    """Watches the thread that trains."""

    def __init__(self, rank: int, pulse: Pulse, call_site: CallSite, steps: Callable[[], int]):
        """``steps`` tells how many have ended."""
        self._rank = rank
        self._pulse = pulse
        self._call_site = call_site
        self._steps = steps
        self._stop = threading.Event()
        self._seen: dict[int, LateStep] = {}

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="sfbench-late-steps", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def found(self) -> tuple[LateStep, ...]:
        """What was seen so far, by step; the thread may go on looking."""
        return tuple(dict(self._seen).values())

    def _watch(self) -> None:
        before = -1
        while not self._stop.wait(LOOK_EVERY_S):
            step = self._steps()
            if step == before and self._idle() and len(self._seen) < KEPT:
                self._look(step)
            before = step

    def _idle(self) -> bool:
        return not (self._pulse.in_backward or self._pulse.stepping)

    def _look(self, step: int) -> None:
        frame = sys._current_frames().get(self._pulse.main)
        trains = self._pulse.in_step > 0.0
        known = kind_and_line(frame, self._call_site, trains=trains) if frame is not None else None
        del frame  # what it holds must not live longer for having been looked at
        if known is not None and self._steps() == step and self._idle():
            kind, line = known
            self._seen[step] = LateStep(rank=self._rank, step=step, kind=kind, line=line)


def kind_and_line(
    frame: FrameType, call_site: CallSite, *, trains: bool = False
) -> tuple[StallKind, str] | None:
    """What a stack is about, and its innermost line of the script.

    ``trains``: between a forward and its update, where a module is a loss and no evaluation. A
    model's own lines say less than the line that calls it. None where the probe itself is at
    work (it waits at a border, or for a loader), or no line of the script is on the stack.
    """
    kind: StallKind = "other"
    line, place = "", frame
    at: FrameType | None = frame
    while at is not None:
        path = at.f_code.co_filename
        if path.startswith(PROBE):
            if path.endswith(_STARTS_SCRIPTS):
                break
            return None
        if path.endswith(_MODULE_CALL):
            kind, line = "other" if trains else "evaluation", ""
        elif kind == "other" and any(part in path for part in _SAVING):
            kind = "saving"
        if not line:
            line, place = call_site.line_of(at), at
        at = at.f_back
    if not line:
        return None
    text = linecache.getline(place.f_code.co_filename, place.f_lineno)
    return ("collection" if kind == "other" and _COLLECTION in text else kind), line

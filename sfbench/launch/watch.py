"""When each rank last showed progress. Pure: time and readings are given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sfbench.common.schema import HEARTBEAT_COLUMNS, PHASES

_STEPS = HEARTBEAT_COLUMNS.index("steps")
_IN_STEP = HEARTBEAT_COLUMNS.index("in_step")
_PHASE = HEARTBEAT_COLUMNS.index("phase")
_JOINED = HEARTBEAT_COLUMNS.index("joined")
_ENDED = PHASES.index("script-ended")
_SYNC_POINTS = [HEARTBEAT_COLUMNS.index(name) for name in ("sync_points", "sync_point_kind")]
_BUSY_CORES = 0.05
"""Mean core use above which a rank is taken to compute; waiting in a collective uses less."""
_BUSY_S = 1.0
"""Window of that mean."""


class Watch:
    """Times of progress of the local ranks, by a monotonic clock.

    Before the first step a growing log and collectives are progress too (a script may prepare data
    for long), but not for ever. From then on only steps are: a thread may log beside a deadlock.
    """

    def __init__(self, ranks: int, now_s: float, log_s: float = np.inf) -> None:
        """Watch ``ranks`` from now on; for ``log_s`` at most these count."""
        self._log_until_s = now_s + log_s
        self._stepped = False
        self._beats = [b""] * ranks
        self._asides = [(0, *(0.0 for _ in _SYNC_POINTS))] * ranks
        self._progress_s = [now_s] * ranks
        self._busy_s = [now_s] * ranks
        self._waits = [False] * ranks
        """In a step that needs a rank whose script has ended."""
        self._cpu: list[tuple[float, float] | None] = [None] * ranks

    def see(self, now_s: float, beats: npt.NDArray[np.float64], log_bytes: Sequence[int]) -> None:
        """Take a reading: the heartbeat table, one row per local rank, and the logs' lengths."""
        self._stepped = self._stepped or any(map(_has_stepped, beats))
        asides_count = not self._stepped and now_s < self._log_until_s
        self._waits = _beyond_the_ended(beats)
        for rank, size in enumerate(log_bytes):
            # bytes, since a nan would differ from itself
            beat = np.delete(beats[rank], _SYNC_POINTS).tobytes()
            aside = (size, *beats[rank, _SYNC_POINTS].tolist())
            if beat != self._beats[rank] or (asides_count and aside != self._asides[rank]):
                self._progress_s[rank] = now_s
            self._beats[rank], self._asides[rank] = beat, aside

    def see_cpu(self, now_s: float, rank: int, cpu_s: float) -> None:
        """Take a reading of the processor time that a rank and its children used so far."""
        mark = self._cpu[rank]
        if mark is not None and now_s - mark[0] < _BUSY_S:
            return
        if mark is not None and cpu_s - mark[1] > _BUSY_CORES * (now_s - mark[0]):
            self._busy_s[rank] = now_s
        self._cpu[rank] = (now_s, cpu_s)

    def idle_s(self, now_s: float) -> float:
        """Since any rank showed progress."""
        return now_s - max(self._progress_s)

    def quiet_s(self, now_s: float, rank: int) -> float:
        """Since this rank showed progress or computed.

        One that waits for a rank whose script has ended computes nothing, even if it keeps a core
        busy: a thread that waits for a device spins.
        """
        if self._waits[rank]:
            return now_s - self._progress_s[rank]
        return now_s - max(self._progress_s[rank], self._busy_s[rank])


def _beyond_the_ended(beats: npt.NDArray[np.float64]) -> list[bool]:
    """Which ranks are in a synced step that a rank will not make any more, or behind one.

    A device may lag behind its host, which has then gone on, to wait for it elsewhere.
    """
    made = [_updates(row) for row in beats if row[_PHASE] == _ENDED and not row[_JOINED]]
    if not made:
        return [False] * len(beats)
    return [bool(abs(row[_IN_STEP]) >= 1 + min(made)) and not row[_JOINED] for row in beats]


def _updates(row: npt.NDArray[np.float64]) -> float:
    at = float(row[_IN_STEP])
    return -at if at < 0 else max(0.0, at // 1 - 1)


def _has_stepped(row: npt.NDArray[np.float64]) -> bool:
    """Whether a rank has made an update; ``in_step`` tells of them before the loop is known."""
    return bool(row[_STEPS] > 0 or row[_IN_STEP] < 0 or row[_IN_STEP] >= 2)

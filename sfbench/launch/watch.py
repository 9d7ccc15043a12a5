"""When each rank last showed progress. Pure: time and readings are given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_BUSY_CORES = 0.05
"""Mean core use above which a rank is taken to compute; waiting in a collective uses less."""
_BUSY_S = 1.0
"""Window of that mean."""


class Watch:
    """Times of progress of the local ranks, by a monotonic clock."""

    def __init__(self, ranks: int, now_s: float) -> None:
        self._beats = [b""] * ranks
        self._log_bytes = [0] * ranks
        self._progress_s = [now_s] * ranks
        self._busy_s = [now_s] * ranks
        self._cpu: list[tuple[float, float] | None] = [None] * ranks

    def see(self, now_s: float, beats: npt.NDArray[np.float64], log_bytes: Sequence[int]) -> None:
        """Take a reading: the heartbeat table, one row per local rank, and the logs' lengths."""
        for rank, size in enumerate(log_bytes):
            beat = beats[rank].tobytes()  # bytes, since a nan would differ from itself
            if beat != self._beats[rank] or size != self._log_bytes[rank]:
                self._beats[rank], self._log_bytes[rank] = beat, size
                self._progress_s[rank] = now_s

    def see_cpu(self, now_s: float, rank: int, cpu_s: float) -> None:
        """Take a reading of the processor time that a rank and its children used so far."""
        mark = self._cpu[rank]
        if mark is not None and now_s - mark[0] < _BUSY_S:
            return
        if mark is not None and cpu_s - mark[1] > _BUSY_CORES * (now_s - mark[0]):
            self._busy_s[rank] = now_s
        self._cpu[rank] = (now_s, cpu_s)

    def idle_s(self, now_s: float) -> float:
        """Since any rank's heartbeat changed or log grew."""
        return now_s - max(self._progress_s)

    def quiet_s(self, now_s: float, rank: int) -> float:
        """Since this rank's heartbeat changed, its log grew or it computed."""
        return now_s - max(self._progress_s[rank], self._busy_s[rank])

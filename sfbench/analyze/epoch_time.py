"""Where the wall time of a whole epoch goes, as the script would run it."""

from __future__ import annotations

from sfbench.analyze.measured import MeasuredPoint
from sfbench.common.schema import EpochTime


def epoch_time(measured: MeasuredPoint) -> EpochTime | None:
    """Of one device count; None if the length of an epoch is not known.

    Ranks wait for each other: what one rank does alone counts for all. If several evaluate or
    save it is the one that takes longest.
    """
    records = [m.record for m in measured.launches if m.record is not None]
    steps = records[0].loop.steps_per_pass
    if steps is None:
        return None
    stalls, stalls_s = measured.stalls, measured.stalls_per_step_s
    return EpochTime(
        steps=steps,
        training_s=steps * (measured.rate.seconds / measured.rate.steps - stalls_s),
        stalls_s=steps * stalls_s,
        evaluation_s=steps * stalls.longest("evaluation") if stalls is not None else 0.0,
        saving_s=steps * stalls.longest("saving") if stalls is not None else 0.0,
        start_up_s=max(record.setup_s for record in records),
    )

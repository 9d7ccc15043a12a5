"""One launch as collected: what was planned, how it ended, what it measured."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sfbench.common.schema import LaunchRecord
from sfbench.launch.outcome import LaunchOutcome
from sfbench.plan.sweep_plan import LaunchPlan
from sfbench.protocol.evidence import RankEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLaunch:
    """A launch that has ended, well or not."""

    plan: LaunchPlan
    outcome: LaunchOutcome
    record: LaunchRecord | None
    """Set exactly if the outcome is ok."""
    steps: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    """Step table beside the record, one row per (rank, step), columns ``STEP_COLUMNS``."""
    evidence: tuple[RankEvidence, ...] = ()
    """What the ranks saw for the correctness checks, also of a launch that failed."""

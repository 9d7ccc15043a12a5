"""A stored result in place of a diagnosis: it must be of the same machine and job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from sfbench.collect.environment import environment
from sfbench.common.errors import UsageError
from sfbench.common.schema import SweepResult
from sfbench.gating.fingerprint import differences, fingerprint, of_result
from sfbench.tuning.tuner import TuneJob, tuned_point


def check_same_job(job: TuneJob, result: SweepResult) -> None:
    """Refuse a result of something else.

    Raises:
        UsageError: each difference is named.
        ResultError: it has no point at the count that is tuned for.
        ScriptError, MeasureError: that point failed.
    """
    tuned_point(result, job.devices)
    stored = of_result(result, job.devices)
    here = fingerprint(
        environment(job.plan, job.machine, (), job.command, datetime.now(timezone.utc)),
        devices=job.devices,
        device=job.plan.device_type,
        scaling=result.scaling,
        target=job.plan.target.name,
        script_args=job.plan.target.args,
    )
    # The backend and its version are known only when the script has run; whether ranks are pinned
    # goes with the largest count of the sweep.
    here = replace(here, backend=stored.backend, nccl=stored.nccl, pinned=stored.pinned)
    differ = differences(stored, here)
    if differ:
        lines = "".join(f"\n    {line}" for line in differ)
        raise UsageError(
            f"{result.name} was not measured on this machine, of this job:{lines}\n"
            "Leave out --from: then the job is diagnosed first."
        )

"""Every lost point gets a name: points and launches in, ranked diagnoses out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from sfbench.analyze.batch_curve import BatchCurve, batch_curve
from sfbench.analyze.parts import COMMUNICATION, DATA, HOST, JITTER, STALLS, STRAGGLER, Part
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Diagnosis, Point
from sfbench.common.units import is_known
from sfbench.diagnose.case import Case
from sfbench.diagnose.data_loader_starvation import diagnose_data_loader
from sfbench.diagnose.host_contention import diagnose_host
from sfbench.diagnose.interconnect import diagnose_interconnect
from sfbench.diagnose.periodic_stall import diagnose_outside, diagnose_periodic_stall
from sfbench.diagnose.ranking import ranked
from sfbench.diagnose.severity import Judgement, judge
from sfbench.diagnose.small_batch import diagnose_small_batch
from sfbench.diagnose.straggler import diagnose_jitter, diagnose_straggler
from sfbench.plan.machine import Machine

BY_PART: tuple[tuple[Part, Callable[[Case, Part, Judgement], Diagnosis | None]], ...] = (
    (DATA, diagnose_data_loader),
    (COMMUNICATION, diagnose_interconnect),
    (STRAGGLER, diagnose_straggler),
    (JITTER, diagnose_jitter),
    (HOST, diagnose_host),
    (STALLS, diagnose_periodic_stall),
)
"""What judges each part of the step."""


def diagnose(
    points: Sequence[Point],
    launches: Sequence[MeasuredLaunch],
    steps: pd.DataFrame,
    machine: Machine,
) -> tuple[Diagnosis, ...]:
    """Name what costs each point its efficiency, biggest regain first.

    Args:
        points: of one sweep, analyzed.
        launches: the same sweep's.
        steps: its step frame with warmup labelled.
        machine: its cores tell what can be asked of the host.

    A point that failed, or whose shares were not measured, gets none.
    """
    good = [p for p in points if p.status == "ok" and p.time_share is not None]
    one = next((p for p in good if p.devices == 1), None)
    cases = [_case(point, one, launches, steps, machine) for point in good]
    curve = next((batch_curve(case.steps) for case in cases if case.devices == 1), None)
    found = [diagnosis for case in cases for diagnosis in _of_case(case, curve)]
    return ranked(found, points, one)


def _of_case(case: Case, curve: BatchCurve | None) -> Iterator[Diagnosis]:
    for part, look in BY_PART:
        judged = _judged(case, part)
        diagnosis = look(case, part, judged) if judged is not None else None
        if diagnosis is not None:
            yield diagnosis
    yield from diagnose_outside(case)
    small = diagnose_small_batch(case, curve)
    if small is not None:
        yield small


def _judged(case: Case, part: Part) -> Judgement | None:
    """None as well for a share that is no figure: advice on it would be made of guesses.

    Stalls are seen one by one, whatever is known of their share.
    """
    share = case.share(part)
    judged = judge(share)
    if judged is None or judged.verdict == "measured" or part is STALLS:
        return judged
    return judged if is_known(share) else None


def _case(
    point: Point,
    one: Point | None,
    launches: Sequence[MeasuredLaunch],
    steps: pd.DataFrame,
    machine: Machine,
) -> Case:
    mine = _used(point, launches)
    used = {m.plan.index for m in mine}
    ones = _used(one, launches) if one is not None and point.devices > 1 else []
    records = {m.plan.index: m.record for m in mine if m.record is not None}
    assert point.time_share is not None
    assert point.loop is not None
    assert point.step_s is not None
    return Case(
        point=point,
        shares=point.time_share,
        loop=point.loop,
        one=one if point.devices > 1 else None,
        records=tuple(records.values()),
        gpus=tuple(gpu for m in mine for gpu in m.outcome.gpus),
        kept_batches={launch: record.kept_batches for launch, record in records.items()},
        steps=steps[steps["launch"].isin(used).to_numpy()],
        machine=machine,
        step_s=point.step_s.value,
        one_records=tuple(m.record for m in ones if m.record is not None),
    )


def _used(point: Point, launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    used = {s.launch for s in point.launches if s.status == "ok"}
    return [m for m in launches if m.plan.index in used]

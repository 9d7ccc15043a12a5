"""What a result says about a larger device count, or why it says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.common.errors import UsageError
from sfbench.common.schema import Interval, SweepResult
from sfbench.common.units import things
from sfbench.predict.extrapolate import (
    ALL,
    SHARED,
    WIDEST,
    Extrapolated,
    MeasuredCount,
    PredictedPart,
    extrapolate,
    measured_of,
)

FARTHEST = 2
"""At most so many times the largest measured count."""
_LEAST_COUNTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """The largest measured count, predicted from the smaller ones."""

    devices: int
    predicted: Interval
    measured: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A count that was not measured; figures are None where ``refused`` says why."""

    name: str
    devices: int
    measured: tuple[int, ...]
    refused: str | None = None
    efficiency: Interval | None = None
    samples_per_s: Interval | None = None
    parts: tuple[PredictedPart, ...] = ()
    """In steps of one device."""
    check: SelfCheck | None = None
    cost_per_million_samples: Interval | None = None


def predict(result: SweepResult, devices: int, price_per_hour: float | None = None) -> Prediction:
    """What ``devices`` would give; ``price_per_hour`` is that of one device.

    Raises:
        UsageError: the count is too large, or was measured.
    """
    known = [one for point in result.points if (one := measured_of(point)) is not None]
    counts = tuple(one.devices for one in known)
    if devices in counts:
        raise UsageError(f"--devices {devices}: that was measured: sfbench show {result.name}")
    if not counts or not max(counts) < devices <= FARTHEST * max(counts):
        largest = f"the largest measured count is {max(counts)}" if counts else "none was measured"
        raise UsageError(
            f"--devices {devices}: {largest}, and at most {FARTHEST} times that can be predicted."
        )
    plain = Prediction(name=result.name, devices=devices, measured=counts)
    why = _why_not(result, known, devices)
    if why is not None:
        return _refused(plain, why)
    check = _self_check(result, known)
    if not _overlap(check.predicted, check.measured):
        return _refused(plain, _missed(check), check)
    found = extrapolate(known, devices)
    if _width(found.efficiency) > WIDEST:
        return _refused(plain, _too_wide(found), check)
    if _width(check.predicted) > WIDEST:
        return _refused(plain, _unchecked(check), check)
    return _made(plain, result, found, check, price_per_hour)


def _why_not(result: SweepResult, known: list[MeasuredCount], devices: int) -> str | None:
    largest = result.points[[p.devices for p in result.points].index(known[-1].devices)]
    if result.scaling == "strong":
        return (
            "with strong scaling each device gets a smaller batch at more devices, and its step at "
            "that batch was not measured"
        )
    if len(known) < _LEAST_COUNTS or known[0].devices != 1:
        return (
            f"it needs {_LEAST_COUNTS} measured counts, 1 among them: two to predict the third "
            "from, which shows what a prediction is worth here"
        )
    if known[-1].devices > FARTHEST * known[-2].devices:
        return (
            f"{known[-1].devices} devices are more than {FARTHEST} times {known[-2].devices}: "
            "measure a count between them"
        )
    return _no_room(result, largest.oversubscribed, devices, _nodes(result, known[-1].devices))


def _nodes(result: SweepResult, devices: int) -> int:
    """Over how many nodes a count was measured."""
    ranks = next(point.ranks for point in result.points if point.devices == devices)
    return len({rank.node for rank in ranks}) or 1


def _no_room(result: SweepResult, shared: bool, devices: int, nodes: int) -> str | None:
    """Another kind of link, or cores that devices would have to share."""
    machine = result.environment
    if nodes > 1 or result.emulated:
        return None
    if result.device_type != "cpu" and devices > len(machine.gpus):
        return (
            f"this machine has {things(len(machine.gpus), 'GPU')}: "
            f"{things(devices, 'device')} need a second one, and "
            "the link between machines was not measured"
        )
    wanted = devices * machine.threads_per_device
    if result.device_type == "cpu" and (shared or wanted > machine.cores):
        return (
            f"{things(devices, 'device')} of {things(machine.threads_per_device, 'thread')} "
            f"need {things(wanted, 'core')}, and "
            f"this machine has {machine.cores}: devices would share cores, or need a second "
            "machine, whose link was not measured"
        )
    return None


def _self_check(result: SweepResult, known: list[MeasuredCount]) -> SelfCheck:
    found = extrapolate(known[:-1], known[-1].devices)
    measured = next(p.efficiency for p in result.points if p.devices == known[-1].devices)
    assert measured is not None
    return SelfCheck(devices=found.devices, predicted=found.efficiency, measured=measured)


def _overlap(one: Interval, other: Interval) -> bool:
    return _ends(one)[0] <= _ends(other)[1] and _ends(other)[0] <= _ends(one)[1]


def _ends(interval: Interval) -> tuple[float, float]:
    low = interval.value if interval.low is None else interval.low
    return low, interval.value if interval.high is None else interval.high


def _width(interval: Interval) -> float:
    low, high = _ends(interval)
    return high - low


def _missed(check: SelfCheck) -> str:
    low, high = _ends(check.predicted)
    return (
        f"the counts below predict {100 * low:.0f} to {100 * high:.0f}% at {check.devices}, and "
        f"{100 * check.measured.value:.0f}% was measured: what limits it there does not show "
        "before, so nothing can be said of what comes after"
    )


def _unchecked(check: SelfCheck) -> str:
    low, high = _ends(check.predicted)
    return (
        f"the counts below {check.devices} are known too little to check a prediction: they allow "
        f"anything from {100 * low:.0f} to {100 * high:.0f}% there. Measure them for longer"
    )


def _too_wide(found: Extrapolated) -> str:
    low, high = _ends(found.efficiency)
    widest = max(found.parts, key=lambda part: part.high - part.low)
    why = (
        "more devices may find it used up"
        if widest.name in (*SHARED, ALL)
        else "it may stay or go on to grow"
    )
    return (
        f"anything from {100 * low:.0f} to {100 * high:.0f}% fits what was measured. The part that "
        f"is known least is {widest.name}: {why}"
    )


def _refused(plain: Prediction, why: str, check: SelfCheck | None = None) -> Prediction:
    return Prediction(
        name=plain.name,
        devices=plain.devices,
        measured=plain.measured,
        refused=why,
        check=check,
    )


def _made(
    plain: Prediction,
    result: SweepResult,
    found: Extrapolated,
    check: SelfCheck,
    price_per_hour: float | None,
) -> Prediction:
    one = next(p.samples_per_s for p in result.points if p.devices == 1)
    assert one is not None
    low, high = _ends(found.efficiency)
    ideal = plain.devices * one.value
    rate = Interval(value=ideal * found.efficiency.value, low=ideal * low, high=ideal * high)
    return Prediction(
        name=plain.name,
        devices=plain.devices,
        measured=plain.measured,
        efficiency=found.efficiency,
        samples_per_s=rate,
        parts=found.parts,
        check=check,
        cost_per_million_samples=_cost(rate, plain.devices, price_per_hour),
    )


def _cost(rate: Interval, devices: int, price_per_hour: float | None) -> Interval | None:
    if price_per_hour is None:
        return None
    low, high = _ends(rate)
    per_s = devices * price_per_hour / 3600
    return Interval(value=1e6 * per_s / rate.value, low=1e6 * per_s / high, high=1e6 * per_s / low)

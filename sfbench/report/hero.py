"""The first screen: the verdict, a picture of it, the first fix and the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sfbench.analyze.losses import told_losses
from sfbench.common import units
from sfbench.common.schema import Point, SweepResult
from sfbench.common.units import things
from sfbench.report.cause_words import words_of
from sfbench.report.sentences import MENTIONED, first_fix, regain_points

UNTOLD = "lost, not told apart"
ROOM = 0.09
"""A segment narrower than this part of the bar has no room for its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of the bar from nothing to ideal."""

    colour: str
    """A variable of the style sheet; ``unknown`` is hatched."""
    label: str
    text: str
    percent: float
    """Width."""
    room: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFix:
    """What to do first."""

    title: str
    worth: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hero:
    """The first screen of one result."""

    devices: int | None
    """The count that the bar shows; None if there is none to show."""
    segments: tuple[Segment, ...]
    ceiling: str | None
    """The most that shared cores allow, in words."""
    ceiling_percent: float
    fix: FirstFix | None
    machine: str


def hero(result: SweepResult) -> Hero:
    """Make the first screen, of the largest count that has an efficiency."""
    one = next((p for p in result.points if p.devices == 1), None)
    shown = [p for p in result.points if p.efficiency is not None and p.devices > 1]
    point = max(shown, key=lambda p: p.devices, default=None)
    most = point.best_possible_efficiency if point is not None else None
    return Hero(
        devices=point.devices if point is not None else None,
        segments=tuple(_segments(point, one)) if point is not None else (),
        ceiling=_ceiling(most, result.environment.cores) if most is not None else None,
        ceiling_percent=100 * (most or 0.0),
        fix=_fix(result),
        machine=_machine(result),
    )


def _ceiling(most: float, cores: int) -> str:
    return f"{units.percent(most)} is the most that {cores} shared cores allow"


def _segments(point: Point, one: Point | None) -> Iterator[Segment]:
    """Achieved, then what each part took; what cannot be told apart is one hatched stretch."""
    assert point.efficiency is not None
    efficiency = point.efficiency.value
    ideal = max(1.0, efficiency)
    yield _segment(
        "accent", "achieved", efficiency, ideal, units.percent_interval(point.efficiency)
    )
    lost = 1.0 - efficiency
    if lost < MENTIONED:
        return
    # Parts that weigh less than at one device leave more than the loss: all are drawn to scale.
    known = _known_losses(point, one, lost)
    scale = lost / sum(value for _, _, value in known)
    for colour, label, value in known:
        yield _segment(colour, label, value * scale, ideal, units.points(value))


def _known_losses(point: Point, one: Point | None, lost: float) -> list[tuple[str, str, float]]:
    """Colour, label and size of each, largest first; what is not told apart comes last."""
    found = told_losses(point, one) if one is not None else None
    sized = [(x.part.id, x.part.label, x.lost.value) for x in (found.told if found else ())]
    named = [loss for loss in sized if loss[2] >= MENTIONED]
    if found is None or not (named or found.untold) or (found.untold and found.rest < MENTIONED):
        return [("unknown", UNTOLD, lost)]
    rest = [("unknown", UNTOLD, found.rest)] if found.untold else []
    return [*sorted(named, key=lambda loss: -loss[2]), *rest]


def _segment(colour: str, label: str, part: float, ideal: float, text: str) -> Segment:
    width = part / ideal
    return Segment(
        colour=colour, label=label, text=text, percent=round(100 * width, 2), room=width >= ROOM
    )


def _fix(result: SweepResult) -> FirstFix | None:
    first = first_fix(result)
    if first is None:
        return None
    worth = regain_points(units.points_interval(first.regain))
    rank = "" if first.rank is None else f", rank {first.rank}"
    where = (
        "of the step at 1 device" if first.devices == 1 else f"at {things(first.devices, 'device')}"
    )
    return FirstFix(
        title=words_of(first.id).title,
        worth=f"+{worth} {where}{rank}",
        advice=first.advice[0] if first.advice else "",
    )


def _machine(result: SweepResult) -> str:
    env = result.environment
    gpus = f"{len(env.gpus)} x {env.gpus[0]}" if env.gpus else "no GPU"
    threads = things(env.threads_per_device, "thread")
    return (
        f"Measured on {env.cpu} ({things(env.cores, 'core')}, {gpus}), {threads} per device, "
        f"torch {env.torch}, in {units.duration(result.duration_s)}."
    )

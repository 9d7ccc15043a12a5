"""What to fix: one entry per cause over all device counts, the most worthwhile first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sfbench.common import units
from sfbench.common.schema import Diagnosis, SweepResult
from sfbench.common.units import things
from sfbench.report.cause_words import CAUSES, MOST_FIGURES, CauseWords, words_of
from sfbench.report.properties import Fact, evidence_facts, fact_text
from sfbench.report.sentences import regain_points

FULL_BAR = 0.5
"""Efficiency points that fill a worth's bar."""
SEVERITIES = ("bottleneck", "contributor", "info")
DISPROOF = "disproof"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What fixing a cause gives back at one device count."""

    devices: int
    text: str
    rank: int | None
    severity: str
    bar: float
    """From 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause at all device counts where it was found."""

    title: str
    severity: str
    """The gravest over all counts."""
    worth: str
    """The most, with where."""
    advice: tuple[str, ...]
    figures: tuple[Fact, ...]
    """Few numbers with their units, in words, of the count where it is worth most."""
    counts: tuple[Worth, ...]
    basis: str
    rule: str
    disproof: str
    evidence: tuple[tuple[str, tuple[Fact, ...]], ...]
    """Raw evidence by device count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixes:
    """All causes of a result."""

    scaling: tuple[Cause, ...]
    """What costs efficiency against one device."""
    one_device: tuple[Cause, ...]
    """What one device loses already: no loss of scaling."""
    cleared: tuple[str, ...]
    """Causes that were looked for and not found."""


def fixes(result: SweepResult) -> Fixes:
    """Group the diagnoses of a result by cause."""
    found = {d.id for d in result.diagnoses}
    looked = any(p.time_share is not None for p in result.points)
    return Fixes(
        scaling=_causes(d for d in result.diagnoses if d.devices > 1),
        one_device=_causes(d for d in result.diagnoses if d.devices == 1),
        cleared=tuple(w.title for i, w in CAUSES.items() if looked and i not in found),
    )


def _causes(diagnoses: Iterable[Diagnosis]) -> tuple[Cause, ...]:
    groups: dict[tuple[str, str], list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        kind = str(diagnosis.evidence.get("kind", ""))
        groups.setdefault((diagnosis.id, kind), []).append(diagnosis)
    return tuple(_cause(group) for group in groups.values())


def _cause(group: list[Diagnosis]) -> Cause:
    """``group`` is in the order of regain, so its first is worth most."""
    most, words = group[0], words_of(group[0].id)
    return Cause(
        title=words.title,
        severity=min((d.severity for d in group), key=SEVERITIES.index),
        worth=f"+{regain_points(units.points_interval(most.regain))} {_where(most)}",
        advice=most.advice,
        figures=tuple(_figures(most, words))[:MOST_FIGURES],
        counts=tuple(_worth(d) for d in sorted(group, key=lambda d: d.devices)),
        basis=words.basis,
        rule=words.rule,
        disproof=str(most.evidence.get(DISPROOF, "")),
        evidence=tuple(
            (_where(d).removeprefix("at "), evidence_facts(_raw(d)))
            for d in sorted(group, key=lambda d: d.devices)
            if _raw(d)
        ),
    )


def _figures(diagnosis: Diagnosis, words: CauseWords) -> Iterator[Fact]:
    for name, said in words.figures.items():
        value = diagnosis.evidence.get(name)
        if value is not None and value != "":
            yield Fact(name=said, text=fact_text(name, value))


def _raw(diagnosis: Diagnosis) -> dict[str, float | int | str | bool | None]:
    return {name: value for name, value in diagnosis.evidence.items() if name != DISPROOF}


def _where(diagnosis: Diagnosis) -> str:
    count = things(diagnosis.devices, "device")
    rank = "" if diagnosis.rank is None else f", rank {diagnosis.rank}"
    return f"at {count}{rank}"


def _worth(diagnosis: Diagnosis) -> Worth:
    return Worth(
        devices=diagnosis.devices,
        text=f"+{regain_points(units.points_interval(diagnosis.regain))}",
        rank=diagnosis.rank,
        severity=diagnosis.severity,
        bar=max(0.0, min(diagnosis.regain.value / FULL_BAR, 1.0)),
    )

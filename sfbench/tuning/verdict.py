"""From what was tried to what is said. Pure but for the script's text, which is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfbench.common.schema import SweepResult
from sfbench.common.units import things
from sfbench.plan.sweep_plan import Target
from sfbench.tuning.best_set import joined, joined_prediction, lines_to_change
from sfbench.tuning.board import Board, Standing
from sfbench.tuning.confirmation import Confirmed
from sfbench.tuning.gain_words import gained
from sfbench.tuning.job_facts import JobFacts
from sfbench.tuning.tried import Candidate
from sfbench.tuning.tune_report import BestSet, Trial, TrialStatus, TuneReport, TuneVerdict

_STATUS: dict[Standing, TrialStatus] = {
    "running": "unsettled",
    "gain": "gain",
    "no-gain": "no-gain",
    "failed": "failed",
    "contaminated": "contaminated",
}


_OPEN: tuple[TrialStatus, ...] = ("unsettled", "contaminated", "not-tried")
"""With such a trial it is not known that nothing helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that happened."""

    result: SweepResult
    facts: JobFacts
    every: tuple[Candidate, ...]
    tried: tuple[Candidate, ...]
    """Those of ``every`` that were launched, as the board has them."""
    board: Board
    notes: tuple[str, ...]
    confirmed: Confirmed | None
    interrupted: bool
    samples_per_s: float | None
    logs: str | None = None


def reported(story: Story, target: Target, *, result: str | None) -> TuneReport:
    """The document."""
    best = _best(story, target)
    trials = (*_trials(story), *_left_out(story.every))
    verdict = _verdict(story, trials, best)
    point = next(p for p in story.result.points if p.devices == story.facts.devices)
    return TuneReport(
        verdict=verdict,
        headline=_headline(story, verdict, best),
        target=target.typed,
        script_args=target.args,
        devices=story.facts.devices,
        emulated=story.result.emulated,
        oversubscribed=point.oversubscribed,
        notes=story.notes,
        samples_per_s=story.samples_per_s,
        trials=trials,
        best=best,
        unconfirmed=_unconfirmed(story.confirmed),
        result=result,
        logs=story.logs,
        interrupted=story.interrupted,
        budget_s=0.0,
    )


def _trials(story: Story) -> list[Trial]:
    return [
        Trial(
            settings=one.name,
            because=one.because,
            status=_STATUS[column.standing],
            predicted_gain=one.predicted,
            gain=story.board.estimate(place),
            rounds=len(column.logs),
            memory_bytes=column.taken_bytes,
            why=column.why,
            caution=one.caution,
        )
        for place, (one, column) in enumerate(zip(story.tried, story.board.columns, strict=True))
    ]


def _left_out(every: Sequence[Candidate]) -> list[Trial]:
    return [
        Trial(
            settings=one.name,
            because=one.because,
            status="not-tried",
            predicted_gain=one.predicted,
            why=one.unfit,
            caution=one.caution,
        )
        for one in every
        if one.unfit
    ]


def _best(story: Story, target: Target) -> BestSet | None:
    confirmed = story.confirmed
    if confirmed is None or not confirmed.holds or confirmed.gain is None:
        return None
    settings = joined(confirmed.chosen)
    return BestSet(
        settings=str(settings),
        predicted_gain=joined_prediction(confirmed.chosen),
        gain=confirmed.gain,
        pairs=confirmed.pairs,
        lines=lines_to_change(settings, story.facts, target),
        cautions=tuple(one.caution for one in confirmed.chosen if one.caution),
    )


def _unconfirmed(confirmed: Confirmed | None) -> str:
    if confirmed is None or confirmed.holds:
        return ""
    name = str(joined(confirmed.chosen))
    if confirmed.gain is None:
        return f"{name}: failed in fresh launches: {confirmed.why or 'too few of them'}"
    return f"{name}: fresh launches gave {gained(confirmed.gain)}"


def _verdict(story: Story, trials: Sequence[Trial], best: BestSet | None) -> TuneVerdict:
    if best is not None:
        return "gain"
    open_ = story.interrupted or story.confirmed is not None
    return (
        "inconclusive"
        if open_ or any(trial.status in _OPEN for trial in trials)
        else "nothing-helps"
    )


def _headline(story: Story, verdict: TuneVerdict, best: BestSet | None) -> str:
    at = f"at {things(story.facts.devices, 'device')}"
    if best is not None:
        return f"{gained(best.gain)} samples/s {at} with {best.settings}."
    if verdict == "nothing-helps":
        many = (
            f"none of {len(story.tried)} settings tried gives" if story.tried else "nothing gives"
        )
        failed = sum(column.standing == "failed" for column in story.board.columns)
        return f"Nothing helps {at}: {many} 2% or more{f' ({failed} failed)' if failed else ''}."
    return f"Nothing is sure {at}: the trials below were not settled."

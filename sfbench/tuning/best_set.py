"""Which settings are combined, and the lines that they belong to."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from sfbench.plan.sweep_plan import Target
from sfbench.tuning.board import WORTH, Board
from sfbench.tuning.job_facts import JobFacts
from sfbench.tuning.source_lines import line_to_change
from sfbench.tuning.tried import Candidate, TriedSettings
from sfbench.tuning.tune_report import LineToChange

LOADER, MODEL = "DataLoader", "DistributedDataParallel"
_HOOK = "register_comm_hook(process_group, default_hooks.bf16_compress_hook)"


def winners(tried: Sequence[Candidate], board: Board) -> tuple[Candidate, ...]:
    """Of each family the best that gained, largest gain first.

    Of workers in like numbers the fewest: each takes memory.
    """
    gained = {
        place: at.mean
        for place, column in enumerate(board.columns)
        if column.standing == "gain" and (at := column.centre) is not None
    }
    chosen = []
    for family in dict.fromkeys(tried[place].family for place in gained):
        mine = [place for place in gained if tried[place].family == family]
        top = max(gained[place] for place in mine)
        near = [place for place in mine if gained[place] >= top - math.log1p(WORTH)]
        chosen.append(min(near, key=lambda place: _workers(tried[place])))
    return tuple(tried[place] for place in sorted(chosen, key=lambda place: -gained[place]))


def joined(chosen: Sequence[Candidate]) -> TriedSettings:
    """All of them together."""
    return functools.reduce(TriedSettings.joined, (one.settings for one in chosen))


def joined_prediction(chosen: Sequence[Candidate]) -> float | None:
    """As if what each saves added up; None if some have no prediction."""
    known = [one.predicted for one in chosen if one.predicted is not None]
    if len(known) < len(chosen) or not known:
        return None
    left = 1 - sum(1 - 1 / (1 + gain) for gain in known)
    return 1 / left - 1 if left > 0 else None


def lines_to_change(
    settings: TriedSettings, facts: JobFacts, target: Target
) -> tuple[LineToChange, ...]:
    """Every call that the settings are about."""
    root = target.script.parents[target.module.count(".")]
    return tuple(_lines(settings, facts, root, target.script))


def _lines(
    settings: TriedSettings, facts: JobFacts, root: Path, script: Path
) -> Iterator[LineToChange]:
    for line in facts.loader_lines if settings.loader else ():
        yield line_to_change(root, script, line, LOADER, settings.loader)
    for line in facts.model_lines if settings.model else ():
        yield line_to_change(root, script, line, MODEL, settings.model)
    for line in facts.loader_lines if settings.batch_factor > 1 else ():
        told = f"batch_size, {settings.batch_factor} times as large"
        yield LineToChange(line=line, call=LOADER, arguments=told)
    for line in facts.model_lines if settings.compress else ():
        yield LineToChange(line=line, call=f"after {MODEL}", arguments=_HOOK)
    for line in facts.call_lines if settings.sync_every > 1 else ():
        told = f"under no_sync() in {settings.without} passes, the last one as it is"
        yield LineToChange(line=line, call="forward and backward", arguments=told)
    yield from _elsewhere(settings)


def _elsewhere(settings: TriedSettings) -> Iterator[LineToChange]:
    if settings.threads:
        told = f"OMP_NUM_THREADS={settings.threads}"
        yield LineToChange(line="", call="environment of the ranks", arguments=told)
    if settings.freeze:
        told = "gc.collect(); gc.freeze()"
        yield LineToChange(line="", call="before the training loop", arguments=told)


def _workers(candidate: Candidate) -> int:
    return int(dict(candidate.settings.loader).get("num_workers", 0))

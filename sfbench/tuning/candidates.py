"""Which settings are worth a trial: few, largest predicted gain first. Pure."""

from __future__ import annotations

from dataclasses import replace

from sfbench.tuning.job_facts import JobFacts
from sfbench.tuning.loader_candidates import loader_candidates
from sfbench.tuning.model_candidates import changing_candidates, host_candidates, model_candidates
from sfbench.tuning.tried import Candidate

MOST = 8
"""Each more makes the rounds longer, and the proof of the others harder."""
NO_TIME = "the budget lasts for fewer candidates"


def candidates(facts: JobFacts, allowed: tuple[str, ...] = ()) -> tuple[Candidate, ...]:
    """All that follow from the diagnoses; those without a prediction last."""
    found = (
        *loader_candidates(facts),
        *model_candidates(facts),
        *host_candidates(facts),
        *changing_candidates(facts, allowed),
    )
    return tuple(sorted((_sure(facts, one) for one in found), key=_order))


def fitting(found: tuple[Candidate, ...], most: int) -> tuple[Candidate, ...]:
    """The first ``most`` stay to be tried, the others say why they are not."""
    room = min(MOST, most)
    return tuple(
        one if place < room else replace(one, unfit=NO_TIME) for place, one in enumerate(found)
    )


def _sure(facts: JobFacts, candidate: Candidate) -> Candidate:
    """Nothing is predicted from a share that is not known to be there."""
    cause = facts.of(candidate.because)
    vague = cause is not None and cause.evidence.get("verdict") == "inconclusive"
    return replace(candidate, predicted=None) if vague else candidate


def _order(candidate: Candidate) -> float:
    return 1.0 if candidate.predicted is None else -candidate.predicted

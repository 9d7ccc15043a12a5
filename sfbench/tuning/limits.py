"""What sets the limit, and what no setting mends: said before anything is tried. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfbench.tuning.job_facts import JobFacts
from sfbench.tuning.loader_candidates import cores_set_the_limit
from sfbench.tuning.model_candidates import INTERCONNECT, SMALL_BATCH, may_compress
from sfbench.tuning.tried import Candidate

_NEEDS = {
    SMALL_BATCH: ("batch", "a larger batch"),
    INTERCONNECT: ("numerics", "gradients in bf16"),
}


def limits(
    facts: JobFacts, found: Sequence[Candidate], allowed: tuple[str, ...]
) -> tuple[str, ...]:
    """A sentence for each."""
    cores = cores_set_the_limit(facts)
    return (*([cores] if cores else []), *_unmended(facts, found, allowed, cores=bool(cores)))


def _unmended(
    facts: JobFacts, found: Sequence[Candidate], allowed: tuple[str, ...], *, cores: bool
) -> Iterator[str]:
    tried = {candidate.because for candidate in found}
    for one in facts.diagnoses:
        if one.severity == "info" or one.id in tried:
            continue
        if cores and one.id == "data-loader-starvation":
            continue
        what, change = _NEEDS.get(one.id, ("", ""))
        if one.id == INTERCONNECT and not may_compress(facts):
            what = ""
        if what and what not in allowed:
            yield (
                f"{one.id}: {change} may help and changes training: --allow {what} lets it be "
                "tried."
            )
        else:
            advice = one.advice[0] if one.advice else ""
            yield f"{one.id}: no setting that can be tried mends it. {advice}"

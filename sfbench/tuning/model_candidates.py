"""What to try if gradients, buffers or the host cost time; what changes training if allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfbench.common.schema import Diagnosis
from sfbench.diagnose.link import DEFAULT_BUCKET_MB, split
from sfbench.tuning.job_facts import JobFacts, number
from sfbench.tuning.tried import Candidate, TriedSettings

INTERCONNECT = "interconnect"
HOST = "host-contention"
STRAGGLER = "straggler"
SMALL_BATCH = "small-batch"
STALL = "periodic-stall"
SEARCH = "unused-parameters"
SYNCS = "accumulation-sync"
WORTH_TRYING = 0.005
"""Part of the step below which nothing is tried for it."""
FEW_BYTES = 2**20
"""Gradients below this cost nothing to copy."""
LARGE_BUCKET_MB = 100
"""Tried if the link does not explain what communication costs."""
MANY_TIMES = 2
"""So many times as many buckets as DDP makes by itself are small ones."""
LARGER_BATCH = 2
_SEND_BF16 = ("nccl", "xccl")


def model_candidates(facts: JobFacts) -> Iterator[Candidate]:
    """Arguments of DistributedDataParallel."""
    if facts.devices == 1 or facts.loop.wrapper != "ddp":
        return
    found = facts.of(INTERCONNECT)
    yield from _unused(facts, found)
    yield from _syncs(facts, found)
    if found is None:
        return
    yield from _buckets(facts, found)
    yield from _buffers(facts, found)
    if facts.loop.gradient_as_bucket_view is False and facts.loop.gradient_bytes >= FEW_BYTES:
        yield _model(found, "bucket-view", None, gradient_as_bucket_view=True)


def host_candidates(facts: JobFacts) -> Iterator[Candidate]:
    """Threads of a device, and when garbage is collected."""
    host = facts.of(HOST)
    if host is not None and not facts.on_device and facts.threads > 1:
        fewer = TriedSettings(threads=max(1, facts.threads // 2))
        yield Candidate(settings=fewer, family="threads", because=HOST, predicted=None)
    collection = facts.of(STALL, kind="collection")
    pauses = facts.of(STRAGGLER, likely="rare-pauses")
    if collection is not None or pauses is not None:
        yield Candidate(
            settings=TriedSettings(freeze=True),
            family="collection",
            because=(collection or pauses or _never()).id,
            predicted=_gain(facts, number(collection, "stall_s_per_step")) or None,
        )


def changing_candidates(facts: JobFacts, allowed: tuple[str, ...]) -> Iterator[Candidate]:
    """What trains another model, in the end: only if a person allows it."""
    small, found = facts.of(SMALL_BATCH), facts.of(INTERCONNECT)
    if "batch" in allowed and (small is not None or found is not None):
        yield Candidate(
            settings=TriedSettings(batch_factor=LARGER_BATCH),
            family="batch",
            because=SMALL_BATCH if small is not None else INTERCONNECT,
            predicted=_larger(facts, small, found),
            caution="changes training: the batch is larger, so the learning rate may have to be",
        )
    if "numerics" in allowed and found is not None and may_compress(facts):
        saved_s = number(found, "bf16_compression_saves_s")
        yield Candidate(
            settings=TriedSettings(compress=True),
            family="compression",
            because=INTERCONNECT,
            predicted=_gain(facts, saved_s) if saved_s else None,
            caution="changes training: gradients are rounded to bf16 before they are averaged",
        )


def may_compress(facts: JobFacts) -> bool:
    """Whether torch lets gradients of this job go as bf16: not through gloo."""
    sends = any(name in (facts.loop.backend or "") for name in _SEND_BF16)
    return sends and facts.loop.dtype == "float32" and not facts.own_hook


def _never() -> Diagnosis:
    raise AssertionError("one of both was found")


def _unused(facts: JobFacts, found: Diagnosis | None) -> Iterator[Candidate]:
    if not facts.loop.find_unused_parameters or facts.loop.static_graph:
        return
    cost_s = max(facts.search_s, number(found, "forward_longer_with_sync_s"))
    if not facts.none_unused or (found is None and cost_s < WORTH_TRYING * facts.step_s):
        return
    because = INTERCONNECT if found is not None else SEARCH
    gain = _gain(facts, cost_s)
    yield Candidate(
        settings=TriedSettings(model=(("find_unused_parameters", False),)),
        family="unused",
        because=because,
        predicted=gain,
    )
    yield Candidate(
        settings=TriedSettings(model=(("static_graph", True),)),
        family="unused",
        because=because,
        predicted=gain,
        caution="only if the same parameters are used in every step",
    )


def _syncs(facts: JobFacts, found: Diagnosis | None) -> Iterator[Candidate]:
    """Gradients are averaged in each of several passes that lead to one update."""
    syncs = facts.syncs_per_update
    if syncs < 2:
        return
    saved_s = number(found, "exposed_s_per_step") * (1 - 1 / syncs)
    yield Candidate(
        settings=TriedSettings(sync_every=syncs),
        family="syncs",
        because=SYNCS if found is None else found.id,
        predicted=_gain(facts, saved_s) if saved_s else None,
    )


def _buckets(facts: JobFacts, found: Diagnosis) -> Iterator[Candidate]:
    cap, saved_s = (
        found.evidence.get("best_bucket_cap_mb"),
        number(found, "best_bucket_cap_saves_s"),
    )
    if isinstance(cap, int) and saved_s >= WORTH_TRYING * facts.step_s:
        yield _model(found, "buckets", _gain(facts, saved_s), bucket_cap_mb=cap)
    elif cap is None and len(facts.loop.bucket_bytes) > 1:
        yield _model(found, "buckets", None, bucket_cap_mb=LARGE_BUCKET_MB)
    elif _small(facts.loop.bucket_bytes):
        # The script asks for them: what DDP makes by itself is worth a trial whatever is predicted.
        yield _model(found, "buckets", None, bucket_cap_mb=DEFAULT_BUCKET_MB)


def _small(buckets: Sequence[int]) -> bool:
    return len(buckets) >= MANY_TIMES * len(split(sum(buckets), DEFAULT_BUCKET_MB))


def _buffers(facts: JobFacts, found: Diagnosis) -> Iterator[Candidate]:
    longer_s = number(found, "forward_longer_with_sync_s")
    if not facts.loop.buffers or longer_s < WORTH_TRYING * facts.step_s:
        return
    yield Candidate(
        settings=TriedSettings(model=(("broadcast_buffers", False),)),
        family="buffers",
        because=found.id,
        predicted=None if facts.loop.find_unused_parameters else _gain(facts, longer_s),
        caution="each rank keeps its own buffers (running means of batch norm); rank 0's stay what "
        "they were",
    )


def _model(
    found: Diagnosis, family: str, predicted: float | None, **arguments: int | bool
) -> Candidate:
    return Candidate(
        settings=TriedSettings(model=tuple(arguments.items())),
        family=family,
        because=found.id,
        predicted=predicted,
    )


def _gain(facts: JobFacts, saved_s: float) -> float:
    """Gain in samples/s if a step is shorter by so much."""
    return saved_s / max(facts.step_s - saved_s, 1e-9)


def _larger(facts: JobFacts, small: Diagnosis | None, found: Diagnosis | None) -> float:
    """With twice the batch what a step costs whatever the batch is paid half as often."""
    fixed_s = number(small, "fixed_s_per_step") + number(found, "exposed_s_per_step")
    return _gain(facts, fixed_s * (1 - 1 / LARGER_BATCH))

"""interconnect: averaging gradients takes time that backward does not hide.

Rule: the step with gradient sync takes longer than the slowest rank without (share
``communication``). All-reduces of the job's own bucket sizes, timed alone in the same launch, give
a link of latency + bytes / bandwidth; DDP's schedule on that link (``sfbench.diagnose.link``)
predicts what is exposed, and what other settings would save:

* ``own-collectives``: the script's own all-reduces and the like, in every step, cost more than the
  gradients' way.
* ``latency``: the number of all-reduces costs more than their bytes.
* ``bandwidth``: the bytes cost more.
* ``not-the-link``: the link explains less than half of what was measured. If forward is slower
  with sync on, that is searching for unused parameters or broadcasting buffers; else the ranks get
  in each other's way while they reduce.
* ``unknown``: all-reduce was not timed.

Disproved if the ranks without gradient sync (rung unsynced) are as slow as with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfbench.analyze.intervals import Array
from sfbench.analyze.parts import COMMUNICATION, Part
from sfbench.analyze.phases import phases
from sfbench.common import units
from sfbench.common.schema import Diagnosis, OwnCollective
from sfbench.common.units import things
from sfbench.diagnose.case import Case
from sfbench.diagnose.link import Link, best_cap_mb, bus_bytes_per_s, exposed_s, fit_link
from sfbench.diagnose.numbers import Evidence, common, rounded
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement

ID = "interconnect"
OWN_SHARE = 0.25
"""Part of the measured seconds from which the script's own collectives are what it is bound by."""
EXPLAINED = 0.5
"""Part of the measured seconds that the link has to explain."""
MOST_LINES = 3
"""Lines of the script whose collectives are named."""
WORTH_SAVING = 0.01
"""Part of the step below which a saving is not worth a line."""
ACCUMULATE = 4
BYTES_OF_BF16 = 0.5
"""Per byte of float32."""
FEW_BYTES = 2**20
"""Gradients below this cost nothing to copy."""
BF16 = "Send gradients as bf16 (register_comm_hook with bf16_compress_hook): half of the bytes"
ACCUMULATION = (
    f"Accumulate {ACCUMULATE} batches per update under no_sync(): one exchange for {ACCUMULATE} "
    f"batches. It changes training as a batch {ACCUMULATE} times as large does"
)
DISPROOF = "not communication if the ranks without gradient sync are as slow as with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Seconds per step that each setting would save, by the model; None: does not apply."""

    bucket_cap_mb: int
    bucket_cap_s: float
    bf16_s: float | None
    accumulate_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Traffic:
    """All that is known of the gradients' way."""

    case: Case
    exposed_s: float
    """Measured."""
    backward_s: float | None
    """The last backward of a step; None: not known."""
    sync_forward_s: float | None
    """What forward takes longer with sync on: unused parameters, buffers. None: not known."""
    link: Link | None
    predicted_s: float | None
    bound: str
    savings: Savings | None
    own: tuple[OwnCollective, ...]
    """The script's own collectives, dearest first."""

    @property
    def own_s(self) -> float:
        """What they take per step."""
        return sum(one.calls_per_step * one.seconds for one in self.own)


def diagnose_interconnect(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``communication`` share."""
    if case.devices == 1:
        return None
    traffic = _look(case)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=None,
        regain=regain(case, part),
        evidence={
            **common(case, part, judged),
            **_evidence(traffic),
            "disproof": DISPROOF,
        },
        advice=_advice(traffic),
    )


def _look(case: Case) -> _Traffic:
    seconds = case.seconds(COMMUNICATION)
    assert seconds is not None
    apart, together = phases(case.steps, "unsynced"), phases(case.steps, "cached")
    backwards_s = _mean(apart.backward_s)
    backward_s = None if backwards_s is None else backwards_s / max(1.0, case.loop.fetches_per_step)
    longer_s = _mean(together.forward_s - apart.forward_s)
    link = fit_link(time for record in case.records for time in record.all_reduce)
    buckets = case.loop.bucket_bytes
    known = link is not None and buckets and backward_s is not None
    predicted = exposed_s(buckets, backward_s, link) if known else None  # type: ignore[arg-type]
    own = next((record.own_collectives for record in case.records if record.own_collectives), ())
    own_s = sum(one.calls_per_step * one.seconds for one in own)
    owned = own_s >= max(OWN_SHARE * seconds, predicted or 0.0)
    return _Traffic(
        case=case,
        exposed_s=seconds,
        backward_s=backward_s,
        sync_forward_s=None if longer_s is None else max(0.0, longer_s),
        link=link,
        predicted_s=predicted,
        bound="own-collectives" if owned else _bound(link, buckets, predicted, seconds),
        savings=_savings(case, link, backward_s, predicted, seconds),
        own=own,
    )


def _mean(values: Array) -> float | None:
    """Over the ranks that have one; None if none has."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _bound(
    link: Link | None, buckets: tuple[int, ...], predicted: float | None, measured: float
) -> str:
    if link is None or predicted is None:
        return "unknown"
    if predicted < EXPLAINED * measured:
        return "not-the-link"
    return (
        "latency"
        if len(buckets) * link.latency_s > sum(buckets) * link.s_per_byte
        else ("bandwidth")
    )


def _savings(
    case: Case,
    link: Link | None,
    backward_s: float | None,
    predicted: float | None,
    measured: float,
) -> Savings | None:
    """What the model saves, scaled to what was measured: the model is right about ratios first."""
    if link is None or backward_s is None or predicted is None:
        return None
    if predicted < EXPLAINED * measured or predicted <= 0:
        return None
    buckets, scale = case.loop.bucket_bytes, measured / predicted
    cap, with_cap = best_cap_mb(sum(buckets), backward_s, link)
    half = exposed_s(buckets, backward_s, link, scale=BYTES_OF_BF16)
    full_width = case.loop.dtype == "float32" and not case.compresses
    return Savings(
        bucket_cap_mb=cap,
        bucket_cap_s=max(0.0, predicted - with_cap) * scale,
        bf16_s=max(0.0, predicted - half) * scale if full_width else None,
        accumulate_s=measured * (1 - 1 / ACCUMULATE),
    )


def _evidence(traffic: _Traffic) -> Evidence:
    case, loop = traffic.case, traffic.case.loop
    evidence: Evidence = {
        "bound": traffic.bound,
        "exposed_s_per_step": rounded(traffic.exposed_s),
        "predicted_exposed_s_per_step": rounded(traffic.predicted_s),
        "backward_s": rounded(traffic.backward_s),
        "forward_longer_with_sync_s": rounded(traffic.sync_forward_s),
        "gradient_bytes_per_step": sum(loop.bucket_bytes) or loop.gradient_bytes,
        "buckets": len(loop.bucket_bytes),
        "largest_bucket_bytes": max(loop.bucket_bytes, default=None),
        "own_collectives_per_step": rounded(sum(one.calls_per_step for one in traffic.own)),
        "own_collectives_s_per_step": rounded(traffic.own_s),
        "own_collectives_line": next((one.line for one in traffic.own if one.line), None),
        "nodes": case.nodes,
        "backend": loop.backend,
        "find_unused_parameters": loop.find_unused_parameters,
        "static_graph": loop.static_graph,
        "gradient_as_bucket_view": loop.gradient_as_bucket_view,
    }
    largest = _largest(case)
    if largest is not None:
        size, seconds = largest
        evidence["all_reduce_of_largest_bucket_s"] = rounded(seconds)
        evidence["bus_bytes_per_s"] = rounded(bus_bytes_per_s(size, seconds, case.devices))
    if traffic.link is not None:
        rate = traffic.link.s_per_byte
        evidence["link_latency_s"] = rounded(traffic.link.latency_s)
        evidence["link_bytes_per_s"] = rounded(1 / rate) if rate > 0 else None
    if traffic.savings is not None:
        evidence |= {
            "best_bucket_cap_mb": traffic.savings.bucket_cap_mb,
            "best_bucket_cap_saves_s": rounded(traffic.savings.bucket_cap_s),
            "bf16_compression_saves_s": rounded(traffic.savings.bf16_s),
            f"accumulating_{ACCUMULATE}_saves_s": rounded(traffic.savings.accumulate_s),
        }
    return evidence


def _largest(case: Case) -> tuple[int, float] | None:
    """The job's largest bucket that was timed and its median over launches."""
    most = max(case.loop.bucket_bytes, default=0)
    times = [time for rec in case.records for time in rec.all_reduce if time.bytes <= most]
    if not times:
        return None
    size = max(time.bytes for time in times)
    return size, float(np.median([time.seconds for time in times if time.bytes == size]))


def _advice(traffic: _Traffic) -> tuple[str, ...]:
    """A line for each setting that saves enough, the best first; then what saves no known time."""
    step_s = traffic.case.step_s
    lines = [*_own_collectives(traffic), *_forward_side(traffic), *_settings(traffic)]
    worth = sorted((line for line in lines if line[0] >= WORTH_SAVING * step_s), reverse=True)
    return (*(text for _, text in worth), *_elsewhere(traffic))


def _own_collectives(traffic: _Traffic) -> Iterator[tuple[float, str]]:
    for one in traffic.own[:MOST_LINES]:
        cost_s = min(traffic.exposed_s, one.calls_per_step * one.seconds)
        where = f" at {one.line}" if one.line else ""
        calls = things(round(one.calls_per_step), f"{one.name} call")
        together = "Join them into one tensor, or reduce" if one.calls_per_step > 1 else "Reduce"
        yield (
            cost_s * (1 - 1 / max(ACCUMULATE, one.calls_per_step)),
            f"The script's own {calls} per step{where} take about {units.seconds(cost_s)} of the "
            f"{units.seconds(traffic.case.step_s)}. {together} every so many steps.",
        )


def _forward_side(traffic: _Traffic) -> Iterator[tuple[float, str]]:
    loop, longer_s = traffic.case.loop, traffic.sync_forward_s or 0.0
    costs = units.seconds(longer_s)
    if loop.find_unused_parameters:
        yield (
            longer_s,
            f"Turn find_unused_parameters off, or set static_graph=True if the graph never "
            f"changes: forward takes {costs} longer with sync on.",
        )
    elif loop.buffers != 0:
        yield (
            longer_s,
            f"Try broadcast_buffers=False (with SyncBatchNorm, or if buffers do not matter): "
            f"forward takes {costs} longer with sync on.",
        )


def _settings(traffic: _Traffic) -> Iterator[tuple[float, str]]:
    savings, step_s = traffic.savings, traffic.case.step_s
    if savings is None:
        return
    lines = (
        (savings.bucket_cap_s, f"Set bucket_cap_mb={savings.bucket_cap_mb}: {_why_cap(traffic)}"),
        (savings.bf16_s or 0.0, BF16),
        (savings.accumulate_s, ACCUMULATION),
    )
    for seconds, text in lines:
        yield (
            seconds,
            f"{text}. Saves about {units.seconds(seconds)} of {units.seconds(step_s)} per batch.",
        )


def _why_cap(traffic: _Traffic) -> str:
    count = things(len(traffic.case.loop.bucket_bytes), "bucket")
    if traffic.bound == "latency":
        return f"fewer all-reduces than now ({count}), each of which costs its latency"
    return f"a better overlap with backward than now ({count})"


def _on_nccl(traffic: _Traffic) -> bool:
    return "nccl" in (traffic.case.loop.backend or "")


def _in_the_way(traffic: _Traffic) -> str:
    if _on_nccl(traffic):
        return (
            "while they overlap, NCCL's kernels and those of backward take the same device from "
            "each other. Try fewer channels (NCCL_MAX_NCHANNELS) and larger buckets."
        )
    return (
        "the ranks get in each other's way while they reduce. Leave a core free per rank for "
        "communication threads, or use fewer ranks per host."
    )


def _elsewhere(traffic: _Traffic) -> tuple[str, ...]:
    loop = traffic.case.loop
    lines = []
    if traffic.case.nodes > 1 and traffic.bound in ("bandwidth", "latency"):
        lines.append(
            f"The ranks are on {things(traffic.case.nodes, 'node')}: gradients pass the link "
            "between them. Compare its rate with what that link is made for, and set the interface "
            "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) if there is a faster one."
        )
    if traffic.bound == "not-the-link":
        lines.append(
            f"All-reduces alone explain {units.seconds(traffic.predicted_s)} of the "
            f"{units.seconds(traffic.exposed_s)}: {_in_the_way(traffic)}"
        )
    if traffic.bound == "bandwidth" and _on_nccl(traffic):
        lines.append(
            "NCCL_DEBUG=INFO tells what NCCL sends through (NVLink, PCIe, InfiniBand, sockets) and "
            "over how many channels: compare the rate with what that link can do."
        )
    if loop.gradient_bytes >= FEW_BYTES and loop.gradient_as_bucket_view is False:
        lines.append(
            f"gradient_as_bucket_view=True saves copying {units.bytes_(loop.gradient_bytes)} of "
            "gradients into buckets and back in each step, and that much memory."
        )
    if loop.backend == "gloo" and traffic.case.infos[0].device.startswith("cuda"):
        lines.append("Use the nccl backend: gloo takes gradients through the host's memory.")
    return tuple(lines)

"""The link between the ranks as the job's own all-reduces see it, and what DDP makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sfbench.common.schema import AllReduceTime

FIRST_BUCKET_BYTES = 2**20
"""DDP's first bucket is small, so that reducing starts early (torch: kDefaultFirstBucketBytes)."""
DEFAULT_BUCKET_MB = 25
"""DDP's bucket_cap_mb, in MiB."""
BUCKET_CHOICES_MB = (1, 5, 10, 25, 50, 100, 200, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An all-reduce of S bytes takes latency_s + S * s_per_byte."""

    latency_s: float
    s_per_byte: float

    def cost_s(self, size_bytes: float) -> float:
        """Seconds of one all-reduce."""
        return self.latency_s + size_bytes * self.s_per_byte


def fit_link(times: Iterable[AllReduceTime]) -> Link | None:
    """Least squares on relative errors, neither part below zero; None with fewer than two sizes.

    If several launches measured, the median of each size counts.
    """
    by_size: dict[int, list[float]] = {}
    for one in times:
        by_size.setdefault(one.bytes, []).append(one.seconds)
    if len(by_size) < 2:
        return None
    sizes = np.array(sorted(by_size), dtype=np.float64)
    seconds = np.array([float(np.median(by_size[int(size)])) for size in sizes])
    weights = 1 / seconds
    design = np.stack([weights, sizes * weights], axis=1)
    (latency_s, s_per_byte), *_ = np.linalg.lstsq(design, np.ones_like(seconds))
    if s_per_byte <= 0:
        return Link(latency_s=float(seconds.mean()), s_per_byte=0.0)
    if latency_s <= 0:
        return Link(latency_s=0.0, s_per_byte=float((1 / (sizes * weights)).mean()))
    return Link(latency_s=float(latency_s), s_per_byte=float(s_per_byte))


def bus_bytes_per_s(size_bytes: int, seconds: float, devices: int) -> float:
    """S / t * 2 (n - 1) / n: comparable over device counts (nccl-tests, PERFORMANCE.md)."""
    return size_bytes / seconds * 2 * (devices - 1) / devices


def exposed_s(
    buckets: Sequence[int], backward_s: float, link: Link, *, scale: float = 1.0
) -> float:
    """What reducing adds after backward, by e_k = max(r_k, e_{k-1}) + cost(S_k).

    Buckets are reduced in order, one after the other; bucket k is ready at r_k, taken as the part
    of backward in which its part of the bytes is made. ``scale``: bytes sent per byte of gradient.
    """
    total, done, end_s = sum(buckets), 0, 0.0
    for size in buckets:
        done += size
        end_s = max(backward_s * done / total, end_s) + link.cost_s(size * scale)
    return max(0.0, end_s - backward_s)


def split(total_bytes: int, cap_mb: float) -> tuple[int, ...]:
    """Buckets that DDP makes of so many bytes: a small first one, then as large as allowed."""
    cap = int(cap_mb * 2**20)
    first = min(total_bytes, FIRST_BUCKET_BYTES, cap)
    rest = total_bytes - first
    whole, last = divmod(rest, cap)
    return (first, *[cap] * whole, *([last] if last else []))


def best_cap_mb(total_bytes: int, backward_s: float, link: Link) -> tuple[int, float]:
    """The bucket_cap_mb that leaves least exposed, and those seconds. Smaller wins a tie."""
    found = [
        (exposed_s(split(total_bytes, cap), backward_s, link), cap) for cap in BUCKET_CHOICES_MB
    ]
    seconds, cap = min(found)
    return cap, seconds

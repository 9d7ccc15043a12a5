"""What the report says of each cause: title, rule, and which of its numbers come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseWords:
    """One cause in words."""

    title: str
    rule: str
    """When it is named."""
    basis: str
    """Where its worth comes from: measured or modelled."""
    figures: Mapping[str, str]
    """Evidence to show unfolded, most telling first: its name, and what it is in words."""


_MEASURED = "measured: the cause was switched off in the same launch"

CAUSES: Mapping[str, CauseWords] = {
    "data-loader-starvation": CauseWords(
        title="Data loader starvation",
        rule="The step takes longer with the real loader than with batches kept in memory: "
        "bottleneck from 10% of the step, contributor from 5%.",
        basis=_MEASURED,
        figures={
            "data_wait_s_per_step": "a device waits for its loader, per step",
            "wait_share": "part of the step that waits",
            "device_could_take_samples_per_s": "a device could take, in samples",
            "one_worker_s_per_batch": "one worker needs per batch",
            "sample_s": "one sample takes",
            "workers_per_device": "workers per device now",
            "workers_needed_per_device": "workers per device needed",
            "workers_needed": "workers per device needed",
            "cores_needed_for_loading": "cores needed for loading",
            "cores_on_host": "cores on the host",
            "cores": "cores on the host",
        },
    ),
    "small-batch": CauseWords(
        title="Small batch",
        rule="What a step costs whatever the batch is a large part of it: a line through steps "
        "with half, whole and double batches. Bottleneck from 10% of the step, contributor "
        "from 5%.",
        basis="modelled: a line through measured batch sizes",
        figures={
            "batch_per_device": "samples per step and device",
            "fixed_s_per_step": "fixed cost of a step",
            "s_per_sample": "cost of one sample more",
            "samples_per_s_at_batch": "one device at this batch, in samples",
            "samples_per_s_at_double_batch": "one device at double the batch, in samples",
            "batch_for_90_percent": "batch for 90% of the device's best",
        },
    ),
    "interconnect": CauseWords(
        title="Interconnect",
        rule="The step takes longer than the slowest rank needs without gradient sync: bottleneck "
        "from 10% of the step, contributor from 5%.",
        basis=_MEASURED,
        figures={
            "exposed_s_per_step": "communication that backward does not hide, per step",
            "gradient_bytes_per_step": "gradients sent per step",
            "bytes_per_step": "gradients sent per step",
            "bus_bytes_per_s": "bus bandwidth reached",
            "bus_bandwidth_bytes_per_s": "bus bandwidth reached",
            "link_latency_s": "latency of the link",
            "bound": "bound by",
            "predicted_exposed_s_per_step": "the same by the model of the link",
        },
    ),
    "straggler": CauseWords(
        title="Straggler",
        rule="One rank's step without sync is longer than the others', picked on half of the "
        "cycles and confirmed on the other half; or another rank is slow each step.",
        basis=_MEASURED,
        figures={
            "slower_s_per_step": "slower than the other ranks, per step",
            "where": "slow in",
            "slower_alone_s_per_step": "slower with all others parked, per step",
            "longer_without_core_s_per_step": "longer without a core, per step",
            "more_cpu_s_per_step": "more time on a core, per step",
            "likely": "likely cause",
            "throttled_by": "GPU throttled by",
        },
    ),
    "host-contention": CauseWords(
        title="Host contention",
        rule="A rank's step without sync takes longer beside the other ranks than alone: "
        "bottleneck from 10% of the step, contributor from 5%.",
        basis=_MEASURED,
        figures={
            "slower_beside_others_s_per_step": "slower beside the other ranks, per step",
            "without_core_s_per_step": "ready to run without a core, per step",
            "threads_and_workers_on_host": "threads and workers that want a core",
            "cores_on_host": "cores on the host",
            "best_possible_efficiency": "most that shared cores allow",
        },
    ),
    "periodic-stall": CauseWords(
        title="Periodic stall",
        rule="Work between ordinary steps comes every k steps or once per epoch, and the other "
        "ranks wait for it.",
        basis="measured: all steps seen, count x size / period",
        figures={
            "kind": "what it does",
            "line": "line of the script",
            "period_steps": "steps from one to the next",
            "stall_s": "one takes",
            "seconds_per_step": "cost per step",
            "seen": "times seen",
        },
    ),
}
"""Each cause that a diagnosis names, in the order in which cleared ones are listed."""

MOST_FIGURES = 6
"""More numbers than these are folded away."""


def words_of(cause: str) -> CauseWords:
    """The words of a cause; of one that this version does not know, its id."""
    unknown = CauseWords(title=cause.replace("-", " ").capitalize(), rule="", basis="", figures={})
    return CAUSES.get(cause, unknown)

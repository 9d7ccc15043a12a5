"""What is known of a job before anything is tried: its diagnoses, and what one launch showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Diagnosis, LaunchRecord, LoopInfo, Rung, SweepResult
from sfbench.protocol.evidence import Loader, Model, RankEvidence

_STREAM = "_InfiniteConstantSampler"
"""What torch gives a loader of an IterableDataset for a sampler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One device count of a job on this machine."""

    devices: int
    cores: int
    """That can be kept busy."""
    on_device: bool
    """Ranks train on accelerators."""
    threads: int
    """Per device."""
    step_s: float
    loop: LoopInfo
    diagnoses: tuple[Diagnosis, ...] = ()
    """At this device count, largest first."""
    loader_lines: tuple[str, ...] = ()
    """Lines that make the training loaders."""
    streams: bool = False
    """They load an IterableDataset: several workers may load the same samples."""
    model_lines: tuple[str, ...] = ()
    """Lines that wrap the model."""
    call_lines: tuple[str, ...] = ()
    """Lines that call it."""
    syncs_per_update: int = 1
    """Backward passes that average gradients, where every update had so many."""
    none_unused: bool = False
    """Every parameter had a gradient in all backwards that were watched."""
    search_s: float = 0.0
    """Per step, of the search for unused parameters."""
    own_hook: bool = False
    """The script registered a communication hook."""
    fetch_cpu_s: float | None = None
    """On a core per step, if the training process loads by itself; None: not known."""

    def of(self, id_: str, **evidence: object) -> Diagnosis | None:
        """The first diagnosis of an id whose evidence holds these values."""
        for one in self.diagnoses:
            if one.id == id_ and all(one.evidence.get(k) == v for k, v in evidence.items()):
                return one
        return None


def number(diagnosis: Diagnosis | None, name: str) -> float:
    """A figure of a diagnosis' evidence; 0 if there is none."""
    value = diagnosis.evidence.get(name) if diagnosis is not None else None
    return float(value) if isinstance(value, int | float) else 0.0


def job_facts(
    result: SweepResult, devices: int, look: MeasuredLaunch, *, cores: int, threads: int
) -> JobFacts:
    """Join a sweep's result at one device count with what a launch there has shown."""
    point = next(point for point in result.points if point.devices == devices)
    assert look.record is not None
    assert point.step_s is not None
    seen = look.evidence
    training = [loader for rank in seen for loader in rank.loaders if loader.trains]
    models = [model for rank in seen for model in rank.models]
    searches = [model.search_s for model in models if model.search_s is not None]
    return JobFacts(
        devices=devices,
        cores=cores,
        on_device=result.device_type != "cpu",
        threads=threads,
        step_s=point.step_s.value,
        loop=look.record.loop,
        diagnoses=tuple(d for d in result.diagnoses if d.devices == devices),
        loader_lines=_once([loader.line for loader in training]),
        streams=any(_streams(loader) for loader in training),
        model_lines=_once([model.wrapped for model in models]),
        call_lines=_once([model.line for model in models]),
        syncs_per_update=_syncs_per_update(models),
        none_unused=_none_unused(seen),
        search_s=max(searches, default=0.0) * look.record.loop.fetches_per_step,
        own_hook=any(model.own_hook for model in models),
        fetch_cpu_s=_fetch_cpu_s(look.record),
    )


def _once(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _streams(loader: Loader) -> bool:
    return loader.sampler == _STREAM


def _none_unused(seen: Sequence[RankEvidence]) -> bool:
    looked = [model for rank in seen for model in rank.models if model.looks_for_unused]
    return bool(looked) and all(model.looked and not model.unused for model in looked)


def _syncs_per_update(models: Sequence[Model]) -> int:
    """1 as well where updates differ, or some passes average nothing already."""
    windows = {w for m in models for w in zip(m.backwards, m.synced, strict=True)}
    backwards, synced = windows.pop() if len(windows) == 1 else (1, 1)
    return synced if backwards == synced else 1


def _fetch_cpu_s(record: LaunchRecord) -> float | None:
    """What a step on the real loader takes more of a core than one on batches from memory."""
    train, cached = _cpu_s(record, "train"), _cpu_s(record, "cached")
    if record.loop.loader_workers != 0 or train is None or cached is None:
        return None
    return max(0.0, train - cached)


def _cpu_s(record: LaunchRecord, rung: Rung) -> float | None:
    found = [one for load in record.loads for one in load.rungs if one.rung == rung and one.steps]
    return sum(o.cpu_s for o in found) / sum(o.steps for o in found) if found else None

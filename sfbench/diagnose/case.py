"""What a diagnosis looks at: one device count, beside one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from sfbench.analyze.parts import Part
from sfbench.common.schema import (
    LaunchRecord,
    LoopInfo,
    Point,
    RankInfo,
    RankLoad,
    Rung,
    RungLoad,
    Share,
    TimeShare,
)
from sfbench.launch.outcome import GpuState
from sfbench.plan.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """What the training threads of some ranks did per step on one rung, mean over ranks."""

    wall_s: float
    cpu_s: float
    delay_s: float
    """Ready to run, but no core was free."""
    clock_hz: float = 0.0
    """Of the devices while they worked; 0 = not told."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A point whose time shares were measured."""

    point: Point
    shares: TimeShare
    loop: LoopInfo
    one: Point | None
    """The point at 1 device with its shares; None if it was not measured, or is this one."""
    records: tuple[LaunchRecord, ...]
    gpus: tuple[GpuState, ...]
    """This node's GPUs as the launches saw them."""
    kept_batches: Mapping[int, int]
    """Launch -> batches that the rungs without a loader replay."""
    steps: pd.DataFrame
    """The step frame of this point, warmup labelled."""
    machine: Machine
    step_s: float
    one_records: tuple[LaunchRecord, ...] = ()
    """Those of the point at 1 device, if this is another."""

    @property
    def devices(self) -> int:
        """Device count."""
        return self.point.devices

    @property
    def devices_per_host(self) -> int:
        """Ranks on the fullest host."""
        hosts = [rank.host for rank in self.point.ranks]
        return max(hosts.count(host) for host in set(hosts))

    @property
    def nodes(self) -> int:
        """Machines of a sweep over several that the ranks are on."""
        return len({rank.node for rank in self.point.ranks})

    @property
    def infos(self) -> tuple[RankInfo, ...]:
        """Who the ranks were, by rank."""
        return self.records[0].ranks

    def share(self, part: Part) -> Share:
        """One part's share of the step."""
        return self.shares.of(part.id)

    def share_at_one(self, part: Part) -> Share | None:
        """The same at 1 device; None if that was not measured, or is this point."""
        if self.one is None or self.one.time_share is None:
            return None
        return self.one.time_share.of(part.id)

    @property
    def on_device(self) -> bool:
        """Whether ranks train on accelerators: then the host's thread only launches the work."""
        return not self.infos[0].device.startswith("cpu")

    @property
    def compresses(self) -> bool:
        """Whether a communication hook of the script's already changes what is sent."""
        seen = [model for record in self.records for e in record.evidence for model in e.models]
        return any(model.own_hook for model in seen)

    def seconds(self, part: Part) -> float | None:
        """Seconds per step of one part."""
        share = self.share(part)
        return None if share.value is None else share.value * self.step_s

    def gpu(self, rank: int) -> GpuState | None:
        """The GPU of a rank; None if the launcher did not see it (CPU, another node)."""
        uuid = self.infos[rank].gpu_uuid
        return next((gpu for gpu in self.gpus if uuid and gpu.uuid.endswith(uuid)), None)

    def loads(self, rank: int | None = None) -> Iterator[RankLoad]:
        """Loads of all launches, of all ranks or of one."""
        for record in self.records:
            yield from (load for load in record.loads if rank in (None, load.rank))

    def core_use(self, rung: Rung, ranks: tuple[int, ...] | None = None) -> CoreUse | None:
        """Mean per step over all launches of some ranks (all, without ``ranks``)."""
        found = [
            on_rung
            for load in self.loads()
            if ranks is None or load.rank in ranks
            for on_rung in load.rungs
            if on_rung.rung == rung
        ]
        steps = sum(one.steps for one in found)
        return _core_use(found, steps) if steps else None


def _core_use(found: list[RungLoad], steps: int) -> CoreUse:
    clocks = [one.clock_hz for one in found if one.clock_hz > 0]
    return CoreUse(
        wall_s=sum(one.wall_s for one in found) / steps,
        cpu_s=sum(one.cpu_s for one in found) / steps,
        delay_s=sum(one.delay_s for one in found) / steps,
        clock_hz=sum(clocks) / len(clocks) if len(clocks) == len(found) else 0.0,
    )

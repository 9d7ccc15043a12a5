"""host-contention: the ranks of a host slow each other down.

Rule: a rank's step without gradient sync takes longer beside the other ranks than alone (share
``host``). Why follows from the training thread's own clock: ready but without a core (``cores``),
more time on a core for the same work (``memory``: bandwidth, caches, clock), or neither
(``unknown``: another resource, or another process's lock). On accelerators that thread only
launches work and may spin while it waits, so its time says nothing: there the devices' own clocks
are compared, and a lower one beside the others is ``power``.

Disproved if fewer ranks per host, with the same cores and threads, take as long per step.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfbench.analyze.parts import HOST, Part
from sfbench.common import units
from sfbench.common.schema import Diagnosis
from sfbench.common.units import things
from sfbench.diagnose.case import Case, CoreUse
from sfbench.diagnose.numbers import Evidence, common, rounded
from sfbench.diagnose.recoverable import regain
from sfbench.diagnose.severity import Judgement

ID = "host-contention"
EXPLAINED = 0.5
"""Part of the slow-down that a cause must explain to be named."""
DISPROOF = "not the host if fewer ranks per host take as long per step"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Crowd:
    """What the ranks of a host ask for and get."""

    case: Case
    slower_s: float
    """Per step, beside the other ranks."""
    together: CoreUse | None
    alone: CoreUse | None
    limit: str

    @property
    def threads(self) -> int:
        """Intra-op threads per device."""
        return self.case.infos[0].threads

    @property
    def wanted_cores(self) -> int:
        """Threads and loader workers of the host's ranks."""
        workers = self.case.loop.loader_workers or 0
        return self.case.devices_per_host * (self.threads + workers)


def diagnose_host(case: Case, part: Part, judged: Judgement) -> Diagnosis | None:
    """Judge the ``host`` share."""
    if case.devices == 1:
        return None
    crowd = _look(case)
    return Diagnosis(
        id=ID,
        devices=case.devices,
        severity=judged.severity,
        rank=None,
        regain=regain(case, part),
        evidence={**common(case, part, judged), **_evidence(crowd), "disproof": DISPROOF},
        advice=_advice(crowd),
    )


def _look(case: Case) -> _Crowd:
    slower_s = case.seconds(HOST)
    assert slower_s is not None
    together, alone = case.core_use("unsynced"), case.core_use("solo")
    return _Crowd(
        case=case,
        slower_s=slower_s,
        together=together,
        alone=alone,
        limit=_limit(slower_s, together, alone, on_device=case.on_device),
    )


def _limit(
    slower_s: float, together: CoreUse | None, alone: CoreUse | None, *, on_device: bool
) -> str:
    if together is None or alone is None:
        return "unknown"
    if on_device:
        return "power" if _slowed_by_clock_s(together, alone) >= EXPLAINED * slower_s else "unknown"
    if together.delay_s - alone.delay_s >= EXPLAINED * slower_s:
        return "cores"
    return "memory" if together.cpu_s - alone.cpu_s >= EXPLAINED * slower_s else "unknown"


def _slowed_by_clock_s(together: CoreUse, alone: CoreUse) -> float:
    """What a step takes longer beside the others if its time goes with the device's clock."""
    if not together.clock_hz or not alone.clock_hz:
        return 0.0
    return alone.wall_s * (alone.clock_hz / together.clock_hz - 1)


def _evidence(crowd: _Crowd) -> Evidence:
    case, machine, point = crowd.case, crowd.case.machine, crowd.case.point
    evidence: Evidence = {
        "limit": crowd.limit,
        "slower_beside_others_s_per_step": rounded(crowd.slower_s),
        "devices_on_host": case.devices_per_host,
        "threads_per_device": crowd.threads,
        "workers_per_device": case.loop.loader_workers,
        "threads_and_workers_on_host": crowd.wanted_cores,
        "cores_on_host": len(machine.cores),
        "cores_allowed_by_control_group": rounded(machine.quota),
        "oversubscribed": point.oversubscribed,
        "best_possible_efficiency": rounded(point.best_possible_efficiency),
    }
    if crowd.together is not None and crowd.alone is not None:
        evidence |= {
            "without_core_s_per_step": rounded(crowd.together.delay_s),
            "without_core_alone_s_per_step": rounded(crowd.alone.delay_s),
            "cpu_s_per_step": rounded(crowd.together.cpu_s),
            "cpu_alone_s_per_step": rounded(crowd.alone.cpu_s),
        }
        if crowd.alone.clock_hz and crowd.together.clock_hz:
            evidence |= {
                "clock_hz": rounded(crowd.together.clock_hz),
                "clock_alone_hz": rounded(crowd.alone.clock_hz),
            }
    return evidence


def _advice(crowd: _Crowd) -> tuple[str, ...]:
    return (*_first(crowd), *_quota(crowd))


def _first(crowd: _Crowd) -> tuple[str, ...]:
    case, cores = crowd.case, crowd.case.machine.usable_cores
    asked = (
        f"{things(case.devices_per_host, 'rank')} with {things(crowd.threads, 'thread')} and "
        f"{things(case.loop.loader_workers or 0, 'loader worker')} each want "
        f"{things(crowd.wanted_cores, 'core')}, and the host has {cores}"
    )
    if crowd.limit == "cores":
        use = crowd.together
        assert use is not None
        fitting = max(1, int(cores / max(use.cpu_s / max(use.wall_s - use.delay_s, 1e-9), 1e-9)))
        return (
            f"Run at most {things(min(fitting, case.devices_per_host - 1), 'rank')} on a host of "
            f"{things(cores, 'core')}, or take work off the training threads: {asked}. Each rank "
            f"waits {units.seconds(use.delay_s)} of a step for a core.",
            "Other processes count too: end what else runs on the host.",
        )
    if crowd.limit == "memory":
        return (
            "The same work takes more time on its core beside other ranks: memory bandwidth, "
            "shared caches or the clock limit. Spread ranks over memory nodes (numactl "
            f"--cpunodebind --membind), pin them, use fewer threads per rank. {asked}.",
        )
    if crowd.limit == "power":
        assert crowd.together is not None
        assert crowd.alone is not None
        return (
            f"The devices' clock is {crowd.together.clock_hz / 1e6:.0f} MHz beside the others and "
            f"{crowd.alone.clock_hz / 1e6:.0f} alone: the host's power or cooling does not last "
            "for all of them at once. Look at the power limits (nvidia-smi -q -d POWER) and the "
            "temperatures.",
        )
    if case.on_device:
        return (
            f"The ranks get in each other's way: {asked}. Their threads' own time does not tell "
            "for what, since waiting for a device may look like work. Compare a run with fewer "
            "threads and loader workers per rank; look at PCIe links, memory nodes and disks.",
        )
    return (
        f"The ranks get in each other's way, but not for cores: {asked}. Look at locks, disks and "
        "the devices' shared links (PCIe, power limit).",
    )


def _quota(crowd: _Crowd) -> tuple[str, ...]:
    machine = crowd.case.machine
    if machine.quota is None or machine.quota >= len(machine.cores):
        return ()
    return (
        f"The control group allows {machine.quota:g} of {len(machine.cores)} cores (cpu.max): ask "
        "for more, or threads are stopped although cores are idle.",
    )

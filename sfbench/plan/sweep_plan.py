"""The plan of a sweep, and the launches it becomes. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfbench.common.schema import RankJob, Rung
from sfbench.protocol.changes import Changes

DeviceType = Literal["cpu", "cuda", "xpu"]
Scaling = Literal["weak", "strong"]


MODULE = "-m "
"""Before a target that is a module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is run: a reference workload or a script of the user's."""

    name: str
    """Workload name, dotted name of a module, or the script's file name without ``.py``."""
    script: Path
    """Absolute."""
    is_workload: bool
    args: tuple[str, ...] = ()
    module: str = ""
    """What ``python -m`` would run; empty: a script by its path."""

    @property
    def typed(self) -> str:
        """As one may give it to a command from any folder, and as results name it."""
        if self.module:
            return f"{MODULE}{self.module.removesuffix('.__main__')}"
        return self.name if self.is_workload else str(self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Everything a sweep needs to know; each field is one option of ``sfbench sweep``."""

    target: Target
    devices: tuple[int, ...] = (1, 2, 4, 8)
    """Ascending, each once."""
    device_type: DeviceType = "cpu"
    scaling: Scaling = "weak"
    global_batch: int | None = None
    seconds: float = 13.0
    """Measuring budget per point, over all its rounds, in seconds."""
    precision: float = 0.01
    warmup_steps: int | None = None
    rounds: int | None = None
    """How often each device count is visited; None: as often as ``seconds`` pays for."""
    rungs: tuple[Rung, ...] = ("train",)
    one_pass: bool = False
    """A launch visits each rung once, not in cycles: what a gate needs."""
    threads_per_device: int = 1
    timeout_s: float = 300.0
    name: str
    output: Path
    """Folder that holds result folders."""
    allow_saves: bool = False
    notes: tuple[str, ...] = ()
    """What a reader of its result has to know of the machine."""
    launcher: Literal["local", "slurm"] = "local"
    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str | None = None

    @property
    def per_node(self) -> int:
        """Most devices of one node: those of the largest count, spread evenly."""
        return -(-max(self.devices) // self.nnodes)

    def spread(self, devices: int) -> tuple[int, ...]:
        """Devices of each node that takes part in a launch, by node: on as few as they fit on.

        The largest count is on all nodes: none is left out of the sweep.
        """
        nodes = -(-devices // self.per_node) if self.nnodes > 1 else 1
        if devices == max(self.devices):
            nodes = self.nnodes
        return tuple(devices // nodes + (node < devices % nodes) for node in range(nodes))

    @property
    def result_dir(self) -> Path:
        """Where the finished result folder stands."""
        return self.output / self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One start of all ranks at a point."""

    index: int
    """Place in the sweep, from 0."""
    round: int
    devices: int
    cores: tuple[tuple[int, ...], ...] | None
    seconds: float
    """Measuring budget of this launch."""
    seed: int
    cycles: int | None = None
    """Cycles to divide that into; None: as many as one launch alone needs."""
    changes: Changes | None = None
    """What is built otherwise than the script says."""

    @property
    def log_name(self) -> str:
        """Folder of this launch's logs below ``logs/``."""
        return f"round{self.round + 1}-devices{self.devices}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """What the launcher runs: a RankJob on ``nproc`` local ranks, as one node of a job."""

    job: RankJob
    nproc: int
    log_dir: Path
    """Gets ``rank<r>.log`` for each rank (stdout and stderr together)."""
    timeout_s: float
    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str | None = None
    run_id: str = "sfbench"
    """Of several nodes: another one for each launch, the same on all."""
    spread: tuple[int, ...] = ()
    """Ranks of each node; empty: ``nproc`` on all."""
    address: str | None = None
    """Where this node can be reached by the others; None: one node."""

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        """Ranks of each node, by node."""
        return self.spread or (self.nproc,) * self.nnodes

    @property
    def devices(self) -> int:
        """Of the whole job."""
        return sum(self.ranks_by_node)

    @property
    def first_rank(self) -> int:
        """Global rank of this node's local rank 0."""
        return sum(self.ranks_by_node[: self.node_rank])

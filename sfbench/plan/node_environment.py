"""Where this machine stands among others: options over what schedulers set. Pure.

Known are the variables of torchrun, which Kubeflow's TrainJob and PyTorchJob set too (``PET_*``),
of Slurm inside ``srun``, and of SkyPilot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sfbench.common.errors import UsageError
from sfbench.common.units import things
from sfbench.plan.node_list import host_names
from sfbench.plan.options import Settings

PORT = 29500
"""If an endpoint names none, as for torchrun."""
_SLURM_PORTS, _SLURM_FIRST = 10_000, 20_000
"""Two jobs of Slurm that share a machine meet at different ports."""


PlaceValue = TypeVar("PlaceValue", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where this machine stands."""

    nnodes: int = 1
    node_rank: int = 0
    endpoint: str | None = None
    """HOST:PORT; None: one node."""
    notes: tuple[str, ...] = ()


ALONE = NodePlace()


class _Source(Protocol):
    """What one scheduler tells; None: nothing. A variable is read, and refused, if it is needed."""

    def nnodes(self) -> int | None: ...

    def node_rank(self) -> int | None: ...

    def endpoint(self) -> str | None: ...

    def note(self) -> str: ...


def node_place(settings: Settings, environment: Mapping[str, str]) -> NodePlace:
    """Options that were given; each one that was not, from the first scheduler that tells it.

    Raises:
        UsageError: a variable that cannot be read, or what is missing, with where it comes from.
    """
    sources = (_Torchrun(environment), _Slurm(environment), _SkyPilot(environment))
    nnodes, notes = settings.nnodes, []
    if nnodes is None:
        teller = next((source for source in sources if source.nnodes() is not None), None)
        nnodes = (teller.nnodes() if teller else None) or 1
        notes = [teller.note()] if teller and teller.note() else []
    if nnodes == 1:
        _refuse_alone(settings)
        return NodePlace(notes=tuple(notes))
    rank, slip = _rank(settings, sources, environment)
    if slip:
        notes.append(slip)
    if rank >= nnodes:
        raise UsageError(
            f"--node-rank {rank} with --nnodes {nnodes}: nodes are numbered from 0 to {nnodes - 1}."
        )
    endpoint = settings.rdzv_endpoint or _first(source.endpoint for source in sources)
    if endpoint is None:
        raise UsageError(
            f"--nnodes {nnodes} needs --rdzv-endpoint HOST:PORT, the machine with --node-rank 0 "
            "and a free port of it, the same on all nodes (or PET_RDZV_ENDPOINT, "
            "PET_MASTER_ADDR, SLURM_JOB_NODELIST, SKYPILOT_NODE_IPS)."
        )
    return NodePlace(
        nnodes=nnodes, node_rank=rank, endpoint=whole_endpoint(endpoint), notes=tuple(notes)
    )


def _first(tellers: Iterable[Callable[[], PlaceValue | None]]) -> PlaceValue | None:
    """The first answer."""
    return next((told for teller in tellers if (told := teller()) is not None), None)


def whole_endpoint(text: str) -> str:
    """HOST:PORT of an endpoint that may lack its port.

    Raises:
        UsageError: it names no host, or something that is no port.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # an IPv6 address without port
        host, port = text.strip(), str(PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--rdzv-endpoint {text!r}: give HOST:PORT, the port from 1 to 65535.")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse_alone(settings: Settings) -> None:
    if settings.node_rank:
        raise UsageError(
            f"--node-rank {settings.node_rank} needs --nnodes N, the number of all nodes."
        )


def _rank(
    settings: Settings, sources: tuple[_Source, ...], environment: Mapping[str, str]
) -> tuple[int, str | None]:
    """This node's number, and what is to be said about it."""
    given = settings.node_rank
    called = environment.get("SLURM_NODEID", "").strip()
    if given == 0 and called.isdecimal() and int(called) and _in_step(environment):
        return int(called), (
            f"--node-rank is 0 here, but Slurm calls this node {called} (SLURM_NODEID): "
            "the shell put in the first node's number before srun started the others. Slurm's "
            "number is used; leave --node-rank out."
        )
    rank = _first(source.node_rank for source in sources) if given is None else given
    if rank is None:
        raise UsageError(
            "several nodes need --node-rank R, from 0, another one on each (or PET_NODE_RANK, "
            "SLURM_NODEID, SKYPILOT_NODE_RANK)."
        )
    return rank, None


@dataclass(frozen=True, slots=True)
class _Torchrun:
    """What torchrun reads in place of its own options."""

    environment: Mapping[str, str]

    def nnodes(self) -> int | None:
        return _nodes(self.environment, "PET_NNODES")

    def node_rank(self) -> int | None:
        return _number(self.environment, "PET_NODE_RANK")

    def endpoint(self) -> str | None:
        host, port = (self.environment.get(f"PET_MASTER_{word}") for word in ("ADDR", "PORT"))
        return self.environment.get("PET_RDZV_ENDPOINT") or (
            _joined(host, port or PORT) if host else None
        )

    def note(self) -> str:
        return ""


def _nodes(environment: Mapping[str, str], name: str) -> int | None:
    """A number of nodes, also written as ``2:2``."""
    least, _, most = environment.get(name, "").partition(":")
    if most and most != least:
        raise UsageError(
            f"{name}={least}:{most}: a sweep needs a fixed number of nodes, not from {least} to "
            f"{most}: give --nnodes."
        )
    return _number({name: least}, name)


@dataclass(frozen=True, slots=True)
class _Slurm:
    """Inside srun; in the batch script itself nobody starts the other nodes."""

    environment: Mapping[str, str]

    def nnodes(self) -> int | None:
        names = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
        found = _number(self.environment, *names)
        if found is None or found == 1 or not _in_step(self.environment):
            return None if found is None else 1
        self._refuse_tasks(found)
        return found

    def node_rank(self) -> int | None:
        if not _in_step(self.environment):
            return None
        return _number(self.environment, "SLURM_NODEID")

    def endpoint(self) -> str | None:
        lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        name = next((name for name in lists if self.environment.get(name)), None)
        if name is None or not _in_step(self.environment):
            return None
        try:
            hosts = host_names(self.environment[name])
        except ValueError as error:
            raise UsageError(f"{name}: {error}: give --rdzv-endpoint HOST:PORT.") from error
        job = _number(self.environment, "SLURM_JOB_ID")
        port = PORT if job is None else _SLURM_FIRST + job % _SLURM_PORTS
        return _joined(hosts[0], port) if hosts else None

    def note(self) -> str:
        nodes = _number(self.environment, "SLURM_NNODES", "SLURM_JOB_NUM_NODES") or 1
        if nodes == 1 or _in_step(self.environment):
            return ""
        return (
            f"Slurm has given {things(nodes, 'node')}, but this is not under srun: this node "
            "alone is used. For all of them: srun sfbench sweep …"
        )

    def _refuse_tasks(self, nnodes: int) -> None:
        tasks = _number(self.environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
        if tasks is not None and tasks > nnodes:
            raise UsageError(
                f"srun starts {tasks} of this command on {things(nnodes, 'node')}: sfbench starts "
                "the ranks of a node by itself. Use srun --ntasks-per-node=1."
            )


def _in_step(environment: Mapping[str, str]) -> bool:
    """Whether srun started this, and so the same on each of its nodes."""
    names = ("SLURM_STEP_ID", "SLURM_STEPID")
    return "SLURM_JOB_ID" not in environment or any(name in environment for name in names)


@dataclass(frozen=True, slots=True)
class _SkyPilot:
    """What SkyPilot sets for a task."""

    environment: Mapping[str, str]

    def nnodes(self) -> int | None:
        found = _number(self.environment, "SKYPILOT_NUM_NODES")
        return found or len(self._hosts()) or None

    def node_rank(self) -> int | None:
        return _number(self.environment, "SKYPILOT_NODE_RANK")

    def endpoint(self) -> str | None:
        hosts = self._hosts()
        return _joined(hosts[0], PORT) if hosts else None

    def note(self) -> str:
        return ""

    def _hosts(self) -> list[str]:
        return self.environment.get("SKYPILOT_NODE_IPS", "").split()


def _joined(host: str, port: int | str) -> str:
    """``HOST:PORT``, with the brackets that the address of IPv6 needs."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    """The first of some variables that is set."""
    for name in names:
        text = environment.get(name, "").strip()
        if text and not text.isdecimal():
            raise UsageError(f"{name}={text}: expected a whole number.")
        if text:
            return int(text)
    return None

"""Where this machine stands among others: options over what schedulers set. Pure.

Known are the variables of torchrun, which Kubeflow's TrainJob and PyTorchJob set too (``PET_*``),
of Slurm inside ``srun``, and of SkyPilot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sfbench.common.errors import UsageError
from sfbench.common.units import things
from sfbench.plan.node_list import host_names
from sfbench.plan.options import Settings

PORT = 29500
"""If an endpoint names none, as for torchrun."""
_SLURM_PORTS, _SLURM_FIRST = 10_000, 20_000
"""Two jobs of Slurm that share a machine meet at different ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where this machine stands."""

    nnodes: int = 1
    node_rank: int = 0
    endpoint: str | None = None
    """HOST:PORT; None: one node."""
    notes: tuple[str, ...] = ()


ALONE = NodePlace()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What an environment tells; None: nothing."""

    nnodes: int | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    note: str = ""


def node_place(settings: Settings, environment: Mapping[str, str]) -> NodePlace:
    """Options that were given, completed by the first scheduler that says how many nodes there are.

    Raises:
        UsageError: a variable that cannot be read, or what is missing, with where it comes from.
    """
    sources = (_torchrun, _slurm, _skypilot)
    candidates = [source(environment) for source in sources]
    found = next((c for c in candidates if c.nnodes is not None), _Found())
    nnodes = settings.nnodes or found.nnodes or 1
    notes = [found.note] if found.note and settings.nnodes is None else []
    if nnodes == 1:
        _refuse_alone(settings)
        return NodePlace(notes=tuple(notes))
    rank, slip = _rank(settings, found, environment)
    if slip:
        notes.append(slip)
    if rank >= nnodes:
        raise UsageError(
            f"--node-rank {rank} with --nnodes {nnodes}: nodes are numbered from 0 to {nnodes - 1}."
        )
    endpoint = settings.rdzv_endpoint or found.endpoint
    if endpoint is None:
        raise UsageError(
            f"--nnodes {nnodes} needs --rdzv-endpoint HOST:PORT, the machine with --node-rank 0 "
            "and a free port of it, the same on all nodes (or PET_RDZV_ENDPOINT, "
            "PET_MASTER_ADDR, SLURM_JOB_NODELIST, SKYPILOT_NODE_IPS)."
        )
    return NodePlace(
        nnodes=nnodes, node_rank=rank, endpoint=whole_endpoint(endpoint), notes=tuple(notes)
    )


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
    settings: Settings, found: _Found, environment: Mapping[str, str]
) -> tuple[int, str | None]:
    """This node's number, and what is to be said about it."""
    given = settings.node_rank
    slurm = _slurm(environment)
    if given == 0 and slurm.node_rank:
        return slurm.node_rank, (
            f"--node-rank is 0 here, but Slurm calls this node {slurm.node_rank} (SLURM_NODEID): "
            "the shell put in the first node's number before srun started the others. Slurm's "
            "number is used; leave --node-rank out."
        )
    rank = found.node_rank if given is None else given
    if rank is None:
        raise UsageError(
            "several nodes need --node-rank R, from 0, another one on each (or PET_NODE_RANK, "
            "SLURM_NODEID, SKYPILOT_NODE_RANK)."
        )
    return rank, None


def _torchrun(environment: Mapping[str, str]) -> _Found:
    """What torchrun reads in place of its own options."""
    host, port = environment.get("PET_MASTER_ADDR"), environment.get("PET_MASTER_PORT")
    endpoint = environment.get("PET_RDZV_ENDPOINT")
    if not endpoint and host:
        endpoint = _joined(host, port or PORT)
    return _Found(
        nnodes=_nodes(environment, "PET_NNODES"),
        node_rank=_number(environment, "PET_NODE_RANK"),
        endpoint=endpoint or None,
    )


def _nodes(environment: Mapping[str, str], name: str) -> int | None:
    """A number of nodes, also written as ``2:2``."""
    least, _, most = environment.get(name, "").partition(":")
    if most and most != least:
        raise UsageError(
            f"{name}={least}:{most}: a sweep needs a fixed number of nodes, not from {least} to "
            f"{most}: give --nnodes."
        )
    return _number({name: least}, name)


def _slurm(environment: Mapping[str, str]) -> _Found:
    """Inside srun; in the batch script itself nobody starts the other nodes."""
    nnodes = _number(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    if nnodes is None or nnodes == 1:
        return _Found(nnodes=nnodes)
    in_step = any(name in environment for name in ("SLURM_STEP_ID", "SLURM_STEPID"))
    if "SLURM_JOB_ID" in environment and not in_step:
        return _Found(
            nnodes=1,
            note=f"Slurm has given {things(nnodes, 'node')}, but this is not under srun: this "
            "node alone is "
            "used. For all of them: srun sfbench sweep …",
        )
    _refuse_tasks(environment, nnodes)
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    name = next((name for name in lists if environment.get(name)), None)
    endpoint = None
    if name is not None:
        try:
            hosts = host_names(environment[name])
        except ValueError as error:
            raise UsageError(f"{name}: {error}: give --rdzv-endpoint HOST:PORT.") from error
        job = _number(environment, "SLURM_JOB_ID")
        port = PORT if job is None else _SLURM_FIRST + job % _SLURM_PORTS
        endpoint = _joined(hosts[0], port) if hosts else None
    return _Found(nnodes=nnodes, node_rank=_number(environment, "SLURM_NODEID"), endpoint=endpoint)


def _refuse_tasks(environment: Mapping[str, str], nnodes: int) -> None:
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    if tasks is not None and tasks > nnodes:
        raise UsageError(
            f"srun starts {tasks} of this command on {things(nnodes, 'node')}: sfbench starts "
            "the ranks of a "
            "node by itself. Use srun --ntasks-per-node=1."
        )


def _skypilot(environment: Mapping[str, str]) -> _Found:
    hosts = environment.get("SKYPILOT_NODE_IPS", "").split()
    return _Found(
        nnodes=_number(environment, "SKYPILOT_NUM_NODES") or len(hosts) or None,
        node_rank=_number(environment, "SKYPILOT_NODE_RANK"),
        endpoint=_joined(hosts[0], PORT) if hosts else None,
    )


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

"""What nodes tell each other through the store of their meeting: JSON of these values. Pure.

Not pickled: whoever reaches the port could otherwise run code on every node.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter

from sfbench.common.schema import ProbeOptions
from sfbench.launch.outcome import LaunchError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node is and would run; fields without ``host`` have to agree (``difference``)."""

    host: str
    address: str
    """Of the interface that leads to the endpoint."""
    reached: str
    """The endpoint's address, as this node sees it."""
    clock_s: float
    """How far its clock is ahead of the first node's."""
    sfbench: str
    python: str
    torch: str
    nccl: str
    gpu_driver: str
    gpus: tuple[str, ...]
    device_type: str
    threads_per_device: int
    cpu: str
    cores: int
    """This and ``cpu`` only where they are the devices."""
    script: str
    script_sha256: str
    script_args: tuple[str, ...]
    nnodes: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """What the first node tells the others to do next."""

    over: str | None = None
    """Why there is nothing more to do; empty: the sweep came to its end. The rest means nothing."""
    run_id: str = ""
    spread: tuple[int, ...] = ()
    """Ranks of each node that takes part."""
    timeout_s: float = 0.0
    log_name: str = ""
    probe: ProbeOptions = field(default_factory=ProbeOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """How a launch ended on a node that is not the first."""

    status: str
    error: LaunchError | None
    logs: dict[str, str]
    """Name of a rank's log -> its end."""
    evidence: dict[str, str]
    """Name of a file that a rank left for the correctness checks -> its text."""


TEXT_BYTES = 2 << 20
"""All texts of a node's end together. torch's store takes no value above 8 MiB."""


def fitting(end: NodeEnd) -> NodeEnd:
    """With the ends of the logs, and as many whole files for the checks as there is room for."""
    room, logs = TEXT_BYTES, {}
    for place, (name, text) in enumerate(end.logs.items()):
        logs[name] = _end_of(text, room // (len(end.logs) - place))
        room -= _encoded(logs[name])
    evidence = {}
    for name, text in sorted(end.evidence.items(), key=lambda item: len(item[1])):
        if _encoded(text) > room:
            break
        evidence[name] = text
        room -= _encoded(text)
    return dataclasses.replace(end, logs=logs, evidence=evidence)


def _encoded(text: str) -> int:
    return len(json.dumps(text))


def _end_of(text: str, most: int) -> str:
    """The last lines that take no more than that; a character takes up to twelve bytes."""
    return text if _encoded(text) <= most else text[-(most // 12) :]


Message = TypeVar("Message", NodeFacts, LaunchOrder, NodeEnd)


def to_text(message: NodeFacts | LaunchOrder | NodeEnd) -> str:
    """For the store."""
    return json.dumps(dataclasses.asdict(message))


def from_text(kind: type[Message], text: bytes | str) -> Message:
    """Out of the store."""
    adapter: Any = TypeAdapter(kind)
    message: Message = adapter.validate_json(text)
    return message

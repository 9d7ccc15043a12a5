"""What a node is, and whether two may take part in one sweep."""

from __future__ import annotations

import dataclasses
import platform
import socket
from importlib.metadata import version

from sfbench.collect.environment import cpu_name, script_state
from sfbench.launch.node_messages import NodeFacts
from sfbench.plan.machine import Machine
from sfbench.plan.sweep_plan import SweepPlan

CLOCK_S = 5.0
"""Clocks may differ by so much: what is told of times across nodes stands in files only."""
_OWN = ("host", "address", "reached", "clock_s")
_NAMES = {
    "gpu_driver": "GPU driver",
    "gpus": "GPUs",
    "threads_per_device": "threads per device",
    "script_sha256": "SHA-256 of the script",
    "script_args": "the script's arguments",
    "nnodes": "--nnodes",
    "devices": "--devices",
    "device_type": "device",
    "cpu": "CPU",
    "nccl": "NCCL",
}
_REMEDY = {
    "threads_per_device": "give --threads-per-device, the same on all nodes",
    "script_sha256": "copy the same script to all nodes",
    "cores": "let nodes have as many cores each, or say how many with taskset",
}


def facts_of(
    plan: SweepPlan, machine: Machine, address: str, reached: str, clock_s: float
) -> NodeFacts:
    """This node; ``address`` and ``reached``: its own and the endpoint's on the way there."""
    on_cpu = plan.device_type == "cpu"
    return NodeFacts(
        host=socket.gethostname(),
        address=address,
        reached=reached,
        clock_s=clock_s,
        sfbench=version("sfbench"),
        python=platform.python_version(),
        torch=version("torch"),
        nccl=_nccl(plan),
        gpu_driver=machine.gpu_driver or "",
        gpus=() if on_cpu else machine.gpus,
        device_type=plan.device_type,
        threads_per_device=plan.threads_per_device,
        cpu=cpu_name() if on_cpu else "",
        cores=machine.usable_cores if on_cpu else 0,
        script=plan.target.script.name,
        script_sha256=script_state(plan.target.script).sha256,
        script_args=plan.target.args,
        nnodes=plan.nnodes,
        devices=plan.devices,
    )


def difference(first: NodeFacts, other: NodeFacts) -> str | None:
    """The first field in which a node differs from the first node, with both values."""
    if abs(other.clock_s) > CLOCK_S:
        side = "ahead" if other.clock_s > 0 else "behind"
        return f"its clock is {abs(other.clock_s):.1f} s {side}. Set the clocks alike (NTP)."
    for field in dataclasses.fields(NodeFacts):
        mine, theirs = getattr(first, field.name), getattr(other, field.name)
        if field.name not in _OWN and mine != theirs:
            name = _NAMES.get(field.name, field.name)
            remedy = _REMEDY.get(field.name, "nodes have to be alike")
            return f"{name}: {_shown(theirs)} there, {_shown(mine)} here; {remedy}."
    return None


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"


def _nccl(plan: SweepPlan) -> str:
    if plan.device_type != "cuda":
        return ""
    import torch

    if torch.version.cuda is None:
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]

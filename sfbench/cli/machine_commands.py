"""``sfbench workloads`` and ``sfbench info``: what can be run, and on what."""

from __future__ import annotations

from sfbench import __version__


def workloads() -> None:
    """List the reference workloads."""
    from sfbench.plan.targets import workloads as known

    for workload in known():
        print(f"{workload.name:12} {workload.summary}")


def info() -> None:
    """Say what this machine offers."""
    from sfbench.plan.machine import this_machine

    machine = this_machine()
    print(f"cores    {machine.usable_cores} ({len(machine.cores)} visible)")
    print(f"GPUs     {', '.join(machine.gpus) or 'none that this torch can use'}")
    if machine.gpu_problem or machine.gpu_note:
        print(f"         {machine.gpu_problem or machine.gpu_note}")
    print(f"sfbench  {__version__}")

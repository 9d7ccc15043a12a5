"""From what a person asked for to a plan for this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sfbench.plan.machine import Machine, this_machine
from sfbench.plan.node_environment import ALONE, node_place
from sfbench.plan.planner import make_plan
from sfbench.plan.settings import load_settings
from sfbench.plan.sweep_plan import SweepPlan
from sfbench.plan.targets import resolve_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be run, and on what."""

    plan: SweepPlan
    machine: Machine
    notes: tuple[str, ...] = ()
    """What a person has to know of how the request was understood."""


def planned(
    given: Mapping[str, Any], script_args: tuple[str, ...] = (), *, nodes: bool = False
) -> Request:
    """The plan of options (None: not given), the settings of the project, and this machine.

    ``nodes``: where this machine stands among others is read from the environment too.

    Raises:
        UsageError: an option, a setting or the target is wrong.
    """
    machine = this_machine()
    settings = load_settings(dict(given), Path.cwd())
    target = resolve_target(settings.target, script_args)
    place = node_place(settings, os.environ) if nodes else ALONE
    plan = make_plan(settings, target, machine, datetime.now(), place)
    return Request(plan=plan, machine=machine, notes=place.notes)

"""Launches the sides of a gate and keeps what they measured."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.errors import InterruptedSweep, MeasureError, ScriptError, Unsteady
from sfbench.common.schema import LADDER, CodeRoot, LaunchRecord, Rung
from sfbench.gating.checkouts.arms import Arm, Arms
from sfbench.gating.checkouts.git import differing
from sfbench.gating.checkouts.imports import check_code, check_different
from sfbench.gating.gate_observer import GateObserver
from sfbench.gating.gate_report import ArmName, GateOptions, SlotValue
from sfbench.gating.slots import slot_value
from sfbench.gating.statistics.loop import Measure
from sfbench.guard.scratch import is_kept, keep, new_scratch
from sfbench.launch.local import LocalLauncher
from sfbench.plan.machine import Machine
from sfbench.plan.planner import pinning
from sfbench.plan.sweep_plan import LaunchPlan, SweepPlan
from sfbench.run.sweep import run_launch

LADDER_PAIRS = 2
"""Pairs that measure all rungs, for the parts of the step and the one-device rate."""
DECIDING: tuple[Rung, ...] = ("train", "cached")
"""What all pairs measure: the job, and the control."""
SECOND_TRIES = 3
"""How often a launch without a steady state is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJob:
    """What is run, and how."""

    plan: SweepPlan
    machine: Machine
    options: GateOptions
    command: str
    """For the report: how to run it again."""


class Sides:
    """Everything that one gate launches, in one launcher."""

    def __init__(
        self, job: GateJob, launcher: LocalLauncher, logs: Path, observer: GateObserver
    ) -> None:
        """``logs``: folder for the ranks' logs."""
        self._job = job
        self._launcher = launcher
        self._logs = logs
        self._observer = observer
        self._launches = 0
        self.launches: dict[ArmName, list[MeasuredLaunch]] = {"base": [], "candidate": []}
        self.slots: dict[ArmName, list[SlotValue]] = {"base": [], "candidate": []}
        self.only_read: tuple[str, ...] = ()
        """If both sides imported the same code: changed files that the script may read."""

    def measure_in(self, arms: Arms | None, *, ladder_pairs: int = 0) -> Measure:
        """How to launch a side from its checkout; None: from where the script lies.

        The first ``ladder_pairs`` pairs measure all rungs.
        """

        def measure(arm: ArmName, pair: int) -> SlotValue:
            self._observer.pair_started(arm, pair)
            ladder = pair < ladder_pairs or self._job.options.min_efficiency is not None
            rungs: tuple[Rung, ...] = LADDER if ladder else DECIDING
            launched, slot = self._steady(arm, pair, arms.get(arm) if arms else None, rungs)
            self.launches[arm].append(launched)
            self.slots[arm].append(slot)
            if pair == 0:
                self._check_anchor(arm)
                if arms is not None:
                    self._check_sides(arms)
            return slot

        return measure

    def record(self, arm: ArmName) -> LaunchRecord | None:
        """What the first launch of a side left."""
        return self.launches[arm][0].record if self.launches[arm] else None

    def _steady(
        self, arm: ArmName, pair: int, checkout: Arm | None, rungs: tuple[Rung, ...]
    ) -> tuple[MeasuredLaunch, SlotValue]:
        """A launch with a steady state; one without is made again, a few times."""
        for left in reversed(range(SECOND_TRIES + 1)):
            launched = self._launch(arm, checkout, rungs)
            try:
                return launched, slot_value(arm, pair, launched)
            except Unsteady:
                if not left:
                    raise
                self._observer.launch_repeated("no steady state", left)
        raise AssertionError("unreachable")

    def _launch(
        self, arm: ArmName, checkout: Arm | None, rungs: tuple[Rung, ...]
    ) -> MeasuredLaunch:
        """One launch of one side.

        Raises:
            ScriptError, MeasureError: it gave nothing; the text says which side.
        """
        plan = replace(self._job.plan, rungs=rungs)
        code = None
        if checkout is not None:
            plan, code = in_checkout(plan, checkout)
        launched = run_launch(
            plan,
            self._launch_plan(plan, len(self.launches[arm])),
            self._logs / arm,
            self._observer,
            self._launcher.run,
            code=code,
        )
        self._launches += 1
        if launched.record is None:
            raise _broken(arm, launched, self._logs / arm)
        if code is not None:
            check_code(arm, launched.record.modules)
        return launched

    def _launch_plan(self, plan: SweepPlan, round_: int) -> LaunchPlan:
        options = self._job.options
        return LaunchPlan(
            index=self._launches,
            round=round_,
            devices=options.devices,
            cores=pinning(plan, options.devices, self._job.machine),
            seconds=options.seconds,
            # Both sides of a pair visit the rungs in the same order.
            seed=options.seed + round_,
        )

    def _check_anchor(self, arm: ArmName) -> None:
        """A floor for efficiency cannot be judged without the base's one-device rate."""
        record, floor = self.record(arm), self._job.options.min_efficiency
        if floor is not None and arm == "base" and record and "solo" in record.unavailable:
            raise MeasureError(
                f"--min-efficiency: the base's one-device rate cannot be measured: "
                f"{record.unavailable['solo']}"
            )

    def _check_sides(self, arms: Arms) -> None:
        """Once both have run: sides that are meant to differ must."""
        base, candidate = self.record("base"), self.record("candidate")
        if base is not None and candidate is not None and arms.base.commit != arms.candidate.commit:
            changed = differing(arms.base.root, arms.base.commit, arms.candidate.commit)
            self.only_read = check_different(base.modules, candidate.modules, changed)


@contextmanager
def opened(job: GateJob, observer: GateObserver) -> Iterator[Sides]:
    """A launcher for one gate; the ranks' logs are kept only if a side gave nothing."""
    logs = new_scratch("logs")
    plan = job.plan
    try:
        with LocalLauncher(
            threads=plan.threads_per_device, device_type=plan.device_type
        ) as launcher:
            yield Sides(job, launcher, logs, observer)
    except (ScriptError, MeasureError) as error:
        if any(logs.iterdir()) and not isinstance(error, Unsteady):
            keep(logs)
        raise
    finally:
        if not is_kept(logs):
            shutil.rmtree(logs)


def in_checkout(plan: SweepPlan, arm: Arm) -> tuple[SweepPlan, CodeRoot]:
    """The plan with its script, and arguments that lead into the repository, in a side's checkout.

    Raises:
        ScriptError: the script does not exist there.
    """
    target = plan.target
    script = _moved(target.script, arm)
    if not script.is_file():
        raise ScriptError(f"{arm.name} is broken: it has no {target.script.name} ({arm.commit})")
    here = Path.cwd()
    cwd = _moved(here, arm)
    # A folder that git does not know is where the script runs all the same.
    cwd.mkdir(parents=True, exist_ok=True)
    args = tuple(_moved_argument(arg, here, cwd, arm) for arg in target.args)
    code = CodeRoot(folder=str(arm.folder), instead_of=str(arm.root), cwd=str(cwd))
    return replace(plan, target=replace(target, script=script, args=args)), code


def _moved(path: Path, arm: Arm) -> Path:
    """A path in the repository as it is in the checkout; any other stays."""
    # By its name below the root, not by what a link there leads to: the sides' links may differ.
    for above in (*reversed(path.parents), path):
        below = os.path.normpath(path.relative_to(above))
        if not _leaves(below) and above.resolve() == arm.root:
            return arm.folder / below
    whole = path.resolve()
    return arm.folder / whole.relative_to(arm.root) if whole.is_relative_to(arm.root) else path


def _moved_argument(arg: str, here: Path, cwd: Path, arm: Arm) -> str:
    """``/repo/config.yaml``, ``--config=/repo/config.yaml`` or, from elsewhere, ``repo/data``.

    Args:
        arg: as it was given.
        here: where the person stands.
        cwd: where the script will start.
        arm: whose checkout the argument is led into.
    """
    named = _named(arg, arm)
    if named != arg:
        return named
    option, equals, value = arg.rpartition("=")
    try:
        if Path(value).is_absolute():
            return f"{option}{equals}{_moved(Path(value), arm)}"
        if _stays(value, cwd, arm):
            return arg
        moved = _moved(here / value, arm)
        # A word that is no path, and what is yet to be written, stay as they are.
        leads_in = moved.is_relative_to(arm.folder) and moved.exists()
    except (OSError, RuntimeError):  # too long for a path, or links in a circle
        return arg
    return f"{option}{equals}{moved}" if leads_in else arg


def _named(arg: str, arm: Arm) -> str:
    """With the checkout in the repository's place, wherever a word names it.

    ``-c/repo/a.yaml``, ``/repo/a:/repo/b``, ``file:///repo/a``, ``["/repo/a"]``.
    """
    return re.sub(
        rf"(^(?:-\w)?|file://|[=,:;\"'\[({{\s]){re.escape(str(arm.root))}(?!/\.\.)(?=$|[/,:;\"'\])}}\s])",
        lambda found: f"{found[1]}{arm.folder}",
        arg,
    )


def _stays(value: str, cwd: Path, arm: Arm) -> bool:
    """Whether a relative path, taken from where the script starts, ends in the checkout anyway."""
    if not cwd.resolve().is_relative_to(arm.folder):
        return False  # elsewhere, or in a folder that is linked into the checkout
    return not _leaves(os.path.normpath(cwd.relative_to(arm.folder) / value))


def _leaves(relative: str) -> bool:
    return Path(relative).parts[:1] == (os.pardir,)


def _broken(
    arm: ArmName, launched: MeasuredLaunch, logs: Path
) -> ScriptError | MeasureError | InterruptedSweep:
    error = launched.outcome.error
    if error is None:
        return MeasureError(f"{arm}: {launched.outcome.status}")
    if error.kind == "interrupted":
        return InterruptedSweep(error.message)
    # What the probe itself has said there is in the message.
    lines = [line for line in error.last_lines if not line.startswith("sfbench: ")]
    last = "".join(f"\n    {line}" for line in lines)
    text = f"{error.message}{last}\nThe ranks' logs: {logs}"
    if error.script_fault:
        return ScriptError(f"{arm} is broken: {text}")
    return MeasureError(f"{arm} could not be measured: {text}")

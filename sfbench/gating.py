"""Runs a gate from options to verdict: launches both sides in turn and looks as was agreed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfbench.collect.model import MeasuredLaunch
from sfbench.errors import MeasureError, ScriptError
from sfbench.gate.arms import Arm, ArmName, Arms, checked_out, swapped
from sfbench.gate.decision import LOOKS
from sfbench.gate.git import root_of
from sfbench.gate.judge import Subject, report, verdict_at_end, verdict_so_far
from sfbench.gate.model import GateOptions, GateReport, SlotValue, Verdict
from sfbench.gate.schedule import pair_orders
from sfbench.gate.slots import check_code, check_different, slot_value
from sfbench.launch.local import LocalLauncher
from sfbench.plan.machine import Machine
from sfbench.plan.make import pinning
from sfbench.plan.model import LaunchPlan, SweepPlan
from sfbench.progress import Observer
from sfbench.schema import CodeRoot
from sfbench.sweeps import run_launch

CONFIRM_PAIRS = LOOKS[0]
"""A FAIL is seen again in this many pairs of fresh launches with the worktrees swapped."""


@dataclass(slots=True)
class _Measured:
    """Everything launched so far."""

    slots: list[SlotValue] = field(default_factory=list)
    launches: dict[ArmName, list[MeasuredLaunch]] = field(
        default_factory=lambda: {"base": [], "candidate": []}
    )
    longest_pair_s: float = 0.0


class Gate:
    """One comparison: what is run, how, and who watches."""

    def __init__(
        self, plan: SweepPlan, machine: Machine, options: GateOptions, observer: Observer
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._options = options
        self._observer = observer
        self._orders: Iterator[tuple[ArmName, ArmName]] = pair_orders(options.seed)
        self._index = 0

    def against(self, base_ref: str) -> GateReport:
        """Compare the working tree with a commit.

        Raises:
            UsageError: no such commit, nothing to compare, or a side ran the wrong code.
            ScriptError: a side is broken; the text says which.
            MeasureError: a side could not be measured.
        """
        began = time.monotonic()
        root = root_of(self._plan.target.script)
        with checked_out(root, base_ref) as arms, self._launcher() as launcher:
            measured = _Measured()
            verdict = self._decide(arms, launcher, measured, began)
            confirmed = False
            if verdict == "fail":
                verdict, confirmed = self._confirm(arms, launcher, measured)
            return self._report(arms, base_ref, measured, verdict, confirmed, began)

    def identical(self, pairs: int) -> list[SlotValue]:
        """A/A: the working tree on both sides, a fixed number of pairs."""
        root = root_of(self._plan.target.script)
        measured = _Measured()
        with checked_out(root, "HEAD", identical=True) as arms, self._launcher() as launcher:
            for pair in range(pairs):
                self._pair(arms, launcher, measured, pair)
        return measured.slots

    def _launcher(self) -> AbstractContextManager[LocalLauncher]:
        threads, device = self._plan.threads_per_device, self._plan.device_type
        return LocalLauncher(threads=threads, device_type=device)

    def _decide(
        self, arms: Arms, launcher: LocalLauncher, measured: _Measured, began: float
    ) -> Verdict:
        for pair in range(LOOKS[-1]):
            spent = time.monotonic() - began
            if pair and spent + measured.longest_pair_s > self._options.budget_s:
                break
            self._pair(arms, launcher, measured, pair)
            if pair == 0:
                self._check_sides(measured)
            verdict = verdict_so_far(measured.slots, self._options)
            if verdict is not None:
                return verdict
        return verdict_at_end(measured.slots, self._options)

    def _confirm(
        self, arms: Arms, launcher: LocalLauncher, measured: _Measured
    ) -> tuple[Verdict, bool]:
        """Fresh launches, each side in the other's folder; the first verdict has to come again."""
        again = _Measured()
        with swapped(arms) as other:
            for pair in range(CONFIRM_PAIRS):
                self._pair(other, launcher, again, pair)
        verdict = verdict_so_far(again.slots, self._options)
        if verdict == "fail":
            return "fail", True
        first = len({slot.pair for slot in measured.slots})
        measured.slots.extend(replace(slot, pair=first + slot.pair) for slot in again.slots)
        return ("contaminated" if verdict == "contaminated" else "inconclusive"), False

    def _pair(self, arms: Arms, launcher: LocalLauncher, measured: _Measured, pair: int) -> None:
        began = time.monotonic()
        for name in next(self._orders):
            launch = self._launch(arms.get(name), arms.root, launcher)
            check_code(name, launch)
            measured.slots.append(slot_value(name, pair, launch))
            measured.launches[name].append(launch)
        measured.longest_pair_s = max(measured.longest_pair_s, time.monotonic() - began)

    def _check_sides(self, measured: _Measured) -> None:
        base, candidate = (measured.launches[name][-1].record for name in ("base", "candidate"))
        assert base is not None
        assert candidate is not None
        check_different(base.modules, candidate.modules)

    def _launch(self, arm: Arm, root: Path, launcher: LocalLauncher) -> MeasuredLaunch:
        """One launch of one side.

        Raises:
            ScriptError, MeasureError: it gave nothing; the text says which side.
        """
        plan = _in_arm(self._plan, arm, root)
        launch = LaunchPlan(
            index=self._index,
            round=self._index,
            devices=self._options.devices,
            cores=pinning(plan, self._options.devices, self._machine),
            seconds=self._options.seconds,
            seed=self._options.seed + self._index,
        )
        self._index += 1
        code = CodeRoot(
            folder=str(arm.folder), instead_of=str(root), cwd=str(_moved(Path.cwd(), root, arm))
        )
        with tempfile.TemporaryDirectory(prefix="sfbench-logs-") as logs:
            done = run_launch(plan, launch, Path(logs), self._observer, launcher.run, code=code)
        if done.record is None:
            raise _broken(arm.name, done)
        return done

    def _report(
        self,
        arms: Arms,
        base_ref: str,
        measured: _Measured,
        verdict: Verdict,
        confirmed: bool,
        began: float,
    ) -> GateReport:
        records = [m.record for launches in measured.launches.values() for m in launches]
        subject = Subject(
            target=self._plan.target.name,
            base_ref=base_ref,
            base_commit=arms.base.commit,
            candidate_commit=arms.candidate.commit,
            emulated=any(record is not None and record.loop.emulated for record in records),
        )
        return report(
            subject,
            measured.slots,
            self._options,
            verdict,
            confirmed=confirmed,
            duration_s=time.monotonic() - began,
        )


def _in_arm(plan: SweepPlan, arm: Arm, root: Path) -> SweepPlan:
    """The plan with its script taken from a side's checkout.

    Raises:
        ScriptError: the script does not exist there.
    """
    script = _moved(plan.target.script, root, arm)
    if not script.is_file():
        raise ScriptError(f"{arm.name}: {plan.target.script.name} does not exist in {arm.commit}")
    return replace(plan, target=replace(plan.target, script=script))


def _moved(path: Path, root: Path, arm: Arm) -> Path:
    inside = path.resolve().is_relative_to(root)
    return arm.folder / path.resolve().relative_to(root) if inside else arm.folder


def _broken(name: ArmName, done: MeasuredLaunch) -> ScriptError | MeasureError:
    error = done.outcome.error
    message = error.message if error is not None else done.outcome.status
    last = "\n".join(error.last_lines) if error is not None else ""
    text = f"{name} is broken: {message}\n{last}".rstrip()
    if error is not None and error.script_fault:
        return ScriptError(text)
    return MeasureError(text)


def touched(changed: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether any changed path matches a pattern like ``data/**`` or ``transforms.py``."""
    matches: Callable[[str], bool] = lambda path: any(  # noqa: E731
        Path(path).match(p) or _below(path, p) for p in patterns
    )
    return any(matches(path) for path in changed)


def _below(path: str, pattern: str) -> bool:
    folder = pattern.removesuffix("/**").removesuffix("/")
    return pattern.endswith(("/**", "/")) and Path(path).is_relative_to(folder)

"""Short real sweeps, each with a fault at random: nothing is lost, left or hangs.

    python tests/faults/random_ends.py --sweeps 200 --seed 0 [--only 17]

Each sweep measures a script that saves over a user's files, at 1 and 2 devices. At a moment taken
at random a process of the tool gets a signal, a disk gets full, or a folder is removed. Afterwards
no process and no file may be left, the user's files are as they were, what was measured is stored,
and nobody is blamed who did nothing. ``--only`` repeats one by its number.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psutil
from random_scene import MOMENTS, SIGNALS, Scene, ends, tree

from sfbench.common.schema import SweepResult

LIMIT_S = 60.0
"""For a sweep to begin, and to end after its fault."""
ALONE_S = 15.0
AT_ONCE = 2
PARTS = ("command", "host", "server", "rank", "worker", "guard", "tracker", "all")
FULL = ("TMPDIR", "/dev/shm")
REMOVED = ("current folder", "output", "partial", "script", "TMPDIR")
_ENDED = re.compile(r"^devices (\d+), round 1: ended", re.MULTILINE)
_BLAMED = ("rank", "worker", "all")
"""Where a kill looks like the script's own end."""
_NEVER = re.compile(r'defect of sfbench|File ".*/sfbench/\w+/.*')
"""A defect, or a frame of the tool's own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, to whom, when."""

    kind: str
    """signal, full or removed."""
    what: str
    moment: str
    delay_s: float
    number: int = 0
    """Of a signal."""
    which: int = 0
    """Of several processes of that part."""
    force: bool = False
    servers: int = 1

    def __str__(self) -> str:
        name = signal.Signals(self.number).name if self.kind == "signal" else self.kind
        again = ", over an older result" if self.force else ""
        return f"{name} {self.what} at {self.moment} +{self.delay_s:.2f} s{again}"


def fault(seed: int, number: int) -> Fault:
    """The fault of a sweep, always the same."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.choices(("signal", "full", "removed"), (6, 1.5, 2.5))[0]
    moment = chance.choice(MOMENTS)
    what = chance.choice({"signal": PARTS, "full": FULL, "removed": REMOVED}[kind])
    return Fault(
        kind=kind, what=what, moment=moment, delay_s=chance.uniform(0, 0.4) ** 2 * 2.5,
        number=chance.choice(SIGNALS), which=chance.randrange(2), force=chance.random() < 0.4,
        servers=1 + (chance.random() < 0.2),  # it takes twice as long
    )  # fmt: skip


def happen(fault: Fault, scene: Scene) -> bool:
    """Let it happen; False where what it is about is not there."""
    if fault.kind == "signal":
        return _signal(fault, scene)
    if fault.kind == "full":
        scene.fill(scene.tmp if fault.what == "TMPDIR" else fault.what)
        return True
    place = {
        "current folder": scene.here, "output": scene.out, "script": scene.script,
        "TMPDIR": scene.inside(scene.tmp), "partial": next(scene.out.glob(".*.partial"), None),
    }[fault.what]  # fmt: skip
    if place is None:
        return False
    if fault.what == "script":
        place.unlink()
    elif fault.what == "TMPDIR":
        for each in place.iterdir():
            shutil.rmtree(each, ignore_errors=True)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return True


def _signal(fault: Fault, scene: Scene) -> bool:
    parts = PARTS[:-1] if fault.what == "all" else (fault.what,)
    found = [p for part in parts for p in scene.processes(part)]
    if fault.what != "all" and found:
        found = [found[fault.which % len(found)]]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(fault.number)
    return bool(found)


def faults_of(fault: Fault, scene: Scene, *, happened: bool) -> Iterator[str]:
    """What is wrong after a sweep has ended."""
    killed = scene.command.returncode == -signal.SIGKILL
    if left := scene.wait_alone(ALONE_S):
        yield f"processes are left: {left}"
    needs_tidying = killed or (
        happened and fault.kind == "signal" and fault.what in ("guard", "all")
    )
    if needs_tidying and (told := scene.tidy()):
        yield f"the next command cannot tidy: {told}"
    if left_files := scene.left():
        yield f"files are left: {left_files}"
    yield from _user(fault, scene, happened)
    yield from _results(fault, scene, killed, happened)
    yield from _said(fault, scene, happened)


def _user(fault: Fault, scene: Scene, happened: bool) -> Iterator[str]:
    before, after = scene.before, tree(scene.user)
    if happened and (fault.kind, fault.what) == ("removed", "script"):
        before = {name: state for name, state in before.items() if name != scene.script.name}
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"the user's {name} was {before.get(name)} and is {after.get(name)}"


def _results(fault: Fault, scene: Scene, killed: bool, happened: bool) -> Iterator[str]:
    found = scene.results()
    gone = happened and (fault.kind, fault.what) == ("removed", "output")
    yield from (f"{name}: {broken}" for name, broken in found.items() if isinstance(broken, str))
    if fault.force and not gone and "one" not in found:
        yield "the older result is gone"
    new = [r for r in found.values() if isinstance(r, SweepResult) and "train.py" in r.target]
    if killed:
        return
    measured = {int(n) for n in _ENDED.findall(scene.said())}
    kept = {p.devices for result in new for p in result.points if p.status == "ok"}
    if lost := measured - kept:
        yield f"measured, but not stored: {sorted(lost)} devices"
    innocent = fault.kind != "signal" or fault.what not in _BLAMED
    if innocent and (fault.kind, fault.what) != ("removed", "script"):
        for point in (p for result in new for p in result.points if p.script_fault):
            yield f"the script is blamed at {point.devices} devices: {point.error}"


def _said(fault: Fault, scene: Scene, happened: bool) -> Iterator[str]:
    code, said = scene.command.returncode, scene.said()
    allowed = {0} if not happened else {0, 4, 5}
    if happened and fault.kind == "signal" and fault.what in ("command", "all"):
        allowed = {0, 130, -fault.number}
    if happened and fault.kind != "signal":
        allowed |= {2}
    if code not in allowed:
        yield f"exit code {code}, not one of {sorted(allowed)}"
    if (never := _NEVER.search(said)) and "launcher" not in said:  # it shows its own last lines
        yield f"it says {never[0]!r}"
    if code not in (0, -fault.number) and not said.strip():
        yield f"exit code {code} without a word"


@dataclass(frozen=True, slots=True)
class End:
    """How one sweep ended."""

    number: int
    fault: Fault
    happened: bool
    code: int | None
    wall_s: float
    wrong: tuple[str, ...]
    said: str


def attempt(seed: int, number: int) -> End | str:
    """Run one sweep with its fault; a text: why it cannot be run here."""
    chosen = fault(seed, number)
    began = time.monotonic()
    scene = Scene(force=chosen.force, servers=chosen.servers)
    try:
        needs_mounts = chosen.kind == "full" or chosen.what == "TMPDIR"
        if needs_mounts and not scene.own_mounts:
            return f"{number}: {chosen}: not run, nothing can be mounted here"
        scene.start()
        happened = scene.wait_for(chosen.moment, LIMIT_S)
        if happened:
            time.sleep(chosen.delay_s)
            happened = scene.command.poll() is None and happen(chosen, scene)
        wrong = [] if ends(scene.command, LIMIT_S) else [f"still runs after {LIMIT_S:g} s"]
        if not wrong:
            wrong = list(faults_of(chosen, scene, happened=happened))
        return End(
            number, chosen, happened, scene.command.returncode, time.monotonic() - began,
            tuple(wrong), scene.said(),
        )  # fmt: skip
    finally:
        scene.close()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def told(end: End, seed: int) -> None:
    """One line, and what is wrong."""
    happened = "" if end.happened else " (came too late)"
    say(f"{end.number:4} {end.wall_s:5.1f} s  exit {end.code}  {end.fault}{happened}")
    for wrong in end.wrong:
        say(f"     WRONG: {wrong}")
    if end.wrong:
        said = "\n".join(f"     | {line}" for line in end.said.splitlines()[-25:])
        say(f"{said}\n     again: python {__file__} --seed {seed} --only {end.number}")


def main() -> int:
    """Run all, two at a time. The exit code is 1 where one of them went wrong."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--sweeps", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", type=int, default=None, help="the number of one of them")
    given = options.parse_args()
    numbers = range(given.sweeps) if given.only is None else [given.only]
    say(f"seed {given.seed}, {len(numbers)} sweeps")
    began, ran, bad = time.monotonic(), Counter[str](), []
    run: Callable[[int], End | str] = lambda number: attempt(given.seed, number)  # noqa: E731
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for end in pool.map(run, numbers):
            if isinstance(end, str):
                say(end)
                ran["not run"] += 1
                continue
            told(end, given.seed)
            ran["with a fault" if end.happened else "too late for one"] += 1
            bad += [end.number] if end.wrong else []
    counts = ", ".join(f"{count} {what}" for what, count in ran.items())
    say(f"{counts}; {len(bad)} wrong {bad}, {time.monotonic() - began:.0f} s")
    return int(bool(bad))


if __name__ == "__main__":
    os.environ.pop("SFBENCH_GUARD", None)
    sys.exit(main())

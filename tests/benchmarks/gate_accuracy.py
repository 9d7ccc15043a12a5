"""How often the gate is right: real gates over scratch repositories, counted.

    python tests/benchmarks/gate_accuracy.py --runs 20 --output gate-accuracy.jsonl [SCENARIO...]

Each run is one ``sfbench gate --json`` of a workload at two devices; its outcome is appended to the
output file, so that an interrupted count can go on. Needs a machine without other work; with
``--wait 0`` several of these may run at a time, as background load for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from scipy import stats

ROOT = Path(__file__).parents[2]
SFBENCH = Path(sys.executable).with_name("sfbench")
DEVICES = 2
CORES = 2
LIMIT_S = 180.0
"""A regression has to be found within this time."""
IDLE_PERCENT, IDLE_FOR_S = 10.0, 4.0
HOG_FROM = "pair 4,"
"""The hog starts when a launch of the fourth pair has ended, of six."""

BURN = """\
import time


def extra(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


EXTRA_S = 0.0
"""
HOG = "while True: pass"
BURSTS = """\
import random, time
while True:
    end = time.time() + random.uniform(0.5, 3)
    while time.time() < end:
        pass
    time.sleep(random.uniform(0.5, 3))
"""

Verdicts = frozenset[str]
NO_FAIL: Verdicts = frozenset({"pass", "inconclusive", "contaminated"})
FAIL: Verdicts = frozenset({"fail"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A workload in its scratch repository, and how fast it is there."""

    repo: Path
    script: str
    args: tuple[str, ...]
    samples_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is changed, what goes on beside, and which verdicts are right."""

    workload: str
    remaining: float = 1.0
    """Throughput of the candidate, as a ratio of the base's."""
    right: Verdicts = FAIL
    background: str | None = None
    """A program that runs beside: from the start, or from half-way where it is the hog."""
    blind: bool = False
    """Each side's efficiency by its own one-device rate is measured too: it sees nothing."""


SCENARIOS = {
    "same-vision": Scenario(workload="vision", right=NO_FAIL),
    "same-emulated": Scenario(workload="emulated", right=NO_FAIL),
    "same-vision-busy": Scenario(workload="vision", right=NO_FAIL, background=BURSTS),
    "slow15-vision": Scenario(workload="vision", remaining=0.85),
    "slow15-emulated": Scenario(workload="emulated", remaining=0.85),
    "92to60-vision": Scenario(workload="vision", remaining=0.60 / 0.92),
    "92to60-emulated": Scenario(workload="emulated", remaining=0.60 / 0.92),
    "blind-emulated": Scenario(workload="emulated", remaining=0.25, blind=True),
    "hog-vision": Scenario(
        workload="vision", right=frozenset({"inconclusive", "contaminated"}), background=HOG
    ),
}
ARGS = {"vision": (), "emulated": ("--link-latency-ms", "1.75")}
"""The emulated link costs two devices about 8 % of their efficiency."""
STEP_SAMPLES = 8
"""Of the emulated workload, per device."""


def make_base(folder: Path, workload: str) -> Base:
    """A repository with a workload in one commit."""
    repo = folder / workload
    repo.mkdir()
    text = (ROOT / "workloads" / f"{workload}.py").read_text()
    if workload == "vision":
        text = text.replace("import argparse\n", "import argparse\n\nimport pipeline\n", 1)
        load = '            image = file.convert("RGB")\n'
        assert load in text
        text = text.replace(load, f"{load}        pipeline.extra(pipeline.EXTRA_S)\n")
        (repo / "pipeline.py").write_text(BURN)
    (repo / f"{workload}.py").write_text(text)
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.email", "bench@localhost"),
        ("config", "user.name", "bench"),
        ("add", "."),
        ("commit", "-qm", "base"),
    ):
        subprocess.run(["git", "-C", str(repo), *words], check=True)
    rate = sweep_rate(repo, f"{workload}.py", ARGS[workload])
    return Base(repo=repo, script=f"{workload}.py", args=ARGS[workload], samples_per_s=rate)


def sweep_rate(repo: Path, script: str, args: Sequence[str]) -> float:
    """samples/s of the job at ``DEVICES`` devices."""
    rate: float = sweep(repo, script, args, str(DEVICES))["samples_per_s"]["value"]
    return rate


def own_efficiency(base: Base) -> float:
    """Of what lies in the working tree, by its own one-device rate."""
    point = sweep(base.repo, base.script, base.args, f"1,{DEVICES}")
    efficiency: float = point["efficiency"]["value"]
    return efficiency


def sweep(repo: Path, script: str, args: Sequence[str], devices: str) -> dict[str, Any]:
    """The point at the largest device count."""
    document = sfbench(
        repo, "sweep", script, "--devices", devices, "--device", "cpu", "--rounds", "2",
        "--seconds", "8", "--rungs", "train", "--no-report", "--json", "--force", "--name", "base",
        "--output", str(repo.parent / "results"), "--", *args,
    )  # fmt: skip
    point: dict[str, Any] = document["points"][-1]
    return point


def sfbench(repo: Path, *words: str) -> dict[str, Any]:
    """What a command printed as JSON."""
    done = subprocess.run(
        [SFBENCH, *words], cwd=repo, stdout=subprocess.PIPE, text=True, check=False
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def change(base: Base, scenario: Scenario) -> None:
    """Write the candidate into the working tree: slower samples, or just a word."""
    subprocess.run(["git", "-C", str(base.repo), "checkout", "-q", "."], check=True)
    file, edit = _edit(base, scenario)
    file.write_text(edit(file.read_text()))


def _edit(base: Base, scenario: Scenario) -> tuple[Path, Callable[[str], str]]:
    if scenario.remaining == 1.0:
        return base.repo / base.script, lambda text: text + "\n# a word\n"
    per_sample_s = DEVICES / base.samples_per_s / scenario.remaining
    if scenario.workload == "emulated":
        # One loader worker sleeps this long for each sample; nothing else of the step is slower.
        return base.repo / base.script, lambda text: text.replace(
            'add("--load-ms", type=float, default=0.0',
            f'add("--load-ms", type=float, default={1000 * per_sample_s:.4f}',
        )
    # All cores are busy, so a sample's time on them is what they have per sample.
    extra_s = CORES / base.samples_per_s * (1 / scenario.remaining - 1)
    return base.repo / "pipeline.py", lambda text: re.sub(
        r"EXTRA_S = .*", f"EXTRA_S = {extra_s:.6f}", text
    )


@contextmanager
def running(program: str) -> Iterator[None]:
    """A program beside what is measured."""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One gate."""

    scenario: str
    verdict: str
    right: bool
    in_time: bool
    change: float | None
    control: float | None
    pairs: int
    duration_s: float
    busy_percent: float
    """What other work took of all cores just before."""
    own_efficiency: list[float | None]
    """Of base and candidate, each by its own one-device rate, in the blind case."""
    headline: str
    reasons: list[str]
    slots: list[dict[str, Any]]
    """Every launch, as the gate's document has it: what noise there was can be told later."""


def run(name: str, base: Base, wait_s: float) -> Outcome:
    """One gate of a scenario, after at most so long a wait for an idle machine."""
    scenario = SCENARIOS[name]
    own = [efficiency_of(base, side) for side in (replace(scenario, remaining=1.0), scenario)]
    change(base, scenario)
    busy_percent = idle(wait_s)
    began_s = time.monotonic()
    beside = scenario.background
    with running(beside) if beside is not None and beside != HOG else nullcontext():
        document = _gate(base, hog=beside == HOG)
    took_s = time.monotonic() - began_s
    moved, control = document["change"], document["control"]
    return Outcome(
        scenario=name,
        verdict=document["verdict"],
        right=document["verdict"] in scenario.right,
        in_time=took_s <= LIMIT_S,
        change=moved and moved["value"],
        control=control and control["value"],
        pairs=document["pairs"],
        duration_s=took_s,
        busy_percent=busy_percent,
        own_efficiency=own,
        headline=document["headline"],
        reasons=document["reasons"],
        slots=document["slots"],
    )


def efficiency_of(base: Base, side: Scenario) -> float | None:
    """Of one side by itself, where the scenario asks for it."""
    if not side.blind:
        return None
    change(base, side)
    return own_efficiency(base)


def idle(wait_s: float) -> float:
    """Wait until other work takes little; what it takes in the end, in percent of all cores."""
    until_s = time.monotonic() + wait_s
    while True:
        busy: float = psutil.cpu_percent(interval=IDLE_FOR_S)
        if busy < IDLE_PERCENT or time.monotonic() > until_s:
            return busy


def _gate(base: Base, *, hog: bool) -> dict[str, Any]:
    words = ("gate", base.script, "--base", "main", "--devices", str(DEVICES), "--device", "cpu")
    process = subprocess.Popen(
        [SFBENCH, *words, "--json", "--", *base.args],
        cwd=base.repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stdout is not None
    beside: Any = nullcontext()
    with process:
        started = False
        try:
            for line in process.stderr:
                if hog and not started and line.startswith(HOG_FROM):
                    beside, started = running(HOG), True
                    beside.__enter__()
            printed = process.stdout.read()
        finally:
            if started:
                beside.__exit__(None, None, None)
    document: dict[str, Any] = json.loads(printed)
    return document


def summary(outcomes: Sequence[dict[str, Any]]) -> str:
    """Counts of each scenario, with the upper 95 % bound of what went wrong."""
    lines = []
    for name in dict.fromkeys(outcome["scenario"] for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome["scenario"] == name]
        wrong = sum(not outcome["right"] for outcome in mine)
        upper = (
            float(stats.beta.ppf(0.95, wrong + 1, len(mine) - wrong)) if wrong < len(mine) else 1
        )
        seconds = sorted(outcome["duration_s"] for outcome in mine)
        verdicts = ", ".join(f"{n} {v}" for v, n in Counter(o["verdict"] for o in mine).items())
        lines.append(
            f"{name}: right in {len(mine) - wrong} of {len(mine)} (wrong at most "
            f"{100 * upper:.0f} %): {verdicts}; {seconds[len(mine) // 2]:.0f} s, at most "
            f"{seconds[-1]:.0f} s, {sum(not o['in_time'] for o in mine)} beyond {LIMIT_S:.0f} s"
        )
    return "\n".join(lines)


def told(outcome: Outcome) -> str:
    """One line."""
    return (
        f"{outcome.scenario}: {'right' if outcome.right else 'WRONG'} after "
        f"{outcome.duration_s:.0f} s, {outcome.pairs} pairs: {outcome.headline}"
    )


def earlier(output: Path) -> list[dict[str, Any]]:
    """What an interrupted count has left."""
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path("gate-accuracy.jsonl"))
    parser.add_argument("--wait", type=float, default=600.0, help="for an idle machine, in s")
    given = parser.parse_args()
    unknown = set(given.scenarios) - SCENARIOS.keys()
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    if (os.cpu_count() or 1) != CORES:
        os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:CORES]))
    outcomes = earlier(given.output)
    counted = Counter(outcome["scenario"] for outcome in outcomes)
    with tempfile.TemporaryDirectory() as folder, given.output.open("a") as file:
        wanted = dict.fromkeys(SCENARIOS[name].workload for name in given.scenarios)
        bases = {workload: make_base(Path(folder), workload) for workload in wanted}
        for number in range(given.runs):
            for name in given.scenarios:
                if number < counted[name]:
                    continue
                outcome = run(name, bases[SCENARIOS[name].workload], given.wait)
                document = {slot: getattr(outcome, slot) for slot in Outcome.__slots__}
                outcomes.append(document)
                file.write(json.dumps(document) + "\n")
                file.flush()
                print(f"{number + 1}/{given.runs} {told(outcome)}", file=sys.stderr, flush=True)
    print(summary(outcomes))


if __name__ == "__main__":
    main()

"""Runs the scripts of ``tests/scripts`` under the probe, with real ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sfbench.common.schema import STEP_COLUMNS, LaunchRecord, ProbeOptions, RankJob
from sfbench.launch.local import LocalLauncher
from sfbench.launch.outcome import LaunchOutcome, Progress
from sfbench.plan.sweep_plan import NodeJob
from sfbench.protocol import record_file

SCRIPTS = Path(__file__).parents[1] / "scripts"
SMALL = ProbeOptions(rungs=("train",), seconds=0.4, warmup_steps=10, block_s=0.1, allow_saves=True)
"""What scripts write stays: it tells how far they came."""
GUARDED = replace(SMALL, allow_saves=False)
TIMEOUT_S = 60.0

Table = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a script says about its loop, in the comments at its top."""

    shape: str
    samples: tuple[int, ...] = ()
    """Per step and rank; several where they repeat in this order."""
    fetches: Fraction = Fraction(0)
    """Batches per step."""
    ahead: int = 0
    """Batches that may be fetched before the step that uses them."""
    source: str | None = None
    """Where samples are counted; None: by the batch sampler or in the batch."""
    wrapper: str = "ddp"


def shape_of(script: str) -> Shape:
    """Read a script's comments."""
    lines = (SCRIPTS / script).read_text().splitlines()
    said = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    return Shape(
        shape=said["shape"],
        samples=tuple(int(word) for word in said.get("samples", "").split()),
        fetches=Fraction(said.get("fetches", "0")),
        ahead=int(said.get("ahead", "0")),
        source=said.get("source"),
        wrapper=said.get("wrapper", "ddp"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One launch of a script that has ended."""

    outcome: LaunchOutcome
    out: Path
    """The folder that the script was told to write to."""
    logs: tuple[str, ...]
    """By rank."""
    record: LaunchRecord | None
    table: Table = field(repr=False)
    """Columns ``STEP_COLUMNS``; empty where there is no record."""

    def steps(self, rank: int) -> Table:
        """Rows of one rank, in the order in which they were written."""
        return self.table[self.column("rank") == rank]

    def column(self, name: str, rank: int | None = None) -> Table:
        """A column of all rows, or of those of one rank."""
        rows = self.table if rank is None else self.steps(rank)
        return rows[:, STEP_COLUMNS.index(name)]

    @property
    def finished(self) -> list[str]:
        """Files that scripts leave after their loop."""
        return sorted(path.name for path in self.out.glob("finished-*"))

    @property
    def story(self) -> str:
        """For the message of an assertion that fails."""
        logs = "\n".join(f"--- log of rank {r}:\n{log[-3000:]}" for r, log in enumerate(self.logs))
        return f"{self.outcome}\n{self.record}\n{logs}"


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs scripts on one launcher, each in a folder of its own below ``folder``."""

    launcher: LocalLauncher
    folder: Path

    def __call__(
        self,
        script: str,
        nproc: int = 2,
        *,
        args: tuple[str, ...] | None = None,
        options: ProbeOptions = SMALL,
    ) -> Run:
        """Run ``tests/scripts/<script>``. In args ``{out}`` is the folder for what it writes."""
        place = self.folder / f"{len(list(self.folder.iterdir()))}-{Path(script).stem}"
        launch_dir, log_dir, out = place / "launch", place / "logs", place / "out"
        for folder in (launch_dir, out):
            folder.mkdir(parents=True)
        words = tuple(w.replace("{out}", str(out)) for w in (args or ("--out", "{out}")))
        job = RankJob(
            script=str(SCRIPTS / script), args=words, launch_dir=str(launch_dir), probe=options
        )
        node_job = NodeJob(job=job, nproc=nproc, log_dir=log_dir, timeout_s=TIMEOUT_S)
        outcome = self.launcher.run(node_job, _ignore)
        logs = tuple(path.read_text() for path in sorted(log_dir.glob("rank*.log")))
        if outcome.record is None:
            empty = np.empty((0, len(STEP_COLUMNS)))
            return Run(outcome=outcome, out=out, logs=logs, record=None, table=empty)
        header, table = record_file.read(outcome.record)
        return Run(outcome=outcome, out=out, logs=logs, record=header, table=table)


def _ignore(progress: Progress) -> None:
    """Progress is of no interest here."""

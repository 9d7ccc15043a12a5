"""Jobs of Slurm, through its own commands: submitted, looked after, cancelled."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sfbench.collect.result import FILE_NAME as RESULT
from sfbench.common.errors import MeasureError, ResultError, UsageError
from sfbench.common.files import read_text, write_whole
from sfbench.plan.slurm_script import SlurmJob, code_of, log_of, script_of

LOOK_S = 2.0
SILENT_S = 600.0
"""Slurm may give no answer for so long: its controller is started anew now and then."""
APPEARS_S = 30.0
"""A file that another machine wrote is seen here after so long, or never."""
_OVER = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED", "SPECIAL_EXIT"),
}
_UNKNOWN = "Invalid job id"
GONE = "GONE"
"""State of a job that Slurm does not know any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """What is kept of a job, to find its result later."""

    job: str
    cluster: str
    name: str
    """Of the result."""
    output: str
    """Absolute; the folder that gets the result."""
    kept: str
    before_ns: int
    """When a result of that name that was there already was written; 0: there was none."""

    @property
    def result_dir(self) -> Path:
        """Where the result stands, once there is one."""
        return Path(self.output) / self.name

    @property
    def has_result(self) -> bool:
        """Whether its own result is there."""
        return _written_ns(self.result_dir) not in {0, self.before_ns}


def _written_ns(result_dir: Path) -> int:
    try:
        return (result_dir / RESULT).stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What Slurm says of a job."""

    state: str
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in _OVER or self.state == GONE

    @property
    def text(self) -> str:
        """For a person."""
        told = self.reason not in ("", "None")
        return f"{self.state} ({self.reason})" if told else self.state


def submit(job: SlurmJob) -> SubmittedJob:
    """Hand the script to Slurm.

    Raises:
        UsageError: there is no ``sbatch``, or it refuses.
    """
    job.kept.mkdir(parents=True, exist_ok=True)
    script, before_ns = script_of(job), _written_ns(job.output / job.name)
    done = _slurm("sbatch", "--parsable", text=script)
    if done.returncode != 0:
        raise UsageError(f"sbatch: {done.stderr.strip() or 'it failed, and says nothing'}")
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    submitted = SubmittedJob(
        job=number,
        cluster=cluster,
        name=job.name,
        output=str(job.output),
        kept=str(job.kept),
        before_ns=before_ns,
    )
    write_whole(job.kept / f"{number}.sh", script)
    write_whole(job.kept / f"{number}.json", json.dumps(asdict(submitted)) + "\n")
    return submitted


def submitted_job(kept: Path, job: str) -> SubmittedJob:
    """A job that was submitted from here.

    Raises:
        ResultError: nothing is known of it.
    """
    place = kept / f"{job}.json"
    try:
        return SubmittedJob(**json.loads(read_text(place)))
    except (OSError, ValueError, TypeError) as error:
        raise ResultError(
            f"job {job}: nothing is kept of it in {kept} ({error}). Give the folder that its "
            "result was to go to with --output."
        ) from error


def state_of(job: SubmittedJob) -> JobState | None:
    """Of a job now; None: Slurm does not answer."""
    on = [f"--clusters={job.cluster}"] if job.cluster else []
    form = ["--noheader", "--states=all", "--format=%T|%r"]
    done = _slurm("squeue", *on, *form, f"--jobs={job.job}")
    lines = [line for line in done.stdout.splitlines() if "|" in line]
    if done.returncode == 0 and lines:
        state, _, reason = lines[-1].partition("|")
        return JobState(state=state.strip(), reason=reason.strip())
    if done.returncode != 0 and _UNKNOWN not in done.stderr:
        return None
    return _accounted(job)


def _accounted(job: SubmittedJob) -> JobState:
    """By the accounting, where there is one, of a job that has left the queue."""
    if shutil.which("sacct") is not None:
        words = ["--noheader", "--allocations", "--parsable2", "--format=State"]
        done = _slurm("sacct", *words, f"--jobs={job.job}")
        found = done.stdout.split()
        if done.returncode == 0 and found:
            return JobState(state=found[0])
    return JobState(state=GONE)


def cancel(job: SubmittedJob) -> None:
    """End a job: its sweep keeps what was measured."""
    on = [f"--clusters={job.cluster}"] if job.cluster else []
    _slurm("scancel", *on, job.job)


def wait_for(job: SubmittedJob, told: Callable[[str], None]) -> JobState:
    """Until a job is over; ``told`` hears of each change, and what its command says.

    Raises:
        MeasureError: Slurm does not answer.
    """
    heard, log, heard_s = "", _Lines(log_of(Path(job.kept), job.job)), time.monotonic()
    while True:
        state = state_of(job)
        if state is not None:
            heard_s = time.monotonic()
            if state.text != heard and not state.over:
                told(f"job {job.job}: {state.text}")
                heard = state.text
        elif time.monotonic() - heard_s > SILENT_S:
            raise MeasureError(
                f"job {job.job}: Slurm does not answer. Later: sfbench collect {job.job}"
            )
        for line in log.new():
            told(f"job {job.job}: {line}")
        if state is not None and state.over:
            return state
        time.sleep(LOOK_S)


def exit_code(job: SubmittedJob) -> int | None:
    """Of the job's command; None: it did not come to tell."""
    try:
        return int(read_text(code_of(Path(job.kept), job.job)))
    except (OSError, ValueError):
        return None


def last_lines(job: SubmittedJob, count: int = 10) -> str:
    """The end of what it wrote."""
    return "\n".join(list(_Lines(log_of(Path(job.kept), job.job)).new())[-count:])


class _Lines:
    """Whole lines of a file that grows."""

    def __init__(self, place: Path) -> None:
        self._place, self._at, self._part = place, 0, b""

    def new(self) -> list[str]:
        """Those that were not read before."""
        try:
            with self._place.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:  # the job has not begun
            return []
        self._at += len(data)
        *whole, self._part = (self._part + data).split(b"\n")
        return [line.decode(errors="replace").rstrip() for line in whole if line.strip()]


def _slurm(*command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError(
            f"{command[0]}: there is no such command here. --launcher slurm is for a machine that "
            "jobs are submitted from; inside an allocation: srun sfbench sweep …"
        ) from error

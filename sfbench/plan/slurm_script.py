"""The batch script that runs a sweep as one job of Slurm. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sfbench.plan.slurm_options import SlurmSettings

ENDS_S = 60
"""The sweep is interrupted so long before the job's time is over."""
FOLDER = ".slurm"
"""Below the folder of results: what is kept of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A sweep that is to be one job."""

    name: str
    """Of the result."""
    command: tuple[str, ...]
    """What each node runs."""
    folder: Path
    """Absolute; where it runs."""
    output: Path
    """Absolute; the folder that gets the result."""
    settings: SlurmSettings

    @property
    def kept(self) -> Path:
        """Folder of the log, the script and the exit code."""
        return self.output / FOLDER


def log_of(kept: Path, job: str) -> Path:
    """What a job wrote."""
    return kept / f"{job}.log"


def code_of(kept: Path, job: str) -> Path:
    """File with the exit code of its command."""
    return kept / f"{job}.code"


def script_of(job: SlurmJob) -> str:
    """For ``sbatch``; one allocation for all counts, since rounds have to be interleaved."""
    quoted = shlex.quote(str(job.kept))
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in _options(job)),
            "",
            "# One command per node, on all cores of the job. One that ends does not end others:",
            "# the first node keeps what was measured.",
            "srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \\",
            f"    {shlex.join(job.command)}",
            "code=$?",
            f'echo "$code" > {quoted}/"$SLURM_JOB_ID".code',
            'exit "$code"',
            "",
        ]
    )


def _options(job: SlurmJob) -> Iterator[str]:
    wanted = job.settings
    yield f"--job-name={shlex.quote(f'sfbench-{job.name}')}"
    yield f"--nodes={wanted.nodes}"
    yield "--ntasks-per-node=1"
    for name, value in (
        ("partition", wanted.partition),
        ("account", wanted.account),
        ("gpus-per-node", wanted.gpus_per_node),
        ("time", wanted.time),
    ):
        if value is not None:
            yield f"--{name}={value}"
    if wanted.gpus_per_node is None:
        yield "--exclusive"
    yield f"--chdir={shlex.quote(str(job.folder))}"
    # There a % begins a pattern.
    yield f"--output={shlex.quote(str(job.kept).replace('%', '%%'))}/%j.log"
    yield f"--signal=INT@{ENDS_S}"
    yield "--no-requeue"
    if wanted.sbatch_extra:
        yield wanted.sbatch_extra

"""``sfbench sweep --launcher slurm`` and ``sfbench collect``."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfbench.cli.console import news, put_json, put_text
from sfbench.cli.parameters import Given, Json, Quiet
from sfbench.cli.results import print_result, sweep_exit_code
from sfbench.common.errors import InterruptedSweep, MeasureError, UsageError
from sfbench.plan.sweep_plan import MODULE

if TYPE_CHECKING:
    from sfbench.plan.slurm_options import SlurmSettings
    from sfbench.plan.slurm_script import SlurmJob
    from sfbench.run.slurm_queue import JobState, SubmittedJob

_OF_NODES = ("nnodes", "node_rank", "rdzv_endpoint")
_WAIT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a sweep writes besides its result."""

    report: Path | None
    no_report: bool
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be done with the job, and shown."""

    dry_run: bool
    no_wait: bool
    as_json: bool
    quiet: bool


def slurm_of(given: Given, *, no_wait: bool, suite: bool) -> SlurmSettings | None:
    """What is asked of Slurm; None: the sweep runs here.

    Raises:
        UsageError: options that do not fit together.
    """
    from sfbench.plan.settings import load_slurm_settings

    settings = load_slurm_settings(given.gate, Path.cwd())
    if settings.launcher == "local":
        named = [name for name, value in given.gate.items() if value and name != "launcher"]
        named += ["no_wait"] if no_wait else []
        if named:
            raise UsageError(f"{_flag(named[0])} is for --launcher slurm.")
        return None
    if suite:
        raise UsageError("--suite runs on one node: give one workload with --launcher slurm.")
    for name in _OF_NODES:
        if given.options[name] is not None:
            raise UsageError(
                f"{_flag(name)}: a job of --launcher slurm knows that by itself; give --nodes N."
            )
    return settings


def slurm_job(given: Given, slurm: SlurmSettings, files: Files) -> SlurmJob:
    """The job of a sweep.

    Raises:
        UsageError: an option, a setting or the target is wrong.
    """
    from sfbench.plan.settings import load_settings
    from sfbench.plan.slurm_script import SlurmJob
    from sfbench.plan.targets import resolve_target

    here = Path.cwd()
    settings = load_settings(dict(given.options), here)
    if max(settings.devices) < slurm.nodes:
        raise UsageError(
            f"--nodes {slurm.nodes} needs a count of at least {slurm.nodes} among --devices: every "
            "node takes part in the largest."
        )
    target = resolve_target(settings.target, given.script_args)
    name = settings.name or f"{target.name}-{datetime.now():%Y%m%d-%H%M%S}"
    words = [*_words({**given.options, "name": name}), *_file_words(files)]
    behind = ["--", *given.script_args] if given.script_args else []
    return SlurmJob(
        name=name,
        # Whatever the file of settings says there: a job does not submit another.
        command=(sys.executable, "-m", "sfbench", "sweep", "--launcher=local", *words, *behind),
        folder=here,
        output=settings.output.absolute(),
        settings=slurm,
    )


def _words(options: dict[str, object]) -> list[str]:
    """Options as they were typed."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if name == "target":
            text = str(value)
            module = text.removeprefix(MODULE)
            words += ["-m", module] if text.startswith(MODULE) else [text]
        else:
            words.append(_flag(name) if value is True else f"{_flag(name)}={value}")
    return words


def _file_words(files: Files) -> list[str]:
    words = [f"--report={files.report}"] if files.report is not None else []
    words += ["--no-report"] if files.no_report else []
    return [*words, "--force"] if files.force else words


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run_slurm(job: SlurmJob, wishes: Wishes) -> None:
    """Submit a job, and show its result once it is over; Ctrl-C cancels it.

    Raises:
        UsageError: Slurm refuses it, or a result of that name is there.
        MeasureError: it gave no result.
    """
    from sfbench.collect.result_folder import check_free
    from sfbench.common.files import check_writable
    from sfbench.plan.slurm_script import script_of
    from sfbench.run.slurm_queue import cancel, submit, wait_for

    if wishes.dry_run:
        _put_script(script_of(job), as_json=wishes.as_json)
        return
    check_writable(job.output)
    check_free(job.output / job.name, replace="--force" in job.command)
    submitted = submit(job)
    later = f"sfbench collect {submitted.job}"
    if wishes.no_wait:
        if wishes.as_json:
            put_json(json.dumps({"schema": 1, "job": submitted.job, "name": job.name}) + "\n")
        else:
            put_text(f"{submitted.job}\n")
        news(f"Job {submitted.job} is submitted. Its result: {later}", quiet=wishes.quiet)
        return
    news(f"Job {submitted.job} is submitted; Ctrl-C cancels it.", quiet=wishes.quiet)
    try:
        state = wait_for(submitted, lambda text: news(text, quiet=wishes.quiet))
    except KeyboardInterrupt:
        cancel(submitted)
        news(f"Job {submitted.job} is cancelled; waits for its end.", quiet=wishes.quiet)
        state = wait_for(submitted, lambda text: news(text, quiet=wishes.quiet))
    _show(submitted, state, as_json=wishes.as_json, quiet=wishes.quiet)


def _put_script(script: str, *, as_json: bool) -> None:
    if as_json:
        put_json(json.dumps({"schema": 1, "script": script}) + "\n")
    else:
        put_text(script)


def collect(
    job: Annotated[str, typer.Argument(help="number of the job", metavar="JOB")],
    output: Annotated[
        Path | None,
        typer.Option(help="folder that its result goes to [results]", metavar="DIR"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Wait for a job of `sfbench sweep --launcher slurm` and show its result."""
    from sfbench.plan.settings import load_settings
    from sfbench.plan.slurm_script import FOLDER
    from sfbench.run.slurm_queue import submitted_job, wait_for

    if not job.isdecimal():
        raise UsageError(f"{job!r} is no number of a job.")
    folder = (output or load_settings({}, Path.cwd()).output).absolute()
    submitted = submitted_job(folder / FOLDER, job)
    state = wait_for(submitted, lambda text: news(text, quiet=quiet))
    _show(submitted, state, as_json=as_json, quiet=quiet)


def _show(job: SubmittedJob, state: JobState, *, as_json: bool, quiet: bool) -> None:
    """The result of a job that is over, and the exit code that the sweep would have had.

    Raises:
        MeasureError: there is none.
    """
    from sfbench.collect.result import load_result
    from sfbench.run.slurm_queue import APPEARS_S, exit_code, last_lines

    until_s = time.monotonic() + APPEARS_S
    while not job.has_result and exit_code(job) in {None, 0, 5, 130}:
        # Slurm has ended it before it could begin, or another machine's file is not seen yet.
        if time.monotonic() > until_s or state.state == "CANCELLED":
            break
        time.sleep(_WAIT_S)
    if not job.has_result:
        code = exit_code(job)
        if state.state == "CANCELLED":
            raise InterruptedSweep(f"job {job.job} was cancelled before anything was measured")
        error = UsageError if code == UsageError.exit_code else MeasureError
        raise error(
            f"job {job.job} ended as {state.text} and left no result. Its last lines:\n"
            f"{last_lines(job)}"
        )
    result = load_result(job.result_dir)
    print_result(result, as_json=as_json)
    news(f"Job {job.job}: {state.text}. Result: {job.result_dir}", quiet=quiet)
    sys.exit(sweep_exit_code(result, job.result_dir))

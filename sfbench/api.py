"""``sfbench.sweep``, ``check``, ``gate`` and ``tune``: the commands, for notebooks and tests."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfbench.collect.result import load_result
from sfbench.common.errors import UsageError
from sfbench.gating.gate_observer import SilentGateObserver
from sfbench.gating.gate_report import GateReport
from sfbench.gating.output.writer import Outputs, write_outputs
from sfbench.gating.runner import gate_commit, gate_job, gate_result
from sfbench.plan.options import GateSettings, Settings, TuneSettings
from sfbench.plan.request import planned
from sfbench.plan.settings import did_you_mean, load_gate_settings, load_tune_settings
from sfbench.report.notebook import Results, load
from sfbench.run.check import Checked, check_request, run_check
from sfbench.run.observer import SilentObserver
from sfbench.run.sweep import run_sweep
from sfbench.tuning import tuner
from sfbench.tuning.stored_diagnosis import check_same_job
from sfbench.tuning.tune_observer import SilentTuneObserver
from sfbench.tuning.tune_report import TuneReport


def sweep(target: str | Path, args: Sequence[str] = (), **options: Any) -> Results:
    """Run a sweep and open its result.

    ``options`` are those of ``sfbench sweep``, with underscores: ``devices=[1, 2]``, ``seconds=8``.

    Raises:
        SfbenchError: as the command would say.
    """
    asked = planned({"target": str(target), **options}, tuple(args), nodes=True)
    if asked.plan.node_rank:
        raise UsageError(
            f"sfbench.sweep() runs on the first node alone, and this is node "
            f"{asked.plan.node_rank}: start the command `sfbench sweep` here."
        )
    called = ", ".join(f"{key}={value!r}" for key, value in options.items())
    command = f"sfbench.sweep({str(target)!r}, {list(args)!r}{', ' * bool(called)}{called})"
    return load(run_sweep(asked.plan, asked.machine, SilentObserver(), command=command).folder)


def check(
    target: str | Path,
    args: Sequence[str] = (),
    *,
    device: str | None = None,
    timeout: float | None = None,
) -> Checked:
    """Run the correctness checks of a target; ``.failed`` tells whether one failed.

    ``device`` and ``timeout`` are those of ``sfbench check``.

    Raises:
        SfbenchError: as the command would say.
    """
    given = {"target": str(target), "device": device, "timeout": timeout}
    asked = check_request(given, tuple(args))
    return run_check(asked.plan, asked.machine, SilentObserver())


def gate(
    target: str | Path,
    args: Sequence[str] = (),
    *,
    base: str | None = None,
    baseline: str | Path | None = None,
    **options: Any,
) -> GateReport:
    """Compare the working tree with the commit ``base``, or with the stored result ``baseline``.

    ``options`` are those of ``sfbench gate``, with underscores: ``devices=2``, ``margin=0.08`` or
    ``"8%"``, ``min_efficiency=0.85``, ``budget=180``, ``paths=["data/**"]``; ``report``,
    ``markdown`` and ``junit`` name files to write. What is not given is taken from the settings.

    Raises:
        SfbenchError: as the command would say. A side that is broken or cannot be measured is told
            by the verdict.
    """
    _check_names("gate", options, (*GateSettings.model_fields, *_FILES))
    own = {name: options.pop(name) for name in GateSettings.model_fields if name in options}
    asked = load_gate_settings({**own, "base": base}, Path.cwd(), where="sfbench.gate")
    if (base is not None and baseline is not None) or (asked.base is None and baseline is None):
        raise UsageError("give one of base and baseline to compare with")
    if own.get("paths") and baseline is not None:
        raise UsageError("paths needs base: a stored result does not tell what changed")
    files = {name: options.pop(name, None) for name in _FILES}
    outputs = Outputs(**{name: Path(file) for name, file in files.items() if file is not None})
    outputs.check()
    job = gate_job(
        {"target": str(target), **options},
        tuple(args),
        asked,
        command=f"sfbench.gate({str(target)!r})",
    )
    observer = SilentGateObserver()
    if baseline is not None:
        outcome = gate_result(job, load_result(Path(baseline)), observer)
    else:
        outcome = gate_commit(job, asked.base or "", observer, paths=asked.paths)
    for lacking in write_outputs(outcome, outputs, lambda text: None):
        warnings.warn(lacking, RuntimeWarning, stacklevel=2)  # the verdict is not to be lost
    return outcome.report


_FILES = ("report", "markdown", "junit")


def tune(
    target: str | Path,
    args: Sequence[str] = (),
    *,
    diagnosis: str | Path | None = None,
    **options: Any,
) -> TuneReport:
    """Try the remedies of a script's bottlenecks.

    ``diagnosis`` is the result that ``sfbench tune`` takes with ``--from``; ``options`` are the
    others, with underscores: ``devices=2``, ``budget="10m"``, ``allow=["batch"]``.

    Raises:
        SfbenchError: as the command would say.
    """
    began_s = time.monotonic()
    _check_names("tune", options, tuple(TuneSettings.model_fields))
    own = {name: options.pop(name) for name in TuneSettings.model_fields if name in options}
    asked = load_tune_settings(own, Path.cwd())
    known = None if diagnosis is None else load_result(Path(diagnosis))
    job = tuner.tune_job(
        {"target": str(target), **options},
        tuple(args),
        asked,
        command=f"sfbench.tune({str(target)!r})",
        result=known,
    )
    observer = SilentTuneObserver()
    if known is None:
        finished = tuner.diagnosed(job, observer, began_s)
        result, stored = finished.result, finished.stored
    else:
        check_same_job(job, known)
        result, stored = known, Path(str(diagnosis))
    return tuner.run_tune(job, result, observer, stored=stored, began_s=began_s)


def _check_names(command: str, options: dict[str, Any], own: Sequence[str]) -> None:
    """Refuse an option that there is not; those of a sweep's settings are options as well."""
    known = {*own, *Settings.model_fields} - {"target"}
    for name in options:
        if name not in known:
            near = did_you_mean(name, known).replace("-", "_")
            raise UsageError(f"sfbench.{command}: there is no option {name}.{near}")

"""What cannot be measured is refused with its reason: never a figure from independent copies."""

from __future__ import annotations

import dataclasses
import socket

import pytest
import torch
from harness import GUARDED, SCRIPTS, SMALL, Run, Runner

from sfbench.common.schema import LADDER
from sfbench.launch.outcome import LaunchError


def refusal(run: Run) -> LaunchError:
    """The error of a launch that was refused: no record, and one rank's log is named."""
    assert (run.outcome.status, run.outcome.record) == ("failed", None), run.story
    error = run.outcome.error
    assert error is not None
    assert error.log is not None, run.story
    return error


@pytest.mark.parametrize(
    ("script", "words", "kind", "told"),
    [
        ("refused_too_short.py", (), "too-few-steps", "after 20 steps"),
        ("refused_too_short.py", ("--rows", "32"), "too-few-steps", "after 2 optimizer updates"),
        ("refused_no_optimizer.py", (), "no-steps", "without a single optimizer update"),
        ("refused_no_group.py", (), "no-process-group", "init_process_group"),
        ("refused_not_wrapped.py", (), "not-wrapped", "DistributedDataParallel"),
        ("refused_not_wrapped.py", ("--log-reduced",), "not-wrapped", "independent copies"),
        ("refused_not_wrapped.py", ("--same",), "not-wrapped", "same batches"),
        ("refused_not_wrapped.py", ("--around",), "not-wrapped", "not its .module"),
        ("refused_wants_a_gpu.py", (), "device", "--device cuda"),
    ],
)
def test_script_that_cannot_be_measured(
    run_script: Runner, script: str, words: tuple[str, ...], kind: str, told: str
) -> None:
    # GIVEN / WHEN
    run = run_script(script, args=(*words, "--out", "{out}"))
    # THEN the reason is named, and it is no fault of the script's
    error = refusal(run)
    assert (error.kind, error.script_fault) == (kind, False), run.story
    assert told in error.message
    assert error.message.startswith("At 2 devices")


@pytest.mark.parametrize("one_pass", [False, True])
def test_script_that_ends_while_the_other_rank_is_parked(
    run_script: Runner, one_pass: bool
) -> None:
    # GIVEN a script that comes to its end in a rank's solo turn
    options = dataclasses.replace(SMALL, rungs=LADDER, seconds=10.0, one_pass=one_pass)
    run = run_script("refused_ends_alone.py", options=options)
    # THEN that is no disagreement of the script's: what was measured counts, where it is enough
    error = run.outcome.error
    if error is None:
        assert run.record is not None
        assert run.record.ended_early
    else:
        assert (error.kind, error.script_fault) == ("too-few-steps", False), run.story
    assert len(run.finished) == 1


def test_copies_on_one_device_are_one_job(run_script: Runner) -> None:
    # GIVEN a script that never starts a process group WHEN there is one device only
    run = run_script("refused_no_group.py", 1)
    # THEN that is measured
    assert run.outcome.status == "ok", run.story


@pytest.mark.parametrize("again", [(), ("--again",)])
def test_own_launcher(run_script: Runner, again: tuple[str, ...]) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    run = run_script("refused_own_launcher.py", args=(*again, "--port", port, "--out", "{out}"))
    error = refusal(run)
    assert (error.kind, error.script_fault) == ("own-launcher", False), run.story
    assert ("replaces its process" if again else "RANK") in error.message
    assert run.finished == []


def test_script_that_exits_at_once_with_code_0(run_script: Runner) -> None:
    run = run_script("refused_exits.py", args=("--code", "0"))
    error = refusal(run)
    assert (error.kind, error.script_fault) == ("no-steps", False), run.story


def test_script_that_exits_at_once_with_another_code(run_script: Runner) -> None:
    run = run_script("refused_exits.py", args=("--code", "3"))
    error = refusal(run)
    assert (error.kind, error.script_fault) == ("exit", True), run.story
    assert "code 3" in error.message
    assert "nothing to train on: no data folder" in error.last_lines


def test_import_error(run_script: Runner) -> None:
    error = refusal(run_script("refused_import_error.py"))
    assert (error.kind, error.script_fault) == ("exception", True)
    assert "No module named 'a_package_that_is_not_installed'" in error.message
    # THEN the traceback is the script's own
    assert any("refused_import_error.py" in line for line in error.last_lines)


def test_missing_script(run_script: Runner) -> None:
    error = refusal(run_script("no_such_script.py"))
    assert error.kind == "exception"
    assert str(SCRIPTS / "no_such_script.py") in error.message


def test_resumed_from_a_snapshot_with_nothing_left_to_do(
    run_script: Runner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # GIVEN a snapshot that an earlier training left behind
    trained = tmp_path_factory.mktemp("trained")
    torch.save({"model": _weights(), "epochs_done": 4}, trained / "snapshot.pt")
    # WHEN all of its epochs are done
    run = run_script("refused_resumed.py", args=("--epochs", "4", "--out", str(trained)))
    # THEN no step is an error, not a result
    assert refusal(run).kind == "no-steps", run.story


def test_each_launch_starts_as_the_first_did(run_script: Runner) -> None:
    # GIVEN a script that resumes from the snapshot that the launch before would have left
    first = run_script("refused_resumed.py", options=GUARDED)
    # WHEN it runs again in the same folder
    second = run_script("refused_resumed.py", args=("--out", str(first.out)), options=GUARDED)
    # THEN both are measured, since the first one left nothing
    assert (first.outcome.status, second.outcome.status) == ("ok", "ok"), second.story
    assert list(first.out.iterdir()) == []


@pytest.mark.parametrize(("nproc", "batch"), [(2, 33), (4, 6)])
def test_global_batch_that_the_devices_do_not_divide(
    run_script: Runner, nproc: int, batch: int
) -> None:
    run = run_script("for_loop.py", nproc, options=dataclasses.replace(SMALL, global_batch=batch))
    error = refusal(run)
    assert (error.kind, error.script_fault) == ("global-batch", False), run.story
    assert f"--global-batch {batch} is not divisible by {nproc} devices" in error.message


def test_global_batch_where_no_loader_can_be_told(run_script: Runner) -> None:
    run = run_script("no_loader.py", options=dataclasses.replace(SMALL, global_batch=32))
    error = refusal(run)
    assert error.kind == "global-batch", run.story
    assert "8" in error.message


def _weights() -> dict[str, torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return dict(model.state_dict())

"""Every shape of training loop, untouched, with real ranks: steps and samples counted exactly."""

from __future__ import annotations

import dataclasses
import itertools
import socket

import numpy as np
import pytest
from harness import GUARDED, SCRIPTS, SMALL, Run, Runner, Shape, shape_of

from sfbench.analyze.steps import job_steps
from sfbench.collect.frames import step_frame
from sfbench.collect.measured_launch import MeasuredLaunch
from sfbench.common.schema import Rung
from sfbench.plan.sweep_plan import LaunchPlan
from sfbench.probe.loop.kept_batches import SILENT

ELSEWHERE = {
    "toy.py", "stopwatch.py", "changes_folder.py", "own_rendezvous.py", "saves_all_ways.py",
    "saves_like_others.py", "stalling.py", "slow_loader.py", "one_after_another.py",
    "zip_cycle.py",
}  # fmt: skip
LOOPS = sorted(
    path.name
    for path in SCRIPTS.glob("*.py")
    if path.name not in ELSEWHERE and not path.name.startswith(("refused_", "ending_"))
)


def check(run: Run, shape: Shape, nproc: int = 2) -> None:
    """The facts that hold for every loop, whatever its shape."""
    assert run.outcome.status == "ok", run.story
    assert run.record is not None
    check_end(run, nproc)
    for rank in range(nproc):
        check_samples(run, shape, rank)
    count, loop = len(run.steps(0)), run.record.loop
    slack = shape.ahead + shape.fetches.denominator - 1
    fetches, wanted = loop.fetches_per_step * count, float(shape.fetches * count)
    assert fetches == pytest.approx(wanted, abs=slack + 1e-6), run.story
    known = ["indices", "batch", *(["model-input"] if shape.ahead else [])]
    assert loop.samples_from in ([shape.source] if shape.source else known)
    assert loop.wrapper == (shape.wrapper if nproc > 1 or shape.wrapper != "ddp" else loop.wrapper)


def check_end(run: Run, nproc: int) -> None:
    """All ranks left at the same step, long before the script's end, and every step is there."""
    assert run.record is not None
    assert (run.record.ended_early, run.finished) == (False, []), run.story
    assert run.record.stop_reason in {"seconds", "precision"}
    assert [info.rank for info in run.record.ranks] == list(range(nproc))
    counts = {len(run.steps(rank)) for rank in range(nproc)}
    assert len(counts) == 1, run.story
    for rank in range(nproc):
        assert run.column("step", rank).tolist() == list(range(len(run.steps(rank))))
    assert (run.column("measured") <= (run.column("block") >= 0)).all()
    assert run.column("block").max() >= 2
    no_time = run.table[~(run.column("step_s") > 0)]
    assert len(no_time) == 0, f"{no_time}\n{run.story}"


def check_samples(run: Run, shape: Shape, rank: int) -> None:
    """Each step has the samples that it trained on."""
    seen = run.column("samples", rank)
    wanted = np.fromiter(itertools.cycle(shape.samples), float, count=len(seen))
    if shape.ahead == 0 or shape.source == "model-input":
        assert seen.tolist() == wanted.tolist(), run.story
        return
    # A batch counts where it was fetched: each once, and no earlier than the script has it.
    early = np.cumsum(seen) - np.cumsum(wanted)
    batch = shape.samples[0] / shape.fetches
    assert early.min() >= 0, run.story
    assert early.max() <= shape.ahead * batch, run.story


def test_batches_that_cycle_keeps_count(run_script: Runner) -> None:
    """``itertools.cycle`` asks its loader for one pass: the steps after it count as those in it."""
    run = run_script("zip_cycle.py")
    assert run.outcome.status == "ok", run.story
    check_end(run, 2)
    for rank in range(2):
        seen = run.column("samples", rank)
        assert seen.sum() == 4 * len(seen), run.story
        assert set(seen[8 + SILENT :]) == {4.0}, run.story


@pytest.mark.parametrize("script", LOOPS)
def test_loop(run_script: Runner, script: str) -> None:
    check(run_script(script), shape_of(script))


ON_ALL_RUNGS = (
    "accumulate_no_sync.py", "apart_collectives.py", "data_pass.py", "gan.py", "grad_scaler.py",
    "n_critic.py", "optimizer_anew.py", "own_iterator.py", "static_graph.py", "stepped_twice.py",
    "single_samples.py", "step_of_a_base.py", "sync_batchnorm.py", "thread_prefetch.py",
    "train_accuracy.py", "unused_parameters.py", "validation_rank0.py", "zip_range.py",
)  # fmt: skip
RUNGS: tuple[Rung, ...] = ("train", "cached", "unsynced", "solo")


@pytest.mark.parametrize("script", ON_ALL_RUNGS)
def test_loop_goes_on_while_rungs_change(run_script: Runner, script: str) -> None:
    # GIVEN shapes to which replayed batches, or ranks that run apart, could make a difference
    options = dataclasses.replace(SMALL, rungs=RUNGS, seconds=1.0)
    # WHEN
    run = run_script(script, options=options)
    # THEN each rung was measured, every step has its samples and the replicas agree in the end
    check(run, shape_of(script))
    assert run.record is not None
    notes = [note for note in run.record.notes if "the latter are counted" not in note]
    assert (run.record.unavailable, notes) == ({}, [])
    assert set(run.column("rung")[run.column("measured") == 1]) == {0, 1, 2, 3}


def test_ranks_that_meet_past_all_hooks_are_not_parked(run_script: Runner) -> None:
    # GIVEN a collective that cannot be answered on the rank: alone, a rank would wait for ever
    options = dataclasses.replace(SMALL, rungs=RUNGS, seconds=1.0)
    run = run_script("unseen_collectives.py", options=options)
    # THEN
    check(run, shape_of("unseen_collectives.py"))
    assert run.record is not None
    assert set(run.record.unavailable) == {"unsynced", "solo"}
    assert "reach the other ranks in every step" in run.record.unavailable["solo"]
    assert set(run.column("rung")[run.column("measured") == 1]) == {0, 1}


def test_app_that_changes_folder_and_reads_its_own_grammar(run_script: Runner) -> None:
    # GIVEN / WHEN
    run = run_script("changes_folder.py", args=("out={out}", "optim.lr=0.05"))
    # THEN argv is the script's own, and so is the folder
    check(run, shape_of("changes_folder.py"))
    seen = (run.out / "changes_folder" / "rank1" / "argv.txt").read_text().splitlines()
    assert seen == [str(SCRIPTS / "changes_folder.py"), f"out={run.out}", "optim.lr=0.05"]


def test_own_rendezvous(run_script: Runner) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    url = f"tcp://localhost:{port}"
    run = run_script("own_rendezvous.py", args=("--dist-url", url, "--out", "{out}"))
    check(run, shape_of("own_rendezvous.py"))


@pytest.mark.parametrize("nproc", [1, 4])
def test_other_device_counts(run_script: Runner, nproc: int) -> None:
    check(run_script("for_loop.py", nproc), shape_of("for_loop.py"), nproc)


def test_single_device_without_process_group(run_script: Runner) -> None:
    run = run_script("single_device.py", 1)
    check(run, shape_of("single_device.py"), nproc=1)
    assert run.record is not None
    assert (run.record.loop.wrapper, run.record.loop.backend) == ("none", None)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_worker_start_methods(run_script: Runner, method: str) -> None:
    run = run_script("workers.py", args=("--method", method, "--out", "{out}"))
    check(run, shape_of("workers.py"))
    assert run.record is not None
    assert run.record.loop.loader_workers == 1


def test_workers_of_a_loader_that_makes_its_iterators_are_known(run_script: Runner) -> None:
    run = run_script("own_iterator.py")
    assert run.record is not None, run.story
    assert (run.record.loop.loader_workers, run.record.loop.samples_from) == (1, "indices")
    assert [load.fetch_batches > 0 for load in run.record.loads] == [True, True]


@pytest.mark.parametrize(("nproc", "batch"), [(1, 32), (2, 16)])
def test_strong_scaling_overrides_the_batch_size(
    run_script: Runner, nproc: int, batch: int
) -> None:
    # GIVEN a script with 8 samples per batch WHEN 32 over all devices are asked for
    run = run_script("for_loop.py", nproc, options=dataclasses.replace(SMALL, global_batch=32))
    # THEN
    check(run, dataclasses.replace(shape_of("for_loop.py"), samples=(batch,)), nproc)


def test_batch_size_is_overridden_where_a_batch_sampler_is_made_with_keywords(
    run_script: Runner,
) -> None:
    run = run_script("closure_slow.py", options=dataclasses.replace(SMALL, global_batch=32))
    check(run, dataclasses.replace(shape_of("closure_slow.py"), samples=(16,)))


def test_a_closure_is_no_part_of_the_update(run_script: Runner) -> None:
    # GIVEN a closure with a forward of 4 ms and 2 ms beside it
    run = run_script("closure_slow.py")
    # THEN each is where it belongs
    phases = {name: run.column(name)[1:] for name in ("step_s", "forward_s", "update_s")}
    assert (phases["forward_s"] >= 0.004).all(), run.story
    assert np.median(phases["update_s"]) < 0.001, run.story
    rest = (
        phases["step_s"] - phases["forward_s"] - phases["update_s"] - run.column("data_wait_s")[1:]
    )
    assert (rest >= 0.002).all(), run.story


def test_ranks_draw_random_numbers_of_their_own(run_script: Runner) -> None:
    # GIVEN a script that seeds nothing WHEN its ranks draw their batches by numpy
    run = run_script("no_loader.py")
    # THEN they are not the same
    first, second = (log.splitlines()[0] for log in run.logs)
    assert first.startswith("first tokens"), run.story
    assert first != second


@pytest.mark.parametrize("workers", ["0", "1"])
def test_slow_loader_shows_as_waiting(run_script: Runner, workers: str) -> None:
    # GIVEN a loader that needs 8 x 4 ms per batch, much longer than the step itself
    args = ("--decode-s", "0.004", "--workers", workers, "--out", "{out}")
    # WHEN
    run = run_script("for_loop.py", args=args)
    # THEN most of each measured step is waiting for data
    check(run, shape_of("for_loop.py"))
    measured = run.column("measured") == 1
    wait_s, step_s = run.column("data_wait_s")[measured], run.column("step_s")[measured]
    assert (wait_s <= step_s).all()
    assert (wait_s > 0).all()
    assert wait_s.mean() > 0.016


def test_checkpoints_do_not_stay(run_script: Runner) -> None:
    # GIVEN a script that saves every 10 steps on rank 0
    run = run_script("checkpoint.py", options=GUARDED)
    # THEN nothing of it stays, and the record tells what was saved
    assert run.record is not None, run.story
    assert list(run.out.iterdir()) == []
    told = [(save.rank, save.path, save.written) for save in run.record.saves]
    count = len(run.steps(0))  # the end comes in the last update, before a save that follows it
    assert told == [
        (0, str(run.out / f"checkpoint-{step}.pt"), False) for step in range(10, count, 10)
    ]
    assert run.record.saves[0].keys[:3] == ("model", "model.0.weight", "model.0.bias")
    # THEN saving is no part of a step: it shows apart, in the step that follows it
    assert _steps_with_other(run, 0) == list(range(10, count, 10))
    assert _steps_with_other(run, 1) == []


def test_checkpoints_are_written_where_wanted(run_script: Runner) -> None:
    run = run_script("checkpoint.py")
    assert run.record is not None, run.story
    assert {save.written for save in run.record.saves} == {True}
    wanted = {f"checkpoint-{step}.pt" for step in range(10, len(run.steps(0)), 10)}
    assert {path.name for path in run.out.iterdir()} == wanted


def test_validation_is_told_apart_from_the_steps(run_script: Runner) -> None:
    # GIVEN validation on all ranks after every 10th step
    run = run_script("validation_all_ranks.py")
    # THEN its time stands in the step that follows, and only there
    assert run.record is not None, run.story
    for rank in (0, 1):
        assert _steps_with_other(run, rank) == list(range(10, len(run.steps(0)), 10))


@pytest.mark.parametrize(("script", "first"), [("train_accuracy.py", 10), ("data_pass.py", 0)])
def test_other_passes_over_the_training_loader_are_told_apart(
    run_script: Runner, script: str, first: int
) -> None:
    # GIVEN epochs of 10 steps, with a pass over the same loader between them
    run = run_script(script)
    assert run.record is not None, run.story
    assert _steps_with_other(run, 0) == list(range(first, len(run.steps(0)), 10))


def test_validation_on_one_rank_is_told_apart_there(run_script: Runner) -> None:
    # GIVEN validation on rank 0 inside every 7th step
    run = run_script("validation_rank0.py")
    assert run.record is not None, run.story
    assert _steps_with_other(run, 0) == list(range(0, len(run.steps(0)), 7))


def _steps_with_other(run: Run, rank: int) -> list[int]:
    return np.flatnonzero(run.column("other_s", rank) > 0).tolist()


@pytest.mark.parametrize("script", ["for_loop.py", "closure.py"])
def test_parts_of_a_step_follow_each_other(run_script: Runner, script: str) -> None:
    # GIVEN a closure or none WHEN it is measured on all rungs
    run = run_script(script, options=dataclasses.replace(SMALL, rungs=RUNGS, seconds=1.0))
    check(run, shape_of(script))
    for rank in (0, 1):
        between_s, wait_s, began_s, ended_s, update_s, all_s = (
            run.column(name, rank)[1:]  # the first step begins with its first event
            for name in (
                "between_s", "data_wait_s", "forward_began_s", "forward_ended_s", "update_s",
                "update_ended_s",
            )
        )  # fmt: skip
        # THEN every step's parts come one after the other, those that pass unmeasured too
        assert (between_s >= 0).all()
        assert (between_s + wait_s <= began_s + 1e-9).all()
        assert (began_s < ended_s).all()
        assert (update_s > 0).all()
        assert (ended_s + update_s <= all_s + 1e-9).all()
        # THEN steps of one block follow each other without a gap
        host_s, block = run.column("host_s", rank)[1:], run.column("block", rank)[1:]
        same = (block[1:] == block[:-1]) & (block[1:] >= 0)
        gap_s = host_s[1:] - host_s[:-1] - all_s[:-1]
        assert np.abs(gap_s[same]).max() < 1e-6


def test_exceptions_that_the_script_swallows_do_not_swallow_the_end(run_script: Runner) -> None:
    run = run_script("except_exception.py")
    assert run.record is not None, run.story
    assert [log for log in run.logs if "skipping" in log or "saving what" in log] == []


def test_four_ranks_whose_turns_alone_take_two_cycles_are_joined(run_script: Runner) -> None:
    # GIVEN two turns alone in each cycle, so that the ranks' own counts of steps are apart
    options = dataclasses.replace(SMALL, rungs=RUNGS, seconds=2.0)
    run = run_script("for_loop.py", nproc=4, options=options)
    assert run.outcome.status == "ok", run.story
    plan = LaunchPlan(index=0, round=0, devices=4, cores=None, seconds=2.0, seed=0)
    launch = MeasuredLaunch(plan=plan, outcome=run.outcome, record=run.record, steps=run.table)
    steps = step_frame([launch])
    together = steps[(steps["measured"] & (steps["rung"] != "solo")).to_numpy()]
    apart = together.groupby(["block", "rank"])["step"].min().unstack("rank").nunique(axis=1)
    assert apart.max() > 1
    # THEN no step of all is lost
    assert 4 * len(job_steps(steps)) == len(together) > 0

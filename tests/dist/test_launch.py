"""The launcher with real ranks: what a launch comes to, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from torch.distributed import TCPStore

from sfbench.common.schema import RankJob
from sfbench.launch.local import LocalLauncher
from sfbench.launch.outcome import LaunchError, LaunchOutcome, Progress
from sfbench.launch.servers import FEWEST, servers_for
from sfbench.plan.sweep_plan import NodeJob
from sfbench.protocol import record_file

HERE = Path(__file__).parent
ENTRY = "entries:dispatch"
LONG_S = 120.0
SHORT_S = 6.0

Run = Callable[..., LaunchOutcome]


@pytest.fixture(scope="module", autouse=True)
def entries_in_path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def launcher(entries_in_path: None) -> Iterator[LocalLauncher]:
    """One host for all tests that leave it alive."""
    with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
        yield launcher


@pytest.fixture
def run(launcher: LocalLauncher, tmp_path: Path) -> Iterator[Run]:
    """Runs one launch; afterwards no process of it may be left."""
    yield lambda script, nproc, **rest: launcher.run(
        node_job(tmp_path, script, nproc, **rest), ignore
    )
    kinds = sorted(name_of(process) for process in psutil.Process().children(recursive=True))
    servers = kinds.count("forkserver")  # as many as the cores allow
    assert kinds == ["forkserver"] * servers + ["resource_tracker", "sfbench.launch"]
    assert servers == servers_for(max(FEWEST, servers))


def node_job(
    folder: Path,
    script: str,
    nproc: int,
    *,
    args: tuple[str, ...] = (),
    timeout_s: float = LONG_S,
    cores: tuple[tuple[int, ...], ...] | None = None,
) -> NodeJob:
    launch_dir = folder / "launch"
    launch_dir.mkdir(parents=True, exist_ok=True)
    job = RankJob(script=script, args=args, launch_dir=str(launch_dir), cores=cores)
    return NodeJob(job=job, nproc=nproc, log_dir=folder / "logs" / "point", timeout_s=timeout_s)


def ignore(progress: Progress) -> None:
    """For launches whose progress is of no interest."""


def failure(outcome: LaunchOutcome, status: str = "failed") -> LaunchError:
    assert outcome.error is not None
    assert (outcome.status, outcome.record) == (status, None)
    return outcome.error


def name_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    kinds = ("forkserver", "resource_tracker", "sfbench.launch")
    return next((kind for kind in kinds if f"{kind} " in f"{line} "), line)


def facts(folder: Path, ranks: Iterable[int]) -> list[dict[str, object]]:
    paths = (folder / "launch" / f"facts-{rank}.json" for rank in ranks)
    return [json.loads(path.read_text()) for path in paths]


def log(folder: Path, rank: int) -> str:
    return (folder / "logs" / "point" / f"rank{rank}.log").read_text()


def all_gone(pids: set[int], limit_s: float = 30.0) -> bool:
    """Wait, without polling, until none of some processes runs."""
    end_s = time.monotonic() + limit_s
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(max(0.0, end_s - time.monotonic()) * 1000):
                    return False
            finally:
                os.close(descriptor)
    return True


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_ranks_get_what_torchrun_gives_them(run: Run, tmp_path: Path, devices: int) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    fixed = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR")

    outcome = run("tells_environment", devices, args=(*names, *fixed, "MASTER_PORT"))

    assert (outcome.status, outcome.error, outcome.notes) == ("ok", None, ())
    assert outcome.record == tmp_path / "launch" / record_file.FILE_NAME
    seen = facts(tmp_path, range(devices))
    n = str(devices)
    assert [[each[name] for name in names] for each in seen] == [
        [str(rank), str(rank), n, n, "0"] for rank in range(devices)
    ]
    same = ["1", "1", "", "127.0.0.1"]
    assert [[each[name] for name in fixed] for each in seen] == [same] * devices
    assert [each["sum"] for each in seen] == [sum(range(devices))] * devices
    assert [each["threads"] for each in seen] == [1] * devices
    assert {each["agent_store"] for each in seen} == {False}
    assert {each["daemon"] for each in seen} == {False}
    assert len({each["MASTER_PORT"] for each in seen}) == 1


def test_a_log_holds_all_that_a_rank_and_its_children_write(run: Run, tmp_path: Path) -> None:
    run("tells_environment", 2)

    lines = log(tmp_path, 1).splitlines()

    for line in ("hello from rank 1", "warning from rank 1", "child of rank 1"):
        assert line in lines


def test_ranks_are_pinned_where_the_plan_says_so(run: Run, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))

    run("tells_environment", 2, cores=((core,), (core,)))

    assert [each["cores"] for each in facts(tmp_path, range(2))] == [[core], [core]]


def test_progress_is_that_of_local_rank_0(launcher: LocalLauncher, tmp_path: Path) -> None:
    job = node_job(tmp_path, "reports_progress", 1)
    pipe = tmp_path / "launch" / "seen"
    os.mkfifo(pipe)
    told: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        if progress.phase == "measuring":
            pipe.write_bytes(b"")

    outcome = launcher.run(job, on_progress)

    assert outcome.status == "ok"
    assert told[-1] == Progress(
        phase="measuring",
        steps=7,
        samples_per_s=100.0,
        half_width=0.25,
        measured_s=1.5,
        budget_s=2.0,
    )


def test_what_on_progress_raises_comes_through_and_ends_the_launch(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def on_progress(progress: Progress) -> None:
        if progress.phase == "measuring":
            raise Enough

    with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
        before = set(psutil.Process().children(recursive=True))
        with pytest.raises(Enough):
            launcher.run(node_job(tmp_path, "ignores_sigterm", 2), on_progress)
        left = set(psutil.Process().children(recursive=True)) - before

    assert left == set()


def test_no_record_and_no_failure_is_no_steps(run: Run) -> None:
    outcome = run("returns_without_record", 2)

    error = failure(outcome)
    assert (error.kind, error.script_fault) == ("no-steps", False)


def test_ranks_that_leave_by_os_exit_end_the_launch(run: Run) -> None:
    outcome = run("leaves_hard", 2)

    assert failure(outcome).kind == "no-steps"


def test_a_rank_that_raises_is_named_with_its_exception(run: Run) -> None:
    outcome = run("raises_on_rank_1", 2)

    error = failure(outcome)
    assert (error.kind, error.rank, error.log) == ("exception", 1, "point/rank1.log")
    assert error.message == "At 2 devices rank 1 raised ValueError: no such column"
    assert error.last_lines[-1] == "ValueError: no such column"


def test_a_rank_that_exits_is_named_with_its_code(run: Run) -> None:
    outcome = run("exits_3_on_rank_1", 4)

    error = failure(outcome)
    assert (error.kind, error.rank, error.script_fault) == ("exit", 1, True)
    assert error.message.startswith("At 4 devices rank 1 ended with exit code 3")
    assert error.last_lines[-1] == "giving up"


def test_exit_by_text_is_code_1_with_the_text_in_the_log(run: Run) -> None:
    outcome = run("exits_by_text", 1)

    error = failure(outcome)
    assert error.message.startswith("At 1 device rank 0 ended with exit code 1")
    assert error.last_lines[-1] == "no data folder"


def test_a_killed_rank_is_named_with_its_signal(run: Run) -> None:
    outcome = run("killed_on_rank_1", 2)

    error = failure(outcome)
    assert (error.kind, error.rank, error.script_fault) == ("signal", 1, True)
    assert error.message.startswith("At 2 devices rank 1 was killed by SIGKILL")
    assert error.last_lines == ("a line without an end",)


def test_a_noted_failure_ends_a_rank_that_lingers(run: Run) -> None:
    outcome = run("notes_then_lingers", 2)

    error = failure(outcome)
    assert (error.kind, error.rank, error.script_fault) == ("not-wrapped", 1, False)
    assert error.message == "At 2 devices rank 1 could not go on: No DDP."


def test_a_hang_is_a_timeout_with_all_stacks_in_the_logs(run: Run, tmp_path: Path) -> None:
    outcome = run("hangs_on_rank_1", 2, timeout_s=SHORT_S)

    error = failure(outcome, "timeout")
    assert (error.kind, error.rank, error.log) == ("timeout", 1, "point/rank1.log")
    assert "rank 1 is behind: rank 1 in phase warmup, 5 steps done, in sleeps_in_the_loader at" in (
        error.message
    )
    assert "in sleeps_in_the_loader" in log(tmp_path, 1)
    assert "in barrier" in log(tmp_path, 0)


def test_what_ignores_sigterm_is_killed_and_its_shared_memory_removed(
    run: Run, tmp_path: Path
) -> None:
    outcome = run("leaves_shared_memory", 2, timeout_s=SHORT_S)

    assert outcome.status == "timeout"
    shared = [Path(log(tmp_path, rank).splitlines()[0]) for rank in (0, 1)]
    assert [path.parent for path in shared] == [Path("/dev/shm")] * 2
    assert not any(path.exists() for path in shared)


def test_an_abort_after_the_record_is_a_note(run: Run) -> None:
    outcome = run("aborts_after_record", 2)

    assert (outcome.status, outcome.error) == ("ok", None)
    assert outcome.notes == ("rank 1 was killed by SIGABRT after the record was complete",)


def test_a_rank_that_is_done_may_die_before_the_record_is_written(run: Run) -> None:
    outcome = run("aborts_before_the_record_of_rank_0", 2)

    assert (outcome.status, outcome.error) == ("ok", None)


def test_an_orphan_of_a_rank_is_ended(run: Run, tmp_path: Path) -> None:
    outcome = run("leaves_orphan", 1)

    assert outcome.status == "ok"
    assert not psutil.pid_exists(int(log(tmp_path, 0)))


def test_uneven_inputs_are_seen_before_the_timeout(run: Run) -> None:
    outcome = run("ends_early_on_rank_1", 2)

    error = failure(outcome)
    assert (error.kind, error.rank) == ("ranks-disagree", 1)
    assert "rank 1's script ended after step 5 while rank 0 waits in step 6" in error.message


def test_a_rank_that_computes_alone_is_left_alone(run: Run) -> None:
    outcome = run("evaluates_alone_on_rank_0", 2, args=("6",))

    assert (outcome.status, outcome.error) == ("ok", None)


def test_ranks_may_start_processes_of_any_kind(run: Run, tmp_path: Path) -> None:
    outcome = run("starts_processes", 1)

    assert outcome.status == "ok"
    assert facts(tmp_path, [0]) == [{"total": 28, "own_server": True}]


def test_the_fork_server_asks_no_gpu_and_starts_no_thread() -> None:
    # Either would break the ranks: a driver does not survive a fork, nor does a thread's lock.
    script = """
        import os, torch
        from sfbench.launch import preload
        asked = []
        for name in ("is_available", "device_count", "_lazy_init"):
            setattr(torch.cuda, name, lambda *_, name=name: asked.append(name))
        preload.load()
        print(asked, len(os.listdir("/proc/self/task")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[] 1\n"


def test_two_launchers_at_once_do_not_meet(launcher: LocalLauncher, tmp_path: Path) -> None:
    args = ("MASTER_PORT",)
    jobs = [node_job(tmp_path / name, "tells_environment", 2, args=args) for name in "ab"]

    with (
        LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as other,
        ThreadPoolExecutor() as pool,
    ):
        outcomes = list(pool.map(lambda at, job: at.run(job, ignore), (launcher, other), jobs))

    assert [outcome.status for outcome in outcomes] == ["ok", "ok"]
    ports = {str(each["MASTER_PORT"]) for name in "ab" for each in facts(tmp_path / name, range(2))}
    assert len(ports) == 2


def test_a_killed_host_is_an_error_and_the_next_launch_gets_a_new_one(tmp_path: Path) -> None:
    script = f"import test_launch; test_launch.a_killed_host({str(tmp_path)!r})"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def a_killed_host(folder: str) -> None:
    """In a process of its own, so that the host is its only child."""
    pids: set[int] = set()

    def kill_host(progress: Progress) -> None:
        if progress.phase == "measuring":
            (host,) = psutil.Process().children()
            pids.update(p.pid for p in [host, *host.children(recursive=True)])
            host.kill()

    with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
        outcome = launcher.run(node_job(Path(folder, "a"), "ignores_sigterm", 2), kill_host)
        error = failure(outcome)
        assert error.kind == "launcher"
        assert "was killed by SIGKILL" in error.message
        # Host, fork servers, resource tracker, two ranks, a child of each
        assert len(pids) == 6 + servers_for(2)
        assert all_gone(pids)
        again = launcher.run(node_job(Path(folder, "b"), "tells_environment", 2), ignore)
        assert again.status == "ok"


def test_a_host_that_is_told_to_end_ends_the_launch_as_interrupted(tmp_path: Path) -> None:
    script = f"import test_launch; test_launch.a_terminated_host({str(tmp_path)!r})"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def a_terminated_host(folder: str) -> None:
    """In a process of its own, so that the host is its only child."""

    def terminate_host(progress: Progress) -> None:
        if progress.phase == "measuring":
            (host,) = psutil.Process().children()
            host.terminate()

    with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
        outcome = launcher.run(node_job(Path(folder), "ignores_sigterm", 2), terminate_host)
        assert failure(outcome, "interrupted").kind == "interrupted"
        assert psutil.Process().children(recursive=True) == []


DRIVER = """
    import sys
    from pathlib import Path
    from test_launch import ENTRY, node_job
    from sfbench.launch.local import LocalLauncher

    def tell(progress):
        if progress.phase == "measuring":
            print("ready", flush=True)

    with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
        try:
            launcher.run(node_job(Path(sys.argv[1]), "ignores_sigterm", 2), tell)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_command_line_process(number: signal.Signals, tmp_path: Path) -> None:
    # GIVEN a launch whose ranks and their children ignore SIGTERM
    argv = [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        pids = {p.pid for p in psutil.Process(driver.pid).children(recursive=True)}

        # WHEN the command line process is ended
        driver.send_signal(number)

        # THEN all that it started ends too
        assert len(pids) == 6 + servers_for(2)
        assert all_gone(pids)
        said = driver.stdout.read()
    assert said == ("interrupted\n" if number == signal.SIGINT else "")


@pytest.fixture
def port() -> Iterator[int]:
    """Where nodes meet."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port  # noqa: PT022 - it holds the store until the test ends


def test_two_nodes_run_one_job_and_the_next(tmp_path: Path, port: int) -> None:
    def node(rank: int) -> list[LaunchOutcome]:
        with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
            return [
                launcher.run(node_of(tmp_path, port, rank, launch), ignore) for launch in (0, 1)
            ]

    with ThreadPoolExecutor() as pool:
        first, second = pool.map(node, (0, 1))

    assert [outcome.error for outcome in (*first, *second)] == [None] * 4
    assert all(outcome.record is not None for outcome in first)
    assert all(outcome.record is None for outcome in second)
    seen = [*facts(tmp_path / "node0-1", (0, 1)), *facts(tmp_path / "node1-1", (2, 3))]
    assert [each["sum"] for each in seen] == [0 + 1 + 2 + 3] * 4


def test_a_failure_on_one_node_is_told_on_the_other(tmp_path: Path, port: int) -> None:
    def node(rank: int) -> LaunchError:
        job = node_of(tmp_path, port, rank, 0, script="killed_on_the_second_node")
        with LocalLauncher(threads=1, device_type="cpu", entry=ENTRY) as launcher:
            return failure(launcher.run(job, ignore))

    with ThreadPoolExecutor() as pool:
        first, second = pool.map(node, (0, 1))

    assert (second.kind, second.rank, second.log) == ("signal", 2, "point/rank2.log")
    assert (first.kind, first.rank, first.log) == ("signal", 2, second.log)
    assert first.message == f"{second.message} (On node 1, {socket.gethostname()}.)"


def node_of(
    folder: Path, port: int, rank: int, launch: int, script: str = "tells_environment"
) -> NodeJob:
    job = node_job(folder / f"node{rank}-{launch}", script, 2)
    return NodeJob(
        job=job.job,
        nproc=2,
        log_dir=job.log_dir,
        timeout_s=LONG_S,
        nnodes=2,
        node_rank=rank,
        rdzv_endpoint=f"127.0.0.1:{port}",
        run_id=f"job-{launch}",
        address="127.0.0.1",
    )

"""``once_per_node`` and ``distributed_loader`` with real ranks: killed, late and stale ones too."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ONCE, LOADER = HERE / "once_script.py", HERE / "loader_script.py"
# Far more than a run takes; far less than the half hour that a hang would last.
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a rank ended."""

    code: int
    out: list[str]
    err: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job's environment and folders; a node is a group of ranks with its own GROUP_RANK."""

    folder: Path
    tmp: Path
    nodes: int = 1
    ranks_per_node: int = 4
    port: int = 29999

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node

    def start(self, rank: int, *args: str, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """One rank, as torchrun would start it; through another process where asked."""
        place = {
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": rank % self.ranks_per_node,
            "LOCAL_WORLD_SIZE": self.ranks_per_node,
            "GROUP_RANK": rank // self.ranks_per_node,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self.port,
        }
        return subprocess.Popen(
            [*through, sys.executable, str(ONCE), *args],
            env={**environment(self.tmp), **{name: str(value) for name, value in place.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, case: str) -> list[End]:
        """All ranks through one case."""
        with contextlib.ExitStack() as stack:
            ranks = [self.start(rank, case, str(self.folder)) for rank in range(self.size)]
            for process in ranks:
                stack.enter_context(ended(process))
            return [finish(process) for process in ranks]

    def made(self) -> list[str]:
        """Who made what."""
        return sorted(path.name for path in self.folder.iterdir())


def environment(tmp: Path) -> dict[str, str]:
    names = ("PATH", "HOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "TMPDIR": str(tmp), "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End the process and close its pipes, whatever the test did."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str], text: str | None = None) -> End:
    """Let it run to its end. TimeoutExpired = it hung."""
    out, err = process.communicate(text, timeout=TIMEOUT_S)
    return End(code=process.returncode, out=out.splitlines(), err=err)


def torchrun(tmp: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *args],
        env=environment(tmp),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(tmp: Path) -> list[str]:
    """What is left in the temporary folder, but for what torchrun leaves there itself."""
    return [path.name for path in tmp.iterdir() if not path.name.startswith("torchelastic_")]


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def job(folder: Path, tmp: Path) -> Job:
    return Job(folder=folder, tmp=tmp)


@pytest.fixture
def two_nodes(folder: Path, tmp: Path) -> Job:
    return Job(folder=folder, tmp=tmp, nodes=2)


class TestTwoNodesOfFour:
    def test_each_node_makes_it_once_and_all_its_ranks_get_the_value(self, two_nodes: Job) -> None:
        ends = two_nodes.run("twice")

        assert [end.code for end in ends] == [0] * 8, ends
        assert [end.out for end in ends] == [
            *[["first by 0", "second by 0"]] * 4,
            *[["first by 4", "second by 4"]] * 4,
        ]
        assert two_nodes.made() == [
            "first-by-0", "first-by-4", "second-by-0", "second-by-4",
        ]  # fmt: skip
        assert left(two_nodes.tmp) == []

    def test_an_exception_is_raised_on_every_rank(self, two_nodes: Job) -> None:
        ends = two_nodes.run("fail")

        assert [end.code for end in ends] == [0] * 8, ends
        absent = f"[Errno 2] No such file or directory: '{two_nodes.folder / 'absent'}'"
        for rank, end in enumerate(ends):
            leads = rank in {0, 4}
            cause = "" if leads else " from OncePerNodeError"
            assert end.out[0] == f"FileNotFoundError: {absent}{cause}"
            # An error that cannot be pickled reaches the others as text.
            assert end.out[1].startswith("Awkward: " if leads else "OncePerNodeError: ")
            assert "this and that" in "".join(end.out)
            assert any(
                line.startswith("OncePerNodeError: A value of type function cannot be passed")
                for line in end.out
            )

    def test_local_rank_0_killed_half_way_ends_the_others_and_the_next_run_is_clean(
        self, folder: Path, tmp: Path
    ) -> None:
        # GIVEN two nodes with a disk each, and a local rank 0 that is killed with half a file.
        jobs = [
            Job(folder=folder / name, tmp=tmp, port=port)
            for name, port in (("node-0", 29998), ("node-1", 29999))
        ]
        for each in jobs:
            each.folder.mkdir()

            ends = each.run("die")

            # THEN the others end with an error that says so, and no whole file is there.
            assert ends[0].code == -9
            assert [end.code for end in ends[1:]] == [1, 1, 1]
            for end in ends[1:]:
                assert "ended while it ran __main__.die" in end.err
            assert not (each.folder / "whole").exists()

            # WHEN the same job starts again THEN it finds nothing of the first.
            ends = each.run("die")

            assert [(end.code, end.out) for end in ends] == [(0, ["whole"])] * 4
            assert each.made() == ["tried", "whole"]
        assert left(tmp) == [], [*tmp.rglob("*")]

    def test_two_torchruns_are_two_nodes(self, folder: Path, tmp: Path, free_port: int) -> None:
        args = [
            "--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-id=nodes",
            f"--rdzv-endpoint=127.0.0.1:{free_port}", str(ONCE), "twice", str(folder),
        ]  # fmt: skip
        with ended(torchrun(tmp, *args)) as first, ended(torchrun(tmp, *args)) as second:
            ends = [finish(first), finish(second)]

        assert [end.code for end in ends] == [0, 0], ends
        values = Counter(line for end in ends for line in end.out)
        assert values == dict.fromkeys(
            ("first by 0", "first by 4", "second by 0", "second by 4"), 4
        )
        assert left(tmp) == [], [*tmp.rglob("*")]


class TestOneNode:
    def test_it_works_around_init_process_group(self, folder: Path, tmp: Path) -> None:
        with ended(
            torchrun(tmp, "--standalone", "--nproc-per-node=2", str(ONCE), "init", str(folder))
        ) as process:
            end = finish(process)

        assert end.code == 0, end
        names = ("before", "during", "after")
        assert Counter(end.out) == dict.fromkeys((f"{name} by 0" for name in names), 2)
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            f"{name}-by-0" for name in names
        )

    def test_a_restart_by_torchrun_starts_clean(self, folder: Path, tmp: Path) -> None:
        args = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", str(ONCE), "die")
        with ended(torchrun(tmp, *args, str(folder))) as process:
            end = finish(process)

        assert (end.code, end.out) == (0, ["whole", "whole"]), end

    def test_a_call_inside_a_call_runs_once(self, job: Job) -> None:
        assert [end.out for end in job.run("nested")] == [["inner by 0", "outer by 0"]] * 4

    def test_a_child_of_local_rank_0_does_not_stand_for_it(self, job: Job) -> None:
        pair = Job(folder=job.folder, tmp=job.tmp, ranks_per_node=2)
        with (
            ended(pair.start(0, "fork-and-die", str(pair.folder))) as first,
            ended(pair.start(1, "fork-and-die", str(pair.folder))) as second,
        ):
            # The child holds first's stdin until the test closes it.
            end = finish(second)

            assert first.wait(TIMEOUT_S) == -9
            assert end.code == 1
            assert "ended while it ran __main__.fork_and_die" in end.err

    def test_local_rank_0_that_leaves_without_the_call_ends_the_others(self, job: Job) -> None:
        ends = job.run("rank-0-leaves")

        assert ends[0].out == ["first by 0"]
        for end in ends[1:]:
            assert end.out[0] == "first by 0"
            assert "ended before it called __main__.fail" in end.out[1]
        assert left(job.tmp) == []

    def test_a_late_rank_gets_the_value_of_a_local_rank_0_that_has_ended(self, job: Job) -> None:
        pair = Job(folder=job.folder, tmp=job.tmp, ranks_per_node=2)
        with ended(pair.start(1, "one", str(pair.folder), "it")) as late:
            assert late.stdout is not None
            assert late.stdout.readline() == "ready\n"
            with ended(pair.start(0, "one", str(pair.folder), "it")) as first:
                assert finish(first, "go\n").out == ["ready", "it by 0"]

            assert finish(late, "go\n").out == ["it by 0"]
        assert left(job.tmp) == []

    def test_a_value_that_an_earlier_run_left_is_not_taken(self, job: Job) -> None:
        # GIVEN an earlier run, of its own launcher, that left a value nobody took.
        pair = Job(folder=job.folder, tmp=job.tmp, ranks_per_node=2)
        shell = ("sh", "-c", '"$@"; exit $?', "sh")
        with ended(pair.start(0, "one", str(pair.folder), "old", through=shell)) as first:
            assert finish(first, "go\n").code == 0
        assert left(job.tmp) != []

        # WHEN the same job starts again, the other rank first.
        with ended(pair.start(1, "one", str(pair.folder), "new")) as other:
            assert other.stdin is not None
            other.stdin.write("go\n")
            other.stdin.flush()
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            with ended(pair.start(0, "one", str(pair.folder), "new")) as first:
                assert finish(first, "go\n").code == 0

            # THEN it gets the new value.
            assert finish(other).out == ["new by 0"]
        assert left(job.tmp) == []

    def test_two_jobs_at_once_do_not_meet(self, tmp_path: Path, tmp: Path) -> None:
        jobs = [
            Job(folder=tmp_path / f"data-{port}", tmp=tmp, ranks_per_node=2, port=port)
            for port in (29998, 29999)
        ]
        with contextlib.ExitStack() as stack:
            ranks = []
            for each in jobs:
                each.folder.mkdir()
                for rank in range(2):
                    process = each.start(rank, "one", str(each.folder), str(each.port))
                    ranks.append((each.port, stack.enter_context(ended(process))))
            for _, process in reversed(ranks):
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            for port, process in ranks:
                assert finish(process).out == ["ready", f"{port} by 0"]
        assert left(tmp) == [], [*tmp.rglob("*")]

    def test_a_call_in_a_loader_worker_is_refused(self, job: Job) -> None:
        pair = Job(folder=job.folder, tmp=job.tmp, ranks_per_node=2)

        for end in pair.run("in-worker"):
            assert end.code == 1
            assert "was called in a DataLoader worker" in end.err


def test_importing_it_needs_no_torch() -> None:
    code = "import sys, sfbench.data; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_of_all_ranks_draw_apart_and_the_same_on_each_run(tmp: Path) -> None:
    # GIVEN a script that seeds all ranks alike WHEN two ranks draw in two workers each.
    runs = []
    for _ in range(2):
        with ended(torchrun(tmp, "--standalone", "--nproc-per-node=2", str(LOADER))) as process:
            end = finish(process)
        assert end.code == 0, end
        runs.append(sorted(end.out))

    # THEN 8 samples x 2 passes are 16 different draws of each generator, twice the same.
    assert runs[0] == runs[1]
    for column in zip(*(line.split() for line in runs[0]), strict=True):
        assert len(set(column)) == 16


def test_the_script_in_the_documentation_runs(tmp_path: Path, tmp: Path) -> None:
    page = (HERE.parents[1] / "docs" / "data.md").read_text()
    script = tmp_path / "train.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0])

    with ended(torchrun(tmp, "--standalone", "--nproc-per-node=2", str(script))) as process:
        end = finish(process)

    # 64 samples, 2 ranks, batches of 8: 4 updates an epoch.
    assert end.code == 0, end
    assert end.out[0].startswith("8 updates, loss ")
    assert (tmp / "sfbench-docs-example.pt").exists()

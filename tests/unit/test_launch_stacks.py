"""What is read from stacks, logs and the kernel's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfbench.launch.logs import LAST_LINES, last_lines, log_name, read_from
from sfbench.launch.oom import kills
from sfbench.launch.stacks import innermost, waits_for_others

DUMP = """\
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f0 (most recent call first):
  File "/data/me/train.py", line 12 in load
  File "/data/me/train.py", line 40 in <module>
"""
IN_BACKWARD = """\
Current thread 0x00007f0 (most recent call first):
  File "/env/torch/autograd/graph.py", line 865 in _engine_run_backward
  File "/env/torch/autograd/__init__.py", line 354 in backward
  File "/env/torch/_tensor.py", line 631 in backward
  File "/data/me/train.py", line 20 in <module>
"""
IN_FORWARD = """\
Current thread 0x00007f0 (most recent call first):
  File "/env/torch/nn/parallel/distributed.py", line 2363 in _distributed_broadcast_coalesced
  File "/env/torch/nn/modules/module.py", line 1789 in _call_impl
  File "/data/me/train.py", line 20 in <module>
"""
THROUGH_A_HOOK = """\
Current thread 0x00007f0 (most recent call first):
  File "/env/sfbench/probe/recording/opened_files.py", line 112 in wait
  File "/data/me/train.py", line 62 in <module>
"""


def test_the_main_thread_is_the_last_of_a_dump() -> None:
    assert innermost(DUMP) == "load at train.py:12"


def test_hooks_are_no_place_in_the_script() -> None:
    assert innermost(THROUGH_A_HOOK) == "<module> at train.py:62"


def test_a_dump_without_frames_has_no_place() -> None:
    assert innermost("") is None
    assert not waits_for_others("")


def test_a_rank_in_backward_waits_for_others_and_one_in_the_script_does_not() -> None:
    assert waits_for_others(IN_BACKWARD)
    assert waits_for_others(IN_FORWARD)
    assert not waits_for_others(THROUGH_A_HOOK)
    assert not waits_for_others(DUMP)


def test_last_lines_leave_blank_ends_out(tmp_path: Path) -> None:
    log = tmp_path / log_name(3)
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(40)) + b"\xff\n\n")

    lines = last_lines(log)

    assert log.name == "rank3.log"
    assert lines == (*(f"line {i}" for i in range(26, 40)), "\ufffd")
    assert len(lines) == LAST_LINES


def test_a_log_that_was_never_opened_is_empty(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log") == ()
    assert read_from(tmp_path / "none.log", 10) == ""


def test_a_log_is_read_from_where_the_stacks_begin(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("before\nstacks\n")

    assert read_from(log, len("before\n")) == "stacks\n"


@pytest.mark.parametrize(
    ("cgroup", "file", "text"),
    [
        ("0::/job/one\n", "job/one/memory.events", "low 0\noom 4\noom_kill 3\n"),
        (
            "5:cpu,memory:/job\n0::/\n",
            "memory/job/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        ),
    ],
)
def test_kills_for_memory_are_counted_by_both_versions(
    tmp_path: Path, cgroup: str, file: str, text: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)

    assert kills(cgroup, tmp_path) == 3


@pytest.mark.parametrize("cgroup", ["0::/job\n", "3:cpu:/\n", ""])
def test_kills_are_unknown_where_the_kernel_does_not_tell(tmp_path: Path, cgroup: str) -> None:
    assert kills(cgroup, tmp_path) is None

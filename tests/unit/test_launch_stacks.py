"""What is read from stacks, logs and the kernel's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfbench.launch.logs import LAST_LINES, last_lines, log_name, read_from
from sfbench.launch.oom import kills
from sfbench.launch.stacks import crash_site, innermost, waits_for_others

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
CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f0 (most recent call first):
  File "/env/lib/python3.11/site-packages/numpy.py", line 3 in view
  File "/env/sfbench/probe/saves.py", line 12 in save
  File "/data/me/train.py", line 7 in load
  File "/data/me/train.py", line 62 in <module>
  File "/env/sfbench/probe/run.py", line 113 in _run_script
  File "/env/sfbench/launch/worker.py", line 83 in enter
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, numpy.linalg._umath_linalg (total: 2)
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/env/sfbench/probe/run.py", line 113, in _run_script
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
  File "/data/me/train.py", line 9, in <module>
    main()
    ^^^^^^
ValueError: 7
"""


def test_the_main_thread_is_the_last_of_a_dump() -> None:
    assert innermost(DUMP) == "load at train.py:12"


def test_hooks_are_no_place_in_the_script() -> None:
    assert innermost(THROUGH_A_HOOK) == "<module> at train.py:62"


def test_the_line_of_the_script_stands_beside_a_place_in_a_library() -> None:
    text = IN_BACKWARD.replace("/env/", "/env/lib/python3.11/site-packages/")

    assert innermost(text) == (
        "_engine_run_backward at graph.py:865, called by <module> at train.py:20"
    )


def test_a_crash_is_placed_in_the_script_and_not_in_what_it_stands_on() -> None:
    assert crash_site(f"epoch 1\n{CRASH}") == "view at numpy.py:3, called by load at train.py:7"
    assert crash_site("epoch 1\nkilled\n") is None


def test_last_lines_hold_no_frame_of_the_tool(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(f"epoch 1\n{CRASH}{TRACEBACK}")

    lines = last_lines(log)

    assert lines == (
        "epoch 1",
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f0 (most recent call first):",
        '  File "/env/lib/python3.11/site-packages/numpy.py", line 3 in view',
        '  File "/data/me/train.py", line 7 in load',
        '  File "/data/me/train.py", line 62 in <module>',
        "",
        "Traceback (most recent call last):",
        '  File "/data/me/train.py", line 9, in <module>',
        "    main()",
        "    ^^^^^^",
        "ValueError: 7",
    )


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

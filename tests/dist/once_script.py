"""A rank that makes data once per node: ``python once_script.py CASE FOLDER``.

What each rank got is printed; who made what is a file per call in FOLDER. Where a case waits for
the test it reads a line from stdin.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sfbench.data import OncePerNodeError, once_per_node, staged

RANK = os.environ["RANK"]
CASE, FOLDER = sys.argv[1], Path(sys.argv[2])


def say(line: str) -> None:
    """Print in one write: ranks under torchrun share a pipe."""
    os.write(1, f"{line}\n".encode())


@once_per_node
def make(name: str) -> str:
    """Leave a mark, and say who made it."""
    (FOLDER / f"{name}-by-{RANK}").touch()
    return f"{name} by {RANK}"


@once_per_node
def make_both() -> str:
    """A call inside a call."""
    return make("inner")


@once_per_node
def fail() -> None:
    """Meet an ordinary error."""
    (FOLDER / "absent").read_text()


class Awkward(Exception):
    """An error that does not survive pickling."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@once_per_node
def fail_awkwardly() -> None:
    """Meet an error that cannot travel."""
    raise Awkward("this", "that")


@once_per_node
def make_unpicklable() -> object:
    """Return what cannot travel."""
    return lambda: None


@once_per_node
def die() -> None:
    """Be killed with half of the file written, unless this is the second try."""
    with staged(FOLDER / "whole") as partial:
        partial.write_text("half")
        if not (FOLDER / "tried").exists():
            (FOLDER / "tried").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        partial.write_text("whole")


@once_per_node
def fork_and_die() -> None:
    """Be killed while a child lives on, until the test closes its stdin."""
    if os.fork() == 0:
        sys.stdin.readline()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def in_loader_worker() -> None:
    """Call it where the ranks cannot meet."""
    from torch.utils.data import DataLoader

    next(iter(DataLoader([0], num_workers=1, collate_fn=lambda _: make("in-worker"))))


def around_init() -> None:
    """Call it before, inside and after a process group."""
    import torch.distributed as dist

    say(make("before"))
    dist.init_process_group("gloo")
    say(make("during"))
    dist.destroy_process_group()
    say(make("after"))


def report(call: object) -> None:
    """Print the error that each rank got, by class, text and cause."""
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        cause = f" from {type(error.__cause__).__name__}" if error.__cause__ else ""
        say(f"{type(error).__name__}: {error}{cause}")


def main() -> None:
    """Run the case."""
    if CASE == "twice":
        say(make("first"))
        say(make("second"))
    elif CASE == "one":
        say("ready")
        sys.stdin.readline()
        say(make(sys.argv[3]))
    elif CASE == "nested":
        say(make_both())
        say(make("outer"))
    elif CASE == "fail":
        report(fail)
        report(fail_awkwardly)
        report(make_unpicklable)
    elif CASE == "die":
        die()
        say((FOLDER / "whole").read_text())
    elif CASE == "rank-0-leaves":
        say(make("first"))
        if RANK != "0":
            report(fail)
    else:
        {"fork-and-die": fork_and_die, "in-worker": in_loader_worker, "init": around_init}[CASE]()


if __name__ == "__main__":
    try:
        main()
    except OncePerNodeError as error:
        sys.exit(f"OncePerNodeError: {error}")

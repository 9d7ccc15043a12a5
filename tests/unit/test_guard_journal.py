"""Whatever is done to a folder under the journal, undoing it gives the folder back."""

# As scripts write it.
# ruff: noqa: PTH101, PTH102, PTH105, PTH106, PTH107, PTH115, PTH123, PTH211

from __future__ import annotations

import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfbench.guard import undo
from sfbench.guard.folders import PREFIX
from sfbench.guard.journal import Answer, Journal

NAMES = ("a", "b", "c", "d", "d/x", "d/y", "e", "e/deep")
OPERATIONS = (
    "write", "append", "in-place", "remove", "rename", "replace", "make-folder", "remove-folder",
    "link", "symlink", "rights", "times",
)  # fmt: skip


class Scripted:
    """Does what a script does, after the journal was told, as the watcher of its calls would."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "top"
        self.path = folder / "journal"
        (self.top / "d").mkdir(parents=True)
        for name in ("a", "b", "d/x"):
            (self.top / name).write_text(f"the user's {name}")
        os.link(self.top / "b", self.top / "c")
        (self.top / "e").mkdir()
        asides = itertools.count()
        self.journal = Journal(
            self.path, lambda _: str(folder / f"{PREFIX}{next(asides)}"), lambda _: "/"
        )

    def do(self, operation: str, name: str, other: str) -> None:
        path, target = str(self.top / name), str(self.top / other)
        match operation:
            case "write" | "append" | "in-place":
                self._open(path, {"write": "w", "append": "a", "in-place": "r+"}[operation])
            case "remove":
                self._told(self.journal.removing(path, folder=False), lambda: os.remove(path))
            case "remove-folder":
                self._told(self.journal.removing(path, folder=True), lambda: os.rmdir(path))
            case "rename" | "replace":
                answer = self.journal.renaming(path, target, replaces=True)
                self._told(answer, lambda: os.replace(path, target))
            case "make-folder":
                self._told(self.journal.making(path), lambda: os.mkdir(path))
            case "link":
                self._told(self.journal.linking(path, target), lambda: os.link(path, target))
            case "symlink":
                self._told(self.journal.making(target), lambda: os.symlink(name, target))
            case "rights":
                self._told(self.journal.changing(path), lambda: os.chmod(path, 0o700))
            case _:
                self._told(self.journal.changing(path), lambda: os.utime(path, (1, 1)))

    def _open(self, path: str, mode: str) -> None:
        real = os.path.realpath(path)
        answer = self.journal.opened(
            real, truncates=mode == "w", creates=mode != "r+", exclusive=False
        )

        def write() -> None:
            with open(real, mode) as file:
                file.write("the script's")

        self._told(answer, write)

    @staticmethod
    def _told(answer: Answer, call: Callable[[], None]) -> None:
        if answer is None:
            with suppress(OSError):
                call()


def tree(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything about a folder that has to be as before."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        state = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(state.st_mode) else None
        link = os.readlink(path) if path.is_symlink() else None
        kept = (state.st_mode, state.st_mtime_ns, state.st_ino, state.st_nlink)
        found[str(path.relative_to(top))] = (*kept, content, link)
    return found


steps = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    max_size=25,
)


@example(steps=[("rights", "a", "a"), ("rename", "b", "a"), ("rights", "a", "a")])
@given(steps=steps)
def test_undoing_gives_everything_back(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        script = Scripted(folder)
        before = tree(script.top)
        for step in steps:
            script.do(*step)
        script.journal.close()
        undo.restore(script.path)
        assert tree(script.top) == before
        assert sorted(path.name for path in folder.iterdir()) == ["top"]


class Killed(BaseException):
    """SIGKILL, as far as files can tell."""


@given(steps=steps, alive=st.integers(min_value=0, max_value=30))
def test_undoing_that_is_killed_can_be_repeated(
    steps: list[tuple[str, str, str]], alive: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        script = Scripted(Path(name).resolve())
        before = tree(script.top)
        for step in steps:
            script.do(*step)
        script.journal.close()
        # WHEN undoing ends right after a change, before that is cut off the journal
        real, left = undo._undo, iter(range(alive))

        def undo_and_die(line: undo.Line) -> None:
            real(line)
            if next(left, None) is None:
                raise Killed

        patch.setattr(undo, "_undo", undo_and_die)
        with suppress(Killed):
            undo.restore(script.path)
        patch.undo()
        if script.path.exists():
            undo.restore(script.path)
        # THEN
        assert tree(script.top) == before


def test_a_line_that_was_cut_short_was_of_no_change(tmp_path: Path) -> None:
    script = Scripted(tmp_path.resolve())
    before = tree(script.top)
    script.do("write", "a", "a")
    script.journal.close()
    with script.path.open("ab") as file:
        file.write(b'{"made": "/so')
    undo.restore(script.path)
    assert tree(script.top) == before


def test_what_cannot_be_put_back_is_told_and_kept(tmp_path: Path) -> None:
    # GIVEN a kept file whose folder is gone, by another hand
    script = Scripted(tmp_path.resolve())
    script.do("write", "d/x", "a")
    script.journal.close()
    shutil.rmtree(script.top / "d")
    # WHEN
    with pytest.raises(FileNotFoundError):
        undo.restore(script.path)
    # THEN nothing is lost, and it can be repeated
    (script.top / "d").mkdir()
    undo.restore(script.path)
    assert (script.top / "d" / "x").read_text() == "the user's d/x"

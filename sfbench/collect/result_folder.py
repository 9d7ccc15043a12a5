"""The result folder, written whole or not at all.

A sweep works in ``<output>/.<name>.<owner>.partial/`` and its end is one rename to
``<output>/<name>/``, which then holds ``sweep.json``, ``steps.parquet`` and ``logs/``.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sfbench.collect.result import FILE_NAME, write_result
from sfbench.common.errors import UsageError
from sfbench.common.schema import SweepResult
from sfbench.guard.scratch import is_dead, owner

if TYPE_CHECKING:
    import pandas as pd

STEPS_NAME = "steps.parquet"
LOGS_NAME = "logs"
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def check_free(path: Path, *, replace: bool = False) -> None:
    """Refuse a result folder that exists, before anything is measured.

    With ``replace`` a folder may be there that holds a result and nothing else.

    Raises:
        UsageError: ``path`` exists, or is not to be replaced.
    """
    if not path.exists() and not path.is_symlink():
        return
    if not replace:
        raise UsageError(
            f"{path} already exists: choose another --name, or replace it with --force"
        )
    why = _no_result(path)
    if why is not None:
        raise UsageError(f"{path} is not replaced: {why}. Choose another --name.")


def _no_result(path: Path) -> str | None:
    """Why something is no result that may be replaced; None: it is one."""
    if path.is_symlink():
        return "it is a link"
    if not path.is_dir():
        return "it is no folder"
    if not (path / FILE_NAME).is_file():
        return f"it is no result, it has no {FILE_NAME}"
    for name in sorted(child.name for child in path.iterdir()):
        if name not in {FILE_NAME, STEPS_NAME, LOGS_NAME}:
            return f"it holds {name}, which is no part of a result"
    return None


def tidy(output: Path) -> None:
    """Remove what commands that were killed left in a folder of results.

    A result that was about to be replaced gets its name back.
    """
    for left in output.glob(".*.partial"):
        if is_dead(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
    for left in output.glob(".*.old"):
        _, *name, of, _ = left.name.split(".")
        if not is_dead(of):
            continue
        place = left.with_name(".".join(name))
        if place.exists():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.rename(place)


class ResultFolder:
    """A result folder in the making; ``with ResultFolder(path) as folder: ... folder.commit()``.

    Left without a commit, nothing of it stays.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        """Plan the folder ``path``; with ``replace`` an older one stays until the new one is whole.

        Raises:
            UsageError: ``path`` exists and is not to be replaced.
        """
        check_free(path, replace=replace)
        self._shown = path
        # absolute: the current folder may be removed meanwhile
        self._path = path = path.absolute()
        self._replace = replace
        self._partial = path.with_name(f".{path.name}.{owner()}.partial")

    @property
    def logs_dir(self) -> Path:
        """Where each launch puts the folder of its ranks' logs."""
        return self._partial / LOGS_NAME

    def __enter__(self) -> ResultFolder:
        tidy(self._path.parent)
        shutil.rmtree(self._partial, ignore_errors=True)
        self.logs_dir.mkdir(parents=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def commit(self, result: SweepResult, steps: pd.DataFrame) -> Path:
        """Write everything and put the folder in its place.

        Returns where it stands: ``path``, or ``path`` with ``-2``, ``-3`` ... behind it where
        another sweep took the name meanwhile, or this one does not replace what stands there: only
        a finished sweep that measured something takes the place of another. Folders that were
        removed meanwhile are made again.
        """
        self._partial.mkdir(parents=True, exist_ok=True)
        steps.to_parquet(self._partial / STEPS_NAME, index=False, compression="zstd")
        write_result(self._partial, result)
        measured = not result.interrupted and any(p.status == "ok" for p in result.points)
        if self._replace and measured and self._path.exists() and _no_result(self._path) is None:
            self._swap()
            return self._shown
        return self._shown.with_name(self._place().name)

    def discard(self) -> None:
        """Remove what was not committed."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _swap(self) -> None:
        old = self._path.with_name(f".{self._path.name}.{owner()}.old")
        self._path.rename(old)
        try:
            self._partial.rename(self._path)
        except OSError:
            old.rename(self._path)
            raise
        shutil.rmtree(old)

    def _place(self) -> Path:
        number = 1
        while True:
            name = self._path.name if number == 1 else f"{self._path.name}-{number}"
            place = self._path.with_name(name)
            try:
                self._partial.rename(place)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                number += 1
            else:
                return place

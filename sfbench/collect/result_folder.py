"""The result folder, written whole or not at all.

A sweep works in ``<output>/.<name>.<pid>.partial/`` and its end is one rename to
``<output>/<name>/``, which then holds ``sweep.json``, ``steps.parquet`` and ``logs/``.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sfbench.collect.result import write_result
from sfbench.common.errors import UsageError
from sfbench.common.schema import SweepResult

if TYPE_CHECKING:
    import pandas as pd

STEPS_NAME = "steps.parquet"
LOGS_NAME = "logs"
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def check_free(path: Path) -> None:
    """Refuse a result folder that exists, before anything is measured.

    Raises:
        UsageError: ``path`` exists.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(
            f"{path} already exists: choose another --name, or replace it with --force"
        )


def _is_stale(partial: Path) -> bool:
    pid = partial.name.rsplit(".", 2)[-2]
    return pid.isdigit() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists())


class ResultFolder:
    """A result folder in the making; ``with ResultFolder(path) as folder: ... folder.commit()``.

    Left without a commit, nothing of it stays.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        """Plan the folder ``path``; with ``replace`` an older one stays until the new one is whole.

        Raises:
            UsageError: ``path`` exists and is not to be replaced.
        """
        if not replace:
            check_free(path)
        self._path = path
        self._replace = replace
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")

    @property
    def logs_dir(self) -> Path:
        """Where each launch puts the folder of its ranks' logs."""
        return self._partial / LOGS_NAME

    def __enter__(self) -> ResultFolder:
        for left in self._path.parent.glob(f".{glob.escape(self._path.name)}.*.partial"):
            if _is_stale(left):  # of a process that was killed
                shutil.rmtree(left)
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
        another sweep took the name meanwhile.
        """
        steps.to_parquet(self._partial / STEPS_NAME, index=False, compression="zstd")
        write_result(self._partial, result)
        if self._replace and self._path.exists():
            self._swap()
            return self._path
        return self._place()

    def discard(self) -> None:
        """Remove what was not committed."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _swap(self) -> None:
        old = self._path.with_name(f".{self._path.name}.{os.getpid()}.old")
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

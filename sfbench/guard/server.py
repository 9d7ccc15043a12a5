"""The guard's own process: ``python -m sfbench.guard.server ENTRY LOCK``.

It has one thread, so that views can be made in children of it, and outlives whoever asked: when the
other end of its input closes, it removes all that it made. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sfbench.guard import filter, overlay, undo
from sfbench.guard.caches import cache_folders
from sfbench.guard.folders import remove_folder
from sfbench.guard.registry import Registered
from sfbench.guard.ticket import Wanted

CHOICE = "SFBENCH_GUARD"
"""Environment variable: ``overlay`` or ``journal``, if not the first that can be had."""


def main() -> int:
    """Serve until the input ends, then remove everything. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        return 0  # whoever ends the command with all below it does not end what tidies up after it
    registered = Registered(Path(sys.argv[1]), int(sys.argv[2]))
    server = Server(registered)
    try:
        for line in sys.stdin:
            os.write(1, json.dumps(server.answer(json.loads(line))).encode() + b"\n")
    finally:
        server.close()
        registered.remove()
    return 0


class Server:
    """The views of one command, one after the other."""

    def __init__(self, registered: Registered) -> None:
        self._registered = registered
        self._namespace: int | None = None
        self._folders: list[Path] = []
        self._launches = 0
        self._caches: dict[str, Path] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"open": Wanted}`` or ``{"close": null}``; what fails is told in the answer."""
        try:
            self.close()
            if "open" not in request:
                return {}
            return self._open(Wanted(**{k: tuple(v) for k, v in request["open"].items()}))
        except OSError as error:
            return {"refused": str(error)}

    def close(self) -> None:
        """Forget the guard that is open; its processes are gone, or about to be.

        Raises ``OSError`` if something that was set aside cannot be put back.
        """
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None
        if self._registered.journal.exists():
            undo.restore(self._registered.journal)
        for folder in self._folders:
            remove_folder(folder)
        self._folders.clear()

    def _open(self, wanted: Wanted) -> dict[str, Any]:
        reasons = []
        for kind, begin in (("overlay", self._view), ("journal", self._asked)):
            if os.environ.get(CHOICE, kind) != kind:
                continue
            try:
                return begin(wanted)
            except OSError as error:
                self.close()
                reasons.append(f"{kind}: {error}")
        return {"refused": "; ".join(reasons) or f"{CHOICE} is neither overlay nor journal"}

    def _view(self, wanted: Wanted) -> dict[str, Any]:
        found = overlay.stores(wanted, self._note)
        if self._caches is None:
            paths = cache_folders(os.environ, wanted.near)
            self._caches = overlay.cache_stores(paths, self._registered.add)
        locked = self._built(found, wanted)
        elsewhere = [store.layer.mount.path for store in found if store.elsewhere]
        path = f"/proc/{os.getpid()}/fd/{self._namespace}"
        return {"kind": "overlay", "path": path, "locked": locked, "elsewhere": elsewhere}

    def _built(self, found: tuple[overlay.Store, ...], wanted: Wanted) -> list[str]:
        """Make the view in a child, and keep hold of it."""
        told, says = os.pipe()
        go, goes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(goes)
            _be_the_view(found, wanted, self._caches or {}, says, go)
        os.close(says)
        os.close(go)
        with open(told, "rb") as answer:  # noqa: PTH123
            built = json.loads(answer.readline() or b'{"refused": "its process was killed"}')
            if "refused" not in built:
                self._namespace = os.open(f"/proc/{child}/ns/mnt", os.O_RDONLY)
        os.close(goes)
        os.waitpid(child, 0)
        if "refused" in built:
            raise OSError(built["refused"])
        return list(built["locked"])

    def _asked(self, wanted: Wanted) -> dict[str, Any]:
        """Calls are asked about; first a child finds out whether the kernel does."""
        child = os.fork()
        if child == 0:
            _try_the_filter()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            raise OSError(code, os.strerror(code) if code > 0 else "killed", "seccomp")
        self._launches += 1
        address = f"{self._registered.path.stem}-{self._launches}"
        return {"kind": "journal", "path": str(self._registered.journal), "address": address}

    def _note(self, folder: Path) -> None:
        self._registered.add(folder)
        self._folders.append(folder)


def _be_the_view(
    found: tuple[overlay.Store, ...], wanted: Wanted, caches: dict[str, Path], says: int, go: int
) -> None:
    """Make the view, tell, and stay until the other side has it."""
    try:
        said: dict[str, Any] = {"locked": overlay.build(found, wanted, caches)}
    except OSError as error:
        said = {"refused": str(error)}
    try:
        os.write(says, json.dumps(said).encode() + b"\n")
        os.close(says)
        os.read(go, 1)
    finally:
        os._exit(0)


def _try_the_filter() -> None:
    code = errno.ENOSYS
    try:
        filter.install()
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())

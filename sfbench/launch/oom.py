"""How often the kernel killed for memory in this process's control group."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_KEY = "oom_kill"


def kills(cgroup: str | None = None, root: Path = _ROOT) -> int | None:
    """Count of kills so far; None if the kernel does not tell.

    ``cgroup`` is the text of ``/proc/self/cgroup``: version 2 has one line, ``0::/path``, and
    counts in ``memory.events``; version 1 has a line for each controller and counts in
    ``memory.oom_control``.
    """
    try:
        text = Path("/proc/self/cgroup").read_text() if cgroup is None else cgroup
    except OSError:
        return None
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _count(root / "memory" / path.lstrip("/") / "memory.oom_control")
    paths = [line.removeprefix("0::/") for line in text.splitlines() if line.startswith("0::")]
    return _count(root / paths[0] / "memory.events") if paths else None


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith(f"{_KEY} ")]
    return int(counts[0]) if counts else None

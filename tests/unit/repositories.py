"""Real git repositories for tests of a gate's sides."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sfbench.gating.checkouts.candidate import working_tree_commit


def run(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)
    return done.stdout.decode().strip()


def a_repository(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    root = tmp_path / "repo"
    (root / "pkg").mkdir(parents=True)
    run(tmp_path, "init", "-q", "-b", "main", str(root))
    run(root, "config", "user.email", "test@localhost")
    run(root, "config", "user.name", "test")
    (root / "train.py").write_text("print(1)\n")
    (root / "pkg" / "loader.py").write_text("SIZE = 1\n")
    (root / ".gitignore").write_text("data/\n")
    run(root, "add", ".")
    run(root, "commit", "-q", "-m", "first")
    (root / "data").mkdir()
    (root / "data" / "big.bin").write_bytes(b"x")
    return root


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def candidate_files(root: Path) -> dict[str, str]:
    """Mode of every file in the candidate."""
    lines = run(root, "ls-tree", "-r", working_tree_commit(root)).splitlines()
    return {line.split("\t")[1]: line.split()[0] for line in lines}

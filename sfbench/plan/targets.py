"""Reference workloads by name, and scripts by path."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from sfbench.common.errors import UsageError
from sfbench.plan.sweep_plan import MODULE, Target

LAUNCHERS = ("torchrun", "python", "python3", "accelerate", "mpirun", "srun", "deepspeed")
"""Commands in front of a script that are not needed: sfbench starts the ranks itself."""
WORKLOADS = ("vision", "language", "recommender", "emulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A reference script that comes with sfbench."""

    name: str
    script: Path
    summary: str
    """First line of its docstring."""


def workloads() -> tuple[Workload, ...]:
    """All reference workloads that this installation holds."""
    folder = _folder()
    paths = [(name, folder / f"{name}.py") for name in WORKLOADS]
    return tuple(
        Workload(name=name, script=path, summary=_summary(path))
        for name, path in paths
        if path.is_file()
    )


def resolve_target(target: str, args: tuple[str, ...] = ()) -> Target:
    """A workload name, the path of a training script, or ``-m package.module``.

    Raises:
        UsageError: none of them; or the script cannot be read.
    """
    if target.startswith(MODULE):
        return _module(target.removeprefix(MODULE).strip(), args)
    for workload in workloads():
        if target == workload.name:
            return Target(name=target, script=workload.script, is_workload=True, args=args)
    path = Path(target)
    if not path.is_file():
        known = [w.name for w in workloads()]
        names = ", ".join(known)
        near = difflib.get_close_matches(target, known, n=1)
        what = "there is no such file"
        if path.exists():
            what = "is a folder" if path.is_dir() else "is a pipe or a device, no file"
        meant = f" Did you mean {near[0]}?" if near else ""
        if target in LAUNCHERS:
            what, meant = "is no script", f" Leave {target} out: sfbench starts the ranks itself."
        raise UsageError(
            f"{target}: {what}.{meant} Give a training script's path, -m package.module, "
            f"or one of: {names}."
        )
    try:
        path.read_bytes()
    except OSError as error:
        raise UsageError(f"{target}: cannot be read: {error.strerror}") from error
    return Target(name=path.stem, script=path.resolve(), is_workload=False, args=args)


def _module(name: str, args: tuple[str, ...]) -> Target:
    """What ``python -m name`` would run from here. Nothing is imported."""
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = PathFinder.find_spec("__main__", list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(
            f"-m {name}: there is no such module, seen from {Path.cwd()}. "
            "Give its dotted name, as python -m takes it, from the folder where python -m runs it."
        )
    script = Path(spec.origin).resolve()
    return Target(
        name=name.removesuffix(".__main__"),
        script=script,
        is_workload=False,
        args=args,
        module=name,
    )


def _spec(name: str) -> ModuleSpec | None:
    """Where a dotted name leads from this folder, package by package."""
    first, *rest = name.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        return None
    spec = PathFinder.find_spec(first, [str(Path.cwd())]) or find_spec(first)
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # By its last name: a folder without __init__.py would ask for its imported parent.
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def _folder() -> Path:
    """In a wheel beside this package, in a checkout at the top level."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_workloads"
    return packed if packed.is_dir() else package.parent / "workloads"


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.split("\n", 1)[0].strip()

"""Refuses launches that ran the wrong code, and sides that ran the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from sfbench.common.errors import UsageError
from sfbench.common.schema import ModuleFile
from sfbench.gating.checkouts.git import IMPORTED
from sfbench.gating.gate_report import ArmName

STUBS = (".pyi",)
DOCUMENTATION = (".md", ".rst")


def check_code(arm: ArmName, modules: Sequence[ModuleFile]) -> None:
    """Refuse a launch that did not run the checkout it was told to.

    Raises:
        UsageError: a module came from the person's own working tree, or none from the checkout.
    """
    foreign = [module.path for module in modules if module.foreign]
    if foreign:
        raise UsageError(
            f"{arm}: {foreign[0]} was imported from the working tree instead of the checkout that "
            "is measured (an editable install pins it there, say, or a path in the script). "
            "Uninstall it, and put its source folder on PYTHONPATH."
        )
    if not modules:
        raise UsageError(f"{arm}: no module came from the checkout: what was run is not in it")


def check_different(
    base: Sequence[ModuleFile], candidate: Sequence[ModuleFile], changed: Iterable[str]
) -> tuple[str, ...]:
    """Refuse two sides that imported the same code, if that is all that a script takes.

    Of ``changed`` files those are returned which only a script that reads them can tell apart:
    configuration, say, or lists of samples. None if the imported code differs.

    Raises:
        UsageError: every module file is the same on both sides, and no other file may matter.
    """
    if {(m.path, m.sha256) for m in base} != {(m.path, m.sha256) for m in candidate}:
        return ()
    read = tuple(path for path in changed if _may_be_read(path))
    if not read:
        raise UsageError(
            f"both sides ran the same code ({len(base)} module files are identical): the change is "
            "not in what the script imports, so there is nothing to measure. Use --paths to skip "
            "the gate for such changes, or `sfbench gate calibrate` for an A/A comparison."
        )
    return read


def _may_be_read(path: str) -> bool:
    """Whether a script may take it as input; code that it runs is known by its modules."""
    hidden = any(part.startswith(".") for part in PurePath(path).parts)
    return not hidden and not path.endswith((*IMPORTED, *STUBS, *DOCUMENTATION))

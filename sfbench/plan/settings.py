"""What a person asked for: the command line over ``[tool.sfbench]`` over defaults."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sfbench.common.errors import UsageError
from sfbench.common.files import read_text
from sfbench.plan.options import GateSettings, Settings, TuneSettings, shown
from sfbench.plan.slurm_options import SlurmSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


COMMAND_LINE = "command line"


def load_settings(overrides: dict[str, Any], folder: Path) -> Settings:
    """Settings from the nearest pyproject.toml at or above ``folder``, overridden by options given.

    ``overrides`` holds what stood on the command line; None means not given.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    path, table = _table(folder)
    for own in ("gate", "tune", "slurm"):
        table.pop(own, None)
    given = {key: value for key, value in overrides.items() if value is not None}
    _validated(Settings, table, f"{path} [tool.sfbench]")
    if given.get("scaling") == "weak" and given.get("global_batch") is not None:
        raise UsageError("--global-batch makes the scaling strong: leave out --scaling weak.")
    return _validated(Settings, {**table, **given}, COMMAND_LINE)


def load_gate_settings(
    overrides: dict[str, Any], folder: Path, *, where: str = COMMAND_LINE
) -> GateSettings:
    """What is special to the gate, from ``[tool.sfbench.gate]`` of the same file.

    ``overrides`` holds what stood on the command line, or what else ``where`` names; None means
    not given.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    return _of_table(GateSettings, "gate", overrides, folder, where)


def load_tune_settings(overrides: dict[str, Any], folder: Path) -> TuneSettings:
    """What is special to ``tune``, in the same way, from ``[tool.sfbench.tune]``.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    return _of_table(TuneSettings, "tune", overrides, folder, COMMAND_LINE)


def load_slurm_settings(overrides: dict[str, Any], folder: Path) -> SlurmSettings:
    """What a sweep asks of Slurm, in the same way, from ``[tool.sfbench.slurm]``.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    return _of_table(SlurmSettings, "slurm", overrides, folder, COMMAND_LINE)


AnySettings = TypeVar("AnySettings", Settings, GateSettings, TuneSettings, SlurmSettings)


def _of_table(
    model: type[AnySettings], name: str, overrides: dict[str, Any], folder: Path, where: str
) -> AnySettings:
    path, whole = _table(folder)
    table = _plain(whole.get(name, {}), f"{path}: [tool.sfbench.{name}]")
    given = {key: value for key, value in overrides.items() if value is not None}
    _validated(model, table, f"{path} [tool.sfbench.{name}]")
    return _validated(model, {**table, **given}, where)


def _validated(model: type[AnySettings], values: dict[str, Any], where: str) -> AnySettings:
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        option = f"--{name.replace('_', '-')}" if where == COMMAND_LINE else name
        known = ""
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            message, known = "there is no such setting", did_you_mean(name, model.model_fields)
        elif expected := shown(model, name).expected:
            message = f"expected {expected}"
        told = f"{where}: {option} = {_told(values.get(name))}: {message}.{known}"
        raise UsageError(told) from error


def _told(value: object) -> str:
    """A value as it was given; so many digits are no number that anybody meant."""
    try:
        return repr(value)
    except ValueError:
        return "a number of thousands of digits"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the names that there are, or all of them."""
    names = [key.replace("_", "-") for key in sorted(known)]
    near = difflib.get_close_matches(name.replace("_", "-"), names, n=1)
    return f" Did you mean {near[0]}?" if near else f" Known: {', '.join(names)}."


def _table(folder: Path) -> tuple[Path, dict[str, Any]]:
    for parent in (folder.resolve(), *folder.resolve().parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            return path, _read(path)
    return folder / "pyproject.toml", {}


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_text(path))
    except (OSError, ValueError) as error:  # among them an integer of thousands of digits
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: cannot be read: brackets in brackets, too many") from error
    tools = _plain(document.get("tool", {}), f"{path}: [tool]")
    return _plain(tools.get("sfbench", {}), f"{path}: [tool.sfbench]")


def _plain(table: Any, name: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{name} is not a table")
    return {key.replace("-", "_"): value for key, value in table.items()}

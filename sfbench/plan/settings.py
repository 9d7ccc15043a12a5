"""Options of a sweep as a person gives them: command line over ``[tool.sfbench]`` over defaults."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sfbench.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Settings(BaseModel):
    """Every option that may also stand in ``[tool.sfbench]`` (dashes or underscores)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    target: str = "vision"
    devices: tuple[int, ...] = (1, 2, 4, 8)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    scaling: Literal["weak", "strong"] = "weak"
    global_batch: int | None = Field(default=None, gt=0)
    seconds: float = Field(default=13.0, gt=0, le=86400)
    precision: float = Field(default=0.01, gt=0, lt=1)
    warmup: Literal["auto"] | int = "auto"
    rounds: int = Field(default=3, ge=1, le=100)
    rungs: Literal["all", "train"] = "all"
    threads_per_device: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=300.0, gt=0)
    name: str | None = None
    output: Path = Path("results")
    allow_saves: bool = False

    @field_validator("devices", mode="before")
    @classmethod
    def _devices(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, int):
            value = [value]
        return value

    @field_validator("devices")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("device counts are whole numbers from 1 up, as in 1,2,4,8")
        return tuple(sorted(set(value)))

    @field_validator("warmup", mode="before")
    @classmethod
    def _warmup(cls, value: Any) -> Any:
        if isinstance(value, str) and value.isdigit():
            return int(value)
        return value

    @field_validator("warmup")
    @classmethod
    def _warmup_range(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 0:
            raise ValueError("auto, or a number of steps from 0 up")
        return value

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and (not value or "/" in value or value.startswith(".")):
            raise ValueError("a plain folder name, without / and not beginning with a dot")
        return value


def load_settings(overrides: dict[str, Any], folder: Path) -> Settings:
    """Settings from the nearest pyproject.toml at or above ``folder``, overridden by options given.

    ``overrides`` holds what stood on the command line; None means not given.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    path, table = _table(folder)
    given = {key: value for key, value in overrides.items() if value is not None}
    _validated(table, f"{path} [tool.sfbench]")
    if given.get("scaling") == "weak" and given.get("global_batch") is not None:
        raise UsageError("--global-batch makes the scaling strong: leave out --scaling weak.")
    return _validated({**table, **given}, "command line")


def _validated(values: dict[str, Any], where: str) -> Settings:
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        option = f"--{name.replace('_', '-')}" if where == "command line" else name
        known = ""
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            message, known = "there is no such setting", _known(name)
        elif name in _EXPECTED:
            message = f"expected {_EXPECTED[name]}"
        raise UsageError(f"{where}: {option} = {values.get(name)!r}: {message}.{known}") from error


_EXPECTED = {
    "devices": "whole numbers from 1 up, as in 1,2,4,8",
    "warmup": "auto, or a number of steps from 0 up",
    "seconds": "a number of seconds above 0, at most a day",
}


def _known(name: str) -> str:
    names = [key.replace("_", "-") for key in sorted(Settings.model_fields)]
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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    table = document.get("tool", {}).get("sfbench", {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.sfbench] is not a table")
    return {key.replace("-", "_"): value for key, value in table.items()}

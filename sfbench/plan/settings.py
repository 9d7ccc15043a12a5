"""Options of a sweep as a person gives them: command line over ``[tool.sfbench]`` over defaults."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from sfbench.common.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Settings(BaseModel):
    """Every option that may also stand in ``[tool.sfbench]`` (dashes or underscores)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    target: str = "vision"
    devices: tuple[int, ...] = (1, 2, 4, 8)
    device: Literal["auto", "cpu", "cuda", "xpu"] = "auto"
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


COMMAND_LINE = "command line"


def _ratio(value: Any) -> Any:
    """``8%``, ``8 %``, ``"0.08"`` or 0.08."""
    if isinstance(value, str):
        plain = value.strip()
        try:
            value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
        except ValueError:
            value = 0.0
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise ValueError("give a percentage or a ratio between 0 and 100%, as in 8% or 0.08")
    return value


Ratio = Annotated[float, BeforeValidator(_ratio)]


class GateSettings(BaseModel):
    """Every option that may also stand in ``[tool.sfbench.gate]`` (dashes or underscores)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    base: str | None = None
    margin: Ratio = 0.08
    min_efficiency: Ratio | None = None
    budget: float = Field(default=180.0, ge=1, le=604_800)
    seconds: float = Field(default=2.5, ge=0.5, le=86_400)
    paths: tuple[str, ...] = ()

    @field_validator("paths", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(w, str) for w in words):
            raise ValueError(_A_PATTERN)
        patterns = tuple(part.strip() for w in words for part in w.split(",") if part.strip())
        if words and not patterns:
            raise ValueError(_A_PATTERN)
        if any(set("{}") & set(pattern) for pattern in patterns):
            raise ValueError("braces are not known; give each name by itself")
        return patterns


_A_PATTERN = "give at least one pattern, as in 'data/**,transforms.py'"


def load_settings(overrides: dict[str, Any], folder: Path) -> Settings:
    """Settings from the nearest pyproject.toml at or above ``folder``, overridden by options given.

    ``overrides`` holds what stood on the command line; None means not given.

    Raises:
        UsageError: names the option or key, what it was and what it may be.
    """
    path, table = _table(folder)
    table.pop("gate", None)
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
    path, whole = _table(folder)
    table = _plain(whole.get("gate", {}), f"{path}: [tool.sfbench.gate]")
    given = {key: value for key, value in overrides.items() if value is not None}
    _validated(GateSettings, table, f"{path} [tool.sfbench.gate]")
    return _validated(GateSettings, {**table, **given}, where)


AnySettings = TypeVar("AnySettings", Settings, GateSettings)


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
        elif name in _EXPECTED[model]:
            message = f"expected {_EXPECTED[model][name]}"
        raise UsageError(f"{where}: {option} = {values.get(name)!r}: {message}.{known}") from error


_EXPECTED: dict[type[BaseModel], dict[str, str]] = {
    Settings: {
        "devices": "whole numbers from 1 up, as in 1,2,4,8",
        "warmup": "auto, or a number of steps from 0 up",
        "seconds": "a number of seconds above 0, at most a day",
    },
    GateSettings: {
        "budget": "a number of seconds from 1 up, at most a week",
        "seconds": "a number of seconds from 0.5 up, at most a day",
    },
}


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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    return _plain(document.get("tool", {}).get("sfbench", {}), f"{path}: [tool.sfbench]")


def _plain(table: Any, name: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{name} is not a table")
    return {key.replace("-", "_"): value for key, value in table.items()}

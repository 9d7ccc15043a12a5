"""Every option that is also a setting: its type, default, limits and meaning stand here alone.

The command line, its help, the documented tables, ``[tool.sfbench]`` and the Python functions are
made of these two classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Shown:
    """How an option looks on the command line."""

    metavar: str = ""
    """Stands for its value; none: a flag."""
    unset: str = ""
    """What holds without a value, for an option whose default is no plain value."""
    expected: str = ""
    """What it takes, said instead of pydantic's own words."""


class PlainSettings(BaseModel):
    """Settings whose texts a file system and a terminal can take."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_controls(cls, value: Any) -> Any:
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and _CONTROLS.search(text):
                raise ValueError("a text without control characters")
        return value


class Settings(PlainSettings):
    """Every option that may also stand in ``[tool.sfbench]`` (dashes or underscores)."""

    target: str = Field(
        default="vision",
        description="a reference workload by name, the path of a training script, or "
        "`-m package.module`",
    )
    devices: Annotated[
        tuple[int, ...],
        Shown("N,N,…", expected="whole numbers from 1 up, as in 1,2,4,8"),
        Field(description="device counts; efficiency needs 1 among them"),
    ] = (1, 2, 4, 8)
    device: Annotated[
        Literal["auto", "cpu", "cuda", "xpu"],
        Shown("auto|cpu|cuda|xpu"),
        Field(
            description="`auto`: GPUs if this torch can use any. On CPU a device is a rank with a "
            "fixed number of threads"
        ),
    ] = "auto"
    scaling: Annotated[
        Literal["weak", "strong"],
        Shown("weak|strong"),
        Field(description="weak: the batch per device is constant; strong: the batch of all is"),
    ] = "weak"
    global_batch: Annotated[
        int | None,
        Shown("N"),
        Field(
            gt=0,
            description="samples of all devices per batch; makes the scaling strong. A count that "
            "does not divide N is a failed point",
        ),
    ] = None
    seconds: Annotated[
        float,
        Shown("S", expected="a number of seconds above 0, at most a day"),
        Field(
            gt=0,
            le=86_400,
            description="measuring budget per device count, over all its rounds; warmup is not "
            "counted",
        ),
    ] = 13.0
    precision: Annotated[
        float,
        Shown("P"),
        Field(
            gt=0,
            lt=1,
            description="stop a point early at this relative half-width of the 95 % interval of "
            "samples/s",
        ),
    ] = 0.01
    warmup: Annotated[
        Literal["auto"] | int,
        Shown("auto|STEPS", expected="auto, or a number of steps from 0 up"),
        Field(
            description="steps left out at the start of each launch; `auto` finds the steady state"
        ),
    ] = "auto"
    rounds: Annotated[
        Literal["auto"] | int,
        Shown("auto|R", expected="auto, or a number from 1 to 100"),
        Field(
            description="how often the device counts are visited, in turn; `auto`: eight short "
            "launches of each, fewer (at least three) if starting one or one of its cycles "
            "takes long, and more of the count whose interval needs them from the time that "
            "others leave"
        ),
    ] = "auto"
    rungs: Annotated[
        Literal["all", "train"],
        Shown("all|train"),
        Field(description="`train` measures efficiency alone, without the parts of the step time"),
    ] = "all"
    threads_per_device: Annotated[
        int | None,
        Shown("T", unset="cores // largest count, at least 1"),
        Field(ge=1, description="threads of a rank, the same at every device count"),
    ] = None
    timeout: Annotated[
        float,
        Shown("S"),
        Field(
            gt=0,
            description="seconds without progress that mean a hang: the point ends as `timeout`, "
            "the sweep goes on",
        ),
    ] = 300.0
    nnodes: Annotated[
        int | None,
        Shown("N", unset="of the environment, else 1"),
        Field(
            ge=1,
            description="machines that take part; run the same command on each",
        ),
    ] = None
    node_rank: Annotated[
        int | None,
        Shown("R", unset="of the environment"),
        Field(ge=0, description="number of this machine among them, from 0"),
    ] = None
    rdzv_endpoint: Annotated[
        str | None,
        Shown("HOST:PORT", unset="of the environment"),
        Field(description="where they meet: the machine with `--node-rank 0`, and a free port"),
    ] = None
    name: Annotated[
        str | None,
        Shown("NAME", unset="target and time"),
        Field(description="name of the result folder and of the report"),
    ] = None
    output: Annotated[Path, Shown("DIR"), Field(description="folder that result folders go to")] = (
        Path("results")
    )
    allow_saves: Annotated[
        bool,
        Shown(),
        Field(description="let what the script writes stay"),
    ] = False

    @field_validator("devices", mode="before")
    @classmethod
    def _devices(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if isinstance(value, int):
            value = [value]
        return value

    @field_validator("node_rank", mode="before")
    @classmethod
    def _given(cls, value: Any) -> Any:
        """``--node-rank=$SLURM_NODEID`` if that is not set."""
        return None if value == "" else value

    @field_validator("devices")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("device counts are whole numbers from 1 up, as in 1,2,4,8")
        return tuple(sorted(set(value)))

    @field_validator("rounds")
    @classmethod
    def _rounds_range(cls, value: int | str) -> int | str:
        if isinstance(value, int) and not 1 <= value <= 100:
            raise ValueError("auto, or a number from 1 to 100")
        return value

    @field_validator("warmup", "rounds", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
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


class GateSettings(PlainSettings):
    """Every option that may also stand in ``[tool.sfbench.gate]`` (dashes or underscores)."""

    base: Annotated[
        str | None,
        Shown("GIT_REF", unset="base of the settings"),
        Field(
            description="what the working tree, uncommitted changes included, is compared with, "
            "side by side"
        ),
    ] = None
    margin: Annotated[
        Ratio,
        Shown("RATIO", unset="8%"),
        Field(description="slower by more than this fails; `8%` or `0.08`"),
    ] = 0.08
    min_efficiency: Annotated[
        Ratio | None,
        Shown("RATIO"),
        Field(description="a floor for the efficiency, `85%` or `0.85`: below it fails as well"),
    ] = None
    budget: Annotated[
        float,
        Shown("S", expected="a number of seconds from 1 up, at most a week"),
        Field(
            ge=1,
            le=604_800,
            description="wall time for all launches. A FAIL at the first look is confirmed even "
            "if that takes longer",
        ),
    ] = 180.0
    seconds: Annotated[
        float,
        Shown("S", expected="a number of seconds from 0.5 up, at most a day"),
        Field(ge=0.5, le=86_400, description="measuring budget of one launch"),
    ] = 2.5
    paths: Annotated[
        tuple[str, ...],
        Shown("PATTERN,…"),
        Field(
            description="measure only if what changed since `--base` matches one of them; else "
            'the answer is "not touched", exit code 0'
        ),
    ] = ()

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


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _duration_s(value: Any) -> Any:
    """``10m``, ``90s``, ``1h``, ``600`` or 600.0."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError("a duration, as in 10m, 90s or 1h")
        return float(found[1]) * _UNITS_S[found[2]]
    return value


class TuneSettings(PlainSettings):
    """Every option that may also stand in ``[tool.sfbench.tune]`` (dashes or underscores)."""

    budget: Annotated[
        float,
        Shown("TIME", unset="10m", expected="a duration from 30s up, as in 10m, 90s or 1h"),
        BeforeValidator(_duration_s),
        Field(
            ge=30,
            le=604_800,
            description="wall time for all of it: diagnosis, trials and confirmation",
        ),
    ] = 600.0
    seconds: Annotated[
        float,
        Shown("S", expected="a number of seconds from 0.5 up, at most a day"),
        Field(ge=0.5, le=86_400, description="measuring budget of one launch"),
    ] = 2.5
    allow: Annotated[
        tuple[Literal["batch", "numerics"], ...],
        Shown("batch,numerics", expected="batch, numerics or both, as in batch,numerics"),
        Field(
            description="let settings be tried that change training: `batch` twice as large, "
            "`numerics`: gradients sent as bf16"
        ),
    ] = ()

    @field_validator("allow", mode="before")
    @classmethod
    def _kinds(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


_A_PATTERN = "give at least one pattern, as in 'data/**,transforms.py'"


def shown(model: type[BaseModel], name: str) -> Shown:
    """How a field of the settings looks on the command line."""
    found = (m for m in model.model_fields[name].metadata if isinstance(m, Shown))
    return next(found, Shown())

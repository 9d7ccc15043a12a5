"""What a sweep asks of Slurm: options that may also stand in ``[tool.sfbench.slurm]``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sfbench.plan.options import PlainSettings, Shown

_WORD = r"^[^\s'\"\\]+$"
_TIME = r"^(\d+-)?\d+(:\d{1,2}){0,2}$"


class SlurmSettings(PlainSettings):
    """How `sfbench sweep` is started, and what a job of Slurm gets."""

    launcher: Annotated[
        Literal["local", "slurm"],
        Shown("local|slurm"),
        Field(
            description="`slurm`: submit the sweep as one job, wait for it and show its result; "
            "to be typed where `sbatch` is"
        ),
    ] = "local"
    nodes: Annotated[int, Shown("N"), Field(ge=1, description="nodes of the job")] = 1
    partition: Annotated[
        str | None,
        Shown("NAME", expected="a name without spaces"),
        Field(pattern=_WORD, description="partition of the job"),
    ] = None
    account: Annotated[
        str | None,
        Shown("NAME", expected="a name without spaces"),
        Field(pattern=_WORD, description="account that the job is charged to"),
    ] = None
    gpus_per_node: Annotated[
        str | None,
        Shown("N", expected="a number, as in 8, or a type and a number, as in h100:8"),
        Field(
            pattern=r"^([\w.-]+:)?\d+$",
            description="GPUs of each node; without it the job has its nodes for itself "
            "(`--exclusive`)",
        ),
    ] = None
    time: Annotated[
        str | None,
        Shown("TIME", expected="a time as Slurm writes it: 30, 1:30:00 or 1-12"),
        Field(
            pattern=_TIME,
            description="time limit of the job; a minute before it the sweep ends and keeps what "
            "was measured",
        ),
    ] = None
    sbatch_extra: Annotated[
        str | None,
        Shown("OPTIONS"),
        Field(description="more options of `sbatch`, as in `--sbatch-extra='--qos=high --mem=0'`"),
    ] = None

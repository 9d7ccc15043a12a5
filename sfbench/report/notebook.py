"""Results as pandas frames, for notebooks."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

import pandas as pd

from sfbench.collect.point_rows import COLUMNS, flat, point_row
from sfbench.collect.result import load_result
from sfbench.collect.result_folder import STEPS_NAME
from sfbench.common.errors import MeasureError, ResultError
from sfbench.common.schema import Point, RankResult, SweepResult
from sfbench.common.units import things
from sfbench.report.snippet import render_snippet

_RANK = tuple(f.name for f in dataclasses.fields(RankResult))


class Results:
    """One sweep: ``.result`` as it is stored, ``.points``, ``.ranks`` and ``.steps`` as frames."""

    def __init__(self, path: Path) -> None:
        self._folder = path if path.is_dir() else path.parent
        self.result: SweepResult = load_result(path)

    def at(self, devices: int) -> Point:
        """The point at a device count, with figures: ``results.at(2).efficiency.low``.

        Raises:
            ResultError: it was not measured.
            MeasureError: it failed; its error is the text.
        """
        point = next((p for p in self.result.points if p.devices == devices), None)
        if point is None:
            counts = ", ".join(str(p.devices) for p in self.result.points)
            raise ResultError(f"no point at {things(devices, 'device')}: {counts} were measured")
        if point.status != "ok":
            raise MeasureError(f"{things(devices, 'device')}: {point.error}")
        return point

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per device count; an interval x is x, x_low and x_high; nan = not measured."""
        return pd.DataFrame(list(map(point_row, self.result.points)), columns=list(COLUMNS))

    def flat(self) -> dict[str, float]:
        """Every figure under one name (``devices_8/efficiency``), for experiment trackers."""
        return flat(self.result)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return render_snippet(self.result)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row per rank of each device count."""
        rows = [
            {"devices": point.devices, **dataclasses.asdict(rank)}
            for point in self.result.points
            for rank in point.ranks
        ]
        return pd.DataFrame(rows, columns=["devices", *_RANK])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per (launch, rank, step), warmup and all; see docs/results.md.

        Raises:
            ResultError: ``steps.parquet`` does not stand beside ``sweep.json``, or is damaged.
        """
        file = self._folder / STEPS_NAME
        try:
            return pd.read_parquet(file)
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise ResultError(f"{file}: cannot be read: {error}") from error


def load(path: str | Path) -> Results:
    """Open a result folder or its ``sweep.json``.

    Raises:
        ResultError: missing, damaged or newer; the field is named.
    """
    return Results(Path(path))

"""``sfbench predict``."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfbench.cli.console import put_json, put_text
from sfbench.cli.parameters import Json
from sfbench.common import units
from sfbench.common.errors import UsageError
from sfbench.common.units import things

if TYPE_CHECKING:
    from sfbench.common.schema import Interval
    from sfbench.predict.prediction import Prediction

REFUSED = 3
"""Exit code where nothing can be said."""


def predict(
    result: Annotated[Path, typer.Argument(help="a result folder or its name", metavar="RESULT")],
    devices: Annotated[
        int,
        typer.Option(help="the count to predict, at most twice the largest measured", metavar="N"),
    ],
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-device-hour",
            help="price of one device for an hour: tells the cost of a million samples",
            metavar="PRICE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="folder that results are looked for in [results]", metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what more devices would give; exit code 3 where the result does not tell."""
    from sfbench.collect.stored_results import open_result
    from sfbench.plan.settings import load_settings
    from sfbench.predict.prediction import predict as predicted

    if price is not None and not (math.isfinite(price) and price > 0):
        raise UsageError(f"--price-per-device-hour {price:g}: give a finite number above 0.")
    folder = output or load_settings({}, Path.cwd()).output
    found = predicted(open_result(result, folder), devices, price)
    if as_json:
        put_json(json.dumps({"schema": 1, **dataclasses.asdict(found)}, indent=2) + "\n")
    else:
        put_text(_text(found))
    if found.refused is not None:
        sys.exit(REFUSED)


def _text(found: Prediction) -> str:
    counts = ", ".join(map(str, found.measured))
    if found.refused is not None:
        return f"{things(found.devices, 'device')}: nothing can be said: {found.refused}.\n"
    assert found.efficiency is not None
    assert found.samples_per_s is not None
    lines = [
        f"{things(found.devices, 'device')}, predicted from {counts}: efficiency "
        f"{100 * found.efficiency.value:.0f}% ({_percents(found.efficiency)}), "
        f"{units.rate(found.samples_per_s.value)} samples/s "
        f"({_rates(found.samples_per_s)})"
    ]
    for part in sorted(found.parts, key=lambda part: -part.high):
        if part.high >= 0.005:  # half a point: what is printed as 0 is left out
            lines.append(
                f"  {part.name:<14}{100 * part.value:.0f}% of a device's step "
                f"({100 * part.low:.0f} to {100 * part.high:.0f})"
            )
    if found.check is not None:
        lines.append(
            f"Checked: the counts below predict {_percents(found.check.predicted)} at "
            f"{things(found.check.devices, 'device')}, "
            f"{100 * found.check.measured.value:.0f}% was measured"
        )
    if found.cost_per_million_samples is not None:
        cost = found.cost_per_million_samples
        lines.append(f"A million samples cost {cost.value:.3g} ({cost.low:.3g} to {cost.high:.3g})")
    return "\n".join(lines) + "\n"


def _percents(interval: Interval) -> str:
    low, high = interval.low or interval.value, interval.high or interval.value
    return f"{100 * low:.0f} to {100 * high:.0f}%"


def _rates(interval: Interval) -> str:
    low, high = interval.low or interval.value, interval.high or interval.value
    return f"{units.rate(low)} to {units.rate(high)}"

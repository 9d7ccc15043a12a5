"""One self-contained HTML file: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence

import jinja2

from sfbench.analyze.parts import PARTS
from sfbench.common.schema import SweepResult
from sfbench.report.foreign import shown
from sfbench.report.trend import trend
from sfbench.report.tried_view import TriedView
from sfbench.report.view import result_view


def render_html(
    results: Sequence[SweepResult],
    baseline: SweepResult | None = None,
    *,
    verdict: Sequence[str] = (),
    figures: Sequence[tuple[str, str, str, str]] = (),
    tried: TriedView | None = None,
) -> str:
    """The report of one or more results, each beside ``baseline`` if there is one.

    ``verdict``: sentences of a gate that measured both in turn; they open the page, with its
    ``figures``: name, of the base, of the candidate, and the change. ``tried``: what a tune tried
    opens the page.
    """
    views = [result_view(result, f"r{i}", baseline) for i, result in enumerate(results)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sfbench.report"),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2")
    return page.render(
        results=views,
        trend=trend(results),
        verdict=verdict,
        figures=figures,
        tried=tried,
        parts=PARTS,
    )

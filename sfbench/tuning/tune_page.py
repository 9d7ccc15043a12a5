"""A tune as a page: what was tried, above the report of its diagnosis."""

from __future__ import annotations

from sfbench.common.schema import SweepResult
from sfbench.report.html import render_html
from sfbench.report.tried_view import ChangeView, TriedView
from sfbench.tuning.tune_report import TuneReport
from sfbench.tuning.tune_text import HEADINGS, confirmed, place, reasons, remarks, row


def render_tune_page(report: TuneReport, result: SweepResult) -> str:
    """One self-contained HTML file; ``result``: the diagnosis that the trials follow from."""
    return render_html([result], tried=_view(report))


def _view(report: TuneReport) -> TriedView:
    best = report.best
    return TriedView(
        headline=report.headline,
        remarks=tuple(remarks(report)),
        confirmed="" if best is None else confirmed(best),
        changes=tuple(
            ChangeView(place=place(one), diff=one.diff) for one in (best.lines if best else ())
        ),
        cautions=best.cautions if best else (),
        headings=(*HEADINGS[:-1], "result"),
        rows=tuple(row(trial) for trial in report.trials),
        reasons=tuple(reasons(report)),
    )

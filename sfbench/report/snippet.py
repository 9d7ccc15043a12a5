"""A result for a notebook's cell: the table and what it says, in colours of the notebook."""

from __future__ import annotations

import jinja2

from sfbench.common.schema import SweepResult
from sfbench.report.foreign import shown
from sfbench.report.result_rows import table_rows
from sfbench.report.sentences import headline, lines_below


def render_snippet(result: SweepResult) -> str:
    """HTML without script and style sheet."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sfbench.report"),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("snippet.html.j2").render(
        headline=headline(result),
        name=result.name,
        table=table_rows(result),
        lines=tuple(lines_below(result)),
    )

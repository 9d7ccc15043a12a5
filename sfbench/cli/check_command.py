"""``sfbench check``."""

from __future__ import annotations

import sys

from sfbench.cli.console import put_json, put_text, say, terminal
from sfbench.cli.parameters import Given, Group, Json, takes
from sfbench.common.errors import ScriptError
from sfbench.plan.options import Settings

_OPTIONS = Group(
    model=Settings, names=("device", "timeout", "allow_saves"), other_defaults={"timeout": "60"}
)


@takes(_OPTIONS)
def check(given: Given, *, as_json: Json = False) -> None:
    """Watch a script at 2 devices for what goes wrong silently: arguments go behind `--`."""
    from sfbench.run.check import check_request, run_check, to_json
    from sfbench.run.observer import SilentObserver

    asked = check_request(given.options, given.script_args)
    checked = run_check(asked.plan, asked.machine, SilentObserver())
    if as_json:
        put_json(to_json(checked))
    else:
        from sfbench.report.check_table import render_checks

        put_text(render_checks(checked.checks, *terminal()))
    if checked.crash is not None:
        say(f"sfbench: {checked.crash}")
        sys.exit(ScriptError.exit_code)
    sys.exit(1 if checked.failed else 0)

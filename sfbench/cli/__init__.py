"""The command line: the only place that prints results and sets exit codes."""

from __future__ import annotations


def main() -> None:
    """Run the command line: what the console script calls."""
    from sfbench.cli.app import main as run

    run()

"""The command line: the only place that prints results and sets exit codes."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from sfbench import __version__
from sfbench.cli import gate_command
from sfbench.cli.check_command import check
from sfbench.cli.console import outlets, say
from sfbench.cli.endings import CommandGroup, Unexpected, terminated_like_interrupted, told
from sfbench.cli.machine_commands import info, workloads
from sfbench.cli.predict_command import predict
from sfbench.cli.result_commands import compare, list_results, report, show
from sfbench.cli.slurm_command import collect
from sfbench.cli.sweep_command import sweep
from sfbench.cli.tune_command import tune
from sfbench.common.errors import InterruptedSweep, SfbenchError, UsageError

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Did adding devices make training faster, and if not, what ate it?",
)

_BELOW_GATE = (["gate", "record"], ["gate", "calibrate"])
"""Two words that are one command: ``gate`` itself takes a target."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point of ``sfbench``: run a command, turn deliberate errors into text and exit code."""
    words = sys.argv[1:] if argv is None else argv
    cut = words.index("--") if "--" in words else len(words)
    own = words[:cut]
    script_args = tuple(words[cut + 1 :])
    if own[:2] in _BELOW_GATE:
        own = [" ".join(own[:2]), *own[2:]]
    with outlets() as out:
        code = _exit_code_of(own, script_args)
        out.flush()
        if out.error is not None:
            say(f"sfbench: stdout: cannot be written: {out.error.strerror or out.error}")
            code = code or UsageError.exit_code
    sys.exit(code)


def _exit_code_of(own: list[str], script_args: tuple[str, ...]) -> int | str:
    """Run a command; 1 is for regressions and failed checks, so no error may end with it."""
    try:
        with terminated_like_interrupted():
            _hint_at_script_arguments(own, script_args)
    except SfbenchError as error:
        say(f"sfbench: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("sfbench: interrupted")
        return InterruptedSweep.exit_code
    except SystemExit as end:
        if end.code == InterruptedSweep.exit_code:
            say("sfbench: interrupted")
        return end.code or 0
    except Unexpected as unexpected:
        return told(unexpected.error)
    return 0


def _hint_at_script_arguments(own: list[str], script_args: tuple[str, ...]) -> None:
    """Run a command; where click does not know an argument, say where the script's own belong."""
    try:
        app(own, standalone_mode=True, prog_name="sfbench", obj=script_args)
    except SystemExit as end:
        if own[:1] in (["sweep"], ["check"], ["gate"], ["tune"]) and _is_of_words(end.__context__):
            say(_where_words_go(own))
        raise


def _where_words_go(own: list[str]) -> str:
    from sfbench.plan.targets import LAUNCHERS

    launcher = next((word for word in own[1:] if word in LAUNCHERS), None)
    if launcher is not None:
        return (
            f"Leave {launcher} and its options out, sfbench starts the ranks itself: "
            f"sfbench {own[0]} train.py --devices 1,2 -- --epochs 3"
        )
    return "Arguments of the script go behind `--`: sfbench sweep train.py -- --epochs 3"


def _is_of_words(error: BaseException | None) -> bool:
    """Whether a word was not known: one of the script's own, as it seems."""
    unknown = type(error).__name__ == "NoSuchOption"
    return unknown or "unexpected extra argument" in str(getattr(error, "message", ""))


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"sfbench {__version__}")
        raise typer.Exit


app.command()(sweep)
app.command()(collect)
app.command("list")(list_results)
app.command()(show)
app.command()(compare)
app.command()(report)
app.command()(check)
app.command()(predict)
app.command("gate")(gate_command.gate)
app.command("gate record")(gate_command.gate_record)
app.command("gate calibrate")(gate_command.gate_calibrate)
app.command()(tune)
app.command()(workloads)
app.command()(info)


if __name__ == "__main__":
    main()

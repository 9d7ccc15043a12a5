"""Commands take their options from the settings: none is written down twice."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from sfbench.plan.options import Settings, shown
from sfbench.plan.sweep_plan import MODULE

SWEEP_OPTIONS = tuple(name for name in Settings.model_fields if name != "target")
JOB_OPTIONS = ("devices", "device", "threads_per_device", "timeout", "allow_saves")
"""What every command that measures takes."""

Json = Annotated[
    bool, typer.Option("--json", help="print one JSON document instead of text", metavar="")
]

Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="no progress and no news on stderr, errors only")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What stood on a command line; None: not given."""

    options: dict[str, Any] = field(default_factory=dict)
    """Those of ``Settings``, with the target."""
    gate: dict[str, Any] = field(default_factory=dict)
    """Those of ``GateSettings``, or of ``TuneSettings``: what only this command takes."""
    script_args: tuple[str, ...] = ()
    """What stood behind ``--``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Options of one settings class that a command takes."""

    model: type[BaseModel]
    names: Sequence[str]
    other_defaults: dict[str, str] = field(default_factory=dict)
    """As shown: what holds here instead of the default."""


CommandFunction = Callable[..., None]


def takes(*groups: Group, target: bool = True) -> Callable[[CommandFunction], CommandFunction]:
    """Give a command the options of these groups; it receives them as its first argument.

    ``target``: whether the command cannot do without a target.
    """

    def around(command: CommandFunction) -> CommandFunction:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        made = [*_target(required=target), *(p for group in groups for p in _parameters(group))]

        @functools.wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            options = {name: values.pop(name) for name in _names(groups, Settings, "target")}
            options["target"] = _named(context, options["target"], values.pop("module"), target)
            gate = {
                name: values.pop(name)
                for group in groups
                if group.model is not Settings
                for name in group.names
            }
            given = Given(options=options, gate=gate, script_args=context.obj or ())
            command(given, **values)

        context = _parameter("context", typer.Context)
        parameters = [context, *made, *own]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return around


def _names(groups: Sequence[Group], model: type[BaseModel], *more: str) -> Iterator[str]:
    yield from more
    for group in groups:
        if group.model is model:
            yield from group.names


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _target(*, required: bool) -> Iterator[inspect.Parameter]:
    model = Settings.model_fields["target"]
    text = model.description or ""
    metavar = "TARGET" if required else "[TARGET]"
    argument = typer.Argument(
        help=text if required else f"{text} [{model.default}]", metavar=metavar
    )
    yield _parameter("target", Annotated[str | None, argument], None)
    option = typer.Option("-m", help="a module as TARGET, as python -m takes it", metavar="MODULE")
    yield _parameter("module", Annotated[str | None, option], None)


def _named(
    context: typer.Context, target: str | None, module: str | None, required: bool
) -> str | None:
    """The target, however it was given."""
    if target is not None and module is not None:
        context.fail("Give either TARGET or -m MODULE.")
    if module is not None:
        return f"{MODULE}{module}"
    if target is None and required:
        context.fail("Missing argument 'TARGET'.")
    return target


def _parameters(group: Group) -> Iterator[inspect.Parameter]:
    """Values are taken as text: the settings check them, and say what they may be."""
    for name in group.names:
        model, look = group.model.model_fields[name], shown(group.model, name)
        text = model.description or ""
        default = group.other_defaults.get(name) or look.unset or as_typed(model.default)
        text += f" [{default}]" if default else ""
        flag = f"--{name.replace('_', '-')}"
        option = typer.Option(flag, help=text, metavar=look.metavar)
        kind = str if look.metavar else bool
        yield _parameter(name, Annotated[kind | None, option], None)


def as_typed(value: object) -> str:
    """A default as a person would type it; empty for none."""
    if value is None or value is False:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

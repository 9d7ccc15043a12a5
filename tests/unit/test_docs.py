"""What the documentation says is so: options, exit codes, links, examples."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sfbench.cli.app import app
from sfbench.cli.gate_command import EXIT_CODES
from sfbench.common import errors
from sfbench.plan.options import GateSettings, Settings, TuneSettings
from sfbench.plan.settings import (
    load_gate_settings,
    load_settings,
    load_slurm_settings,
    load_tune_settings,
)
from sfbench.plan.slurm_options import SlurmSettings

ROOT = Path(__file__).parents[2]
COMMAND_LINE = ROOT / "docs" / "command-line.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONTRIBUTORS = [ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY")]

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SECTION = re.compile(r"^## `(sfbench[^`]*)`$", re.MULTILINE)
OPTION = re.compile(r"`[^`\n]*?(--[a-z][a-z-]*)")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(?P<kind>\w+) runs\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(group: object, name: str) -> dict[str, TyperCommand]:
    """Every command that does something, by its full name."""
    if isinstance(group, TyperCommand):
        return {name: group}
    assert isinstance(group, TyperGroup)
    parts = [commands(command, f"{name} {word}") for word, command in group.commands.items()]
    return {full: command for part in parts for full, command in part.items()}


def options(command: TyperCommand) -> set[str]:
    flags = (o for p in command.params for o in [*p.opts, *p.secondary_opts])
    return {flag for flag in flags if flag.startswith("--")} - {"--help"}


COMMANDS = commands(get_command(app), "sfbench")


def sections() -> dict[str, str]:
    """Text of docs/command-line.md under each command's heading."""
    _, *parts = SECTION.split(COMMAND_LINE.read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_command_is_documented_and_no_other() -> None:
    assert set(sections()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name: str) -> None:
    described = [line for line in sections()[name].splitlines() if line.startswith("|")]

    named = {flag for line in described for flag in OPTION.findall(line.split("|")[1])}

    assert named == options(COMMANDS[name])


def test_documented_defaults_are_those_of_the_settings() -> None:
    rows = [line.split(" | ") for line in sections()["sfbench sweep"].splitlines()]
    stated = {
        OPTION.findall(row[0])[0]: row[1].strip("`") for row in rows if OPTION.findall(row[0])
    }

    for key, field in Settings.model_fields.items():
        if key != "target" and field.default not in (None, False):
            assert stated[f"--{key.replace('_', '-')}"] == as_typed(field.default)


def test_documented_defaults_of_the_gate_are_those_of_its_settings() -> None:
    rows = [line.split(" | ") for line in sections()["sfbench gate"].splitlines()]
    stated = {
        OPTION.findall(row[0])[0]: row[1].strip("`") for row in rows if OPTION.findall(row[0])
    }

    assert stated["--margin"] == f"{100 * GateSettings().margin:g}%"
    assert stated["--budget"] == as_typed(GateSettings().budget)
    assert stated["--seconds"] == as_typed(GateSettings().seconds)


def as_typed(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_every_exit_code_is_documented() -> None:
    text = COMMAND_LINE.read_text()
    codes = {error.exit_code for error in vars(errors).values() if is_error(error)}

    table = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}

    assert codes | {0, 1} | set(EXIT_CODES.values()) == table


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.SfbenchError)


def test_every_setting_is_documented_and_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", COMMAND_LINE.read_text(), re.M | re.S)
    (tmp_path / "pyproject.toml").write_text("\n".join(blocks))

    load_settings({}, tmp_path)
    load_gate_settings({}, tmp_path)
    load_tune_settings({}, tmp_path)
    load_slurm_settings({}, tmp_path)
    models: tuple[type[BaseModel], ...] = (Settings, GateSettings, TuneSettings, SlurmSettings)
    for block, model in zip(blocks, models, strict=True):
        keys = re.findall(r"^([a-z-]+) = ", block, re.MULTILINE)
        assert {key.replace("-", "_") for key in keys} == set(model.model_fields)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    titles = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", t.strip().lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", [*PAGES, *CONTRIBUTORS], ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        todo += [
            (page.parent / link.split("#")[0]).resolve() for link in LINK.findall(page.read_text())
        ]

    assert set(PAGES) - {ROOT / "README.md"} - seen == set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is run, and the lines it should print: none = whatever it prints."""

    argv: tuple[str, ...]
    prints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A fenced block whose first line ends in the word ``runs``, typed at the top of a checkout."""

    page: Path
    line: int
    kind: str
    body: str

    def commands(self) -> list[Command]:
        """A console example's lines behind ``$``, each with its output until the next."""
        if self.kind == "python":
            return [Command(argv=(sys.executable, "-c", self.body))]
        _, *parts = re.split(r"^\$ (.+)\n", self.body, flags=re.MULTILINE)
        return [
            Command(argv=tuple(shlex.split(typed)), prints=tuple(output.splitlines()))
            for typed, output in zip(parts[::2], parts[1::2], strict=True)
        ]


def examples() -> list[Example]:
    return [
        Example(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            kind=match["kind"],
            body=match["body"],
        )
        for page in PAGES
        for text in [page.read_text()]
        for match in BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda e: f"{relative(e.page)}:{e.line}")
def test_examples_run(example: Example, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "example").symlink_to(ROOT / "results" / "example")

    assert example.commands(), "an example holds at least one command"
    for command in example.commands():
        printed = run(command.argv, tmp_path)
        assert not command.prints or agrees(command.prints, printed), "\n".join(printed)


def run(argv: tuple[str, ...], cwd: Path) -> tuple[str, ...]:
    """Lines that a command prints to stdout, with this environment's programs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout}{done.stderr}"
    return tuple(done.stdout.splitlines())


def agrees(expected: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    """Whether the output is as shown; a last line of … stands for any rest."""
    if expected[-1] == "…":
        return printed[: len(expected) - 1] == expected[:-1]
    return printed == expected


def test_some_examples_are_run() -> None:
    assert {example.kind for example in examples()} >= {"console"}


def test_the_api_is_what_it_says() -> None:
    import sfbench
    import sfbench.gating.runner  # a submodule must not hide the function of a like name
    import sfbench.tuning.tuner

    assert all(callable(getattr(sfbench, name)) for name in sfbench.__all__ if name[0] != "_")

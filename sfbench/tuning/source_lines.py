"""The calls of a script that a set of settings changes: as a diff, or as options of the script.

The script is read and never written to.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfbench.protocol.changes import Argument
from sfbench.tuning.tune_report import LineToChange

_PLACES = 2_000
"""Files that are looked at for one of a name."""
_FOREIGN = {"site-packages", "node_modules", "__pycache__", ".git"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptText:
    """A file of the user's."""

    path: Path
    text: str
    tree: ast.Module


def line_to_change(
    root: Path, script: Path, line: str, call: str, arguments: Sequence[Argument]
) -> LineToChange:
    """Arguments that the call on a line (``train.py:12``) is to get.

    Args:
        root: folder that the script's own imports begin at.
        script: the script itself, which comes before others of its name.
        line: of the call; empty: not a line of the script.
        call: name of the class that is made there.
        arguments: with their new values.
    """
    told = ", ".join(f"{name}={value}" for name, value in arguments)
    source = _source(root, script, line)
    if source is None:
        return LineToChange(line=line, call=call, arguments=told)
    found = _call(source, int(line.rpartition(":")[2]), call)
    options = _options(source, found, arguments) if found is not None else ()
    literal = found is not None and len(options) < len(arguments)
    rest = [one for one in arguments if one[0] not in {name for name, _ in options}]
    diff = _diff(source, root, found, rest) if found is not None and literal else ""
    given = " ".join(option for _, option in options)
    if found is not None:
        line = f"{source.path.name}:{found.lineno}"
    return LineToChange(
        line=line, call=call, arguments=told, path=str(source.path), options=given, diff=diff
    )


def _source(root: Path, script: Path, line: str) -> ScriptText | None:
    name = line.rpartition(":")[0]
    path = script if name == script.name else _only(root, name)
    if not name or path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
        return ScriptText(path=path, text=text, tree=ast.parse(text))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _only(root: Path, name: str) -> Path | None:
    """The only file of a name below a folder; None if there are several, or it is too large."""
    found = []
    for place, path in enumerate(root.rglob("*.py")):
        if place > _PLACES:
            return None
        if path.name == name and not _FOREIGN & set(path.parts):
            found.append(path)
    return found[0] if len(found) == 1 else None


def _call(source: ScriptText, line: int, name: str) -> ast.Call | None:
    """The innermost call of a class on a line, by its own name or the one that it is imported as.

    Where a library makes it again on that line (``accelerator.prepare``): the only one in the file.
    None as well if arguments come by ``**``: what is among them is not known.
    """
    names = {name, *_aliases(source.tree, name)}
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and _called(node) in names
    ]
    on_line = [one for one in calls if one.lineno <= line <= (one.end_lineno or one.lineno)]
    found = on_line[-1:] or (calls if len(calls) == 1 else [])
    if not found or any(keyword.arg is None for keyword in found[0].keywords):
        return None
    return found[0]


def _aliases(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (a.asname for a in node.names if a.name == name and a.asname)


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _options(
    source: ScriptText, call: ast.Call, arguments: Sequence[Argument]
) -> tuple[tuple[str, str], ...]:
    """Name and ``--option value`` of the arguments that the script takes from its command line."""
    known = _known_options(source.tree)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return tuple(
        (name, f"{known[value.attr]} {new}")
        for name, new in arguments
        if isinstance(value := given.get(name), ast.Attribute)
        and value.attr in known
        and not isinstance(new, bool)
    )


def _known_options(tree: ast.Module) -> dict[str, str]:
    """Options of argparse by the name of their value."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called(node) not in ("add_argument", "add"):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        long = [w for w in words if isinstance(w, str) and w.startswith("--")]
        dest = next((k.value for k in node.keywords if k.arg == "dest"), None)
        for word in long[:1]:
            name = word[2:].replace("-", "_")
            if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
                name = dest.value
            known[name] = word
    return known


def _diff(source: ScriptText, root: Path, call: ast.Call, arguments: Sequence[Argument]) -> str:
    """Unified; a keyword that is there gets its new value, another goes before the bracket."""
    data = source.text.encode()
    starts = _starts(data)
    edits: list[tuple[int, int, str]] = []
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    fresh = []
    for name, value in arguments:
        old = given.get(name)
        if old is None:
            fresh.append(f"{name}={value}")
        else:
            edits.append((*_span(starts, old), str(value)))
    end = _span(starts, call)[1] - 1
    if fresh:
        edits.append(_added(data, end, fresh))
    for begin, until, text in sorted(edits, reverse=True):
        data = data[:begin] + text.encode() + data[until:]
    name = str(source.path.relative_to(root)) if source.path.is_relative_to(root) else ""
    name = name or source.path.name
    lines = difflib.unified_diff(
        source.text.splitlines(), data.decode().splitlines(), f"a/{name}", f"b/{name}", "", "", 1,
        lineterm="",
    )  # fmt: skip
    return "\n".join(lines)


def _added(data: bytes, end: int, fresh: Sequence[str]) -> tuple[int, int, str]:
    """Where new arguments go, and with which commas; ``end``: of the closing bracket."""
    before = data[:end].rstrip()
    text = ", ".join(fresh)
    if before.endswith(b"("):
        return len(before), len(before), text
    comma = before.endswith(b",")
    many_lines = b"\n" in data[len(before) : end]
    if many_lines:
        last = before.splitlines()[-1]
        indent = last[: len(last) - len(last.lstrip())].decode()
        first = "" if comma else ","
        return len(before), len(before), f"{first}\n{indent}{text},"
    return len(before), len(before), f" {text}" if comma else f", {text}"


def _starts(data: bytes) -> list[int]:
    """Offset of each line."""
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(starts: Sequence[int], node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin = starts[node.lineno - 1] + node.col_offset
    return begin, starts[node.end_lineno - 1] + node.end_col_offset

"""The rules of the code base that a reader relies on, read from the sources."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sfbench"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted((ROOT / "workloads").glob("*.py"))]

# Data flows one way. A folder imports itself and the folders on the lines before its own.
STAGES = (
    ("protocol",),
    ("common",),
    ("data",),
    ("guard",),
    ("plan",),
    ("launch",),
    ("probe",),
    ("collect",),
    ("analyze",),
    ("diagnose", "checks"),
    ("run", "report", "predict"),
    ("gating",),
    ("tuning",),
    ("api", "cli"),
    ("pytest_plugin", "__main__", "__init__"),
)
# What runs inside ranks imports these and nothing else of sfbench.
BELOW_RANKS = {"protocol", "common", "data"}
TOP_LEVEL_MODULES = 4
PRINTS = {"print", "sys.stdout.write", "sys.stderr.write"}
# A rank's stderr is its log, which the person at the terminal does not see.
PRINTS_IN_RANKS = PRINTS - {"sys.stderr.write"}
INSIDE_RANKS = {"launch", "probe"}

PROBE_LIBRARIES = {"torch", "numpy"}
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60


def unit_of(path: Path) -> str:
    """Top-level part of the package that a file belongs to: ``probe``, ``schema``, ``cli``."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules_of(*units: str) -> list[Path]:
    return [path for path in MODULES if unit_of(path) in units]


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports, inside functions and for type checking too."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            head = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{head}.{alias.name}" for alias in node.names)


def own_units(path: Path) -> set[str]:
    """Parts of sfbench that a module imports."""
    names = {name for name in imports(path) if name.startswith("sfbench.")}
    return {name.split(".")[1] for name in names} & {unit_of(p) for p in MODULES}


def libraries(path: Path) -> set[str]:
    """Third-party packages that a module imports."""
    tops = {name.split(".")[0] for name in imports(path)}
    return tops - set(sys.stdlib_module_names) - {"sfbench"}


def may_import(unit: str) -> set[str]:
    left: set[str] = set()
    for line in STAGES:
        if unit in line:
            return left | {unit}
        left |= set(line)
    raise AssertionError(f"{unit} has no place in STAGES")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_few_modules_stand_beside_the_folders() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= TOP_LEVEL_MODULES


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_go_to_the_left(path: Path) -> None:
    assert own_units(path) <= may_import(unit_of(path))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = {dotted(path) for path in MODULES}
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        names = {n if n in known else n.rpartition(".")[0] for n in imports(path)}
        # "from sfbench import x" reads the package's docstring and version, and no more.
        graph[dotted(path)] = (names & known) - {dotted(path), "sfbench"}

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_probe_imports_only_torch_numpy_and_the_standard_library() -> None:
    paths = modules_of("probe", *BELOW_RANKS)

    used = {relative(p): libraries(p) - PROBE_LIBRARIES for p in paths}

    assert {unit for path in paths for unit in own_units(path)} <= BELOW_RANKS | {"probe"}
    assert {name: found for name, found in used.items() if found} == {}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_are_short(path: Path) -> None:
    # Counted from the first line of the body: an option list is not length to follow.
    long = {
        node.name: length
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.body[0].lineno + 1) > LONGEST_FUNCTION
    }

    assert long == {}


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_what_is_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and "overload" not in map(ast.unparse, node.decorator_list)
    ]

    bare = [node.name for node in public if not ast.get_docstring(node)]

    assert bare == []
    assert is_empty(tree) or ast.get_docstring(tree), "the module says what it is"


def is_empty(tree: ast.Module) -> bool:
    """Whether a file does no more than make its folder a package."""
    return all(isinstance(node, ast.Expr) for node in tree.body)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_sources_parse_as_the_oldest_python(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_only_the_command_line_prints() -> None:
    printing = {
        relative(path)
        for path in MODULES
        if unit_of(path) != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in (PRINTS_IN_RANKS if unit_of(path) in INSIDE_RANKS else PRINTS)
    }

    assert printing == set()


def class_names(path: Path) -> Iterator[str]:
    """Public classes and type aliases of a module."""
    for node in ast.parse(path.read_text()).body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        yield from (n for n in names if n[0].isupper() and not n.isupper())


def places_of(found: Iterator[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that stand in more than one file, with the files."""
    places: dict[str, list[str]] = {}
    for name, path in found:
        places.setdefault(name, []).append(relative(path))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_modules_have_one_name() -> None:
    named = ((p.stem, p) for p in MODULES if p.stem not in {"__init__", "__main__"})

    assert places_of(named) == {}


def test_no_two_classes_have_one_name() -> None:
    assert places_of((name, p) for p in MODULES for name in class_names(p)) == {}


# What the project's files must not hold. Patterns are written so that none matches itself.
HOSTS = {
    "127.0.0.1",
    "arxiv.org",
    "doi.org",
    "docs.pytorch.org",
    "example.com",
    "keepachangelog.com",
    "localhost",
    "pytorch.org",
    "semver.org",
    "www.apache.org",
    "www.w3.org",
}
UNFINISHED = re.compile(
    r"\b(T[O]DO|FI[X]ME|X[X]X|raise NotImplemented[E]rror|pytest\.ski[p]|\.skipi[f])\b"
)
ONE_MACHINE = re.compile(r"(?<![\w.])/(?:home|root|work|opt)/[\w.]")
A_TRACKER = re.compile(r"\b[Ii]ssues? #?\d|\(#\d+\)")
A_HOST = re.compile(r"https?://([\w.-]+)")


def project_files() -> list[Path]:
    tops = ("sfbench", "workloads", "tests", "docs", ".ci", ".github")
    files = [path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()]
    files += [
        path for path in ROOT.iterdir() if path.is_file() and path.name not in {"LICENSE", ".git"}
    ]
    text = {".py", ".md", ".toml", ".txt", ".yml", ".html", ".css", ".j2", ".cfg", ""}
    return [p for p in files if p.suffix in text and "__pycache__" not in p.parts]


@pytest.mark.parametrize("path", project_files(), ids=relative)
def test_the_project_speaks_of_itself(path: Path) -> None:
    text = path.read_text()

    found = [m.group() for p in (UNFINISHED, ONE_MACHINE, A_TRACKER) for m in p.finditer(text)]
    foreign = set(A_HOST.findall(text)) - HOSTS

    assert (found, foreign) == ([], set())

"""Odd result documents and settings: each is taken, or refused by a clear error within a second.

``python tests/fuzz/documents.py --count 10000 --seed 0`` repeats a run. A corpus of sound documents
is changed in one to four places: values of other kinds and sizes, fields left out or doubled, text
cut short or with bytes exchanged.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sfbench.collect.result import load_result, to_json
from sfbench.common.errors import SfbenchError
from sfbench.gating.stored import stored_base
from sfbench.plan.settings import load_gate_settings, load_settings
from sfbench.report.comparison import compare
from sfbench.report.html import render_html
from sfbench.report.table import render_table

LIMIT_S = 1.0
CORPUS = Path(__file__).parents[1] / "golden" / "sweep-schema1.json"
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**63, 10**30, 1e-320, 1e-9, 0.5, 1e15, 1e308, -1e308,
    float("nan"), float("inf"), "", "x", "a\0b", "\x1b[31m\u202e", "::error::x", "\udcff",
    "y" * 200_000, [], {}, [[]], [None], {"value": 1.0}, "ok", "failed", "cuda",
)  # fmt: skip
SETTINGS = (
    'devices = "1,2"', "devices = [1, 2]", "seconds = 3", "precision = 0.1", 'rounds = "auto"',
    'name = "a"', 'output = "b"', 'target = "vision"', "timeout = 5.0", "allow-saves = true",
    'scaling = "weak"', "global-batch = 8", "threads_per_device = 1",
)  # fmt: skip
GATE = ('base = "HEAD"', 'margin = "8%"', "budget = 60", 'paths = ["a/**"]', "min-efficiency = 0.9")
ODD_TOML = (
    "nan", "inf", "-1", "0", "1e308", "9" * 5_000, "0x" + "f" * 5_000, '""', '"a\\u0000b"', "[]",
    "{}", "[[1]]", '"' + "z" * 100_000 + '"', "true", "1979-05-27", '"\\u202e"', "[" * 3_000,
)  # fmt: skip


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(items):
        found.append((value, key))
        if isinstance(child, dict | list):
            places(child, found)
    return found


def odd_document(document: Any, chance: random.Random) -> bytes:
    """A document changed in a few places."""
    document = copy.deepcopy(document)
    for _ in range(chance.randint(1, 4)):
        within, key = chance.choice(places(document, []))
        what = chance.random()
        if what < 0.15:
            del within[key]
        elif what < 0.25:
            within[key] = copy.deepcopy(chance.choice(places(document, []))[0])
        elif what < 0.4 and isinstance(within[key], int | float):
            within[key] *= chance.choice((-1, 0, 1e-6, 1e6, 1e12, 1e300))
        else:
            within[key] = copy.deepcopy(chance.choice(ODD))
    try:
        data = json.dumps(document).encode()
    except (ValueError, RecursionError):  # a document within itself
        data = b"{}"
    return odd_bytes(data, chance) if chance.random() < 0.2 else data


def odd_bytes(data: bytes, chance: random.Random) -> bytes:
    """Cut short, or with bytes exchanged."""
    if chance.random() < 0.5:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def odd_settings(chance: random.Random) -> bytes:
    """A pyproject.toml of settings, some of them odd."""
    lines = ["[tool.sfbench]", *chance.sample(SETTINGS, chance.randint(0, 5))]
    lines += ["[tool.sfbench.gate]", *chance.sample(GATE, chance.randint(0, 3))]
    for _ in range(chance.randint(0, 2)):
        place = chance.randrange(len(lines))
        name, equals, _ = lines[place].partition(" = ")
        lines[place] = f"{name}{equals}{chance.choice(ODD_TOML)}" if equals else "[tool]"
    data = "\n".join(lines).encode()
    return odd_bytes(data, chance) if chance.random() < 0.2 else data


def shown(folder: Path) -> None:
    """What ``show`` and ``show --json`` do with it."""
    result = load_result(folder)
    to_json(result)
    table = render_table(result, 100, False)
    if "\x1b" in table or "\u202e" in table:
        raise AssertionError("what steers a terminal came through")


def compared(folder: Path) -> None:
    """What ``compare`` does with it."""
    compare(load_result(folder), load_result(CORPUS))


def gated(folder: Path) -> None:
    """What ``gate --baseline`` does with it before it measures."""
    stored_base(load_result(folder), 2)


def reported(folder: Path) -> None:
    """What ``report --baseline`` does with it."""
    render_html([load_result(folder)], load_result(CORPUS))


def set_up(folder: Path) -> None:
    """What every command does with settings."""
    load_settings({}, folder)
    load_gate_settings({}, folder)


Use = Callable[[Path], None]
DOCUMENT_USES: tuple[Use, ...] = (shown, compared, gated, reported)
SETTINGS_USES: tuple[Use, ...] = (set_up,)


def attempt(uses: tuple[Use, ...], folder: Path, limits: dict[Use, float]) -> str:
    """``taken``, ``refused``, or what is wrong: each use is tried by itself.

    A refusal may take ``LIMIT_S``, and so may all else but what drawing a sound one takes.
    """
    ends = {_attempt(use, folder, limits.get(use, LIMIT_S)) for use in uses}
    odd = sorted(ends - {"taken", "refused"})
    return odd[0] if odd else max(ends)  # taken by some


def _attempt(use: Use, folder: Path, limit_s: float) -> str:
    began = time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            use(folder)
        end = "taken"
    except SfbenchError as error:
        end, limit_s = ("refused" if str(error) else "an error without words"), LIMIT_S
    except Exception:
        end = "defect: " + "".join(traceback.format_exc().splitlines(keepends=True)[-5:])
    return end if time.process_time() - began <= limit_s else f"slow {use.__name__} ({end})"


def limit_of_a_report() -> float:
    """Drawing takes what it takes, here: twice that of a sound document, or more, is too long."""
    times = []
    for _ in range(3):
        began = time.process_time()
        reported(CORPUS)
        times.append(time.process_time() - began)
    return max(LIMIT_S, 2 * min(times))


def run(count: int, seed: int) -> Iterator[tuple[int, str]]:
    """How each of so many ended."""
    limits = {reported: limit_of_a_report()}
    document = json.loads(CORPUS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in range(count):
            chance = random.Random(f"{seed}/{number}")
            if number % 4:
                (folder / "sweep.json").write_bytes(odd_document(document, chance))
                yield number, attempt(DOCUMENT_USES, folder, limits)
            else:
                (folder / "pyproject.toml").write_bytes(odd_settings(chance))
                yield number, attempt(SETTINGS_USES, folder, limits)


def main() -> int:
    """Run all, and tell how they ended."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    ends: Counter[str] = Counter()
    for number, end in run(given.count, given.seed):
        ends[end] += 1
        if end not in {"taken", "refused"} and ends[end] <= 1:
            sys.stdout.write(f"seed {given.seed}, document {number}: {end}\n")
    for end, times in ends.most_common():
        sys.stdout.write(f"{times:6}  {end.splitlines()[-1]}\n")
    return int(bool(set(ends) - {"taken", "refused"}))


if __name__ == "__main__":
    sys.exit(main())

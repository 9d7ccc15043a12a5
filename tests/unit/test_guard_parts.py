"""The guard's pure parts: mounts, folders that are caches, calls that are asked about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sfbench.guard.caches import cache_folders
from sfbench.guard.calls import _AARCH64, _X86_64, Architecture
from sfbench.guard.filter import Instruction, program
from sfbench.guard.folders import PREFIX, remove_folder
from sfbench.guard.mounts import layers, mount_of, parse

MOUNTINFO = r"""
36 35 98:0 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
37 36 0:5 / /proc rw,nosuid - proc proc rw
38 36 0:6 / /dev rw - devtmpfs devtmpfs rw
39 38 0:7 / /dev/shm rw - tmpfs tmpfs rw
40 36 8:1 / /mnt/my\040data rw,noatime - xfs /dev/sdb1 rw,attr2
41 36 8:2 / /mnt/archive ro - ext4 /dev/sdc1 rw
42 36 8:3 / /mnt/frozen rw - ext4 /dev/sdd1 ro
43 36 0:9 / /tmp rw - tmpfs tmpfs rw
44 43 0:9 /x /tmp rw - tmpfs other rw
45 36 0:10 / /run/user/7 rw - tmpfs tmpfs rw
""".strip()


def test_each_mount_is_shown_as_its_kind_asks() -> None:
    ways = {layer.mount.path: layer.way for layer in layers(parse(MOUNTINFO))}
    assert ways == {
        "/": "overlay", "/proc": "bind", "/dev": "bind", "/tmp": "overlay", "/dev/shm": "bind",
        "/mnt/my data": "overlay", "/mnt/archive": "bind", "/mnt/frozen": "bind",
        "/run/user/7": "bind",
    }  # fmt: skip


def test_a_path_lies_on_the_innermost_mount() -> None:
    mounts = parse(MOUNTINFO)
    found = {path: mount_of(path, mounts).path for path in ("/tmp/a", "/tmpfile", "/mnt/my data")}
    assert found == {"/tmp/a": "/tmp", "/tmpfile": "/", "/mnt/my data": "/mnt/my data"}
    assert parse(MOUNTINFO)[0].path == "/"


def test_caches_are_named_once_and_never_hold_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.resolve()
    monkeypatch.setenv("HOME", str(home))
    given = {"XDG_CACHE_HOME": str(home / "scratch"), "HF_HOME": str(home / ".cache" / "hf")}
    found = cache_folders({**given, "TORCH_HOME": "relative"}, near=[str(home / "scratch" / "job")])
    inside = [path for path in found if path.startswith(str(home))]
    assert inside == [str(home / name) for name in (".cache", ".nv", ".triton")]


def ask(rows: Sequence[Instruction], number: int, arguments: Sequence[int], arch: int) -> int:
    """What the kernel does with a call: the filter, run as BPF is."""
    words = {0: number, 4: arch} | {16 + 8 * i: a for i, a in enumerate(arguments)}
    place, held = 0, 0
    while True:
        code, yes, no, value = rows[place]
        place += 1
        if code == 0x20:
            held = words.get(value, 0)
        elif code == 0x06:
            return value
        else:
            right = {0x15: held == value, 0x45: bool(held & value), 0x35: held >= value}[code]
            place += yes if right else no


ALLOWED, ASKED, FAILED = 0x7FFF0000, 0x7FC00000, 0x00050026


@pytest.mark.parametrize("machine", [_X86_64, _AARCH64])
def test_only_calls_that_change_files_are_asked_about(machine: Architecture) -> None:
    rows = program(machine)
    assert len(rows) < 4096
    assert all(max(yes, no) < 256 for _, yes, no, _ in rows)
    arch = machine.architecture
    openat = next(c for c in machine.calls if c.what == "open" and c.flags == 2)
    for flags, answer in (
        (os.O_RDONLY, ALLOWED), (os.O_RDONLY | os.O_CLOEXEC, ALLOWED), (os.O_WRONLY, ASKED),
        (os.O_RDWR, ASKED), (os.O_RDONLY | os.O_CREAT, ASKED), (os.O_RDONLY | os.O_TRUNC, ASKED),
    ):  # fmt: skip
        assert ask(rows, openat.number, (0, 0, flags), arch) == answer
    for call in machine.calls:
        if call.what != "open":
            assert ask(rows, call.number, (0,) * 6, arch) == ASKED
    for number in machine.refused:
        assert ask(rows, number, (0,) * 6, arch) == FAILED
    # Another calling convention is no way around it; what is not named passes.
    assert ask(rows, openat.number, (0, 0, os.O_RDWR), arch ^ 1) == FAILED
    assert ask(rows, 0x40000000 | openat.number, (0, 0, os.O_RDWR), arch) == FAILED
    assert ask(rows, 39 if machine is _X86_64 else 172, (), arch) == ALLOWED  # getpid


def test_only_folders_of_the_guards_are_ever_removed(tmp_path: Path) -> None:
    own, other = tmp_path / f"{PREFIX}1", tmp_path / "thesis"
    for folder in (own / "work" / "work", other):
        folder.mkdir(parents=True)
    (own / "work" / "work").chmod(0)
    link = tmp_path / f"{PREFIX}2"
    link.symlink_to(other)
    for path in (own, other, link, tmp_path / f"{PREFIX}gone"):
        remove_folder(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [link.name, "thesis"]

"""A view of the file systems in which all that is written goes to folders of the guard's.

The files themselves lie below, and no write reaches them, whoever makes it and however it ends:
native code and other programs see the same view. It is made of a mount namespace, in which an
overlay stands in the place of every file system that can be written to.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sfbench.guard import linux
from sfbench.guard.folders import PREFIX
from sfbench.guard.mounts import Layer, Mount, is_below, layers, mount_of, parse
from sfbench.guard.places import place_on
from sfbench.guard.ticket import Wanted

_OPTIONS = "redirect_dir=on,metacopy=off"
"""Folders that were there before can be renamed, as on the file system itself."""
_SOCKETS = Path("/proc/net/unix")
_SERVICES = ("/tmp/nvidia-mps",)
"""Folders through which a script talks to other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where what is written to one mount goes."""

    layer: Layer
    folder: Path
    elsewhere: bool
    """On another file system than the one that is written to."""


def stores(wanted: Wanted, note: Callable[[Path], None]) -> tuple[Store, ...]:
    """Make the folders for one launch, each on the file system that it stands for if it can.

    ``note`` is told of each folder before it is made. Raises ``OSError`` if no place is found.
    """
    mounts = parse(Path("/proc/self/mountinfo").read_text())
    found: list[Store] = []
    made: dict[str, Path] = {}
    for layer in layers(mounts):
        if layer.way != "overlay":
            found.append(Store(layer=layer, folder=Path(), elsewhere=False))
            continue
        place, elsewhere = _place(layer.mount, mounts, wanted)
        if place not in made:
            made[place] = _make(Path(place), note)
        folder = made[place] / str(len(found))
        for name in ("upper", "work"):
            (folder / name).mkdir(parents=True)
        found.append(Store(layer=layer, folder=folder, elsewhere=elsewhere))
    return tuple(found)


def cache_stores(paths: Sequence[str], note: Callable[[Path], None]) -> dict[str, Path]:
    """Make a folder for each cache, on the file system where it lies; none if that cannot be."""
    mounts = parse(Path("/proc/self/mountinfo").read_text())
    made: dict[str, Path] = {}
    for path in paths:
        if any(is_below(mount.path, path) for mount in mounts):
            continue
        mount = mount_of(path, mounts)
        place = place_on(mount, mounts, (), upper=True)
        if place is not None:
            folder = _make(Path(place), note)
            for name in ("upper", "work"):
                (folder / name).mkdir()
            made[path] = folder
    return made


def build(found: Sequence[Store], wanted: Wanted, caches: Mapping[str, Path]) -> tuple[str, ...]:
    """Be in the view from now on; for a process of one thread that ends afterwards.

    ``caches``: folders that several views share, and where what is written to them goes.

    Returns the mounts that can only be read, since they cannot be guarded. Raises ``OSError`` if
    the kernel does not let this process make such a view.
    """
    linux.unshare(linux.NEW_MOUNTS)
    linux.mount(None, "/", None, linux.RECURSIVE | linux.PRIVATE)
    stage = found[0].folder / "root"
    stage.mkdir()
    locked = [path for store in found if (path := _lay(store, str(stage))) is not None]
    for path, folder in caches.items():
        with suppress(OSError):  # it is then this launch's own
            _share(path, f"{stage}{path}", folder)
    real = [*wanted.real, *_SERVICES, os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")]
    for each in [*filter(None, real), *_sockets()]:
        path = os.path.realpath(each)  # a link in the stage would lead out of it
        target = f"{stage}{path}"
        if Path(path).exists() and Path(target).exists():
            linux.mount(path, target, None, linux.BIND)
    made = {store.folder.parent for store in found if store.layer.way == "overlay"}
    _hide(made | set(caches.values()), str(stage))
    linux.pivot_root(str(stage))
    return tuple(locked)


def _share(path: str, target: str, folder: Path) -> None:
    if Path(path).is_dir():
        _overlay(path, target, folder)
    else:
        Path(target).mkdir(parents=True)
        linux.mount(str(folder / "upper"), target, None, linux.BIND)


def _lay(store: Store, stage: str) -> str | None:
    """Show one mount; its path if it had to be made read-only."""
    mount = store.layer.mount
    target = stage if mount.path == "/" else f"{stage}{mount.path}"
    if mount.path != "/" and not Path(target).exists():
        return None  # hidden by a mount above it
    if store.layer.way == "bind":
        if os.path.ismount(mount.path) or not Path(mount.path).is_dir():
            linux.mount(mount.path, target, None, linux.BIND)
        return None
    if not Path(mount.path).is_dir():
        linux.mount(mount.path, target, None, linux.BIND)
        return _read_only(mount.path, target)
    try:
        _overlay(mount.path, target, store.folder)
    except OSError:
        if mount.path == "/":
            raise
        linux.mount(mount.path, target, None, linux.BIND)
        return _read_only(mount.path, target)
    return None


def _overlay(lower: str, target: str, folder: Path) -> None:
    """Through descriptors: a path may hold what the options of a mount do not bear."""
    opened = [os.open(p, os.O_PATH) for p in (lower, folder / "upper", folder / "work")]
    below, upper, work = (f"/proc/self/fd/{descriptor}" for descriptor in opened)
    try:
        # The top folder is seen as it is.
        state = os.stat(lower)  # noqa: PTH116
        os.chown(folder / "upper", state.st_uid, state.st_gid)
        (folder / "upper").chmod(state.st_mode & 0o7777)
        folders = f"lowerdir={below},upperdir={upper},workdir={work}"
        try:
            linux.mount("sfbench", target, "overlay", 0, f"{folders},{_OPTIONS}")
        except OSError as error:
            if error.errno != errno.EINVAL:  # an old kernel that does not know them
                raise
            linux.mount("sfbench", target, "overlay", 0, folders)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _read_only(path: str, target: str) -> str:
    linux.mount(None, target, None, linux.BIND | linux.REMOUNT | linux.READ_ONLY)
    return path


def _hide(folders: set[Path], stage: str) -> None:
    """A script that walks through its folder does not meet what it writes a second time."""
    for folder in folders:
        target = f"{stage}{folder}"
        if Path(target).is_dir():
            linux.mount("sfbench", target, "tmpfs", linux.READ_ONLY, "size=4k,mode=755")


def _sockets() -> Iterator[str]:
    """Sockets of other processes: they cannot be reached through an overlay."""
    for line in _SOCKETS.read_text(errors="replace").splitlines()[1:]:
        path = line.split(maxsplit=7)[-1]
        if path.startswith("/") and Path(path).is_socket():
            yield path


def _place(mount: Mount, mounts: Sequence[Mount], wanted: Wanted) -> tuple[str, bool]:
    """A folder for what is written to a mount, and whether it is on another file system."""
    place = place_on(mount, mounts, wanted.near, upper=True)
    if place is not None:
        return place, False
    for other in mounts:
        place = place_on(other, mounts, wanted.near, upper=True)
        if place is not None:
            return place, True
    raise PermissionError("no file system here can hold what the script writes")


def _make(place: Path, note: Callable[[Path], None]) -> Path:
    folder = place / f"{PREFIX}{uuid.uuid4().hex[:12]}"
    note(folder)
    folder.mkdir(mode=0o700)
    return folder

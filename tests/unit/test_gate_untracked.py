"""What git does not track, on both sides of a comparison."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import a_repository, run, write

from sfbench.gating.checkouts.arms import checked_out
from sfbench.gating.checkouts.untracked import link_neighbours


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One commit of train.py, ignored data, and a change that is not committed."""
    return a_repository(tmp_path)


def test_new_code_is_the_candidates_whatever_its_size(repo: Path) -> None:
    (repo / "table.py").write_text(f"TABLE = '{'x' * 2**21}'\n")
    (repo / "fast.abi3.so").write_text("machine code")
    with checked_out(repo, "main") as arms:
        for name in ("table.py", "fast.abi3.so"):
            assert not (arms.base.folder / name).exists()
            assert not (arms.candidate.folder / name).is_symlink()
            assert (arms.candidate.folder / name).is_file()


def test_what_else_is_new_is_reachable_from_both(repo: Path, tmp_path: Path) -> None:
    # GIVEN small files, a large one, a link to data elsewhere, and a nested repository
    write(repo, {"jpgs/cat/1.jpg": "1", "pkg/nested/2.jpg": "2", "names.csv": "3"})
    (repo / "rows.bin").write_bytes(bytes(2**20 + 1))
    write(tmp_path / "imagenet", {"4.jpg": "4"})
    shutil.rmtree(repo / "data")
    (repo / "data").symlink_to(tmp_path / "imagenet")
    run(tmp_path, "init", "-q", str(repo / "lib"))
    write(repo, {"lib/lib.py": "LIB = 1\n"})
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        for arm in (arms.base, arms.candidate):
            assert (arm.folder / "jpgs" / "cat" / "1.jpg").read_text() == "1"
            assert (arm.folder / "pkg" / "nested" / "2.jpg").read_text() == "2"
            assert (arm.folder / "names.csv").read_text() == "3"
            assert (arm.folder / "rows.bin").stat().st_size == 2**20 + 1
            assert (arm.folder / "data" / "4.jpg").read_text() == "4"
            assert (arm.folder / "lib" / "lib.py").is_file()
    assert (repo / "jpgs" / "cat" / "1.jpg").read_text() == "1"


def test_a_folder_of_new_code_and_data_is_parted(repo: Path) -> None:
    write(repo, {
        "new/code.py": "NEW = 1\n", "new/deep/more.py": "NEW = 2\n", "new/deep/rows.bin": "rows",
        "new/jpgs/1.jpg": "1", "alone/code.py": "NEW = 3\n",
    })  # fmt: skip
    with checked_out(repo, "main") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        assert (candidate / "new" / "code.py").is_file()
        assert not (base / "new" / "code.py").exists()
        for folder in (base, candidate):
            assert (folder / "new" / "jpgs").is_symlink()
            assert (folder / "new" / "deep" / "rows.bin").read_text() == "rows"
        # Python could import an empty folder
        assert not (base / "alone").exists()


def test_byte_code_is_never_linked(repo: Path) -> None:
    (repo / ".gitignore").write_text("data/\n__pycache__/\nold.pyc\n")
    write(repo, {
        "pkg/__pycache__/loader.pyc": "", "old.pyc": "", "new.pyc": "", "mix/1.jpg": "1",
        "mix/__pycache__/x.pyc": "", "mix/deep/new.pyc": "", "left/__pycache__/x.pyc": "",
    })  # fmt: skip
    with checked_out(repo, "main") as arms:
        for arm in (arms.base, arms.candidate):
            found = [*arm.folder.rglob("*.pyc"), *arm.folder.rglob("__pycache__")]
            assert (found, (arm.folder / "mix" / "1.jpg").read_text()) == ([], "1")
            assert not (arm.folder / "left").exists()


def test_what_the_checkout_has_is_not_covered(repo: Path) -> None:
    # GIVEN folders that the base tracks, one of them in place of a link, and the candidate does not
    write(repo, {"conf/a.yaml": "base", "conf/deep/b.yaml": "base", "lib/x.cfg": "base"})
    (repo / "link").symlink_to("pkg")
    run(repo, "add", ".")
    run(repo, "commit", "-qm", "second")
    run(repo, "rm", "-rq", "--cached", "conf", "lib", "link")
    run(repo, "commit", "-qm", "third")
    (repo / "link").unlink()
    write(repo, {"conf/a.yaml": "mine", "conf/deep/c.yaml": "mine", "link/y.cfg": "mine"})
    run(repo, "init", "-q", "lib")
    with checked_out(repo, "HEAD~1") as arms:
        base, candidate = arms.base.folder, arms.candidate.folder
        assert (base / "conf" / "a.yaml").read_text() == "base"
        assert (base / "conf" / "deep" / "b.yaml").read_text() == "base"
        assert (base / "conf" / "deep" / "c.yaml").read_text() == "mine"
        assert (base / "lib" / "x.cfg").read_text() == "base"
        assert not (base / "lib" / ".git").exists()
        assert (base / "link").readlink() == Path("pkg")
        assert (candidate / "conf" / "a.yaml").read_text() == "mine"
        assert (candidate / "link" / "y.cfg").read_text() == "mine"
    assert not (repo / "pkg" / "y.cfg").exists()


def test_thousands_of_new_files_are_one_link(repo: Path) -> None:
    (repo / "jpgs").mkdir()
    for number in range(2_000):
        (repo / "jpgs" / f"{number}.jpg").touch()
    (repo / "train.py").write_text("print(2)\n")
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / "jpgs").is_symlink()
        assert (arms.base.folder / "jpgs" / "1999.jpg").is_file()


def test_a_folder_above_that_cannot_be_listed_is_passed_over(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as for anyone but root, for whom no folder is unreadable
    whole = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder == repo.parent:
            raise PermissionError(13, "Permission denied", str(folder))
        return whole(folder)

    (repo / "train.py").write_text("print(2)\n")
    monkeypatch.setattr(Path, "iterdir", refused)
    with checked_out(repo, "main") as arms:
        assert (arms.base.folder / "train.py").is_file()
        assert list(whole(arms.base.folder.parent)) == [arms.base.folder]


def test_nothing_is_beside_a_repository_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "a" / "root").mkdir(parents=True)
    link_neighbours(Path("/"), tmp_path / "a" / "root")
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "root"]

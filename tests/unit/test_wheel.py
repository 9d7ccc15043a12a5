"""A built wheel, installed alone and used from any folder, knows the reference workloads."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESOLVE = """
import sfbench
from sfbench.plan.targets import resolve_target
print(sfbench.__file__)
for name in {names!r}:
    target = resolve_target(name, ())
    assert target.is_workload and target.name == name, target
    print(target.script)
"""


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def workload_names() -> list[str]:
    return sorted(p.stem for p in (ROOT / "workloads").glob("*.py") if not p.stem.startswith("_"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    run(sys.executable, *build, cwd=folder)
    (built,) = folder.glob("sfbench-*.whl")
    return built


def test_wheel_holds_the_workloads_types_and_licence_and_no_leftovers(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    for workload in workload_names():
        assert f"sfbench/_workloads/{workload}.py" in names
    assert "sfbench/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert [n for n in names if n.endswith(".pyc") or n.startswith(("tests/", "workloads/"))] == []


def test_installed_wheel_finds_workloads_by_name(wheel: Path, tmp_path: Path) -> None:
    # GIVEN an installation of nothing but the wheel, before the checkout on the path
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    run(sys.executable, *install, cwd=elsewhere)

    # WHEN every workload of the checkout is asked for by name, from another folder
    code = RESOLVE.format(names=workload_names())
    package, *scripts = run(sys.executable, "-c", code, cwd=elsewhere, path=site).splitlines()

    # THEN each is the copy that the wheel brought
    assert Path(package) == site / "sfbench" / "__init__.py"
    assert scripts == [str(site / "sfbench" / "_workloads" / f"{n}.py") for n in workload_names()]

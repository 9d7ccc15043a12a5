"""The language and recommender workloads under plain torchrun, two ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from plain import run_plain

from workloads import language, recommender

HERE = Path(__file__).parent
WORKLOADS = HERE.parents[1] / "workloads"
SMALL = {
    "language": ("--layers", "1", "--width", "16", "--block", "16", "--batch-size", "2"),
    "recommender": ("--rows", "50", "--dim", "4", "--batch-size", "16", "--workers", "1"),
}


def torchrun(tmp_path: Path, *args: str) -> list[str]:
    """The lines of all ranks' output. An exit code but 0, or a hang, fails the test."""
    names = ("PATH", "HOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    done = run_plain(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            *args,
        ],
        {**kept, "TMPDIR": str(tmp_path), "SFBENCH_CACHE": str(tmp_path / "cache")},
        200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["language", "recommender"])
def test_two_ranks_of_half_a_batch_give_the_gradient_of_the_whole(
    tmp_path: Path, name: str
) -> None:
    together, part = map(float, torchrun(tmp_path, str(HERE / "gradient_script.py"), name))

    # float32 rounding over sums in another order; the gradient of a part is far from it.
    assert together < 1e-5
    assert part > 0.05


@pytest.mark.parametrize("name", ["language", "recommender"])
def test_it_trains_and_rank_0_saves_the_bare_network(tmp_path: Path, name: str) -> None:
    saved = tmp_path / "weights.pt"
    steps = ("--steps", "20", "--accumulate", "2", "--save", str(saved))

    lines = torchrun(tmp_path, str(WORKLOADS / f"{name}.py"), *SMALL[name], *steps)

    assert [line.split(":")[0] for line in lines[:1]] == [name]
    assert "2 x cpu (gloo)" in lines[0]
    assert [line.split()[:2] for line in lines[1:]] == [["step", "20"]]
    network: torch.nn.Module
    if name == "language":
        network = language.GPT(language.parse_options(SMALL[name], "cpu"))
    else:
        network = recommender.DLRM(recommender.parse_options(SMALL[name], "cpu"))
    network.load_state_dict(torch.load(saved))
    # The data was made once, whole.
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_text_and_clicks_come_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    clicks = "\t".join(["1", *["3"] * 13, *["0a"] * 26]) + "\n"
    (folder / "part.txt").write_text(clicks * 100)

    for name, samples in (("language", "166 samples"), ("recommender", "100 clicks")):
        args = (*SMALL[name], "--data-dir", str(folder), "--steps", "2")
        first = torchrun(tmp_path, str(WORKLOADS / f"{name}.py"), *args)[0]

        # 100 lines of 106 bytes: (10,600 - 16 - 1) // 64 + 1 samples of text.
        assert samples in first

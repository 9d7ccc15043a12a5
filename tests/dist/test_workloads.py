"""The vision and emulated workloads with real ranks, under plain torchrun and alone.

Run by torchrun itself, this file compares the gradients of two ranks with those of one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from plain import run_plain
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads import emulated, vision

WORKLOADS = Path(vision.__file__).parent
SMALL = ("--model", "resnet10", "--image-px", "32", "--batch-size", "8", "--workers", "1")
TIMEOUT_S = 200


def environment(tmp_path: Path) -> dict[str, str]:
    """Of a shell that is no rank, with its own cache."""
    names = ("PATH", "HOME", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "SFBENCH_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}


def run(tmp_path: Path, *command: str) -> list[str]:
    """The lines that Python prints with this command. An exit code but 0, or a hang, fails."""
    done = run_plain([sys.executable, *command], environment(tmp_path), TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def torchrun(tmp_path: Path, *command: str) -> list[str]:
    return run(
        tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *command
    )


def logged(lines: list[str]) -> list[tuple[int, float]]:
    """Step and loss of each line that has them."""
    found = (re.match(r"step (\d+)  loss (\S+)  ", line) for line in lines)
    return [(int(match[1]), float(match[2])) for match in found if match]


# ---- vision --------------------------------------------------------------------------------------


def test_vision_learns_on_two_ranks_and_saves_the_bare_network(tmp_path: Path) -> None:
    saved = tmp_path / "weights.pt"
    train = ("--steps", "60", "--accumulate", "2", "--save", str(saved))

    lines = torchrun(tmp_path, str(WORKLOADS / "vision.py"), *SMALL, *train)

    assert lines[0].startswith("vision: resnet10 width 16,")
    assert "512 images in 8 classes, 2 x cpu (gloo), batch 8 x 2, light" in lines[0]
    log = logged(lines)
    assert [step for step, _ in log] == [20, 40, 60]
    # Chance is ln 8 = 2.08.
    assert log[-1][1] < 1.5
    # Keys without "module.": they fit the network itself.
    vision.ResNet("resnet10", classes=8, width=16).load_state_dict(torch.load(saved))
    cache = {path.name for path in (tmp_path / "cache").iterdir()}
    assert cache == {"textures-80x60-v1", "textures-80x60-v1.lock"}


def test_vision_runs_alone_on_images_of_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for label, name in enumerate(("left", "right")):
        (folder / name).mkdir(parents=True)
        for i in range(8):
            pixels = vision.texture(vision.np.random.default_rng(i), label, (50, 40))
            vision.Image.fromarray(pixels).save(folder / name / f"{i}.png")
    options = ("--data-dir", str(folder), "--augment", "heavy", "--epochs", "10", "--workers", "0")

    lines = run(tmp_path, str(WORKLOADS / "vision.py"), *SMALL, *options)

    assert "16 images in 2 classes, 1 x cpu (gloo), batch 8 x 1, heavy" in lines[0]
    # 10 epochs of 16 images in batches of 8 are 20 steps.
    assert [step for step, _ in logged(lines)] == [20]
    assert not (tmp_path / "cache").exists()


def test_augmentation_differs_by_epoch_and_rank_and_follows_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision, "GENERATED_PER_CLASS", 2)
    folder = vision.generated_images(tmp_path, (40, 30))
    options = vision.parse_options(["--batch-size", "8", "--workers", "2"], "cpu")
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)

    def epochs(rank: int) -> list[torch.Tensor]:
        """Two epochs, images in the order of the files."""
        dataset = vision.ImageFolder(folder, vision.augmentation("light", 16))
        loader, sampler = vision.loader_for(dataset, options, rank=rank, pin_memory=False)
        seen = []
        for _ in range(2):
            sampler.set_epoch(0)
            seen.append(torch.cat([images for images, _ in loader]))
        return seen

    try:
        first, again, other = epochs(0), epochs(0), epochs(1)
    finally:
        dist.destroy_process_group()

    assert [tuple(images.shape) for images in first] == [(16, 3, 16, 16)] * 2
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for images in (first[1], other[0]):
        assert not any(torch.equal(a, b) for a, b in zip(first[0], images, strict=True))


def test_two_ranks_of_half_a_batch_give_the_gradient_of_the_whole(tmp_path: Path) -> None:
    together, part = map(float, torchrun(tmp_path, __file__))

    # float32 rounding over sums in another order; the gradient of a part is far from it.
    assert together < 1e-5
    assert part > 0.05


# ---- emulated ------------------------------------------------------------------------------------


def test_emulated_runs_on_two_ranks_with_all_faults_at_once(tmp_path: Path) -> None:
    faults = (
        *("--load-ms", "0.2", "--load-cpu-ms", "0.2", "--load-rank", "1"),
        *("--epoch-stall-ms", "5", "--dataset-size", "256", "--uneven", "0.5"),
        *("--slow-rank", "1", "--slow-ms", "2", "--slow-where", "backward"),
        *("--random-slow-ms", "2", "--cpu-ms", "0.5", "--accumulate", "2"),
        *("--link-mbps", "1000", "--link-latency-ms", "0.5"),
        *("--busy-host", "1", "--busy-rank", "1"),
        *("--layers", "8", "--params", "40000", "--bucket-mb", "0.04", "--compute-ms", "20"),
    )

    lines = torchrun(tmp_path, str(WORKLOADS / "emulated.py"), "--steps", "60", *faults)

    assert lines[0] == (
        "emulated accelerator: 2 devices, batch 8 x 2, 40,000 parameters in 8 layers"
    )
    assert [step for step, _ in logged(lines)] == [20, 40, 60]
    assert re.fullmatch(r"all  \d+\.\d\d samples/s", lines[-1])


def test_emulated_runs_alone(tmp_path: Path) -> None:
    fast = ("--sample-ms", "0.1", "--steps", "40", "--workers", "0")

    lines = run(tmp_path, str(WORKLOADS / "emulated.py"), *fast)

    assert lines[0].startswith("emulated accelerator: 1 devices, ")
    assert [step for step, _ in logged(lines)] == [20, 40]


def test_busy_processes_end_with_a_killed_rank(tmp_path: Path) -> None:
    command = [sys.executable, str(WORKLOADS / "emulated.py"), "--busy-host", "2"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as rank:
        # GIVEN a rank that has made steps, so all its processes run
        assert rank.stdout is not None
        assert any(line.startswith("step 20") for line in iter(rank.stdout.readline, ""))
        children = psutil.Process(rank.pid).children()
        busy = [p for p in children if emulated.BUSY_LOOP in p.cmdline()]
        assert len(busy) == 2

        # WHEN it is killed
        rank.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=30)

    # THEN nothing of it is left
    assert alive == []


# ---- run by torchrun -----------------------------------------------------------------------------


def compare_gradients() -> None:
    """Print how far two ranks' gradient is from that of the whole batch, then that of a part.

    Each rank takes its half in two accumulated micro-steps. Relative to the largest gradient; batch
    norm by its running statistics, since those of a batch are no mean over its parts.
    """
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = vision.ResNet("resnet18", classes=4, width=8).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)  # else nothing reaches the residual branches
    model = DistributedDataParallel(network)
    images, labels = torch.rand(8, 3, 64, 64), torch.arange(8) % 4
    parts = [[images[i::4], labels[i::4]] for i in range(4)]
    mine = parts[2 * dist.get_rank() : 2 * dist.get_rank() + 2]
    vision.forward_backward(model, mine[0], update=False, accumulate=2)
    vision.forward_backward(model, mine[1], update=True, accumulate=2)
    together = taken_gradient(network)
    if dist.get_rank() == 0:
        nn.functional.cross_entropy(network(images), labels).backward()
        whole = taken_gradient(network)
        nn.functional.cross_entropy(network(parts[0][0]), parts[0][1]).backward()
        for gradient in (together, taken_gradient(network)):
            print(((gradient - whole).abs().max() / whole.abs().max()).item())
    dist.destroy_process_group()


def taken_gradient(network: nn.Module) -> torch.Tensor:
    """All gradients in one vector, and cleared."""
    flat = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    return flat.clone()


if __name__ == "__main__":
    compare_gradients()

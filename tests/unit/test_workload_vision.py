"""The vision workload: network, augmentation, generated images, choices."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from workloads import vision


def image(width: int = 80, height: int = 60) -> Image.Image:
    pixels = vision.texture(np.random.default_rng(0), 1, (width, height))
    return Image.fromarray(pixels)


# ---- network -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "parameters"), [("resnet18", 11_689_512), ("resnet34", 21_797_672)]
)
def test_parameters_as_published(model: str, parameters: int) -> None:
    network = vision.ResNet(model, classes=1000, width=64)

    assert sum(p.numel() for p in network.parameters()) == parameters


def test_resnet50_has_its_parameters_and_shapes() -> None:
    network = vision.ResNet("resnet50", classes=1000, width=64)
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}

    assert sum(p.numel() for p in network.parameters()) == 25_557_032
    assert shapes["layer1.0.conv3.weight"] == (256, 64, 1, 1)
    assert shapes["layer4.2.conv2.weight"] == (512, 512, 3, 3)
    assert shapes["fc.weight"] == (1000, 2048)
    assert network.layer2[0].conv2.stride == (2, 2), "the stride is in the 3x3 convolution"


def test_state_of_resnet18_is_named_as_everywhere() -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", *(f"bn1.{n}" for n in norm), "fc.weight", "fc.bias"}
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            expected |= {f"{at}.conv{i}.weight" for i in (1, 2)}
            expected |= {f"{at}.bn{i}.{n}" for i in (1, 2) for n in norm}
        if stage > 1:
            expected.add(f"layer{stage}.0.downsample.0.weight")
            expected |= {f"layer{stage}.0.downsample.1.{n}" for n in norm}

    assert set(vision.ResNet("resnet18", classes=10).state_dict()) == expected


@pytest.mark.parametrize("model", sorted(vision.MODELS))
def test_images_become_one_logit_per_class(model: str) -> None:
    network = vision.ResNet(model, classes=5, width=8)

    assert network(torch.zeros(2, 3, 64, 48)).shape == (2, 5)


@pytest.mark.parametrize("block", [vision.BasicBlock, vision.Bottleneck])
def test_a_new_block_passes_its_input_on(block: vision.Block) -> None:
    x = torch.rand(2, 4 * block.expansion, 6, 6)

    # GIVEN a residual branch whose last scale is zero, and no projection
    out = block(4 * block.expansion, 4, 1)(x)

    assert torch.equal(out, x)


# ---- augmentation --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["light", "heavy"])
@given(
    width=st.integers(8, 90), height=st.integers(8, 90), px=st.sampled_from([16, 33]),
    seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_image_becomes_a_square_of_finite_numbers(
    name: str, width: int, height: int, px: int, seed: int
) -> None:
    rng = random.Random(seed)
    picture = image(width, height)

    for op in vision.augmentation(name, px):
        picture = op(picture, rng)
    tensor = vision.normalise(picture)

    assert (picture.mode, picture.size) == ("RGB", (px, px))
    assert (tensor.shape, tensor.dtype) == ((3, px, px), torch.float32)
    # Black and white of the channels' own scales: -0.485 / 0.229 and (1 - 0.406) / 0.225.
    assert tensor.min() >= -2.1180
    assert tensor.max() <= 2.6401


def test_white_is_normalised_channel_by_channel() -> None:
    tensor = vision.normalise(Image.new("RGB", (2, 1), "white"))

    expected = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert tensor[:, 0, 1].tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("op", [*vision.augmentation("heavy", 32), *vision.RAND_OPS])
def test_each_operation_follows_its_seed_alone(op: vision.Op) -> None:
    first = op(image(), random.Random(3)).tobytes()

    random.seed(99)
    np.random.seed(99)

    assert op(image(), random.Random(3)).tobytes() == first


@pytest.mark.parametrize(
    "op", [vision.colour_jitter, vision.rotate, vision.blur, vision.ResizedCrop(32)]
)
def test_another_seed_gives_another_image(op: vision.Op) -> None:
    assert op(image(), random.Random(1)).tobytes() != op(image(), random.Random(2)).tobytes()


def calls_into_c(work: Callable[[], object]) -> int:
    """How many C functions of Pillow's images are called: a cost that no machine changes."""
    count = 0

    def note(frame: Any, event: str, function: Any) -> None:
        nonlocal count
        owner = type(getattr(function, "__self__", None)).__name__
        count += event == "c_call" and owner == "ImagingCore"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_heavy_does_several_times_the_work_on_a_larger_image() -> None:
    def run(name: str) -> None:
        picture, rng = image(), random.Random(0)
        for op in vision.augmentation(name, 16):
            picture = op(picture, rng)

    assert calls_into_c(lambda: run("heavy")) > 5 * calls_into_c(lambda: run("light"))
    # WHEN is it cropped? After all that is heavy.
    heavy = vision.augmentation("heavy", 16)
    assert heavy[-2:] == vision.augmentation("light", 16)


# ---- data ----------------------------------------------------------------------------------------


def test_labels_count_class_folders_by_name_and_other_files_are_left_out(tmp_path: Path) -> None:
    for name in ("owl", "ant"):
        (tmp_path / name).mkdir()
        Image.new("L", (9, 7), 255).save(tmp_path / name / "b.png")
        Image.new("RGB", (9, 7)).save(tmp_path / name / "a.JPG", "jpeg")
        (tmp_path / name / "notes.txt").write_text("no image")
    (tmp_path / "readme.md").write_text("no class")

    dataset = vision.ImageFolder(tmp_path, vision.augmentation("light", 4), repeat=3)

    assert dataset.classes == ["ant", "owl"]
    assert [(Path(path).name, label) for path, label in dataset.files] == [
        ("a.JPG", 0), ("b.png", 0), ("a.JPG", 1), ("b.png", 1)
    ]  # fmt: skip
    assert len(dataset) == 12
    grey, label = dataset[7]  # the fourth file on its second pass
    assert (grey.shape, label) == ((3, 4, 4), 1)
    assert grey[0].tolist() == [[pytest.approx(2.2489, abs=1e-3)] * 4] * 4


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(ValueError, match=f"--data-dir {tmp_path}"):
        vision.ImageFolder(tmp_path, ())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "GENERATED_PER_CLASS", 2)
    monkeypatch.setattr(vision, "GENERATED_CLASSES", 3)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.jpg"))}


@pytest.mark.usefixtures("few")
def test_generated_images_are_the_same_everywhere_and_differ_from_each_other(
    tmp_path: Path,
) -> None:
    first = vision.generated_images(tmp_path / "a", (40, 30))
    second = vision.generated_images(tmp_path / "b", (40, 30))

    assert content(first) == content(second)
    assert list(content(first)) == [f"class{c}/000{i}.jpg" for c in range(3) for i in range(2)]
    assert len(set(content(first).values())) == 6
    with Image.open(first / "class2" / "0001.jpg") as file:
        assert (file.format, file.mode, file.size) == ("JPEG", "RGB", (40, 30))


@pytest.mark.usefixtures("few")
def test_a_killed_run_leaves_no_half_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = vision.write_images

    # GIVEN a run that is killed after its first files
    def killed(folder: Path, size: tuple[int, int]) -> None:
        (folder / "class0").mkdir(parents=True)
        (folder / "class0" / "0000.jpg").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(vision, "write_images", killed)
    with pytest.raises(KeyboardInterrupt):
        vision.generated_images(tmp_path, (40, 30))
    assert not (tmp_path / "textures-40x30-v1").exists()

    # WHEN the next one starts
    monkeypatch.setattr(vision, "write_images", write)
    folder = vision.generated_images(tmp_path, (40, 30))

    # THEN it makes all anew
    assert len(content(folder)) == 6
    assert b"half" not in content(folder).values()
    assert sorted(p.name for p in tmp_path.iterdir()) == [folder.name, f"{folder.name}.lock"]


@pytest.mark.usefixtures("few")
def test_images_are_made_once(tmp_path: Path) -> None:
    folder = vision.generated_images(tmp_path, (40, 30))
    (folder / "class0" / "0000.jpg").write_bytes(b"seen")

    assert vision.generated_images(tmp_path, (40, 30)) == folder
    assert content(folder)["class0/0000.jpg"] == b"seen"


def test_an_image_costs_as_many_bits_per_pixel_as_a_photograph(tmp_path: Path) -> None:
    path = tmp_path / "one.jpg"

    image(160, 120).save(path, quality=85)

    # Photographs reduced to this size and saved at quality 85: 2 to 4 bits.
    assert 2 < 8 * path.stat().st_size / (160 * 120) < 4


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SFBENCH_CACHE": "/own", "XDG_CACHE_HOME": "/x"}, "/own"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/sfbench"),
        ({}, "/users/me/.cache/sfbench"),
    ],
)
def test_where_generated_data_is_kept(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("SFBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/users/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert vision.cache_dir() == Path(expected)


# ---- choices -------------------------------------------------------------------------------------


def test_device_and_backend_follow_from_what_there_is() -> None:
    assert vision.device_for(3, cuda=True) == (torch.device("cuda", 3), "nccl")
    assert vision.device_for(3, cuda=False) == (torch.device("cpu"), "gloo")


def test_sizes_suit_the_device_unless_given() -> None:
    cpu = vision.parse_options(["--width", "24"], "cpu")
    cuda = vision.parse_options([], "cuda")

    assert (cpu.model, cpu.width, cpu.image_px, cpu.workers) == ("resnet10", 24, 48, 2)
    assert (cuda.model, cuda.width, cuda.image_px, cuda.workers) == ("resnet50", 64, 224, 8)


@pytest.mark.parametrize(("global_batch", "lr"), [(256, 0.1), (512, 0.2), (64, 0.025)])
def test_learning_rate_is_linear_in_the_global_batch(global_batch: int, lr: float) -> None:
    assert vision.scaled_lr(0.1, global_batch) == pytest.approx(lr)


def test_every_option_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    section = page.split("## `vision`")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line[:3] == "| `"]

    described = re.findall(r"`(--[a-z-]+)", " ".join(first_cells))

    options = [f"--{f.name.replace('_', '-')}" for f in fields(vision.Options)]
    assert sorted(described) == sorted(options)

"""Image classification: a ResNet on JPEG files, trained with DistributedDataParallel.

Runs under ``torchrun --nproc-per-node N workloads/vision.py``, alone as ``python vision.py``, and
under ``sfbench sweep vision``. Images come from ``--data-dir`` (one folder per class); without it a
small textured set is made once per node.

Sources: He et al. 2015, arXiv:1512.03385 (the network; layers are named as in torchvision, so that
state dicts match); Goyal et al. 2017, arXiv:1706.02677 (linear learning-rate scaling, warmup,
residual branches that start at zero); Szegedy et al. 2015, arXiv:1409.4842 (random resized crop);
Chen et al. 2020, arXiv:2002.05709 (colour jitter, blur); Cubuk et al. 2020, arXiv:1909.13719
(random operations).
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler

from sfbench.data import once_per_node

LOG_EVERY_STEPS = 20
LR_BATCH = 256
"""Samples per update that ``--lr`` is meant for; the rate grows linearly with the global batch."""
LR_WARMUP_STEPS = 100
GENERATED_CLASSES = 8
GENERATED_PER_CLASS = 64
GENERATED_REPEAT = 32
"""Passes over the generated files in one epoch: epoch starts stay as rare as with a real set."""
SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
STD = np.array([0.229, 0.224, 0.225], np.float32) * 255


# ---- options -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. Batch sizes are per device."""

    data_dir: Path | None
    model: str
    width: int
    image_px: int
    augment: str
    batch_size: int
    workers: int
    epochs: int
    steps: int
    accumulate: int
    lr: float
    seed: int
    save: Path | None


def defaults(device_type: str) -> dict[str, Any]:
    """Sizes that suit a CPU core (a step of some ten milliseconds) or a GPU."""
    if device_type == "cuda":
        return {"model": "resnet50", "width": 64, "image_px": 224, "batch_size": 128, "workers": 8}
    return {"model": "resnet10", "width": 16, "image_px": 48, "batch_size": 16, "workers": 2}


def parse_options(argv: Sequence[str] | None, device_type: str) -> Options:
    """Read the command line; what it leaves open depends on the device."""
    parser = argparse.ArgumentParser(description="ResNet on JPEG files with DDP")
    parser.add_argument("--data-dir", type=Path, help="folder with one sub-folder per class")
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--width", type=int, help="channels of the first stage")
    parser.add_argument("--image-px", type=int, help="side of the cropped image")
    parser.add_argument("--augment", choices=("light", "heavy"), default="light")
    parser.add_argument("--batch-size", type=int, help="samples per device and micro-step")
    parser.add_argument("--workers", type=int, help="loader processes per device")
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=0, help="end after this many; 0 = never")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-steps per update")
    parser.add_argument("--lr", type=float, default=0.1, help=f"for {LR_BATCH} samples per update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="where to write the trained weights")
    parser.set_defaults(**defaults(device_type))
    return Options(**vars(parser.parse_args(argv)))


# ---- network -------------------------------------------------------------------------------------


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps height and width but for the stride; batch norm is its bias."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    """The projection that a block needs where its input and output differ in shape, else None."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions: (B, inputs, H, W) -> (B, width, H / stride, W / stride)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, width, stride)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, width, H / stride, W / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(x)) + identity)
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, the stride in the 3x3 one.

    (B, inputs, H, W) -> (B, 4 width, H / stride, W / stride).
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, 4 width, H / stride, W / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.relu(self.bn3(self.conv3(x)) + identity)
        return out


Block = type[BasicBlock] | type[Bottleneck]
MODELS: dict[str, tuple[Block, tuple[int, int, int, int]]] = {
    "resnet10": (BasicBlock, (1, 1, 1, 1)),
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
}
"""Block and blocks per stage, by name (He et al., table 1; resnet10 is smaller)."""


class ResNet(nn.Module):
    """(B, 3, H, W) images -> (B, classes) logits. ``width`` is the channels of the first stage."""

    def __init__(self, model: str, classes: int, width: int = 64) -> None:
        super().__init__()
        block, depths = MODELS[model]
        self.inputs = width
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = self._stage(block, width, depths[0], stride=1)
        self.layer2 = self._stage(block, 2 * width, depths[1], stride=2)
        self.layer3 = self._stage(block, 4 * width, depths[2], stride=2)
        self.layer4 = self._stage(block, 8 * width, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _stage(self, block: Block, width: int, depth: int, stride: int) -> nn.Sequential:
        blocks = []
        for i in range(depth):
            blocks.append(block(self.inputs, width, stride if i == 0 else 1))
            self.inputs = width * block.expansion
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes); the stages see H / 4, H / 8, H / 16 and H / 32."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


# ---- augmentation: Pillow image in, Pillow image out ---------------------------------------------

Op = Callable[[Image.Image, random.Random], Image.Image]


@dataclass(frozen=True, slots=True)
class ResizedCrop:
    """A random 8 to 100 % of the area at a ratio of 3:4 to 4:3, resized to (px, px)."""

    px: int

    def __call__(self, image: Image.Image, rng: random.Random) -> Image.Image:
        """The crop. Rectangles that would not fit are cut to the image's sides."""
        area = image.width * image.height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        width = min(image.width, math.sqrt(area * ratio))
        height = min(image.height, math.sqrt(area / ratio))
        left = rng.uniform(0, image.width - width)
        top = rng.uniform(0, image.height - height)
        box = (left, top, left + width, top + height)
        return image.resize((self.px, self.px), Image.Resampling.BILINEAR, box)


def flip(image: Image.Image, rng: random.Random) -> Image.Image:
    """Left to right, half of the time."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


def colour_jitter(image: Image.Image, rng: random.Random) -> Image.Image:
    """Brightness, contrast, saturation by up to 40 %, hue by up to 10 % of the circle."""
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(rng.uniform(0.6, 1.4))
    shift = rng.randrange(-25, 26)
    hue, saturation, value = image.convert("HSV").split()
    hue = hue.point([(i + shift) % 256 for i in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def rotate(image: Image.Image, rng: random.Random) -> Image.Image:
    """By up to 15 degrees."""
    return image.rotate(rng.uniform(-15, 15), Image.Resampling.BICUBIC)


def blur(image: Image.Image, rng: random.Random) -> Image.Image:
    """Gaussian, radius 0.1 to 2 pixels."""
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0.1, 2.0)))


def shear(image: Image.Image, rng: random.Random) -> Image.Image:
    """Sideways by up to 0.3 pixels per pixel."""
    matrix = (1, rng.uniform(-0.3, 0.3), 0, 0, 1, 0)
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BICUBIC
    )


def rand_augment(image: Image.Image, rng: random.Random) -> Image.Image:
    """Two operations picked at random."""
    for op in rng.choices(RAND_OPS, k=2):
        image = op(image, rng)
    return image


RAND_OPS: tuple[Op, ...] = (
    shear,
    lambda image, rng: ImageOps.autocontrast(image),
    lambda image, rng: ImageOps.equalize(image),
    lambda image, rng: ImageOps.posterize(image, rng.randint(4, 7)),
    lambda image, rng: ImageOps.solarize(image, rng.randint(128, 255)),
    lambda image, rng: ImageEnhance.Sharpness(image).enhance(rng.uniform(0.1, 1.9)),
)


def augmentation(name: str, px: int) -> tuple[Op, ...]:
    """The operations in order. ``heavy`` works on the whole image, before ``light`` crops it."""
    light: tuple[Op, ...] = (ResizedCrop(px), flip)
    return (rand_augment, colour_jitter, rotate, blur, *light) if name == "heavy" else light


def normalise(image: Image.Image) -> Tensor:
    """RGB image -> (3, H, W) float32, about zero mean and unit variance over natural images."""
    pixels = (np.asarray(image, np.float32) - MEAN) / STD
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


# ---- data ----------------------------------------------------------------------------------------


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Images in class folders, decoded and augmented on access.

    Item: ((3, px, px) float32, label). Labels count the class folders in alphabetical order.

    Raises:
        ValueError: no image below ``root``.
    """

    def __init__(self, root: Path, ops: tuple[Op, ...], *, repeat: int = 1, seed: int = 0) -> None:
        self.classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
        self.files = [
            (str(path), label)
            for label, name in enumerate(self.classes)
            for path in sorted((root / name).iterdir())
            if path.suffix.lower() in SUFFIXES
        ]
        if not self.files:
            raise ValueError(f"--data-dir {root}: no image in any class folder")
        self.ops = ops
        self.repeat = repeat
        self.rng = random.Random(seed)

    def __len__(self) -> int:
        return len(self.files) * self.repeat

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index % len(self.files)]
        with Image.open(path) as file:
            image = file.convert("RGB")
        for op in self.ops:
            image = op(image, self.rng)
        return normalise(image), label


def seed_worker(_: int) -> None:
    """Give each loader worker its own random stream; it runs on from epoch to epoch."""
    info = get_worker_info()
    assert info is not None
    assert isinstance(info.dataset, ImageFolder)
    info.dataset.rng.seed(info.seed)


def loader_for(
    dataset: ImageFolder, options: Options, *, rank: int, pin_memory: bool
) -> tuple[DataLoader[tuple[Tensor, int]], DistributedSampler[Any]]:
    """The rank's share of the data in batches, and the sampler that wants each epoch's number.

    drop_last on both: every rank gets the same number of samples, in whole batches.
    """
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset, shuffle=True, seed=options.seed, drop_last=True
    )
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=pin_memory,
        drop_last=True,
        worker_init_fn=seed_worker,
        # The workers' seeds come from here: another one on each rank, the same in each run.
        generator=torch.Generator().manual_seed(options.seed + rank),
    )
    return loader, sampler


def cache_dir() -> Path:
    """Where generated data is kept: $SFBENCH_CACHE, else the user's cache folder."""
    if own := os.environ.get("SFBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sfbench"


def pink_noise(rng: np.random.Generator, size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """(height, width) noise of unit variance with the 1/f amplitudes of photographs."""
    width, height = size
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.maximum(np.hypot(fy, fx), 1 / max(size))
    white = np.fft.rfft2(rng.normal(size=(height, width)))
    pink: npt.NDArray[np.float64] = np.fft.irfft2(white / frequency, (height, width))
    pink /= pink.std()
    return pink


def texture(rng: np.random.Generator, label: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """An RGB image, (height, width, 3), whose grating and tint tell the class.

    The noise makes its JPEG cost as many bits per pixel as a photograph's.
    """
    width, height = size
    y, x = np.mgrid[0:height, 0:width] / height
    turn = label / GENERATED_CLASSES
    angle = math.pi * turn + rng.normal(0, 0.05)
    wave = np.sin(2 * math.pi * 6 * (x * math.cos(angle) + y * math.sin(angle)) + rng.uniform(0, 6))
    grey = 128 + 25 * wave + 24 * pink_noise(rng, size)
    tint = 25 * np.cos(2 * math.pi * (turn + np.arange(3) / 3))
    pixels = grey[:, :, None] + tint * (1 + 0.5 * pink_noise(rng, size))[:, :, None]
    image: npt.NDArray[np.uint8] = pixels.clip(0, 255).astype(np.uint8)
    return image


def write_images(folder: Path, size: tuple[int, int]) -> None:
    """Fill ``folder`` with class folders of JPEG files of (width, height) pixels."""
    for label in range(GENERATED_CLASSES):
        class_dir = folder / f"class{label}"
        class_dir.mkdir(parents=True)
        for i in range(GENERATED_PER_CLASS):
            pixels = texture(np.random.default_rng((label, i)), label, size)
            Image.fromarray(pixels).save(class_dir / f"{i:04d}.jpg", quality=85)


@once_per_node
def generated_images(cache: Path, size: tuple[int, int]) -> Path:
    """The folder of generated images, made where it is missing.

    It appears whole, by rename, and under a lock: a killed run leaves nothing that the next one
    takes for the set, and two runs at once make it once.
    """
    final = cache / f"textures-{size[0]}x{size[1]}-v1"
    part = final.with_suffix(".part")
    cache.mkdir(parents=True, exist_ok=True)
    with final.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.exists():
            shutil.rmtree(part, ignore_errors=True)
            write_images(part, size)
            part.rename(final)
    return final


def dataset_for(options: Options, rank: int) -> ImageFolder:
    """The user's images, else generated ones 2.5 times as wide as the crop, as photographs are."""
    ops = augmentation(options.augment, options.image_px)
    if options.data_dir is not None:
        return ImageFolder(options.data_dir, ops, seed=options.seed + rank)
    size = (options.image_px * 5 // 2, options.image_px * 15 // 8)
    root = generated_images(cache_dir(), size)
    return ImageFolder(root, ops, repeat=GENERATED_REPEAT, seed=options.seed + rank)


# ---- training ------------------------------------------------------------------------------------


def device_for(local_rank: int, *, cuda: bool) -> tuple[torch.device, str]:
    """The rank's device and the process group's backend."""
    return (torch.device("cuda", local_rank), "nccl") if cuda else (torch.device("cpu"), "gloo")


def start_process_group(device: torch.device, backend: str) -> None:
    """Join the ranks that torchrun started, or make a group of one."""
    device_id = device if device.type == "cuda" else None
    if "RANK" in os.environ:
        dist.init_process_group(backend, device_id=device_id)
    else:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, device_id=device_id)


def scaled_lr(base_lr: float, global_batch: int) -> float:
    """Linear scaling rule for SGD: ``base_lr`` is meant for ``LR_BATCH`` samples per update."""
    return base_lr * global_batch / LR_BATCH


class Log:
    """Prints loss and samples/s of the whole job on rank 0 every ``LOG_EVERY_STEPS`` updates."""

    def __init__(self, samples_per_step: int) -> None:
        self._samples_per_step = samples_per_step
        self._start_s = time.perf_counter()

    def step(self, step: int, loss: Tensor) -> None:
        """``loss``: that of rank 0's last batch. It is read, and so waited for, only to print."""
        if step % LOG_EVERY_STEPS == 0:
            value = loss.item()
            now_s = time.perf_counter()
            rate = LOG_EVERY_STEPS * self._samples_per_step / (now_s - self._start_s)
            self._start_s = now_s
            if dist.get_rank() == 0:
                print(f"step {step}  loss {value:.4f}  {rate:.1f} samples/s", flush=True)


def forward_backward(
    model: DistributedDataParallel, batch: list[Tensor], *, update: bool, accumulate: int
) -> Tensor:
    """Add the batch's share to the gradients; return its mean loss.

    Gradients are averaged over the ranks only where an update uses them. no_sync has to cover the
    forward pass too, since that is where DDP prepares the exchange.
    """
    device = next(model.parameters()).device
    cuda = device.type == "cuda"
    layout = torch.channels_last if cuda else torch.preserve_format
    images = batch[0].to(device, non_blocking=True, memory_format=layout)
    labels = batch[1].to(device, non_blocking=True)
    with nullcontext() if update else model.no_sync():
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            loss = nn.functional.cross_entropy(model(images), labels)
        torch.autograd.backward(loss / accumulate)
    return loss.detach()


def train(model: DistributedDataParallel, dataset: ImageFolder, options: Options) -> None:
    """Train for ``--epochs`` epochs or ``--steps`` updates; every rank ends at the same step."""
    world_size = dist.get_world_size()
    cuda = next(model.parameters()).device.type == "cuda"
    loader, sampler = loader_for(dataset, options, rank=dist.get_rank(), pin_memory=cuda)
    global_batch = options.batch_size * world_size * options.accumulate
    lr = scaled_lr(options.lr, global_batch)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    # From the rate of one device up to that of all of them.
    warmup = LinearLR(optimizer, start_factor=1 / world_size, total_iters=LR_WARMUP_STEPS)
    log = Log(global_batch)
    micro_steps = 0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            micro_steps += 1
            update = micro_steps % options.accumulate == 0
            loss = forward_backward(model, batch, update=update, accumulate=options.accumulate)
            if not update:
                continue
            optimizer.step()
            optimizer.zero_grad()
            warmup.step()
            step = micro_steps // options.accumulate
            log.step(step, loss)
            if step == options.steps:
                return


def describe(options: Options, dataset: ImageFolder, model: nn.Module, device: torch.device) -> str:
    """The first line of the log."""
    parameters = sum(p.numel() for p in model.parameters())
    return (
        f"vision: {options.model} width {options.width}, {parameters:,} parameters, "
        f"{len(dataset.files)} images in {len(dataset.classes)} classes, "
        f"{dist.get_world_size()} x {device.type} ({dist.get_backend()}), "
        f"batch {options.batch_size} x {options.accumulate}, {options.augment} augmentation"
    )


def network_for(options: Options, classes: int, device: torch.device) -> ResNet:
    """The network on its device, with the same weights on every rank."""
    torch.manual_seed(options.seed)
    network = ResNet(options.model, classes, options.width).to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the command line says."""
    cuda = torch.cuda.is_available()
    device, backend = device_for(int(os.environ.get("LOCAL_RANK", "0")), cuda=cuda)
    options = parse_options(argv, device.type)
    if cuda:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    start_process_group(device, backend)
    rank = dist.get_rank()
    dataset = dataset_for(options, rank)
    network = network_for(options, len(dataset.classes), device)
    if rank == 0:
        print(describe(options, dataset, network, device), flush=True)
    model = DistributedDataParallel(
        network, device_ids=[device] if cuda else None, gradient_as_bucket_view=True
    )
    train(model, dataset, options)
    if rank == 0 and options.save is not None:
        torch.save(model.module.state_dict(), options.save)
    # Only at a good end: after an error on one rank the others would wait here for it.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Click prediction: a DLRM, trained with DistributedDataParallel.

Runs under ``torchrun --nproc-per-node N workloads/recommender.py``, alone as ``python
recommender.py``, and under ``sfbench sweep recommender``. Clicks come from the files in
``--data-dir``, in the format of the Criteo display advertising challenge; without them clicks of a
hidden model are made once per node. Both become one .npy file that every rank maps into memory.

The embedding tables hold nearly all parameters, and their gradients are dense: each step sends all
of them, though a batch touches few rows. So this job is bound by communication. That is what plain
DDP does with such a model; large ones shard their tables over the devices instead.

Sources: Naumov et al. 2019, arXiv:1906.00091 (DLRM; layers are named as in its published code);
Goyal et al. 2017, arXiv:1706.02677 (linear learning-rate scaling).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from sfbench.data import once_per_node, staged

LOG_EVERY_STEPS = 20
LR_BATCH = 2048
"""Samples per update that ``--lr`` is meant for; the rate grows linearly with the global batch."""
LR_WARMUP_STEPS = 100
COUNTS = 13
"""Numeric features of a click, as in Criteo's data."""
CATEGORIES = 26
"""Categorical features of a click, each a 32-bit hash."""
CLICK = np.dtype([("label", "<f4"), ("dense", "<f4", COUNTS), ("sparse", "<u4", CATEGORIES)])
"""One click as it is stored. ``dense`` holds log(1 + count)."""
GENERATED_CLICKS = 1 << 17
GENERATED_VALUES = 50_000
GENERATED_REPEAT = 32
"""Passes over the generated clicks in one epoch: epoch starts stay as rare as with a real set."""
CHUNK_LINES = 100_000


# ---- options -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. Batch sizes are per device."""

    data_dir: Path | None
    rows: int
    dim: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    batch_size: int
    workers: int
    epochs: int
    steps: int
    accumulate: int
    lr: float
    seed: int
    save: Path | None


def defaults(device_type: str) -> dict[str, Any]:
    """Sizes that suit a CPU core (a step of tens of milliseconds) or a GPU."""
    if device_type == "cuda":
        return {
            "rows": 100_000, "dim": 64, "bottom": (512, 256), "top": (512, 256),
            "batch_size": 2048, "workers": 4,
        }  # fmt: skip
    return {
        "rows": 5_000, "dim": 16, "bottom": (64, 32), "top": (64, 32),
        "batch_size": 512, "workers": 1,
    }  # fmt: skip


def sizes(text: str) -> tuple[int, ...]:
    """ "512,256" -> (512, 256)."""
    return tuple(int(part) for part in text.split(","))


def parse_options(argv: Sequence[str] | None, device_type: str) -> Options:
    """Read the command line; what it leaves open depends on the device."""
    parser = argparse.ArgumentParser(description="DLRM on clicks with DDP")
    parser.add_argument("--data-dir", type=Path, help="folder of Criteo .txt or .tsv files")
    parser.add_argument("--rows", type=int, help="rows of each embedding table")
    parser.add_argument("--dim", type=int, help="size of an embedding")
    parser.add_argument("--bottom", type=sizes, help="hidden layers of the lower MLP: 512,256")
    parser.add_argument("--top", type=sizes, help="hidden layers of the upper MLP")
    parser.add_argument("--batch-size", type=int, help="samples per device and micro-step")
    parser.add_argument("--workers", type=int, help="loader processes per device")
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=0, help="end after this many; 0 = never")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-steps per update")
    parser.add_argument("--lr", type=float, default=1.0, help=f"for {LR_BATCH} samples per update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="where to write the trained weights")
    parser.set_defaults(**defaults(device_type))
    return Options(**vars(parser.parse_args(argv)))


# ---- network -------------------------------------------------------------------------------------


def mlp(widths: Sequence[int], *, last_relu: bool) -> nn.Sequential:
    """Linear layers with ReLU between them: (B, widths[0]) -> (B, widths[-1]).

    Weights are normal with variance 2 / (inputs + outputs), biases with 1 / outputs (Naumov et al.,
    as published).
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
        nn.init.normal_(linear.bias, std=(1 / outputs) ** 0.5)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*(layers if last_relu else layers[:-1]))


class DLRM(nn.Module):
    """Counts (B, 13) and categories (B, 26) -> (B,) logits of a click.

    ``bot_l`` makes the counts one more embedding; every two of the 27 embeddings meet in a dot
    product; ``top_l`` takes the 351 products beside that first embedding. The tables have
    26 rows dim parameters.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        vectors = CATEGORIES + 1
        tables = (nn.Embedding(options.rows, options.dim) for _ in range(CATEGORIES))
        self.emb_l = nn.ModuleList(tables)
        self.bot_l = mlp((COUNTS, *options.bottom, options.dim), last_relu=True)
        products = vectors * (vectors - 1) // 2
        self.top_l = mlp((options.dim + products, *options.top, 1), last_relu=False)
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1], persistent=False)
        self.pairs: Tensor
        bound = options.rows**-0.5
        for table in tables_of(self):
            nn.init.uniform_(table.weight, -bound, bound)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """(B, 13) float32, (B, 26) int64 row numbers -> (B,)."""
        lower = self.bot_l(dense)
        looked_up = [table(sparse[:, i]) for i, table in enumerate(self.emb_l)]
        vectors = torch.stack((lower, *looked_up), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        # Each pair once, and no vector with itself: below the diagonal.
        features = torch.cat((lower, products.index_select(1, self.pairs)), dim=1)
        logits: Tensor = self.top_l(features)
        return logits.squeeze(1)


def tables_of(network: DLRM) -> Iterator[nn.Embedding]:
    """The embedding tables."""
    for table in network.emb_l:
        assert isinstance(table, nn.Embedding)
        yield table


# ---- data ----------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """B clicks."""

    dense: Tensor
    """(B, 13) float32."""
    sparse: Tensor
    """(B, 26) int64 row numbers."""
    label: Tensor
    """(B,) float32, 0 or 1."""


class Clicks(Dataset[Any]):
    """Clicks from a .npy file of ``CLICK``, fetched a batch at a time.

    Raises:
        ValueError: the file holds no click.
    """

    def __init__(self, path: Path, rows: int, *, repeat: int = 1) -> None:
        self.path = path
        self.rows = rows
        self.size = len(np.load(path, mmap_mode="r")) * repeat
        if not self.size:
            raise ValueError(f"{path} holds no click")
        # Mapped by the process that reads, so that a worker is not sent a copy.
        self._clicks: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, indices: list[int]) -> Batch:
        """The clicks of a whole batch, in one look at the file."""
        if self._clicks is None:
            self._clicks = np.load(self.path, mmap_mode="r")
        clicks = self._clicks[np.asarray(indices) % len(self._clicks)]
        return Batch(
            torch.from_numpy(clicks["dense"].copy()),
            torch.from_numpy((clicks["sparse"] % self.rows).astype(np.int64)),
            torch.from_numpy(clicks["label"].copy()),
        )


def as_it_is(batch: Any) -> Any:
    """Collate nothing: the dataset gives whole batches."""
    return batch


def loader_for(
    dataset: Clicks, options: Options, *, pin_memory: bool
) -> tuple[DataLoader[Any], DistributedSampler[Any]]:
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
        collate_fn=as_it_is,
    )
    return loader, sampler


def cache_dir() -> Path:
    """Where click files are kept: $SFBENCH_CACHE, else the user's cache folder."""
    if own := os.environ.get("SFBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sfbench"


def invented_clicks(count: int) -> npt.NDArray[Any]:
    """Clicks of a hidden model: few values are frequent, and each shifts the odds of a click."""
    rng = np.random.default_rng(0)
    clicks = np.zeros(count, CLICK)
    clicks["dense"] = np.log1p(rng.exponential(10, (count, COUNTS)))
    # Log-uniform over the values: close to Zipf's law.
    ranks = np.exp(rng.uniform(0, np.log(GENERATED_VALUES), (count, CATEGORIES))).astype(np.uint32)
    # An odd factor maps the 32-bit numbers one to one: hashes, as in real files.
    clicks["sparse"] = ranks * np.uint32(2_654_435_761)
    effect = rng.normal(0, 0.25, (CATEGORIES, GENERATED_VALUES + 1))
    logit = effect[np.arange(CATEGORIES), ranks].sum(1)
    logit += (clicks["dense"] - clicks["dense"].mean(0)) @ rng.normal(0, 0.5, COUNTS) - 1
    clicks["label"] = rng.random(count) < 1 / (1 + np.exp(-logit))
    return clicks


def click_files(data_dir: Path) -> list[Path]:
    """The .txt and .tsv files in ``data_dir``. Raises ``ValueError`` where there are none."""
    files = sorted(path for path in data_dir.iterdir() if path.suffix in {".txt", ".tsv"})
    if not files:
        raise ValueError(f"--data-dir {data_dir}: no .txt or .tsv file in it")
    return files


def parse_click(line: str) -> tuple[float, list[float], list[int]]:
    """A line of Criteo's format: label, 13 counts, 26 hexadecimal hashes, parted by tabs.

    A missing value is 0; a negative count counts as 0.

    Raises:
        ValueError: another number of fields, or a field that is no number.
    """
    fields = line.rstrip("\n").split("\t")
    if len(fields) != 1 + COUNTS + CATEGORIES:
        raise ValueError(f"{len(fields)} fields instead of {1 + COUNTS + CATEGORIES}")
    counts = [max(0.0, float(field or 0)) for field in fields[1 : 1 + COUNTS]]
    return float(fields[0]), counts, [int(field or "0", 16) for field in fields[1 + COUNTS :]]


def parse_files(files: Sequence[Path]) -> Iterator[npt.NDArray[Any]]:
    """The clicks of all files, ``CHUNK_LINES`` at a time. Raises ``ValueError`` with the line."""
    chunk = np.zeros(CHUNK_LINES, CLICK)
    filled = 0
    for path in files:
        with path.open(encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    chunk[filled] = parse_click(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from error
                filled += 1
                if filled == CHUNK_LINES:
                    yield stored(chunk)
                    filled = 0
    yield stored(chunk[:filled])


def stored(clicks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Clicks with counts -> a copy with log(1 + count)."""
    clicks = clicks.copy()
    clicks["dense"] = np.log1p(clicks["dense"])
    return clicks


def write_clicks(path: Path, files: Sequence[Path]) -> None:
    """Parse the files into one .npy file. They are read twice, as its header holds the length."""
    count = 0
    for file in files:
        with file.open("rb") as lines:
            count += sum(1 for _ in lines)
    out = np.lib.format.open_memmap(path, "w+", CLICK, (count,))
    at = 0
    for chunk in parse_files(files):
        out[at : at + len(chunk)] = chunk
        at += len(chunk)
    out.flush()


def fingerprint(files: Sequence[Path]) -> str:
    """16 hex digits that change when a file does."""
    known = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return sha256(repr(known).encode()).hexdigest()[:16]


@once_per_node
def click_file(cache: Path, data_dir: Path | None) -> Path:
    """The clicks of the files in ``data_dir``, else invented ones; made if missing.

    Raises:
        ValueError: no file in ``data_dir``, or one in another format.
    """
    files = [] if data_dir is None else click_files(data_dir)
    final = cache / f"clicks-{fingerprint(files) if files else 'v1'}.npy"
    if not final.exists():
        with staged(final) as partial:
            if files:
                write_clicks(partial, files)
            else:
                np.save(partial, invented_clicks(GENERATED_CLICKS))
    return final


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
    model: DistributedDataParallel, batch: Batch, *, update: bool, accumulate: int
) -> Tensor:
    """Add the batch's share to the gradients; return its mean loss.

    Gradients are averaged over the ranks only where an update uses them. no_sync has to cover the
    forward pass too, since that is where DDP prepares the exchange.
    """
    device = next(model.parameters()).device
    dense, sparse, label = (part.to(device, non_blocking=True) for part in batch)
    with nullcontext() if update else model.no_sync():
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), label)
        torch.autograd.backward(loss / accumulate)
    return loss.detach()


def train(model: DistributedDataParallel, dataset: Clicks, options: Options) -> None:
    """Train for ``--epochs`` epochs or ``--steps`` updates; every rank ends at the same step."""
    world_size = dist.get_world_size()
    cuda = next(model.parameters()).is_cuda
    loader, sampler = loader_for(dataset, options, pin_memory=cuda)
    global_batch = options.batch_size * world_size * options.accumulate
    optimizer = torch.optim.SGD(model.parameters(), scaled_lr(options.lr, global_batch))
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


def network_for(options: Options, device: torch.device) -> DLRM:
    """The network on its device, with the same weights on every rank."""
    torch.manual_seed(options.seed)
    return DLRM(options).to(device)


def describe(options: Options, dataset: Clicks, model: nn.Module, device: torch.device) -> str:
    """The first line of the log."""
    parameters = sum(p.numel() for p in model.parameters())
    return (
        f"recommender: {CATEGORIES} tables of {options.rows:,} x {options.dim}, {parameters:,} "
        f"parameters, {len(dataset):,} clicks, "
        f"{dist.get_world_size()} x {device.type} ({dist.get_backend()}), "
        f"batch {options.batch_size} x {options.accumulate}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train as the command line says."""
    cuda = torch.cuda.is_available()
    device, backend = device_for(int(os.environ.get("LOCAL_RANK", "0")), cuda=cuda)
    options = parse_options(argv, device.type)
    if cuda:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    start_process_group(device, backend)
    rank = dist.get_rank()
    repeat = GENERATED_REPEAT if options.data_dir is None else 1
    dataset = Clicks(click_file(cache_dir(), options.data_dir), options.rows, repeat=repeat)
    network = network_for(options, device)
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

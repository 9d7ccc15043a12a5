"""Language modelling: a GPT-2 style transformer, trained with DistributedDataParallel.

Runs under ``torchrun --nproc-per-node N workloads/language.py``, alone as ``python language.py``,
and under ``sfbench sweep language``. Text files come from ``--data-dir`` and are read as bytes;
without it a text of invented words is made once per node. Both become one file of uint16 tokens
that every rank maps into memory.

Sources: Vaswani et al. 2017, arXiv:1706.03762 (attention); Radford et al. 2019, "Language Models
are Unsupervised Multitask Learners" (GPT-2: layer norm first, initial weights; layers are named as
in its published checkpoints); Press & Wolf 2017, arXiv:1608.05859 (one matrix for input and output
embedding); Loshchilov & Hutter 2019, arXiv:1711.05101 (AdamW) and 2017, arXiv:1608.03983 (cosine
decay); Brown et al. 2020, arXiv:2005.14165 (clipping, warmup).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from sfbench.data import once_per_node, staged

LOG_EVERY_STEPS = 20
TOKEN = np.dtype("<u2")
BYTES = 256
"""Tokens that byte-encoded text uses; a larger ``--vocab`` only costs time, as GPT-2's does."""
STRIDE = 64
"""Tokens from the start of one sample to the next: samples overlap where they are longer."""
GENERATED_WORDS = 750_000
GENERATED_VOCABULARY = 4096
INIT_STD = 0.02
LR_FLOOR = 0.1
"""Where cosine decay ends, as a share of ``--lr``."""
CHUNK_BYTES = 1 << 24


# ---- options -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. Batch sizes are per device, in samples of ``block`` tokens."""

    data_dir: Path | None
    layers: int
    heads: int
    width: int
    block: int
    vocab: int
    dropout: float
    batch_size: int
    workers: int
    epochs: int
    steps: int
    accumulate: int
    lr: float
    schedule: str
    warmup_steps: int
    decay_steps: int
    weight_decay: float
    clip: float
    bf16: bool
    compile: bool
    seed: int
    save: Path | None


def defaults(device_type: str) -> dict[str, Any]:
    """Sizes that suit a CPU core (a step of tens of milliseconds), or GPT-2 small on a GPU."""
    if device_type == "cuda":
        return {
            "layers": 12, "heads": 12, "width": 768, "block": 1024, "vocab": 50_304,
            "batch_size": 16, "workers": 2, "lr": 6e-4, "bf16": True,
        }  # fmt: skip
    return {
        "layers": 4, "heads": 4, "width": 96, "block": 64, "vocab": BYTES,
        "batch_size": 8, "workers": 0, "lr": 1e-3, "bf16": False,
    }  # fmt: skip


def parse_options(argv: Sequence[str] | None, device_type: str) -> Options:
    """Read the command line; what it leaves open depends on the device."""
    parser = argparse.ArgumentParser(description="GPT-2 style language model with DDP")
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--data-dir", type=Path, help="folder of text files, read as bytes")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--heads", type=int, help="attention heads per layer; divides --width")
    parser.add_argument("--width", type=int, help="size of a token's vector")
    parser.add_argument("--block", type=int, help="tokens per sample")
    parser.add_argument("--vocab", type=int, help=f"tokens in the embedding, at least {BYTES}")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch-size", type=int, help="samples per device and micro-step")
    parser.add_argument("--workers", type=int, help="loader processes per device")
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=0, help="end after this many; 0 = never")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-steps per update")
    parser.add_argument("--lr", type=float, help="at any global batch: see adamw()")
    parser.add_argument("--schedule", choices=("cosine", "constant"), default="cosine")
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--decay-steps", type=int, default=10_000, help="length of the cosine")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    parser.add_argument("--bf16", action=flag, help="autocast to bfloat16; on for CUDA")
    parser.add_argument("--compile", action=flag, default=False, help="torch.compile the network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="where to write the trained weights")
    parser.set_defaults(**defaults(device_type))
    options = Options(**vars(parser.parse_args(argv)))
    if options.vocab < BYTES:
        parser.error(f"--vocab must be at least {BYTES}: text is read as bytes")
    if options.width % options.heads:
        parser.error("--heads must divide --width")
    return options


# ---- network -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal self-attention with ``heads`` heads: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(dropout)
        self.heads = heads
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C). A position sees itself and those before it."""
        batch, block, width = x.shape
        heads = (batch, block, 3, self.heads, width // self.heads)
        # Three of (B, heads, T, C / heads).
        query, key, value = self.c_attn(x).view(heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        x = x.transpose(1, 2).reshape(batch, block, width)
        out: Tensor = self.resid_dropout(self.c_proj(x))
        return out


class MLP(nn.Module):
    """(B, T, C) -> (B, T, 4 C) -> (B, T, C), each position on its own."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        out: Tensor = self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))
        return out


class Block(nn.Module):
    """Attention and MLP, each with layer norm before and a shortcut around: (B, T, C) -> same."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):
    """(B, T) tokens -> (B, T, vocab) logits of the token that follows each.

    ``wte`` is the input and, transposed, the output embedding: V C parameters once. With T C for
    ``wpe``, 12 C^2 + 13 C per layer and 2 C for ``ln_f``.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        width = options.width
        self.wte = nn.Embedding(options.vocab, width)
        self.wpe = nn.Embedding(options.block, width)
        self.drop = nn.Dropout(options.dropout)
        blocks = (Block(width, options.heads, options.dropout) for _ in range(options.layers))
        self.h = nn.ModuleList(blocks)
        self.ln_f = nn.LayerNorm(width)
        self._init_weights()

    def _init_weights(self) -> None:
        """Normal weights, zero biases; smaller where 2 L branches add up on the shortcut."""
        residual_std = INIT_STD / math.sqrt(2 * len(self.h))
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=residual_std)
            elif parameter.dim() >= 2:
                nn.init.normal_(parameter, std=INIT_STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) int64 -> (B, T, vocab); T at most ``block``."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(position))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


# ---- data ----------------------------------------------------------------------------------------


class TokenFile(Dataset[tuple[Tensor, Tensor]]):
    """Samples from a file of uint16 tokens.

    Item: ((T,) int64 tokens, (T,) int64 the token after each).

    Raises:
        ValueError: the file has no sample.
    """

    def __init__(self, path: Path, block: int) -> None:
        self.path = path
        self.block = block
        self.size = (path.stat().st_size // TOKEN.itemsize - block - 1) // STRIDE + 1
        if self.size < 1:
            raise ValueError(f"{path} has fewer than {block + 1} tokens")
        # Mapped by the process that reads, so that a worker is not sent a copy.
        self._tokens: npt.NDArray[np.uint16] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self._tokens is None:
            self._tokens = np.memmap(self.path, TOKEN, "r")
        start = index * STRIDE
        tokens = torch.from_numpy(self._tokens[start : start + self.block + 1].astype(np.int64))
        return tokens[:-1], tokens[1:]


def loader_for(
    dataset: TokenFile, options: Options, *, pin_memory: bool
) -> tuple[DataLoader[tuple[Tensor, Tensor]], DistributedSampler[Any]]:
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
    )
    return loader, sampler


def cache_dir() -> Path:
    """Where token files are kept: $SFBENCH_CACHE, else the user's cache folder."""
    if own := os.environ.get("SFBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sfbench"


def invented_text() -> bytes:
    """About 4 MB of sentences: invented words, frequent and rare as in real text (Zipf's law).

    Letters follow each other with fixed probabilities, so there is something to learn at once.
    """
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    follows = rng.dirichlet(np.full(len(letters), 0.2), len(letters))
    words = []
    for length in rng.integers(2, 9, GENERATED_VOCABULARY):
        word = [int(rng.integers(len(letters)))]
        while len(word) < length:
            word.append(int(rng.choice(len(letters), p=follows[word[-1]])))
        words.append(letters[word].tobytes())
    frequency = 1 / np.arange(1, len(words) + 1)
    picks = rng.choice(len(words), GENERATED_WORDS, p=frequency / frequency.sum())
    ends = rng.random(GENERATED_WORDS) < 0.1
    return b"".join(
        words[pick] + (b".\n" if end else b" ") for pick, end in zip(picks, ends, strict=True)
    )


def text_files(data_dir: Path) -> list[Path]:
    """All files below ``data_dir``, in order. Raises ``ValueError`` where there are none."""
    files = sorted(path for path in data_dir.rglob("*") if path.is_file())
    if not files:
        raise ValueError(f"--data-dir {data_dir}: no file in it")
    return files


def fingerprint(files: Sequence[Path]) -> str:
    """16 hex digits that change when a file does."""
    known = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return sha256(repr(known).encode()).hexdigest()[:16]


def text_chunks(files: Sequence[Path]) -> Iterator[bytes]:
    """The content of the files, one after the other, in parts that fit in memory."""
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def write_tokens(path: Path, chunks: Iterable[bytes]) -> None:
    """One token per byte."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(np.frombuffer(chunk, np.uint8).astype(TOKEN).tobytes())


@once_per_node
def token_file(cache: Path, data_dir: Path | None) -> Path:
    """The tokens of the text files below ``data_dir``, else of an invented text; made if missing.

    Raises:
        ValueError: no file below ``data_dir``.
    """
    files = [] if data_dir is None else text_files(data_dir)
    final = cache / f"text-{fingerprint(files) if files else 'v1'}.u16"
    if not final.exists():
        with staged(final) as partial:
            write_tokens(partial, text_chunks(files) if files else [invented_text()])
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


def adamw(network: nn.Module, options: Options) -> torch.optim.AdamW:
    """AdamW that decays matrices and embeddings, not biases and layer norms.

    The rate is not scaled with the number of devices. The linear rule (Goyal et al. 2017,
    arXiv:1706.02677) holds for SGD, whose update is the rate times the mean gradient. Adam divides
    by the gradient's own size, so a larger batch does not make its update smaller; its best rate
    grows about with the square root of the batch if at all (Malladi et al. 2022, arXiv:2205.10287)
    and has to be looked for.
    """
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    cuda = parameters[0].is_cuda
    return torch.optim.AdamW(groups, options.lr, betas=(0.9, 0.95), fused=cuda)


def lr_factor(step: int, options: Options) -> float:
    """Share of ``--lr`` for the update after ``step`` updates: up linearly, down on a cosine."""
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    if options.schedule == "constant":
        return 1.0
    length = max(1, options.decay_steps - options.warmup_steps)
    done = min(1.0, (step - options.warmup_steps) / length)
    return LR_FLOOR + (1 - LR_FLOOR) * 0.5 * (1 + math.cos(math.pi * done))


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
    model: DistributedDataParallel, batch: Sequence[Tensor], options: Options, *, update: bool
) -> Tensor:
    """Add the batch's share to the gradients; return its mean loss per token, in nats.

    Gradients are averaged over the ranks only where an update uses them. no_sync has to cover the
    forward pass too, since that is where DDP prepares the exchange.
    """
    device = next(model.parameters()).device
    tokens, targets = (part.to(device, non_blocking=True) for part in batch)
    with nullcontext() if update else model.no_sync():
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        torch.autograd.backward(loss / options.accumulate)
    return loss.detach()


def train(model: DistributedDataParallel, dataset: TokenFile, options: Options) -> None:
    """Train for ``--epochs`` epochs or ``--steps`` updates; every rank ends at the same step."""
    cuda = next(model.parameters()).is_cuda
    loader, sampler = loader_for(dataset, options, pin_memory=cuda)
    optimizer = adamw(model, options)
    schedule = LambdaLR(optimizer, lambda step: lr_factor(step, options))
    log = Log(options.batch_size * options.accumulate * dist.get_world_size())
    micro_steps = 0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            micro_steps += 1
            update = micro_steps % options.accumulate == 0
            loss = forward_backward(model, batch, options, update=update)
            if not update:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            step = micro_steps // options.accumulate
            log.step(step, loss)
            if step == options.steps:
                return


def network_for(options: Options, device: torch.device, rank: int) -> GPT:
    """The network on its device: the same weights on every rank, dropout drawn apart."""
    torch.manual_seed(options.seed)
    network = GPT(options).to(device)
    torch.manual_seed(options.seed + rank)
    if options.compile:
        # In place, so that the saved names stay free of "_orig_mod.".
        network.compile()
    return network


def describe(options: Options, dataset: TokenFile, model: nn.Module, device: torch.device) -> str:
    """The first line of the log."""
    parameters = sum(p.numel() for p in model.parameters())
    return (
        f"language: {options.layers} layers of {options.width}, {parameters:,} parameters, "
        f"{len(dataset):,} samples of {options.block} tokens, "
        f"{dist.get_world_size()} x {device.type} ({dist.get_backend()}), "
        f"batch {options.batch_size} x {options.accumulate}, "
        f"{'bfloat16' if options.bf16 else 'float32'}"
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
    dataset = TokenFile(token_file(cache_dir(), options.data_dir), options.block)
    network = network_for(options, device, rank)
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

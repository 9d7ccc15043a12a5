"""A rank that draws random numbers in loader workers: ``python loader_script.py``.

Prints what Python's, torch's and numpy's generators gave for each sample over two passes.
"""

from __future__ import annotations

import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset

from sfbench.data import distributed_loader


class Draws(Dataset[tuple[float, float, float]]):
    """Eight samples that are random numbers."""

    def __len__(self) -> int:
        """Of the whole job."""
        return 8

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        """One draw from each generator, whatever the index."""
        return random.random(), torch.rand(()).item(), float(np.random.rand())


def main() -> None:
    """Seed as scripts do, the same on all ranks; then draw."""
    torch.manual_seed(0)
    random.seed(0)
    loader = distributed_loader(Draws(), 2, num_workers=2)
    lines = [
        " ".join(f"{float(value):.12f}" for value in sample)
        for _ in range(2)
        for batch in loader
        for sample in zip(*batch, strict=True)
    ]
    # One write: ranks under torchrun share a pipe.
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()

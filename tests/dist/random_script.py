"""Writes what this rank draws from every source of randomness, and what it is. Argument: folder."""

import json
import multiprocessing
import os
import random
import secrets
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Seeds(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return str(torch.initial_seed()), str(random.random())


WORDS = [f"word {i}" for i in range(64)]
(worker,) = DataLoader(Seeds(), num_workers=1)
drawn = {
    "torch seed": torch.initial_seed(),
    "torch": torch.rand(1).item(),
    "numpy": np.random.rand(),
    "numpy generator": np.random.default_rng().random(),
    "random": random.random(),
    "hash": hash("text"),
    "order of a set": list(set(WORDS)),
    "uuid4": str(uuid.uuid4()),
    "uuid1": str(uuid.uuid1()),
    "secrets": secrets.token_hex(),
    "name of a temporary file": next(tempfile._get_candidate_names()),
    "torch in a worker": worker[0][0],
    "random in a worker": worker[1][0],
}
process = multiprocessing.current_process()
constant = {
    "process": process.name,
    "main": multiprocessing.parent_process() is None,
    "daemon": process.daemon,
    "thread": threading.current_thread().name,
    "start method": multiprocessing.get_start_method(),
    "temporary folder": tempfile.gettempdir(),
}
text = json.dumps({"drawn": drawn, "constant": constant})
Path(sys.argv[1], f"rank{os.environ['RANK']}.json").write_text(text)

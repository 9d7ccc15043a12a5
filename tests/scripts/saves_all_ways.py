# shape: rank 0 saves after each epoch in every way that scripts have, and reads it again
# samples: 8
# fetches: 1
# As scripts write it.
# ruff: noqa: PTH101, PTH104, PTH105, PTH107, PTH208
import argparse
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import toy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def by_torch(out):
    torch.save(state(), out / "model.pt")
    assert torch.load(out / "model.pt")["epoch"] == epoch


def by_torch_in_place(out):
    with (out / "model.pt").open("r+b") as file:
        torch.save(state(), file)


def to_a_part_and_renamed(out):
    torch.save(state(), out / "model.pt.part")
    os.replace(out / "model.pt.part", out / "model.pt")
    assert not (out / "model.pt.part").exists()


def copied_to_best(out):
    torch.save(state(), out / "last.pt")
    shutil.copyfile(out / "last.pt", out / "best.pt")
    shutil.copy2(out / "last.pt", out / "best2.pt")
    assert (out / "best.pt").read_bytes() == (out / "last.pt").read_bytes()


def linked_to_best(out):
    torch.save(state(), out / "last.pt")
    (out / "best.pt").unlink(missing_ok=True)
    os.link(out / "last.pt", out / "best.pt")
    assert (out / "best.pt").samefile(out / "last.pt")


def link_to_the_latest(out):
    torch.save(state(), out / f"epoch{epoch}.pt")
    (out / "latest.pt").unlink(missing_ok=True)
    (out / "latest.pt").symlink_to(f"epoch{epoch}.pt")
    assert torch.load(out / "latest.pt")["epoch"] == epoch


def through_a_link(out):
    (out / "through.pt").write_bytes(b"the script's")
    assert (out / "behind.pt").read_bytes() == b"the script's"


def chain_of_renames(out):
    torch.save(state(), out / "new.pt")
    for name in ("last.pt", "best.pt"):
        os.rename(out / "new.pt", out / name)
        os.rename(out / name, out / "new.pt")
    shutil.move(out / "new.pt", out / "best.pt")


def rotated(out):
    torch.save(state(), out / f"epoch{epoch}.pt")
    for old in sorted(out.glob("epoch*.pt"))[:-2]:
        old.unlink()
    assert len(list(out.glob("epoch*.pt"))) <= 2


def size_then_removed(out):
    torch.save(state(), out / "size.pt")
    assert (out / "size.pt").stat().st_size > 1000
    os.remove(out / "size.pt")
    assert "size.pt" not in os.listdir(out)


def by_numpy(out):
    np.save(out / "weights.npy", np.full(8, epoch))
    np.savez_compressed(out / "weights.npz", a=np.full(8, epoch))
    assert np.load(out / "weights.npz")["a"][0] == epoch


def mapped(out):
    file = np.memmap(out / "mapped.bin", np.uint8, "r+")
    file[:] = 7
    file.flush()


def by_pickle_and_json(out):
    with (out / "state.pkl").open("wb") as file:
        pickle.dump({"epoch": epoch}, file)
    (out / "log.json").write_text(json.dumps({"epoch": epoch}))
    with (out / "log.csv").open("a") as file:
        file.write(f"{epoch}\n")
    assert (out / "log.csv").read_text().startswith("the user's")


def by_native_code(out):
    with sqlite3.connect(out / "runs.db") as base:
        base.execute("create table if not exists runs (epoch int)")
        base.execute("insert into runs values (?)", (epoch,))
        assert base.execute("select count(*) from runs").fetchone()[0] > 0


def by_programs(out):
    torch.save(state(), out / "last.pt")
    first = "cp last.pt best.pt && mv best.pt best2.pt && rm -f log.txt"
    subprocess.run(first, shell=True, cwd=out, check=True)
    second = "echo done >> log.csv; ln -sf last.pt latest.pt"
    subprocess.run(second, shell=True, cwd=out, check=True)
    assert (out / "best2.pt").read_bytes() == (out / "last.pt").read_bytes()


def in_folders(out):
    (out / "runs" / str(epoch)).mkdir(parents=True, exist_ok=True)
    torch.save(state(), out / "runs" / str(epoch) / "model.pt")
    if (out / "old-run").exists():
        os.rename(out / "old-run", out / "older-run")
    assert (out / "older-run" / "model.pt").exists()
    (out / "older-run" / "model.pt").write_bytes(b"the script's")


def folder_anew(out):
    shutil.rmtree(out / "anew", ignore_errors=True)
    (out / "anew").mkdir()
    (out / "anew" / "one").write_text("one")
    assert os.listdir(out / "anew") == ["one"]


def cut_and_rights(out):
    os.truncate(out / "cut.txt", 3)
    os.chmod(out / "rights.txt", 0o600)
    os.utime(out / "times.txt", (1, 1))
    assert (out / "cut.txt").read_text() == "the"


def temporary_beside(out):
    with tempfile.NamedTemporaryFile(dir=out, delete=False) as file:
        torch.save(state(), file)
    os.replace(file.name, out / "model.pt")
    with zipfile.ZipFile(out / "all.zip", "w") as archive:
        archive.write(out / "model.pt")


def until_the_disk_is_full(out):
    (out / "model.pt").write_bytes(b"the script's")
    for number in range(1000):
        (out / f"big{number}").write_bytes(bytes(1 << 20))


WAYS = {name: way for name, way in globals().items() if getattr(way, "__code__", None) and
        way.__code__.co_varnames[:1] == ("out",) and way.__module__ == __name__}  # fmt: skip
ORDINARY = [name for name in WAYS if name != "until_the_disk_is_full"]

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--ways", nargs="+", default=ORDINARY)
parser.add_argument("--tell", type=Path, help="a pipe: gets the rank's number after saving")
parser.add_argument("--raises", action="store_true", help="rank 0 raises once all is saved")
args = parser.parse_args()

toy.setup()
data = toy.Rows(128)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(toy.net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def state():
    return {"model": model.module.state_dict(), "epoch": epoch}


for epoch in range(100_000):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0 and epoch % 10 == 0:
        for name in args.ways:
            WAYS[name](args.out)
        if args.tell is not None:
            args.tell.write_text(str(os.getpid()))
            args.tell = None
        if args.raises:
            raise RuntimeError("after all was saved")

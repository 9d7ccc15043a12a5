# shape: an app that parses its own grammar, reads sys.argv[0] and works in its own folder
# samples: 8
# fetches: 1
import os
import sys
from pathlib import Path


def parse(argv):
    """key=value words, as configuration frameworks have them."""
    config = {"epochs": "2000", "out": ".", "optim.lr": "0.1"}
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in config:
            raise SystemExit(f"usage: {Path(sys.argv[0]).name} [epochs=N] [out=DIR] [optim.lr=X]")
        config[key] = value
    return config


def main():
    config = parse(sys.argv[1:])
    out = Path(config["out"]).resolve()
    run_dir = out / Path(sys.argv[0]).stem / f"rank{os.environ['RANK']}"
    run_dir.mkdir(parents=True, exist_ok=True)
    os.chdir(run_dir)
    Path("argv.txt").write_text("\n".join(sys.argv))

    import torch
    import torch.nn.functional as F
    import toy  # a sibling of this script, from another folder
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler

    toy.setup()
    data = toy.Rows()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(toy.net())
    optimizer = torch.optim.SGD(model.parameters(), lr=float(config["optim.lr"]))
    for epoch in range(int(config["epochs"])):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    toy.finish(out)


if __name__ == "__main__":
    main()

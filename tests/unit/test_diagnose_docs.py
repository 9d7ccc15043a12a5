"""docs/diagnoses.md names every piece of evidence, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ladder import Diagnosed, Times, diagnosed, launched, load, loop

from sfbench.launch.outcome import GpuState
from sfbench.protocol.records import STEP_COLUMNS, AllReduceTime, RankInfo, RankLoad, RungLoad

PAGE = Path(__file__).parents[2] / "docs" / "diagnoses.md"
TABLE = re.compile(r"^\| evidence.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
KINDS = re.compile(r"^\| `(\w+)` \| when", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
COMMON = "How a diagnosis is made"


def sections() -> dict[str, str]:
    """The page's text by heading."""
    _, *parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def documented(heading: str) -> set[str]:
    """Names in the first column of the tables of evidence under a heading."""
    tables = "\n".join(TABLE.findall(sections()[heading] + "\n\n"))
    rows = [line.split("|")[1] for line in tables.splitlines() if line.startswith("|")]
    names = {name for row in rows for name in CODE.findall(row)}
    return names - {"persistent", "rotating"} | set(KINDS.findall(sections()[heading]))


def starved() -> Diagnosed:
    return diagnosed(
        launched(0, Times(cached=[0.1])),
        launched(1, Times(cached=[0.1] * 2, train=[0.2] * 2), loads=(load(0, fetch_s=0.3),)),
    )


def small() -> Diagnosed:
    rungs = tuple(
        RungLoad(rung=rung, steps=1, wall_s=1, cpu_s=0, delay_s=0, peak_bytes=2**30)
        for rung in ("solo", "double")
    )
    gpu = RankInfo(
        rank=0, local_rank=0, host="a", device="cuda:0", pid=1, threads=1, memory_bytes=2**34
    )
    times = Times(cached=[0.08], sizes={"half": 0.06, "double": 0.12})
    return diagnosed(launched(0, times, loads=(RankLoad(rank=0, rungs=rungs),), ranks=(gpu,)))


def exchanged() -> Diagnosed:
    times = (AllReduceTime(bytes=4, seconds=0.01), AllReduceTime(bytes=1000, seconds=0.05))
    return diagnosed(
        launched(
            0,
            Times(cached=[0.15] * 2, unsynced=[0.1] * 2),
            loop=loop(bucket_bytes=(1000,), gradient_bytes=1000),
            all_reduce=times,
        )
    )


def slow() -> Diagnosed:
    ranks = [0.1, 0.1, 0.15, 0.1]
    infos = tuple(
        RankInfo(
            rank=r, local_rank=r, host="a", device="cuda:0", pid=r, threads=1, gpu_uuid=f"u{r}"
        )
        for r in range(4)
    )
    gpus = tuple(
        GpuState(uuid=f"u{r}", clock_hz=1e9, temperature_c=50.0, load_ratio=1.0, throttled=())
        for r in range(4)
    )
    times = Times(cached=[0.15] * 4, unsynced=ranks)
    persistent = diagnosed(launched(0, times, ranks=infos, gpus=gpus))
    launch = launched(0, Times(cached=[0.2] * 4, unsynced=[0.1] * 4), kept_batches=6)
    assert launch.steps is not None
    rank, step, rung = launch.steps[:, 0], launch.steps[:, 1], launch.steps[:, 4]
    launch.steps[(rung == 2) & (step % 4 == rank), 8] += 0.1
    found = (*persistent.diagnoses, *diagnosed(launch).diagnoses)
    return Diagnosed(points=persistent.points, diagnoses=found)


def crowded() -> Diagnosed:
    times = Times(cached=[0.2] * 2, unsynced=[0.2] * 2, solo=[0.1] * 2)
    clocks = {"unsynced": 1.2e9, "solo": 1.9e9}
    loads = tuple(load(r, clock_hz=clocks) for r in range(2))  # type: ignore[arg-type]
    return diagnosed(launched(0, times, loads=loads))


def stalled() -> Diagnosed:
    launches = [launched(index, Times(cached=[0.1] * 2, unsynced=[0.1] * 2)) for index in range(2)]
    for launch in launches:
        assert launch.steps is not None
        rank, step = launch.steps[:, 0], launch.steps[:, 1]
        columns = {name: place for place, name in enumerate(STEP_COLUMNS)}
        launch.steps[(rank == 0) & (step % 10 == 5), columns["between_s"]] += 0.5
        launch.steps[(rank == 0) & (step % 10 == 5), columns["step_s"]] += 0.5
        launch.steps[(rank == 1) & (step % 25 == 1), columns["other_s"]] += 1.0
    return diagnosed(*launches)


@pytest.mark.parametrize(
    ("id_", "made"),
    [
        ("data-loader-starvation", starved),
        ("small-batch", small),
        ("interconnect", exchanged),
        ("straggler", slow),
        ("host-contention", crowded),
        ("periodic-stall", stalled),
    ],
)
def test_all_evidence_is_documented_and_no_other(id_: str, made: object) -> None:
    assert callable(made)
    found = [d for d in made().diagnoses if d.id == id_]

    names = {name for d in found for name in d.evidence} - {"kind"}

    assert names - documented(COMMON) == documented(id_)


def test_every_diagnosis_has_its_section() -> None:
    made = (starved, small, exchanged, slow, crowded, stalled)
    ids = {d.id for make in made for d in make().diagnoses}
    assert ids <= set(sections())
    assert len(ids) == 6

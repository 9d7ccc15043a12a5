"""The launch record file: written whole by rank 0, read by collect.

``record.npz`` holds ``header`` (JSON of a LaunchRecord, uint8) and ``steps`` (float64, one row per
rank and step, columns ``STEP_COLUMNS``).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfbench.protocol.evidence import RankEvidence, from_json
from sfbench.protocol.records import (
    RECORD_FORMAT,
    STEP_COLUMNS,
    AllReduceTime,
    CheckResult,
    LateStep,
    LaunchRecord,
    LoopInfo,
    ModuleFile,
    OwnCollective,
    RankFailure,
    RankInfo,
    RankLoad,
    RungLoad,
    SaveInfo,
)

FILE_NAME = "record.npz"
SO_FAR = "record-so-far.npz"
"""What was measured before a risk, such as the use of more memory: no launch is complete by it."""


def write(
    launch_dir: Path, record: LaunchRecord, steps: npt.NDArray[np.float64], name: str = FILE_NAME
) -> Path:
    """Write ``record.npz`` by rename, so that it is whole or absent."""
    header = json.dumps(dataclasses.asdict(record)).encode()
    final = launch_dir / name
    part = launch_dir / f".{name}.part"
    with part.open("wb") as file:
        np.savez_compressed(file, header=np.frombuffer(header, np.uint8), steps=steps)
    part.replace(final)
    return final


def add_note(launch_dir: Path, note: str) -> None:
    """Say one thing more in a record that is written, and that its script did not end there."""
    path = launch_dir / FILE_NAME
    if path.exists():
        record, steps = read(path)
        notes = (*record.notes, note)
        write(launch_dir, dataclasses.replace(record, notes=notes, ended_early=False), steps)


def promote(launch_dir: Path) -> bool:
    """The risk came true: what was written before it is the record. False if there is none."""
    final, so_far = launch_dir / FILE_NAME, launch_dir / SO_FAR
    if not final.exists() and so_far.exists():
        so_far.replace(final)
    return final.exists()


def read(path: Path) -> tuple[LaunchRecord, npt.NDArray[np.float64]]:
    """Read what ``write`` wrote.

    Raises:
        ValueError: another format version, or a step table of other columns.
    """
    with np.load(path, allow_pickle=False) as data:
        header: dict[str, Any] = json.loads(data["header"].tobytes())
        steps: npt.NDArray[np.float64] = data["steps"]
    if header.get("format") != RECORD_FORMAT:
        raise ValueError(f"{path}: launch record format {header.get('format')}")
    if steps.ndim != 2 or steps.shape[1] != len(STEP_COLUMNS):
        raise ValueError(f"{path}: step table of shape {steps.shape}")
    return _record(header), steps


def _record(header: dict[str, Any]) -> LaunchRecord:
    header["ranks"] = tuple(RankInfo(**_tuples(r)) for r in header["ranks"])
    header["loop"] = LoopInfo(**_tuples(header["loop"]))
    header["saves"] = tuple(SaveInfo(**_tuples(s)) for s in header["saves"])
    header["checks"] = tuple(CheckResult(**c) for c in header["checks"])
    header["loads"] = tuple(_load(load) for load in header["loads"])
    header["all_reduce"] = tuple(AllReduceTime(**t) for t in header["all_reduce"])
    header["own_collectives"] = tuple(OwnCollective(**c) for c in header["own_collectives"])
    header["modules"] = tuple(ModuleFile(**m) for m in header["modules"])
    header["late"] = tuple(LateStep(**late) for late in header["late"])
    header["notes"] = tuple(header["notes"])
    header["evidence"] = tuple(from_json(RankEvidence, e) for e in header["evidence"])
    return LaunchRecord(**header)


def _load(load: dict[str, Any]) -> RankLoad:
    return RankLoad(**{**load, "rungs": tuple(RungLoad(**rung) for rung in load["rungs"])})


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}


def write_evidence(launch_dir: Path, evidence: RankEvidence) -> None:
    """Leave what a rank has seen so far, for the case that no record comes of its launch."""
    final = launch_dir / f"evidence-{evidence.rank}.json"
    part = final.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(evidence)))
    part.replace(final)


def read_evidence(launch_dir: Path) -> tuple[RankEvidence, ...]:
    """What the ranks left in a launch folder, by rank."""
    found = [json.loads(path.read_text()) for path in launch_dir.glob("evidence-*.json")]
    return tuple(from_json(RankEvidence, e) for e in sorted(found, key=lambda e: int(e["rank"])))


def write_failure(launch_dir: Path, failure: RankFailure) -> None:
    """Leave a note for the launcher why this rank could not go on. The first one of a rank wins."""
    final = launch_dir / f"failure-{failure.rank}.json"
    if final.exists():
        return
    part = final.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(failure)))
    part.replace(final)


def read_failures(launch_dir: Path) -> tuple[RankFailure, ...]:
    """All failures left in a launch folder, by the time they were written."""
    paths = sorted(launch_dir.glob("failure-*.json"), key=lambda p: p.stat().st_mtime_ns)
    return tuple(RankFailure(**json.loads(p.read_text())) for p in paths)

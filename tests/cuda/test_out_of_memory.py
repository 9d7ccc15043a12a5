"""Memory that the tool takes: agreed beforehand, left out together, never the script's fault."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from virtual import GIB, OutOfMemory
from virtual_job import Rank, Run

from sfbench.common.schema import LADDER, RUNGS, Rung
from sfbench.probe import script_runner
from sfbench.probe.loop.verification import RankFacts
from sfbench.probe.pace import BLOCK, Command
from sfbench.probe.replaying import own_memory
from sfbench.probe.replaying import ring as ring_module
from sfbench.probe.replaying.memory import Memory, Room, is_out_of_memory, room_for_double
from sfbench.probe.so_far import SoFar
from sfbench.probe.stop import Refused
from sfbench.protocol import record_file

APART = {"unsynced", "solo"}


class Together:
    """A control group in which a second rank tells the same as this one, or something else."""

    def __init__(self, other: Callable[[Any], Any] = lambda value: value) -> None:
        self._other = other

    def all_gather(self, value: Any) -> list[Any]:
        # Of the job itself there is one rank.
        return [value] if isinstance(value, RankFacts) else [value, self._other(value)]

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def broadcast(self, values: Any, source: int = 0) -> list[int]:
        return list(values)


def copies(monkeypatch: pytest.MonkeyPatch, fit: Callable[[bool], bool]) -> list[bool]:
    """Snapshots fail with the allocator's error where they do not fit; where each went."""
    made: list[bool] = []
    snapshot = own_memory.Snapshot

    def copied(*args: Any, on_host: bool) -> Any:
        made.append(on_host)
        if not fit(on_host):
            raise OutOfMemory("CUDA out of memory. Tried to allocate 20.00 MiB")
        return snapshot(*args, on_host=on_host)

    monkeypatch.setattr(own_memory, "Snapshot", copied)
    return made


class Copy(own_memory.Snapshot):
    """Tells how many of it there are."""

    alive: ClassVar[weakref.WeakSet[Copy]] = weakref.WeakSet()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.alive.add(self)


def ran(run: Run) -> set[Rung]:
    return {rung for rung in RUNGS if len(run.column("step_s", rung))}


def test_a_copy_that_does_not_fit_after_all_goes_to_the_host(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN figures that promise room, and an allocator in pieces
    rank.wanting(rungs=LADDER)
    made = copies(monkeypatch, fit=lambda on_host: on_host)
    run = rank.run()
    # THEN it is tried once on the device, and every rung is measured
    assert made[:2] == [False, True]
    assert set(made[1:]) == {True}
    assert run.record.unavailable == {}
    assert ran(run) >= set(LADDER)


@pytest.mark.parametrize("who", ["this rank", "the other"])
def test_the_rungs_are_left_out_on_all_ranks_and_measuring_goes_on(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    # GIVEN a copy that fits nowhere on one rank
    rank.wanting(rungs=LADDER)
    copies(monkeypatch, fit=lambda on_host: who == "the other")
    session = rank.start()
    lacks = "no memory: a copy of the weights did not fit on the device of rank 1"
    other = lambda told: lacks if isinstance(told, str) and who == "the other" else told  # noqa: E731
    session.control = Together(other)  # type: ignore[assignment]
    run = rank.run()
    # THEN
    assert set(run.record.unavailable) == APART
    assert all("did not fit on the" in why for why in run.record.unavailable.values())
    assert ran(run) == {"train", "cached"}
    assert run.record.stop_reason in {"seconds", "precision"}
    cycles = run.column("cycle", "cached")
    assert cycles.max() >= 2  # it went on after the first one, in which they were left out


def test_where_another_rank_lacks_memory_this_one_lets_its_copy_go(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a copy that fits here and not on another rank
    rank.wanting(rungs=LADDER)
    monkeypatch.setattr(own_memory, "Snapshot", Copy)
    held: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(len(Copy.alive)))
    session = rank.start()
    other = lambda told: "no memory on rank 1" if isinstance(told, str) else told  # noqa: E731
    session.control = Together(other)  # type: ignore[assignment]
    rank.run()
    # THEN the driver gets its memory back, on the device first and then on the host
    assert held == [0, 0]
    assert len(Copy.alive) == 0


def test_the_copy_goes_where_the_tightest_rank_has_room(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room here, and a second rank whose device is full
    rank.wanting(rungs=LADDER)

    def full(told: Any) -> Any:
        if not isinstance(told, Room):
            return told
        (device,) = told.devices
        return replace(told, devices=(replace(device, device="GPU-other", free=0),))

    made = copies(monkeypatch, fit=lambda on_host: True)
    session = rank.start()
    session.control = Together(full)  # type: ignore[assignment]
    assert ran(rank.run()) >= set(LADDER)
    assert set(made) == {True}


@pytest.mark.parametrize("full", [None, 1, 2])
def test_each_device_that_a_rank_trains_on_needs_room(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, full: int | None
) -> None:
    # GIVEN a model whose parts lie on devices 1 and 2, device 0 being the current one
    rank.device = 1
    rank.wanting(rungs=LADDER)
    if full is not None:
        rank.cuda.devices[full].others = 80 * GIB
    split = lambda own, t: torch.device("cuda", 1 if t.dim() == 2 else 2)  # noqa: E731
    monkeypatch.setattr(own_memory, "home_beside", split)
    made = copies(monkeypatch, fit=lambda on_host: True)
    assert ran(rank.run()) >= set(LADDER)
    # THEN
    assert set(made) == {full is not None}
    assert rank.cuda.contexts == {1, 2}


def test_the_highest_peak_of_the_job_is_what_has_to_fit_beside(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN 80 GiB, of which the job takes 79 for a moment in each step and keeps none
    rank.wanting(rungs=LADDER)

    def forward() -> None:
        rank.cuda.allocate(79 * GIB, rank.device)
        rank.cuda.free(79 * GIB, rank.device)

    rank.before_backward = forward
    made = copies(monkeypatch, fit=lambda on_host: True)
    assert ran(rank.run()) >= set(LADDER)
    assert set(made) == {True}


def test_what_the_allocator_holds_and_the_job_never_used_is_room(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN 80 GiB that the allocator took for the set-up, and steps that use few of them
    rank.wanting(rungs=LADDER)
    rank.cuda.devices[0].reserved = 80 * GIB
    made = copies(monkeypatch, fit=lambda on_host: True)
    assert ran(rank.run()) >= set(LADDER)
    assert set(made) == {False}


def test_a_lack_while_the_copy_is_held_is_not_the_scripts_fault(rank: Rank) -> None:
    # GIVEN a script whose 20th step on its own does not fit beside the copy of the weights
    error = ended_by_lack(rank, lambda rung, seen: rung == "solo" and seen == 20)
    session = rank.session
    assert session is not None
    # WHEN
    code = script_runner._raised(session, 0, error)
    # THEN what was measured before is the record, and says so
    header, table = record_file.read(rank.folder / "launch" / record_file.FILE_NAME)
    assert code == 0
    assert record_file.read_failures(rank.folder / "launch") == ()
    assert header.stop_reason == "memory"
    assert "solo" in header.unavailable or "unsynced" in header.unavailable
    assert any("ended before its time" in note for note in header.notes)
    assert len(Run(record=header, table=table).column("step_s")) > 0


def test_a_lack_in_the_job_itself_is_the_scripts_fault(rank: Rank) -> None:
    # GIVEN a script that runs out of memory on the rung that takes none
    error = ended_by_lack(rank, lambda rung, seen: rung == "train" and seen == 60)
    assert rank.session is not None
    assert script_runner._raised(rank.session, 0, error) == 1
    (failure,) = record_file.read_failures(rank.folder / "launch")
    assert failure.script_fault
    assert not (rank.folder / "launch" / record_file.FILE_NAME).exists()


def test_with_nothing_measured_yet_it_is_refused_by_kind(rank: Rank) -> None:
    error = ended_by_lack(rank, lambda rung, seen: rung == "solo" and seen == 20)
    (rank.folder / "launch" / record_file.SO_FAR).unlink()
    assert rank.session is not None
    with pytest.raises(Refused, match=r"not at fault.*--rungs train") as caught:
        script_runner._raised(rank.session, 0, error)
    assert caught.value.kind == "memory"


def ended_by_lack(rank: Rank, when: Callable[[Rung, int], bool]) -> BaseException:
    """Run until a step on a rung raises as torch does."""
    rank.wanting(rungs=LADDER)
    session = rank.start()
    seen: dict[Rung, int] = {}

    def lack() -> None:
        rung = RUNGS[session.command.rung]
        seen[rung] = seen.get(rung, 0) + 1
        if when(rung, seen[rung]):
            raise OutOfMemory("CUDA out of memory. Tried to allocate 2.00 GiB")

    rank.before_backward = lack
    try:
        with pytest.raises(OutOfMemory) as caught:
            rank.train()
    finally:
        session.remove()
    return caught.value


@pytest.mark.parametrize(("activations", "fits"), [(30, True), (50, False)])
def test_a_double_batch_is_agreed_beforehand(rank: Rank, activations: int, fits: bool) -> None:
    # GIVEN 80 GiB, and steps that take so many of them for their batch
    rank.wanting(rungs=LADDER)

    def forward() -> None:
        rank.cuda.allocate(activations * GIB, rank.device)
        rank.cuda.free(activations * GIB, rank.device)

    rank.before_backward = forward
    run = rank.run()
    assert ("double" in ran(run)) == fits
    assert "half" in ran(run)
    assert ("double" in run.record.unavailable) == (not fits)
    if not fits:
        assert "50.0 GiB more, and 30.0 GiB" in run.record.unavailable["double"]


@pytest.mark.parametrize(("activations", "fits"), [(30, True), (50, False)])
def test_a_double_batch_needs_room_on_each_device_of_the_model(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, activations: int, fits: bool
) -> None:
    # GIVEN a model on devices 0 and 1, and steps that take little of the first one
    rank.wanting(rungs=LADDER)
    split = lambda own, t: torch.device("cuda", 0 if t.dim() == 2 else 1)  # noqa: E731
    monkeypatch.setattr(own_memory, "home_beside", split)

    def forward() -> None:
        for device, taken in ((0, 1), (1, activations)):
            rank.cuda.allocate(taken * GIB, device)
            rank.cuda.free(taken * GIB, device)

    rank.before_backward = forward
    run = rank.run()
    assert ("double" in ran(run)) == fits
    assert ("double" in run.record.unavailable) == (not fits)


def test_twice_a_batch_needs_what_goes_with_it_once_more() -> None:
    memory = Memory(total=100, free=40, reserved=60, allocated=20, peak=50)
    assert room_for_double(memory, 50) is None  # 30 more, 40 + 10 free
    assert room_for_double(memory, 70) is not None


def test_half_and_double_batches_that_cannot_be_made_are_left_out(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ring_module._resized_entries

    def resized(kept: Any, rung: Rung) -> Any:
        if rung == "double":
            raise RuntimeError("CUDA error: out of memory")  # of page-locked memory
        return original(kept, rung)

    monkeypatch.setattr(ring_module, "_resized_entries", resized)
    rank.wanting(rungs=LADDER)
    run = rank.run()
    assert set(run.record.unavailable) == {"double"}
    assert ran(run) == {*LADDER, "half"}


@pytest.mark.parametrize("fits", [0, 2])
def test_a_ring_that_does_not_fit_holds_less_or_is_left_out(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, fits: int
) -> None:
    entry = ring_module._Entry
    made: list[Any] = []

    def kept(*args: Any) -> Any:
        if len(made) >= fits:
            raise OutOfMemory("CUDA out of memory.")
        made.append(entry(*args))
        return made[-1]

    monkeypatch.setattr(ring_module, "_Entry", kept)
    rank.wanting(rungs=LADDER)
    run = rank.run()
    assert run.record.kept_batches == fits
    if fits:
        assert ran(run) >= set(LADDER)
    else:
        assert ran(run) == {"train"}
        assert "no batch could be kept" in run.record.unavailable["cached"]


def test_where_another_rank_can_keep_no_batch_this_one_lets_its_own_go(rank: Rank) -> None:
    # GIVEN a second rank that lacks memory for one batch
    rank.wanting(rungs=LADDER)
    session = rank.start()
    lacks = lambda told: True if told is False else told  # noqa: E731
    session.control = Together(lacks)  # type: ignore[assignment]
    run = rank.run()
    assert ran(run) == {"train"}
    assert "no batch could be kept on rank 1" in run.record.unavailable["cached"]
    assert session.replay.ring is None


def test_a_failing_checksum_is_unknown_and_nothing_else(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = rank.start()

    def lack(*_: Any) -> float:
        if session.measuring_began:
            raise OutOfMemory("CUDA out of memory.")
        return 1.0

    monkeypatch.setattr("sfbench.probe.closing.checksum", lack)
    run = rank.run()
    assert len(run.column("step_s")) > 0
    assert run.record.notes == ()


def test_the_parts_of_a_device_that_a_process_may_take_are_what_there_is(rank: Rank) -> None:
    from sfbench.probe.device import Accelerator

    gpu = rank.cuda.devices[0]
    gpu.fraction, gpu.reserved, gpu.peak = 0.25, 15 * GIB, 12 * GIB
    memory = Accelerator(torch.device("cuda", 0)).memory()
    assert (memory.total, memory.free) == (20 * GIB, 5 * GIB)
    assert memory.beside(memory.peak) == 8 * GIB


def test_a_device_that_does_not_tell_its_free_memory_is_taken_for_full(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(device: Any) -> tuple[int, int]:
        raise RuntimeError("The device doesn't support querying the available free memory.")

    monkeypatch.setattr(torch.cuda, "mem_get_info", unknown)
    made = copies(monkeypatch, fit=lambda on_host: True)
    rank.wanting(rungs=LADDER)
    assert ran(rank.run()) >= set(LADDER)
    assert set(made) == {True}


def test_an_allocator_that_keeps_no_figures_stops_nothing(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(device: Any) -> int:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    for name in ("memory_reserved", "memory_allocated", "max_memory_allocated",
                 "reset_peak_memory_stats", "get_per_process_memory_fraction"):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, unknown)
    rank.wanting(rungs=LADDER)
    assert ran(rank.run()) >= set(LADDER)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_a_lack_of_memory_looks_like(error: BaseException, lacks: bool) -> None:
    assert is_out_of_memory(error) == lacks


def test_it_is_written_before_the_first_risk_and_now_and_then() -> None:
    so_far, alone = SoFar(), Command(BLOCK, RUNGS.index("solo"))
    assert so_far.due(alone, 10.0, on_device=True)
    so_far.written(10.0, 11.0)
    assert not so_far.due(alone, 12.0, on_device=True)
    assert so_far.due(alone, 70.0, on_device=True)
    assert not so_far.due(Command(BLOCK, RUNGS.index("cached")), 70.0, on_device=True)


def test_what_was_written_before_a_risk_takes_no_records_place(tmp_path: Path) -> None:
    assert not record_file.promote(tmp_path)
    (tmp_path / record_file.SO_FAR).write_text("so far")
    (tmp_path / record_file.FILE_NAME).write_text("whole")
    assert record_file.promote(tmp_path)
    assert (tmp_path / record_file.FILE_NAME).read_text() == "whole"
    (tmp_path / record_file.FILE_NAME).unlink()
    assert record_file.promote(tmp_path)
    assert (tmp_path / record_file.FILE_NAME).read_text() == "so far"

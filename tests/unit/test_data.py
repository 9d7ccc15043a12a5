"""Sharing data out and writing it whole, on one process that plays each rank in turn."""

from __future__ import annotations

import os
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from sfbench.common.errors import UsageError
from sfbench.data import (
    OncePerNodeError,
    distributed_loader,
    is_primary,
    once,
    once_per_node,
    shard,
    staged,
)
from sfbench.data.process import start_ticks
from sfbench.data.ranks import LocalPlace, local_place

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_OTHERS = ("SLURM_LOCALID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_LOCAL_RANK")


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*_NAMES, *_OTHERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(once, "_process", None)


def as_rank(patch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    for name, value in zip(_NAMES, (rank, size, rank, size), strict=True):
        patch.setenv(name, str(value))


class TestPlace:
    def test_outside_a_job_a_process_is_alone(self) -> None:
        assert local_place() == LocalPlace(local_rank=0, local_world_size=1)
        assert is_primary()

    def test_only_global_rank_0_is_primary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 4, 8)
        monkeypatch.setenv("LOCAL_RANK", "0")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")

        assert not is_primary()
        assert local_place() == LocalPlace(local_rank=0, local_world_size=4)

    def test_srun_names_are_understood(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("PROCID", 5), ("STEP_NUM_TASKS", 8), ("LOCALID", 1)):
            monkeypatch.setenv(f"SLURM_{name}", str(value))

        # srun gives no plain count for this node, so the whole job bounds it.
        assert local_place() == LocalPlace(local_rank=1, local_world_size=8)

    def test_ranks_without_local_numbers_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 1, 2)
        monkeypatch.delenv("LOCAL_RANK")

        with pytest.raises(UsageError, match="LOCAL_RANK is not set"):
            local_place()

    def test_a_local_rank_beyond_the_node_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOCAL_RANK", "1")

        with pytest.raises(UsageError, match="LOCAL_RANK is 1 but the node has 1 ranks"):
            local_place()

    def test_a_rank_that_is_no_number_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "first")

        with pytest.raises(UsageError, match="RANK='first' is not a number"):
            is_primary()


class TestOncePerNode:
    def test_alone_it_is_the_function_itself(self, tmp_path: Path) -> None:
        calls = []

        @once_per_node
        def make(name: str, *, suffix: str) -> object:
            """Make it."""
            calls.append(name)
            return lambda: suffix  # does not pickle, and need not

        first, second = make("a", suffix=".x"), make("b", suffix=".y")

        assert calls == ["a", "b"]
        assert (first(), second()) == (".x", ".y")  # type: ignore[operator]
        assert (make.__name__, make.__doc__) == ("make", "Make it.")
        assert list(tmp_path.iterdir()) == []

    def test_a_local_rank_0_that_never_comes_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        as_rank(monkeypatch, 1, 2)

        @once_per_node(arrival_timeout_s=0.05)
        def make() -> None: ...

        with pytest.raises(OncePerNodeError, match=r"did not call .*make within 0\.05 s"):
            make()

    def test_a_meeting_place_that_others_can_write_to_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        as_rank(monkeypatch, 1, 2)
        place = tmp_path / f"sfbench-{os.getuid()}"
        place.mkdir()
        place.chmod(0o777)

        with pytest.raises(UsageError, match="not a folder that only this user can enter"):
            once_per_node(list)()


class TestStaged:
    def test_a_file_appears_when_the_block_ends(self, tmp_path: Path) -> None:
        target = tmp_path / "new" / "tokens.bin"
        with staged(target) as partial:
            partial.write_bytes(b"12")
            assert partial.parent == target.parent
            assert partial.suffix == ".bin"
            assert not target.exists()

        assert [path.name for path in target.parent.iterdir()] == ["tokens.bin"]
        assert target.read_bytes() == b"12"

    def test_a_file_replaces_an_older_one(self, tmp_path: Path) -> None:
        target = tmp_path / "a"
        target.write_text("old")
        with staged(target) as partial:
            partial.write_text("new")

        assert target.read_text() == "new"

    def test_a_folder_appears_whole(self, tmp_path: Path) -> None:
        target = tmp_path / "images"
        with staged(target) as partial:
            partial.mkdir()
            (partial / "0.jpg").touch()

        assert [path.name for path in target.iterdir()] == ["0.jpg"]

    def test_the_folder_that_was_complete_first_stays(self, tmp_path: Path) -> None:
        target = tmp_path / "images"
        with staged(target) as slow:
            slow.mkdir()
            (slow / "slow").touch()
            with staged(target) as fast:
                fast.mkdir()
                (fast / "fast").touch()

        assert [path.name for path in target.iterdir()] == ["fast"]
        assert [path.name for path in tmp_path.iterdir()] == ["images"]

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_an_exception_leaves_nothing(self, tmp_path: Path, kind: str) -> None:
        def fail() -> None:
            with staged(tmp_path / "a") as partial:
                partial.touch() if kind == "file" else partial.mkdir()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()

        assert list(tmp_path.iterdir()) == []

    def test_a_block_that_writes_nothing_is_an_error(self, tmp_path: Path) -> None:
        with (
            pytest.raises(FileNotFoundError, match="nothing was written"),
            staged(tmp_path / "a"),
        ):
            pass

    def test_only_what_dead_processes_left_of_the_same_path_is_removed(
        self, tmp_path: Path
    ) -> None:
        target = tmp_path / "b.bin"
        with staged(target) as living:
            living.touch()
            node = living.name.split("~")[0].removeprefix(".partial-")
            # This process's number, started at another time: a process that is gone.
            pid, ticks = os.getpid(), start_ticks(os.getpid())
            dead = tmp_path / f".partial-{node}~{pid}~{ticks - 1}~00000000-b.bin"
            other_path = tmp_path / f".partial-{node}~{pid}~{ticks - 1}~00000000-a-b.bin"
            other_node = tmp_path / f".partial-{'0' * 12}~{pid}~{ticks - 1}~00000000-b.bin"
            for path in (dead, other_path, other_node):
                path.touch()
            with staged(target) as partial:
                partial.touch()

            assert not dead.exists()
            assert living.exists()
            assert other_path.exists()
            assert other_node.exists()


class TestShard:
    @given(items=st.lists(st.integers()), size=st.integers(1, 9))
    def test_shares_are_the_whole_each_item_once(self, items: list[int], size: int) -> None:
        numbered = list(enumerate(items))
        shares = []
        with pytest.MonkeyPatch.context() as patch:
            for rank in range(size):
                as_rank(patch, rank, size)
                shares.append(shard(numbered))

        assert sorted(item for share in shares for item in share) == numbered
        assert max(map(len, shares)) - min(map(len, shares)) <= 1

    @given(length=st.integers(0, 50), size=st.integers(1, 9))
    def test_with_drop_last_all_are_equally_long(self, length: int, size: int) -> None:
        shares = []
        with pytest.MonkeyPatch.context() as patch:
            for rank in range(size):
                as_rank(patch, rank, size)
                shares.append(shard(range(length), drop_last=True))

        assert {len(share) for share in shares} == {length // size}

    def test_the_share_of_rank_1_of_3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        as_rank(monkeypatch, 1, 3)

        assert shard("abcdefgh") == "beh"
        assert shard("abcdefgh", drop_last=True) == "be"
        assert torch.equal(shard(torch.arange(5)), torch.tensor([1, 4]))  # type: ignore[type-var,arg-type]


class Files(IterableDataset[int]):
    """Six file numbers, each worker reading its share."""

    def __iter__(self) -> Any:
        return iter(shard(range(6)))


def samples(rank: int, size: int, *, passes: int = 1, **options: Any) -> list[list[list[int]]]:
    """Per pass, per batch, the samples of one rank over 0..11."""
    with pytest.MonkeyPatch.context() as patch:
        as_rank(patch, rank, size)
        loader = distributed_loader(TensorDataset(torch.arange(12)), 2, **options)
        return [[batch.tolist() for (batch,) in loader] for _ in range(passes)]


class TestDistributedLoader:
    def test_ranks_share_the_samples_out(self) -> None:
        # GIVEN 12 samples and 3 ranks THEN each has 2 batches of 2, and no sample comes twice.
        passes = [samples(rank, 3)[0] for rank in range(3)]

        assert [len(batches) for batches in passes] == [2, 2, 2]
        assert sorted(n for batches in passes for batch in batches for n in batch) == [*range(12)]

    def test_without_shuffle_the_order_is_kept(self) -> None:
        assert samples(1, 2, shuffle=False) == [[[1, 3], [5, 7], [9, 11]]]

    def test_each_pass_has_another_order_and_the_same_on_each_run(self) -> None:
        first, second = samples(0, 1, passes=2)

        assert first != second
        assert sorted(chain(*first)) == sorted(chain(*second)) == [*range(12)]
        assert samples(0, 1, passes=2) == [first, second]
        assert samples(0, 1, seed=1) != [first]

    def test_a_resumed_job_goes_on_with_the_epoch_it_sets(self) -> None:
        loader = distributed_loader(TensorDataset(torch.arange(12)), 2)
        loader.sampler.set_epoch(1)  # type: ignore[attr-defined]

        assert [batch.tolist() for (batch,) in loader] == samples(0, 1, passes=2)[1]

    def test_the_end_that_gives_no_full_batch_is_dropped_on_all_ranks(self) -> None:
        # GIVEN 12 samples, 5 ranks THEN 2 samples each, 2 samples of the 12 left out.
        assert [len(samples(rank, 5)[0]) for rank in range(5)] == [1] * 5

    def test_without_drop_last_shares_are_filled_up(self) -> None:
        # GIVEN 12 samples, 5 ranks THEN 3 each: a batch of 2 and one of 1.
        passes = [samples(rank, 5, drop_last=False)[0] for rank in range(5)]

        assert [[len(batch) for batch in batches] for batches in passes] == [[2, 1]] * 5

    def test_a_rank_without_a_batch_is_refused(self) -> None:
        with pytest.raises(ValueError, match="each of 7 ranks has 1 samples"):
            samples(0, 7)

    @pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
    def test_a_second_sampler_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}= conflicts"):
            samples(0, 2, **{name: [0, 1]})

    def test_an_iterable_dataset_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"sfbench\.data\.shard"):
            distributed_loader(Files(), 2, shuffle=False)

    def test_an_iterable_dataset_shares_itself_out_by_rank(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        as_rank(monkeypatch, 1, 2)

        assert [int(n) for n in DataLoader(Files(), batch_size=None)] == [1, 3, 5]

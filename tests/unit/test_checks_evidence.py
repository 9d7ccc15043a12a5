"""What the hooks of the correctness checks note, without any other rank."""

from __future__ import annotations

import builtins
import dataclasses
import json
import logging
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from sfbench.common.schema import ProbeOptions
from sfbench.probe.checkpace import CheckPace, Seen
from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.pace import DONE, BlockFacts, Command
from sfbench.probe.recording.call_site import CallSite, calls_by_for
from sfbench.probe.recording.content import batch_prints, dataset_digest
from sfbench.probe.recording.learning_rates import RateWatch
from sfbench.probe.recording.loaders import LoaderWatch
from sfbench.probe.recording.opened_files import FileWatch
from sfbench.probe.recording.splits import SplitWatch, sketch
from sfbench.probe.recording.states import wrapped_keys
from sfbench.probe.replaying.replay import RungReplay
from sfbench.protocol.evidence import Epoch, Loader, RankEvidence, Written, from_json

HERE = Path(__file__).name


@pytest.fixture
def taps() -> Iterator[Taps]:
    taps = Taps()
    yield taps
    taps.restore()


# -- values ---------------------------------------------------------------------------------------


def test_evidence_survives_json() -> None:
    loader = Loader(
        line="a.py:1", trains=True, length=None, dataset="D", dataset_size=3, dataset_digest=1,
        sampler="S", takes_all=True, shuffles=None, has_set_epoch=False,
        epochs=(Epoch(order=(2, 1), batches=1, ended=True),), indices=(2, 1),
    )  # fmt: skip
    written = Written(path="/x", line="", sync_point=0, setup=True)
    evidence = RankEvidence(
        rank=1, host="h", threads=2, peers=(0, 1), loaders=(loader,), written=(written,)
    )

    again = from_json(RankEvidence, json.loads(json.dumps(dataclasses.asdict(evidence))))

    assert again == evidence


# -- place ----------------------------------------------------------------------------------------


def test_the_line_is_the_scripts_innermost_one() -> None:
    place = CallSite(str(Path(__file__).parent))

    assert place.line().startswith(f"{HERE}:")
    assert CallSite("/elsewhere").line() == ""


class Asked:
    """An iterator that remembers how it was asked."""

    def __init__(self) -> None:
        self.by_for: list[bool] = []

    def __iter__(self) -> Asked:
        return self

    def __next__(self) -> int:
        import sys

        self.by_for.append(calls_by_for(sys._getframe(1)))
        if len(self.by_for) == 2:
            raise StopIteration
        return 0


def all_of(items: Asked) -> Iterator[int]:
    yield from items


def test_a_for_loop_is_told_from_next() -> None:
    plain, numbered, delegated, called = Asked(), Asked(), Asked(), Asked()

    for _ in plain:
        pass
    for _ in enumerate(numbered):
        pass
    for _ in all_of(delegated):
        pass
    next(called)
    next(called, None)

    assert plain.by_for == numbered.by_for == delegated.by_for == [True, True]
    assert called.by_for == [False, False]


# -- contents -------------------------------------------------------------------------------------


def test_samples_are_told_apart_wherever_they_stand_in_a_batch() -> None:
    x, y = torch.randn(6, 5, 5), torch.arange(6)

    whole = batch_prints({"x": x, "y": y}, 6)
    turned = batch_prints({"x": x.flip(0), "y": y.flip(0)}, 6)

    assert len(set(whole.contents)) == len(set(whole.labels)) == 6
    assert turned.contents == whole.contents[::-1]
    assert turned.labels == whole.labels[::-1]


def test_labels_do_not_see_pixels() -> None:
    y = torch.arange(3)

    a, b = (batch_prints((torch.randn(3, 4), y), 3) for _ in range(2))

    assert a.labels == b.labels
    assert a.contents != b.contents
    assert batch_prints(torch.randint(0, 255, (3, 4), dtype=torch.uint8), 3).labels == []


def test_a_batch_that_cannot_be_taken_apart_counts_as_one() -> None:
    time_first = torch.randn(7, 4)

    got = batch_prints(time_first, 4)

    assert (got.whole, len(got.contents), got.labels) == (True, 1, [])
    assert batch_prints(time_first.clone(), 4) == got
    assert batch_prints(["a", "b"], 2) != batch_prints(["a", "c"], 2)


class Files:
    def __init__(self, names: list[str], rank: int = 0) -> None:
        self.names, self.rank = names, rank
        self.lock = object()


def test_datasets_are_told_apart_by_what_they_hold() -> None:
    names = [f"{i}.jpg" for i in range(1000)]

    digest = dataset_digest(Files(names))

    assert digest == dataset_digest(Files(list(names)))
    assert digest != dataset_digest(Files(names[1:]))
    assert digest != dataset_digest(Files(names, rank=1))
    assert dataset_digest(TensorDataset(torch.zeros(9))) != dataset_digest(
        TensorDataset(torch.ones(9))
    )


# -- splits ---------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 10**9), max_size=600))
def test_a_sketch_is_a_function_of_the_set(numbers: set[int]) -> None:
    up = np.array(sorted(numbers), dtype=np.int64)

    got = sketch(up)

    assert got == sketch(up[::-1].copy()) == tuple(sorted(set(got)))
    assert len(got) == min(len(numbers), 256)


def test_parts_of_a_dataset_are_numbered_by_it(taps: Taps) -> None:
    watch = SplitWatch(CallSite(str(Path(__file__).parent)))
    watch.install(taps)
    data, other = TensorDataset(torch.arange(8)), TensorDataset(torch.arange(8))

    for parent, indices in ((data, [0, 1]), (data, range(2, 8)), (other, torch.arange(3))):
        Subset(parent, indices)

    assert [(s.parent, s.size) for s in watch.splits] == [(0, 2), (0, 6), (1, 3)]
    assert all(s.line.startswith(HERE) for s in watch.splits)


# -- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "names", "wrong"),
    [
        (["module.a.weight"], {"a.weight"}, ["module.a.weight"]),
        (["a.weight"], {"a.weight"}, []),
        (["module.a.weight"], {"module.a.weight"}, []),
        (["module.module.a.weight"], {"module.a.weight"}, ["module.module.a.weight"]),
        (["net.module.a.weight"], {"a.weight"}, ["net.module.a.weight"]),
        (["_orig_mod.a.weight"], {"a.weight"}, ["_orig_mod.a.weight"]),
        (["n_averaged", "module.a.weight"], {"a.weight"}, []),
        (["module.a", "module.b"], set(), ["module.a", "module.b"]),
        (["module.a", "b"], set(), []),
        ([3, "exp_avg"], {"a.weight"}, []),
    ],
)
def test_names_of_wrappers_in_keys(state: list[str], names: set[str], wrong: list[str]) -> None:
    value = dict.fromkeys(state, torch.zeros(1))

    assert list(wrapped_keys("", value, names)) == wrong
    assert list(wrapped_keys("ema.", value, names)) == [f"ema.{key}" for key in wrong]


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def files(taps: Taps, tmp_path: Path) -> FileWatch:
    watch = FileWatch(CallSite(str(Path(__file__).parent)), lambda: 3, str(tmp_path / "launch"))
    watch.install(taps)
    return watch


def test_files_opened_for_writing_are_noted_once(files: FileWatch, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    path.write_text("one")
    path.write_text("one and more")
    os.close(os.open(tmp_path / "b.txt", os.O_WRONLY | os.O_CREAT))
    handler = logging.FileHandler(tmp_path / "c.log")
    handler.close()

    found = files.written(ended=True)
    assert [Path(w.path).name for w in found] == ["a.txt", "b.txt", "c.log"]
    assert [(w.size_bytes, w.appends, w.sync_point) for w in found] == [
        (12, False, 3),
        (0, False, 3),
        (0, True, 3),
    ]
    assert all(w.line.startswith(HERE) and w.setup for w in found)


def test_what_is_no_data_is_not_noted(files: FileWatch, tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "record").write_text("own")
    (tmp_path / "x.lock").write_text("")
    Path(os.devnull).write_text("x")
    with pytest.raises(FileNotFoundError):
        (tmp_path / "nowhere" / "a.txt").write_text("")

    assert files.written(ended=True) == ()


def test_reads_count_until_the_first_update(files: FileWatch, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(FileNotFoundError):
        path.read_text()
    path.write_text("x")
    time.sleep(0)
    path.read_text()
    list(tmp_path.iterdir())
    files.setup = False
    (tmp_path / "b.txt").write_text("y")
    (tmp_path / "b.txt").read_text()

    reads = {Path(read.path).name: (read.found, read.waited) for read in files.reads()}
    assert reads == {"a.txt": (True, True), tmp_path.name: (True, True)}
    assert [w.setup for w in files.written(ended=False)] == [True, False]


def test_stand_ins_behave_as_built_in_functions(files: FileWatch, tmp_path: Path) -> None:
    class Reader:
        opener = open

    path = tmp_path / "a.txt"
    path.write_text("x")

    with Reader().opener(path) as file:
        assert file.read() == "x"
    assert pickle.loads(pickle.dumps(time.sleep)) is time.sleep


def test_built_in_functions_come_back(tmp_path: Path) -> None:
    before = (builtins.open, os.open, os.listdir, os.scandir, time.sleep)
    taps = Taps()
    FileWatch(CallSite(str(Path(__file__).parent)), lambda: 0, str(tmp_path)).install(taps)

    taps.restore()

    assert (builtins.open, os.open, os.listdir, os.scandir, time.sleep) == before


# -- loaders --------------------------------------------------------------------------------------


@pytest.fixture
def loaders(taps: Taps) -> LoaderWatch:
    hooks = LoaderHooks(Pulse([0.0] * 10), RungReplay(lambda key: True))
    hooks.install(taps)
    watch = LoaderWatch(CallSite(str(Path(__file__).parent)), hooks, lambda: True, lambda key: True)
    watch.install(taps)
    return watch


def rows(count: int = 20) -> TensorDataset:
    return TensorDataset(torch.arange(count), torch.randn(count, 2))


def shared(data: TensorDataset, **options: object) -> DataLoader[tuple[torch.Tensor, ...]]:
    sampler = DistributedSampler(data, num_replicas=2, rank=0, **options)
    return DataLoader(data, batch_size=2, sampler=sampler)


@pytest.mark.parametrize("workers", [0, 1])
def test_passes_over_a_loader(loaders: LoaderWatch, workers: int) -> None:
    # GIVEN a loader, lasting workers or none
    data = rows()
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    loader = DataLoader(
        data, 2, sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    )
    # WHEN it is gone through twice, and left in the third pass
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert len(list(loader)) == 5
    for _ in loader:
        break
    # THEN each pass is told, with its order and what its samples hold
    (seen,) = loaders.loaders()
    assert [(e.batches, e.ended) for e in seen.epochs] == [(5, True), (5, True), (1, False)]
    assert seen.epochs[0].order == seen.indices
    assert seen.epochs[1].order != seen.epochs[0].order
    assert seen.epochs[2].order[:2] == seen.epochs[1].order[:2]
    assert len(set(seen.contents)) == len(seen.labels) == len(seen.indices) == 10
    assert (seen.dataset, seen.dataset_size, seen.length) == ("TensorDataset", 20, 5)
    assert (seen.sampler, seen.takes_all, seen.shuffles) == ("DistributedSampler", False, True)


def test_a_batch_taken_to_look_at_is_not_the_first_pass(loaders: LoaderWatch) -> None:
    loader = DataLoader(rows(), batch_size=2, shuffle=True)
    next(iter(loader))

    for _ in loader:
        pass

    (seen,) = loaders.loaders()
    assert seen.takes_all
    assert seen.indices == seen.epochs[1].order
    assert len(seen.contents) == 20


def test_a_pass_ends_early_only_where_a_loop_can_bear_it(loaders: LoaderWatch) -> None:
    loader = shared(rows())
    loaders.end_now = True

    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
        loaders.end_now = True
    for fetched, _ in enumerate(loader, start=1):
        loaders.end_now = fetched == 3

    (seen,) = loaders.loaders()
    assert [(e.batches, e.shortened) for e in seen.epochs] == [(5, False), (3, True)]


def test_loops_without_gradients_are_short_in_a_check(loaders: LoaderWatch) -> None:
    loaders.shortens = True

    with torch.no_grad():
        short = sum(1 for _ in shared(rows()))
    whole = sum(1 for _ in shared(rows()))

    assert (short, whole) == (4, 5)


def test_an_endless_loop_is_told_from_epochs(loaders: LoaderWatch) -> None:
    def cycle(loader: object) -> Iterator[object]:
        while True:
            yield from loader  # type: ignore[misc]

    batches = cycle(shared(rows()))
    for _ in range(7):
        next(batches)
    data = rows(24)
    for _ in range(2):
        for _ in shared(data):
            pass

    endless, epochs = loaders.loaders()
    assert [e.cycled for e in endless.epochs] == [False, True]
    assert not any(e.cycled for e in epochs.epochs)


def test_the_end_of_a_pass_stands_until_the_next_batch(loaders: LoaderWatch) -> None:
    loader = shared(rows())

    states = []
    for _ in loader:
        states.append(loaders.ended is not None)
    states.append(loaders.ended is not None)
    next(iter(loader))
    states.append(loaders.ended is not None)

    assert states == [False] * 5 + [True, False]


# -- rates ----------------------------------------------------------------------------------------


def test_scheduler_steps_between_updates(taps: Taps) -> None:
    watch = RateWatch(CallSite(str(Path(__file__).parent)))
    watch.install(taps)
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.5)
    schedule = ExponentialLR(optimizer, 0.5)

    for steps in (0, 1, 2):
        optimizer.step()
        watch.updated(id(optimizer), optimizer)
        for _ in range(steps):
            schedule.step()
    optimizer.step()
    watch.updated(id(optimizer), optimizer)

    (seen,) = watch.optimizers()
    assert (seen.name, seen.rate, seen.scheduler) == ("SGD", 0.5, "ExponentialLR")
    assert seen.scheduler_steps == (0, 1, 2)


# -- the schedule of a check ----------------------------------------------------------------------


class FakeLoop:
    """A loop of 0.1 s steps and epochs of a given length, driven by the schedule."""

    def __init__(self, epoch_steps: int, superfluous: int = 0, may_shorten: bool = True) -> None:
        self.now_s, self.passes, self.ended = 0.0, 1, 0
        self._length, self._place = epoch_steps, 0
        self._superfluous = superfluous
        options = ProbeOptions(checks=True, seconds=10.0, may_shorten=may_shorten)
        self.pace = CheckPace(options, lambda: Seen(self.passes, self.ended, self._superfluous))

    def run(self) -> list[Command]:
        commands: list[Command] = []
        command = self.pace.send(BlockFacts(now_s=0.0, step_s=[0.1], samples=1.0))
        while command.kind != DONE:
            commands.append(command)
            if command.end_pass:
                self.passes, self._place = self.passes + 1, 0
            step_s = 0.06 if command.trial else 0.1
            for _ in range(command.steps):
                self._step()
            self.now_s += step_s * command.steps
            facts = BlockFacts(now_s=self.now_s, step_s=[step_s] * command.steps, samples=1.0)
            command = self.pace.send(facts)
        return commands

    def _step(self) -> None:
        self._place += 1
        if self._place == self._length:
            self.passes, self.ended, self._place = self.passes + 1, self.ended + 1, 0


def test_short_epochs_end_by_themselves_first() -> None:
    loop = FakeLoop(epoch_steps=5)

    commands = loop.run()

    first_forced = [c.end_pass for c in commands].index(1)
    assert sum(c.steps for c in commands[:first_forced]) == 10
    assert loop.now_s == pytest.approx(10.0, abs=0.5)


def test_long_epochs_are_ended_after_a_while() -> None:
    loop = FakeLoop(epoch_steps=10**6)

    commands = loop.run()

    first_forced = [c.end_pass for c in commands].index(1)
    assert sum(c.steps for c in commands[:first_forced]) == 40
    assert all(c.end_pass for c in commands[first_forced:])
    assert loop.passes > 3
    assert loop.ended == 0


def test_nothing_is_ended_where_that_was_forbidden() -> None:
    loop = FakeLoop(epoch_steps=10**6, may_shorten=False)

    commands = loop.run()

    assert not any(c.end_pass for c in commands)
    assert loop.now_s == pytest.approx(6.0, abs=0.5)


def test_superfluous_syncs_are_left_out_for_a_trial() -> None:
    loop = FakeLoop(epoch_steps=10**6, superfluous=4)

    commands = loop.run()

    assert [c.trial for c in commands[:8]] == [0, 1] * 4
    assert loop.pace.sync_cost_s == pytest.approx(0.04)

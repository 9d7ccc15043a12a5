"""The probe's small parts: taps, kept batches, weights, saves, local collectives, clocks."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from sfbench.probe import clock
from sfbench.probe.closing import one_of_several
from sfbench.probe.hooks import own_faults
from sfbench.probe.hooks.collectives import CollectiveHooks
from sfbench.probe.hooks.events import Event
from sfbench.probe.hooks.loader_hooks import LoaderHooks
from sfbench.probe.hooks.model_hooks import Models
from sfbench.probe.hooks.next_training import is_another
from sfbench.probe.hooks.own_faults import is_own
from sfbench.probe.hooks.passes import Source
from sfbench.probe.hooks.pulse import Pulse
from sfbench.probe.hooks.saves import SaveHooks
from sfbench.probe.hooks.taps import Taps
from sfbench.probe.hooks.weak import WeakTable
from sfbench.probe.replaying.batch import fingerprint, samples_in
from sfbench.probe.replaying.replay import RungReplay
from sfbench.probe.replaying.ring import Ring
from sfbench.probe.replaying.weights import Snapshot, checksum


class Base:
    def hello(self) -> str:
        return "base"


class Child(Base):
    pass


def test_taps_put_everything_back_also_what_was_inherited() -> None:
    taps = Taps()
    taps.replace(Child, "hello", lambda self: "patched")
    taps.wrap(Child, "hello", lambda old: lambda self: old(self) + " twice")
    assert Child().hello() == "patched twice"
    taps.restore()
    assert "hello" not in vars(Child)
    assert Child().hello() == "base"


def twice(old: Any) -> Any:
    return lambda self: old(self) + " twice"


def loud(old: Any) -> Any:
    return lambda self: old(self) + "!"


def test_a_tap_is_made_anew_as_listeners_come_and_leave() -> None:
    # GIVEN one tap with two listeners
    taps, original = Taps(), Base.hello
    first, second = (taps.wrap(Base, "hello", make) for make in (twice, loud))
    said = [Base().hello()]
    # WHEN one leaves, comes to listen in another way, and both leave
    first.leave()
    said.append(Base().hello())
    second.swap(twice)
    said.append(Base().hello())
    second.leave()
    first.leave()
    # THEN with none left the original is back
    assert said == ["base twice!", "base!", "base twice"]
    assert Base.hello is original
    taps.restore()
    assert Base.hello is original


def test_a_tap_does_not_undo_what_a_script_has_wrapped_around_it() -> None:
    taps, original = Taps(), Base.hello
    listener = taps.wrap(Base, "hello", twice)
    ours = Base.hello
    Base.hello = theirs = loud(ours)  # type: ignore[method-assign]
    try:
        listener.leave()
        assert Base.hello is theirs
        assert Base().hello() == "base twice!"
    finally:
        taps.restore()
    assert Base.hello is original


def test_what_is_tapped_keeps_name_signature_and_attributes() -> None:
    def plain(self: Any, size: int = 3, *, deep: bool = False) -> None:
        """Said by the library."""

    plain.hooked = True  # type: ignore[attr-defined]

    class Owner:
        method = plain

    taps = Taps()
    taps.wrap(Owner, "method", loud)
    tapped: Any = Owner.method
    assert tapped is not plain
    assert inspect.signature(tapped) == inspect.signature(plain)
    assert (tapped.__name__, tapped.__doc__, tapped.hooked) == ("plain", plain.__doc__, True)
    assert list(inspect.signature(Owner().method).parameters) == ["size", "deep"]
    taps.restore()


def test_a_weak_table_forgets_with_the_object() -> None:
    table: WeakTable[str] = WeakTable()
    owner, other = Base(), Base()
    table.put(owner, "a")
    table.put(owner, "b")
    assert (table.get(owner), table.get(other)) == ("b", None)
    del owner
    assert table.by_id == {}


def test_models_come_in_the_order_of_their_first_call_as_long_as_they_live() -> None:
    models = Models()
    called: list[Any] = [torch.nn.Linear(1, 1) for _ in range(20)]
    for model in [*called, *reversed(called)]:
        models.add(model)
    assert list(models) == called
    del model, called[0]
    assert list(models) == called


Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Sample:
    image: torch.Tensor
    name: str


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, 3),
        (torch.zeros(4, 3), torch.zeros(4)),
        {"image": torch.zeros(4, 3), "meta": {"label": torch.zeros(4)}},
        Pair(torch.zeros(4, 3), torch.zeros(4)),
        Sample(torch.zeros(4, 3), "a"),
        [np.zeros((4, 3)), "text"],
        {"scale": torch.tensor(1.0), "x": torch.zeros(4, 2)},
    ],
)
def test_samples_are_the_leading_dimension_of_any_batch(batch: Any) -> None:
    assert samples_in(batch) == 4


def test_fingerprints_tell_contents_apart_but_not_objects() -> None:
    one, same, other = torch.arange(6.0), torch.arange(6.0), torch.arange(6.0).flip(0)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_a_ring_survives_changes_in_place() -> None:
    # GIVEN a kept batch
    ring = Ring()
    ring.keep("k", {"x": torch.ones(2, 2), "names": ["a", "b"]}, 2)
    # WHEN the script changes what it was handed
    batch, samples = ring.take("k")
    batch["x"].mul_(7)
    batch["names"].append("c")
    del batch["x"]
    # THEN the next visit gets it as the loader gave it
    again, _ = ring.take("k")
    assert samples == 2
    assert torch.equal(again["x"], torch.ones(2, 2))
    assert again["names"] == ["a", "b"]


def test_an_unchanged_batch_is_handed_out_without_a_copy() -> None:
    ring = Ring()
    ring.keep("k", (torch.ones(2),), 2)
    assert ring.take("k")[0][0] is ring.take("k")[0][0]


def test_a_ring_begins_at_the_batch_it_is_told() -> None:
    ring = Ring(size=3)
    for n in range(5):
        ring.keep("k", torch.full((1,), float(n)), 1)
    first = [float(ring.take("k")[0]) for _ in range(4)]
    ring.rewind(start=4)
    second = [float(ring.take("k")[0]) for _ in range(3)]
    assert first == [0.0, 1.0, 2.0, 0.0]
    assert second == [1.0, 2.0, 0.0]


@pytest.mark.parametrize(("rung", "rows"), [("half", 2), ("double", 8), ("cached", 4)])
def test_batches_are_cut_and_joined(rung: Any, rows: int) -> None:
    ring = Ring()
    ring.keep("k", (torch.arange(4), {"y": torch.zeros(4, 2)}, torch.tensor(3)), 4)
    ring.rewind(rung)
    batch, samples = ring.take("k")
    assert (batch[0].shape[0], batch[1]["y"].shape[0], samples) == (rows, rows, rows)


def test_a_batch_of_one_is_joined_but_not_cut() -> None:
    ring = Ring()
    ring.keep("k", torch.zeros(1, 3), 1)
    assert ring.can_resize()
    samples = {}
    for rung in ("half", "double"):
        ring.rewind(rung)
        samples[rung] = ring.take("k")[1]
    assert samples == {"half": 1, "double": 2}


def test_weights_and_optimizer_state_come_back() -> None:
    # GIVEN a model that has made one Adam step
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()

    step()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    sums = checksum([optimizer])
    # WHEN three steps are made and undone
    snapshot = Snapshot([model], [optimizer], [])
    for _ in range(3):
        step()
    assert checksum([optimizer]) != sums
    snapshot.restore()
    # THEN
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    steps = {float(state["step"]) for state in optimizer.state.values()}
    assert steps == {1.0}


@pytest.mark.parametrize("allow", [False, True])
def test_saves_are_timed_and_remembered(tmp_path: Path, allow: bool) -> None:
    # GIVEN a script that saves to a part file and renames it
    events: list[Event] = []
    hooks, taps = SaveHooks(events.append, rank=1, allow=allow), Taps()
    hooks.install(taps)
    part, final = tmp_path / "model.pt.part", tmp_path / "model.pt"
    try:
        # WHEN
        torch.save({"model": {"module.weight": torch.ones(1)}, "epoch": 3}, part)
        os.replace(part, final)  # noqa: PTH105 - as scripts write it
        shutil.copy2(part.with_name("model.pt"), tmp_path / "best.pt")
    finally:
        taps.restore()
    # THEN
    assert final.read_bytes() == (tmp_path / "best.pt").read_bytes() != b""
    (save,) = hooks.saves
    assert (save.rank, save.path, save.written) == (1, str(part), allow)
    assert save.keys == ("model", "model.module.weight", "epoch")
    assert len(events) == 1


def test_copies_of_what_was_saved_are_timed_and_no_other(tmp_path: Path) -> None:
    events: list[Event] = []
    hooks, taps = SaveHooks(events.append, rank=0, allow=False), Taps()
    hooks.install(taps)
    (tmp_path / "data.txt").write_text("a sample")
    try:
        torch.save({"epoch": 3}, tmp_path / "last.pt")
        shutil.copyfile(tmp_path / "last.pt", tmp_path / "best.pt")
        shutil.copy2(tmp_path / "best.pt", tmp_path / "kept.pt")
        shutil.copyfile(tmp_path / "data.txt", tmp_path / "cached.txt")
    finally:
        taps.restore()
    assert len(events) == 3


def test_collectives_answer_locally_while_ranks_run_apart() -> None:
    hooks, taps = CollectiveHooks(), Taps()
    hooks.install(taps)
    hooks.local = True
    try:
        tensor = torch.tensor([1.0, 2.0])
        work = dist.all_reduce(tensor, async_op=True)
        gathered = [torch.zeros(2), torch.zeros(2)]
        dist.all_gather(gathered, tensor)
        flat = torch.zeros(4)
        dist.all_gather_into_tensor(flat, tensor)
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"a": 1})
        dist.barrier()
    finally:
        taps.restore()
    assert work is not None
    assert work.is_completed()
    assert torch.equal(tensor, torch.tensor([1.0, 2.0]))
    assert all(torch.equal(g, tensor) for g in gathered)
    assert torch.equal(flat, torch.tensor([1.0, 2.0, 1.0, 2.0]))
    assert objects == [{"a": 1}, {"a": 1}]


def test_the_cpu_clock_counts_from_its_making(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.time, "perf_counter", lambda: 10.0)
    cpu = clock.clock_for("cpu")
    assert cpu.resolve([10.5, 12.0]) == [0.5, 2.0]


def hooked(kind: str) -> BaseException:
    """What comes out of a loader whose dataset or whose hook fails, as a script would see it."""
    taps, hooks = Taps(), LoaderHooks(Pulse([0.0] * 10), RungReplay(lambda key: True))
    hooks.install(taps)

    def broken(source: Source) -> None:
        [][len(source.order)]

    class Data(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            if kind == "dataset":
                raise KeyError(index)
            return index

    if kind == "hook":
        hooks.on_first = broken
        # It stands in a test, and hooks do not.
        code = broken.__code__.replace(co_filename=own_faults.__file__, co_firstlineno=1)
        broken.__code__ = code
    try:
        for batch in torch.utils.data.DataLoader(Data(), batch_size=2):
            if kind == "script":
                raise RuntimeError(f"at {batch}")
    except Exception as error:
        return error
    finally:
        taps.restore()
    raise AssertionError("nothing failed")


@pytest.mark.parametrize(
    ("kind", "error", "own"),
    [("script", RuntimeError, False), ("dataset", KeyError, False), ("hook", IndexError, True)],
)
def test_a_fault_of_a_hook_is_told_from_the_script_s(kind: str, error: type, own: bool) -> None:
    raised = hooked(kind)
    assert type(raised) is error
    assert is_own(raised) is own


def test_hooks_call_what_they_stand_for_original() -> None:
    # What tells a hook's own fault reads the name: every stand-in is made around an ``original``.
    makers = [
        (path.name, node)
        for path in Path(clock.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_around")
    ]
    assert len(makers) > 30
    unnamed = [(name, node.name) for name, node in makers if "original" not in ast.unparse(node)]
    assert unnamed == []


def test_own_collectives_of_every_step_are_told_by_their_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(1))
    monkeypatch.setattr(dist, "barrier", lambda: None)
    updates = 0
    taps = Taps()
    hooks = CollectiveHooks(lambda: "train.py:7", trains=lambda: updates > 0)
    hooks.install(taps)
    try:
        dist.all_reduce(torch.ones(3))  # of the set-up
        for _ in range(3):
            updates += 1
            for _ in range(2):
                dist.all_reduce(torch.ones(3))
        dist.barrier()
        hooks.listens = False
        dist.all_reduce(torch.ones(3))
    finally:
        taps.restore()
    # THEN 6 from the first to the fourth update are two a step, and one barrier is none of every
    [one] = hooks.per_step(4)
    assert (one.name, one.line, one.calls_per_step) == ("all_reduce", "train.py:7", 2.0)
    assert one.bytes == 12
    assert one.seconds > 0


def test_another_training_in_the_same_script_is_told() -> None:
    said = one_of_several(1000, 250_000)
    assert "measured is the first, of 1,000 parameters" in said
    assert "(the next has 250,000)" in said
    assert "the next" not in one_of_several(1000, 0)


def test_another_training_has_other_parameters_or_many_more() -> None:
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    # WHEN an optimizer is made anew for the same model THEN its training goes on
    assert not is_another(one.parameters(), one.parameters())
    # WHEN it is for another model, or for all of one of which a part was trained THEN it does not
    assert is_another(one.parameters(), other.parameters())
    assert is_another([one.bias], one.parameters())

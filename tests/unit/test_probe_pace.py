"""Rank 0's schedule: warmup, blocks in turn, the end."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sfbench.common.schema import LADDER, RUNGS, ProbeOptions, Rung
from sfbench.probe.pace import BLOCK, DONE, LOOKS, WARMUP, BlockFacts, Command, Pace, t95


def drive(  # noqa: PLR0913 - a small language for schedules
    options: ProbeOptions,
    *,
    rungs: tuple[Rung, ...] = ("train",),
    ranks: int = 1,
    step_s: float = 0.01,
    queued: int = 0,
    noise: float = 0.0,
    can_curve: bool = False,
    on_device: bool = False,
) -> list[Command]:
    """All commands of a run whose every step takes ``step_s``."""
    pace = Pace(options, rungs, ranks, queued, lambda: can_curve, on_device=on_device)
    commands: list[Command] = []
    now, steps = 4 * step_s, [step_s] * 4
    for n in range(10_000):
        command = pace.send(BlockFacts(now_s=now, step_s=steps, samples=8.0 * len(steps)))
        commands.append(command)
        if command.kind == DONE:
            return commands
        took = step_s * (1 + noise * (n % 2))
        now += took * (command.skip + command.steps)
        steps = [took] * command.steps
    raise AssertionError("never done")


def blocks(commands: list[Command]) -> list[Command]:
    return [c for c in commands if c.kind == BLOCK]


def test_warmup_of_a_given_length_counts_discovery() -> None:
    commands = drive(ProbeOptions(warmup_steps=30, seconds=1.0))
    assert commands[0] == Command(WARMUP, steps=26)
    assert commands[1].kind == BLOCK


def test_warmup_found_goes_on_until_steady() -> None:
    commands = drive(ProbeOptions(seconds=1.0))
    assert 4 + sum(c.steps for c in commands if c.kind == WARMUP) >= 25


def test_train_only_blocks_fill_the_budget() -> None:
    # GIVEN steps of 10 ms and blocks of an eighth of one second
    commands = blocks(drive(ProbeOptions(seconds=1.0, precision=1e-9), noise=0.1))
    assert {c.steps for c in commands} == {12}
    assert all(RUNGS[c.rung] == "train" and c.skip == 0 for c in commands)
    assert 1.0 <= sum(0.0105 * c.steps for c in commands) < 1.3
    assert [c.block for c in commands] == list(range(len(commands)))


def test_precision_ends_a_run_only_at_a_look() -> None:
    commands = blocks(drive(ProbeOptions(seconds=100.0, precision=0.5, block_s=0.1)))
    assert len(commands) == LOOKS[0]


def test_one_pass_visits_each_rung_once_and_the_job_first() -> None:
    # GIVEN steps of 10 ms, and 2.4 s for eight blocks of train and four of cached
    commands = blocks(drive(ProbeOptions(seconds=2.4, one_pass=True), rungs=LADDER, ranks=2))
    assert {c.steps for c in commands} == {20}
    visits = [(RUNGS[c.rung], c.turn, c.cycle) for c in commands]
    assert visits[:8] == [("train", -1, cycle) for cycle in range(8)]
    assert visits[8:12] == [("cached", -1, cycle) for cycle in range(4)]
    assert sorted(visits[12:]) == sorted(
        (rung, turn, cycle)
        for rung, turn in (("unsynced", -1), ("solo", 0), ("solo", 1))
        for cycle in range(4)
    )
    # AND only the first block on another rung lets a step pass
    assert [c.skip for c in commands] == [0] * 8 + [1, 0, 0, 0] * 4


def test_one_pass_waits_until_a_long_queue_is_used_up() -> None:
    options = ProbeOptions(seconds=1.0, warmup_steps=30, one_pass=True)
    commands = blocks(drive(options, rungs=("train", "cached"), queued=50))
    assert [c.skip for c in commands[:3]] == [20, 0, 0]


def test_a_cycle_visits_each_rung_once_and_solo_once_per_rank() -> None:
    commands = blocks(drive(ProbeOptions(seconds=3.0, precision=1e-9), rungs=LADDER, ranks=2))
    for cycle in range(commands[-1].cycle + 1):
        seen = Counter(RUNGS[c.rung] for c in commands if c.cycle == cycle)
        assert seen == {"train": 1, "cached": 1, "unsynced": 1, "solo": 2}
        turns = [c.turn for c in commands if c.cycle == cycle and RUNGS[c.rung] == "solo"]
        assert sorted(turns) == [0, 1]


def test_of_many_ranks_half_run_alone_in_each_cycle() -> None:
    commands = blocks(drive(ProbeOptions(seconds=6.0, precision=1e-9), rungs=LADDER, ranks=8))
    turns = [
        [c.turn for c in commands if c.cycle == cycle and RUNGS[c.rung] == "solo"]
        for cycle in range(commands[-1].cycle + 1)
    ]
    assert len(turns) >= 4
    assert {len(one) for one in turns} == {4}
    # THEN each two cycles have a turn of every rank
    assert sorted(turns[0] + turns[1]) == sorted(turns[2] + turns[3]) == list(range(8))


def test_a_launch_of_many_has_fewer_and_longer_cycles() -> None:
    short = ProbeOptions(seconds=1.6, cycles=3, precision=1e-9)
    commands = blocks(drive(short, rungs=LADDER, ranks=1, can_curve=True))
    assert 2 <= max(c.cycle for c in commands if RUNGS[c.rung] == "train") + 1 <= 4
    assert [RUNGS[c.rung] for c in commands].count("half") == 1


def test_the_order_of_rungs_is_not_always_the_same() -> None:
    commands = blocks(drive(ProbeOptions(seconds=6.0, precision=1e-9), rungs=LADDER))
    orders = {
        tuple(c.rung for c in commands if c.cycle == cycle)
        for cycle in range(commands[-1].cycle + 1)
    }
    assert len(orders) > 1


def test_on_a_device_the_first_cycle_begins_with_what_takes_no_memory() -> None:
    for seed in range(12):
        options = ProbeOptions(seconds=4.0, cycles=6, seed=seed)
        orders: dict[int, list[Rung]] = {}
        for command in blocks(drive(options, rungs=LADDER, on_device=True)):
            orders.setdefault(command.cycle, []).append(RUNGS[command.rung])
        assert orders.pop(0) == list(LADDER), seed
        # AND the others are drawn, as elsewhere
        assert len({tuple(order) for order in orders.values()}) > 1


def test_a_rank_runs_alone_only_after_all_have_run_without_meeting() -> None:
    orders = set()
    for seed in range(12):
        options = ProbeOptions(seconds=4.0, cycles=6, seed=seed)
        commands = blocks(drive(options, rungs=LADDER, ranks=2))
        order = [RUNGS[c.rung] for c in commands if c.cycle == 0 and c.turn != 1]
        assert order.index("unsynced") < order.index("solo")
        orders.add(tuple(order))
    assert len(orders) > 4  # the rest is drawn


def test_train_comes_back_with_queues_as_in_real_life() -> None:
    # GIVEN a loader that holds 24 batches ready
    commands = blocks(drive(ProbeOptions(seconds=3.0), rungs=LADDER, queued=24))
    entries = [c for c in commands[1:] if RUNGS[c.rung] == "train"]
    assert entries
    # THEN that many pass unmeasured, and a few more, another number each time
    assert {c.skip - 24 for c in entries} <= set(range(entries[0].steps // 2))
    assert len({c.skip for c in entries}) > 1


def test_slow_steps_are_not_passed_by_the_dozen() -> None:
    commands = blocks(drive(ProbeOptions(seconds=20.0), rungs=LADDER, queued=2, step_s=0.5))
    assert max(c.skip for c in commands) == 2


def test_the_batch_curve_comes_last_at_one_device() -> None:
    commands = blocks(drive(ProbeOptions(seconds=1.0), rungs=LADDER, can_curve=True))
    last = [RUNGS[c.rung] for c in commands[-9:]]
    assert Counter(last) == {"half": 3, "solo": 3, "double": 3}


@given(st.floats(0.001, 3.0), st.integers(1, 8), st.floats(0.5, 20.0))
def test_every_schedule_ends_with_whole_cycles(step_s: float, ranks: int, seconds: float) -> None:
    options = ProbeOptions(seconds=seconds, precision=1e-9)
    commands = blocks(drive(options, rungs=LADDER, ranks=ranks, step_s=step_s, queued=4))
    last = commands[-1].cycle
    turns = Counter(c.turn for c in commands if RUNGS[c.rung] == "solo")
    assert all(Counter(c.cycle for c in commands)[cycle] >= 4 for cycle in range(last + 1))
    # and every rank has run alone
    assert sorted(turns) == list(range(ranks))


def test_quantiles_of_t() -> None:
    assert t95(1) == 12.706
    assert abs(t95(60) - 2.000) < 0.002

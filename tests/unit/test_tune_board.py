"""Which candidates go on, gain or drop out: from ratios of known noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfbench.tuning.board import LOOKS, Board, LaunchValue


def value(rate: float, cached: float | None = 100.0) -> LaunchValue:
    return LaunchValue(samples_per_s=rate, cached_samples_per_s=cached)


def play(gains: list[float], noise: float, seed: int, *, controlled: bool = False) -> Board:
    """A whole board whose candidates are faster by these ratios, with log-normal noise."""
    rng = np.random.default_rng(seed)
    board = Board([controlled] * len(gains))
    for _ in range(LOOKS[-1]):
        if not board.running:
            break
        base = value(100 * math.exp(noise * rng.normal()))
        board.add(
            base,
            {
                n: value(100 * (1 + gains[n]) * math.exp(noise * rng.normal()))
                for n in board.running
            },
        )
    return board


def test_settings_that_change_nothing_seldom_gain() -> None:
    boards = [play([0.0] * 6, noise=0.03, seed=seed) for seed in range(300)]

    false = sum(any(c.standing == "gain" for c in board.columns) for board in boards)

    assert false <= 0.05 * len(boards)


def test_a_large_gain_is_told_at_the_first_look() -> None:
    boards = [play([0.5, 0.0, 0.0], noise=0.03, seed=seed) for seed in range(100)]

    told = [b.columns[0].standing == "gain" and len(b.columns[0].logs) == LOOKS[0] for b in boards]

    assert sum(told) >= 99


def test_its_interval_holds_the_true_gain() -> None:
    boards = [play([0.3], noise=0.03, seed=seed) for seed in range(200)]

    found = [board.estimate(0) for board in boards]

    assert sum(f is not None and f.low <= 0.3 <= f.high for f in found) >= 190


def test_what_gives_nothing_is_dropped_early() -> None:
    boards = [play([-0.1, 0.5], noise=0.02, seed=seed) for seed in range(50)]

    assert all(board.columns[0].standing == "no-gain" for board in boards)
    assert sum(len(board.columns[0].logs) for board in boards) <= 3.2 * len(boards)


def test_a_failed_trial_is_out_with_its_reason() -> None:
    board = Board([False, False])

    board.fail(1, "rank 0: out of memory")
    board.add(value(100), {0: value(150)})

    assert board.running == (0,)
    assert board.columns[1].why == "rank 0: out of memory"
    assert board.estimate(1) is None


@pytest.mark.parametrize(("cached", "standing"), [(100.0, "gain"), (130.0, "contaminated")])
def test_a_loader_cannot_speed_up_batches_from_memory(cached: float, standing: str) -> None:
    board = Board([True])

    for turn in range(LOOKS[0]):
        jitter = 1 + 0.001 * turn
        board.add(value(100), {0: value(150 * jitter, cached * jitter)})

    assert board.columns[0].standing == standing


def test_without_more_time_those_that_go_on_are_looked_at_once_more() -> None:
    board = Board([False, False])
    for turn in range(4):
        board.add(value(100), {0: value(300 + turn), 1: value((101, 106, 130, 104)[turn])})

    board.end()

    assert [column.standing for column in board.columns] == ["gain", "running"]

"""The schedule and the analysis over launches that are made up: what their intervals are worth.

A launch of N devices takes a mood of its own, which its train and solo steps share, another that
they do not, and noise in each block with a memory of the block before. All are normal, in
logarithms. ``next_launch`` decides what is launched; efficiency and its interval are the product's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from synthetic import machine, sweep_plan

from sfbench.analyze.cycles import Cycles
from sfbench.analyze.drift import drift_corrected, solo_basis
from sfbench.analyze.intervals import Array
from sfbench.common.schema import Interval
from sfbench.plan.rounds import SHORT_CYCLES, Launched, next_launch

TRUTH = 0.8
"""Efficiency at 2 devices."""
STEP_S = 0.01
STARTING_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of logarithms."""

    mood: float
    """Of a launch, in train and solo steps alike."""
    launch: float
    """Of a launch, in the ratio of the two."""
    block: float
    memory: float = 0.0
    """Correlation of neighbouring blocks."""


def series(rng: np.random.Generator, length: int, noise: Noise) -> Array:
    """Stationary noise of the blocks of a launch."""
    values = rng.standard_normal(length)
    fresh = math.sqrt(1 - noise.memory**2)
    for place in range(1, length):
        values[place] = noise.memory * values[place - 1] + fresh * values[place]
    answer: Array = noise.block * values
    return answer


def launch_cycles(rng: np.random.Generator, devices: int, noise: Noise) -> tuple[Array, ...]:
    """Train and solo step times of the cycles of one launch."""
    mood, own = noise.mood * rng.standard_normal(), noise.launch * rng.standard_normal()
    loss = 1.0 if devices == 1 else 1 / TRUTH
    train = STEP_S * loss * np.exp(mood + own + series(rng, SHORT_CYCLES, noise))
    solo = STEP_S * np.exp(
        mood + np.stack([series(rng, SHORT_CYCLES, noise) for _ in range(devices)], axis=1)
    )
    return train, solo


def sweep(rng: np.random.Generator, noise: Noise) -> Interval:
    """One sweep of 1 and 2 devices; its efficiency at 2."""
    plan, host = sweep_plan(devices=(1, 2)), machine(2)
    done: list[Launched] = []
    found: dict[int, list[tuple[Array, ...]]] = {1: [], 2: []}
    while (launch := next_launch(plan, host, done)) is not None:
        train, solo = launch_cycles(rng, launch.devices, noise)
        found[launch.devices].append((train, solo))
        done.append(
            Launched(
                devices=launch.devices,
                round=launch.round,
                ok=True,
                measured_s=launch.seconds,
                wall_s=launch.seconds + STARTING_S,
                log_rate=float(np.log(launch.devices / train.mean())),
            )
        )
    one, two = (solo_basis(_cycles(found[devices]), None) for devices in (1, 2))
    assert one is not None
    assert two is not None
    return drift_corrected(2, 1.0, two, one)


def _cycles(launches: Sequence[tuple[Array, ...]]) -> Cycles:
    train = np.concatenate([one for one, _ in launches])
    solo = np.concatenate([one for _, one in launches])
    index = np.repeat(np.arange(len(launches), dtype=np.int64), SHORT_CYCLES)
    return Cycles(
        launch=index,
        train_s=train,
        cached_s=train,
        slowest_s=train,
        unsynced_s=solo,
        solo_s=solo,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What the intervals of many sweeps are worth."""

    covered: float
    """Part of them that holds the truth."""
    half_width: float
    """Median, in efficiency points as a ratio."""
    off: float
    """Mean of the values less the truth."""


def worth(noise: Noise, sweeps: int, seed: int = 0) -> Worth:
    """Sweep many times."""
    rng = np.random.default_rng(seed)
    known = [sweep(rng, noise) for _ in range(sweeps)]
    ends = [(one.low or 0.0, one.high or math.inf) for one in known]
    return Worth(
        covered=float(np.mean([low <= TRUTH <= high for low, high in ends])),
        half_width=float(np.median([(high - low) / 2 for low, high in ends])),
        off=float(np.mean([one.value for one in known])) - TRUTH,
    )

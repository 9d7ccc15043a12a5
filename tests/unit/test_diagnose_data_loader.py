"""data-loader-starvation: who waits, for what, and what to do."""

from __future__ import annotations

import pytest
from ladder import Times, diagnosed, launched, load, loop

ID = "data-loader-starvation"


def starving(devices: int, *, step_s: float = 0.15, wait_s: float = 0.05) -> Times:
    """Steps of 0.1 s on batches from memory."""
    return Times(cached=[0.1] * devices, train=[step_s] * devices, data_wait=[wait_s] * devices)


def test_too_few_workers() -> None:
    # GIVEN 4 devices that wait a third of their step; a worker takes 0.36 s per batch of 8,
    # a device takes a batch each 0.1 s
    loads = tuple(load(r, fetch_s=0.36, fetch_cpu_s=0.02) for r in range(4))
    # WHEN 2 workers run, on 8 cores
    found = diagnosed(
        launched(0, Times(cached=[0.1])), launched(1, starving(4), loads=loads), cores=8
    ).only(ID, 4)
    # THEN 4 workers are needed, and a third of the step is regained
    assert (found.severity, found.rank) == ("bottleneck", None)
    assert found.regain.value == pytest.approx(1 / 3)
    assert found.evidence["limit"] == "workers"
    assert found.evidence["workers_needed_per_device"] == 4
    assert found.evidence["device_could_take_samples_per_s"] == 80.0
    assert found.advice[0] == (
        "Set num_workers=4 (now 2): one worker takes 45.0 ms per sample, and a device could take "
        "80.0 samples/s."
    )


def test_too_few_cores() -> None:
    # GIVEN decoding that keeps a core busy 0.3 s per batch, for 4 devices with a batch each 0.1 s;
    # training itself uses 0.05 of 0.1 s
    loads = tuple(
        load(r, fetch_s=0.35, fetch_cpu_s=0.3, fetch_delay_s=0.05, cpu_s={"cached": 0.05})
        for r in range(4)
    )
    found = diagnosed(launched(0, starving(4), loads=loads), cores=8).only(ID, 4)
    # THEN 12 cores are wanted where 8 are, 2 of them taken
    assert found.evidence["limit"] == "cores"
    assert found.evidence["cores_needed_for_loading"] == 12.0
    assert found.evidence["cores_used_by_training"] == 2.0
    assert found.evidence["workers_needed_per_device"] == 3
    # (8 * 0.95 - 2) cores for 4 devices that take 80 samples/s each
    assert "17.5 ms of a core per sample (now 37.5 ms)" in found.advice[0]
    assert "keep 12.0 cores busy; the host has 8 cores for 4 devices" in found.advice[1]


def test_without_workers_the_training_process_loads() -> None:
    times = starving(1, wait_s=0.05)
    found = diagnosed(
        launched(0, times, loop=loop(loader_workers=0), loads=(load(0, fetch_s=0.05),))
    ).only(ID, 1)
    assert found.evidence["limit"] == "no-workers"
    assert "num_workers=1" in found.advice[0]


def test_fast_workers_and_waiting_in_every_step_is_transfer() -> None:
    # GIVEN workers that need a tenth of the time there is
    loads = (load(0, fetch_s=0.01, fetch_cpu_s=0.01),)
    found = diagnosed(launched(0, starving(1), loads=loads)).only(ID, 1)
    assert found.evidence["limit"] == "transfer"
    assert "between processes" in found.advice[0]


def test_a_longer_step_without_waiting_is_interference() -> None:
    # GIVEN a step 50 ms longer beside workers that are fast enough, of which 10 ms are waiting
    loads = (load(0, fetch_s=0.05, fetch_cpu_s=0.05),)
    found = diagnosed(launched(0, starving(1, wait_s=0.01), loads=loads)).only(ID, 1)
    assert found.evidence["limit"] == "interference"
    assert "wait only 10.0 ms of the 50.0 ms" in found.advice[0]


def test_workers_that_use_no_core_are_not_said_to_take_one() -> None:
    # GIVEN the same, but making a batch hardly uses a core
    loads = (load(0, fetch_s=0.05, fetch_cpu_s=0.002),)
    found = diagnosed(launched(0, starving(1, wait_s=0.01), loads=loads)).only(ID, 1)
    # THEN no cause is claimed that was not seen
    assert "is not known" in found.advice[0]
    assert "workers take cores" not in found.advice[0]
    assert "48.0 ms of its 50.0 ms off any core" in found.advice[1]


def test_at_one_device_readers_may_take_turns() -> None:
    # GIVEN workers that are too few, and spend their time off any core
    loads = (load(0, fetch_s=0.36, fetch_cpu_s=0.02),)
    found = diagnosed(launched(0, starving(1), loads=loads)).only(ID, 1)
    # THEN more of them are advised, and said when that does not help
    assert found.evidence["limit"] == "workers"
    assert "if the readers take turns at a lock" in found.advice[1]


@pytest.mark.parametrize(
    ("persistent", "advice"), [(False, "persistent_workers=True"), (True, "prefetch_factor=4")]
)
def test_fast_workers_and_waiting_in_few_steps_are_stalls(persistent: bool, advice: str) -> None:
    # GIVEN 1 train step in 8 that waits 0.4 s, the others not at all
    launch = launched(
        0,
        starving(1, step_s=0.15, wait_s=0.0),
        loop=loop(persistent_workers=persistent),
        loads=(load(0, fetch_s=0.01),),
    )
    assert launch.steps is not None
    train = launch.steps[:, 4] == 0
    launch.steps[train & (launch.steps[:, 1] % 32 == 0), 9] = 0.4
    found = diagnosed(launch).only(ID, 1)
    assert found.evidence["limit"] == "stalls"
    assert found.evidence["steps_with_most_of_the_wait_share"] == 0.125
    assert advice in found.advice[0]


def test_one_device_that_starves_is_said_to_scale_on_paper() -> None:
    # GIVEN 1 and 2 devices that wait alike
    loads = [load(r, fetch_s=0.35) for r in range(2)]
    both = diagnosed(
        launched(0, starving(1), loads=(loads[0],)), launched(1, starving(2), loads=tuple(loads))
    )
    one, two = both.only(ID, 1), both.only(ID, 2)
    # THEN efficiency is 1 and nothing is regained against one device, but both are bottlenecks
    assert both.points[1].efficiency is not None
    assert both.points[1].efficiency.value == pytest.approx(1.0)
    assert (one.severity, two.severity) == ("bottleneck", "bottleneck")
    assert one.regain.value == pytest.approx(1 / 3)
    assert two.regain.value == pytest.approx(0.0, abs=1e-9)
    assert both.diagnoses[0] == one
    assert any("scale well on paper" in line for line in one.advice)
    assert any("At 1 device loading takes 33% of the step too" in line for line in two.advice)


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    # GIVEN rank 2 waiting for its loader in each step, and the others for rank 2 in all-reduce
    times = Times(cached=[0.1] * 4, train=[0.15] * 4, data_wait=[0.001, 0.0, 0.051, 0.002])
    loads = (load(0, fetch_s=0.1), load(1, fetch_s=0.1), load(2, fetch_s=0.3), load(3, fetch_s=0.1))
    found = diagnosed(launched(0, times, loads=loads)).only(ID, 4)
    assert found.rank == 2
    assert found.evidence["one_worker_s_per_batch"] == 0.3
    assert found.evidence["data_wait_s_per_step"] == 0.051
    assert any("Only rank 2 (here, cpu)" in line for line in found.advice)


def test_workers_that_could_not_be_watched_are_no_number() -> None:
    found = diagnosed(launched(0, starving(1))).only(ID, 1)
    assert found.evidence["limit"] == "unknown"
    assert "one_worker_s_per_batch" not in found.evidence
    assert "num_workers=4" in found.advice[0]


def test_a_script_that_makes_its_own_batches() -> None:
    made = loop(loader_workers=None, prefetch_factor=None, samples_from="batches()")
    found = diagnosed(launched(0, starving(1), loop=made)).only(ID, 1)
    assert found.evidence["limit"] == "own-batches"
    assert "50.0 ms per step" in found.advice[0]


def test_nothing_is_said_of_a_loader_that_keeps_up() -> None:
    assert diagnosed(launched(0, Times(cached=[0.1] * 2))).diagnoses == ()


def test_readers_that_take_turns_share_something() -> None:
    # GIVEN a batch that takes 27 ms at 1 device and 77 ms at 2, 1 ms of it on a core
    one = launched(0, Times(cached=[0.03]), loads=(load(0, fetch_s=0.027, fetch_cpu_s=0.001),))
    two = launched(
        1,
        Times(cached=[0.03] * 2, train=[0.045] * 2, data_wait=[0.015] * 2),
        loads=tuple(load(rank, fetch_s=0.077, fetch_cpu_s=0.001) for rank in (0, 1)),
    )
    found = diagnosed(one, two).only("data-loader-starvation", 2)
    assert found.evidence["limit"] == "serialised"
    assert (
        "serialises the readers: a batch takes 77.0 ms to make here and 27.0 ms at"
        in (found.advice[0])
    )
    assert not any("num_workers=" in line for line in found.advice)

"""small-batch: the curve, the share of what a step costs anyway, the advice."""

from __future__ import annotations

import pytest
from ladder import Diagnosed, Times, diagnosed, launched, loop

from sfbench.common.schema import RankInfo, RankLoad, RungLoad
from sfbench.common.units import is_known

ID = "small-batch"


def curve(fixed_s: float, sample_s: float, *, samples: int = 8) -> Diagnosed:
    """One device whose steps take fixed_s + b * sample_s."""

    def step(batch: float) -> float:
        return fixed_s + batch * sample_s

    times = Times(
        cached=[step(samples)], sizes={"half": step(samples / 2), "double": step(2 * samples)}
    )
    return diagnosed(launched(0, times, samples=samples))


def test_fixed_cost_is_a_share_of_the_step() -> None:
    # GIVEN T(b) = 40 ms + 5 ms * b, and 8 samples: 80 ms
    found = curve(0.04, 0.005).only(ID, 1)
    # THEN half of the step is fixed; 16 samples take 120 ms, 32 take 200 ms
    assert found.severity == "bottleneck"
    assert found.regain.value == pytest.approx(0.5, abs=1e-6)
    assert found.evidence["fixed_s_per_step"] == 0.04
    assert found.evidence["s_per_sample"] == 0.005
    assert found.evidence["samples_per_s_at_batch"] == 100.0
    assert found.evidence["samples_per_s_at_double_batch"] == 133.3
    assert found.evidence["samples_per_s_at_4_times_batch"] == 160.0
    # 90 % of the time on samples at 9 A / C
    assert found.evidence["batch_for_90_percent"] == 72.0
    assert found.evidence["measured_batches"] == "4, 8, 16"
    assert "Try 16 samples per device and step (now 8): 133 instead of 100" in found.advice[0]
    assert "learning rate" in found.advice[1]


def test_a_larger_batch_gains_twofold_at_best() -> None:
    # GIVEN sizes that by noise take less time the larger they are: 80 ms, but for 1 ms
    times = Times(cached=[0.08], sizes={"half": 0.0805, "double": 0.0795})
    found = diagnosed(launched(0, times)).only(ID, 1)
    # THEN a sample more costs nothing, not less, and the step is fixed as a whole
    assert found.evidence["s_per_sample"] == 0.0
    assert found.regain.value <= 1.0
    assert found.evidence["fixed_s_per_step"] <= 0.081
    assert "200 instead of 99.9 samples/s per device (+100%)" in found.advice[0]


def test_a_batch_large_enough_is_no_finding() -> None:
    assert curve(0.001, 0.01).diagnoses == ()


def test_a_batch_of_one_is_judged_by_its_double() -> None:
    # GIVEN a batch that cannot be cut: half hands out the whole one
    times = Times(cached=[0.03], sizes={"double": 0.04})
    found = diagnosed(launched(0, times, samples=1)).only(ID, 1)
    # THEN A = 20 ms, C = 10 ms
    assert found.regain.value == pytest.approx(2 / 3, abs=1e-6)


def test_a_curve_that_is_no_line_says_nothing() -> None:
    # GIVEN twice the batch taking four times as long
    times = Times(cached=[0.04], sizes={"half": 0.02, "double": 0.16})
    assert diagnosed(launched(0, times)).diagnoses == ()


def test_where_computing_is_not_known_no_fixed_cost_is_told() -> None:
    # GIVEN T(b) = 40 ms + 5 ms * b, and a step that takes 300 ms in one launch of four, else 80
    sizes = {"half": 0.06, "double": 0.12}
    slow, quick = (Times(cached=[0.08], train=[train], sizes=sizes) for train in (0.3, 0.08))
    alike = [launched(n, quick) for n in range(1, 4)]
    found = diagnosed(launched(0, slow), *alike)
    share = found.points[0].time_share
    assert share is not None
    assert not is_known(share.compute)
    # THEN nothing is said of the batch, as it is where launches agree
    assert ID not in [one.id for one in found.diagnoses]
    assert ID in [one.id for one in diagnosed(*alike).diagnoses]


def test_the_same_batch_per_device_is_said_once() -> None:
    sizes = {"half": 0.06, "double": 0.12}
    both = diagnosed(
        launched(0, Times(cached=[0.08], sizes=sizes)), launched(1, Times(cached=[0.08] * 2))
    )
    assert [(d.id, d.devices) for d in both.diagnoses] == [(ID, 1)]


def test_a_divided_batch_loses_against_one_device() -> None:
    # GIVEN T(b) = 40 ms + 5 ms * b: 80 ms for 8 samples at 1 device, 60 ms for 4 each at 2
    sizes = {"half": 0.06, "double": 0.12}
    both = diagnosed(
        launched(0, Times(cached=[0.08], sizes=sizes)),
        launched(1, Times(cached=[0.06] * 2), samples=4),
    )
    # THEN efficiency is 80 / 120, and all that is lost is the fixed cost paid twice:
    # 40 / 60 of the step here against 2 / 3 of the 1 / 2 there
    two = both.only(ID, 2)
    assert both.points[1].efficiency is not None
    assert both.points[1].efficiency.value == pytest.approx(2 / 3)
    assert two.regain.value == pytest.approx(2 / 3 - 2 / 3 * 1 / 2, abs=1e-3)
    assert two.evidence["batch_per_device"] == 4.0


def test_the_memory_of_larger_batches_is_a_line_through_those_measured() -> None:
    # GIVEN 3 GiB at 8 samples and 5 GiB at 16, on a device of 16 GiB
    rungs = tuple(
        RungLoad(rung=rung, steps=1, wall_s=1, cpu_s=0, delay_s=0, peak_bytes=gib * 2**30)
        for rung, gib in (("solo", 3), ("double", 5))
    )
    times = Times(cached=[0.08], sizes={"half": 0.06, "double": 0.12})
    device = RankInfo(
        rank=0, local_rank=0, host="here", device="cuda:0", pid=1, threads=1, memory_bytes=2**34
    )
    found = diagnosed(
        launched(0, times, loads=(RankLoad(rank=0, rungs=rungs),), ranks=(device,))
    ).only(ID, 1)
    # THEN 9 GiB at 32
    assert found.evidence["memory_bytes_at_4_times_batch"] == 9 * 2**30
    assert found.advice[1] == (
        "Twice the batch took 5.00 GiB of the device's 16.0 GiB; four times would take 9.00 GiB."
    )


def accumulating(per_update_s: float, per_micro_s: float) -> Diagnosed:
    """4 micro-batches of 2 samples at 1 device, 2 at 2 devices; a sample takes 5 ms.

    Besides, a step takes ``per_update_s`` and each of its micro-batches ``per_micro_s``.
    """

    def step(micro: int, scale: float = 1.0) -> float:
        return per_update_s + micro * (per_micro_s + 2 * scale * 0.005)

    one = Times(cached=[step(4)], sizes={"half": step(4, 0.5), "double": step(4, 2.0)})
    # All-reduce takes 20 ms.
    two = Times(cached=[step(2) + 0.02] * 2, unsynced=[step(2)] * 2)
    return diagnosed(
        launched(0, one, samples=8, loop=loop(fetches_per_step=4.0)),
        launched(1, two, samples=4, loop=loop(fetches_per_step=2.0)),
    )


def test_fewer_micro_batches_of_the_same_size_lose_nothing() -> None:
    found = accumulating(0.0, 0.01)
    # THEN at 2 devices communication is all that is lost
    assert {d.id for d in found.diagnoses if d.devices == 2} == {"interconnect"}
    # AND at 1 device larger micro-batches are advised, which leave training as it is
    advice = found.only(ID, 1).advice
    assert "Try micro-batches of 4 samples (now 2) and half as many of them" in advice[0]
    assert not any("learning rate" in line for line in advice)


def test_what_comes_once_per_update_is_lost_where_micro_batches_are_divided() -> None:
    # GIVEN 40 ms per update: 80 ms at 1 device, 60 ms (and 20 ms of all-reduce) at 2
    found = accumulating(0.04, 0.0).only(ID, 2)
    # THEN half of the step is fixed here, and half of it was there, of an efficiency of one half
    assert found.evidence["fixed_s_per_step"] == pytest.approx(0.04, abs=1e-3)
    assert found.regain.value == pytest.approx(0.04 / 0.08 - 0.5 * 0.5, abs=2e-3)

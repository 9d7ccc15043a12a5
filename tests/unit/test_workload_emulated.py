"""The emulated workload: its time adds up as asked, by a clock that only sleeping moves."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workloads import emulated
from workloads.emulated import Costs, Device, EmulatedNetwork, EmulatedSGD, Link, Options, Samples


class FakeTime:
    """A clock that moves by sleeping, and by what a test adds."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s

    def device(self) -> Device:
        return Device(self.clock, self.sleep)

    @property
    def passed_s(self) -> float:
        return self.now_s - 100


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def options(*argv: str) -> Options:
    return emulated.parse_options(argv)


def costs(*argv: str, rank: int = 0, world_size: int = 1) -> Costs:
    return Costs(options(*argv), rank=rank, world_size=world_size)


def batch(samples: int, length: float = 1.0) -> torch.Tensor:
    return torch.tensor([[0.5, length]] * samples)


def test_it_says_that_it_is_emulated() -> None:
    assert emulated.SFBENCH_EMULATED is True
    assert emulated.describe(options(), 2) == (
        "emulated accelerator: 2 devices, batch 8 x 1, 10,000 parameters in 4 layers"
    )


# ---- device --------------------------------------------------------------------------------------


def test_kernels_take_their_time_one_after_the_other(time: FakeTime) -> None:
    device = time.device()

    device.run(0.25)
    device.run(0.5)

    assert time.slept == [0.25, 0.5]


def test_a_late_host_does_not_lengthen_the_chain(time: FakeTime) -> None:
    device = time.device()

    device.run(0.25)
    time.now_s += 0.125  # the host is busy
    device.run(0.5)
    time.now_s += 1.0  # for longer than the next kernel
    device.run(0.25)

    assert time.slept == [0.25, 0.375]
    assert device.free_s == 101.0
    assert time.now_s == 101.75


def test_a_host_that_waited_for_something_begins_a_new_chain(time: FakeTime) -> None:
    device = time.device()
    device.run(1.0)

    time.now_s += 0.5
    device.resume(prompt_s=0.25)
    device.run(1.0)

    assert time.passed_s == 2.5


def test_a_host_that_is_back_at_once_goes_on(time: FakeTime) -> None:
    device = time.device()
    device.run(1.0)

    time.now_s += 0.005
    device.resume(prompt_s=0.25)
    device.run(1.0)

    assert time.passed_s == pytest.approx(2.0)


def test_no_host_runs_ahead_for_long(time: FakeTime) -> None:
    device = time.device()
    device.run(1.0)
    time.now_s += 0.5  # the host is stopped in the middle of a kernel
    device.run(0.25)

    # GIVEN a device that has been idle for 250 ms
    device.resume(prompt_s=0.1)
    device.run(1.0)

    assert time.passed_s == pytest.approx(1.5 + 1.0 - emulated.RUN_AHEAD_S)


def test_a_kernel_waits_for_what_it_needs(time: FakeTime) -> None:
    device = time.device()
    device.run(1.0)

    device.start_after(device.free_s - 0.5)
    device.start_after(device.free_s + 0.25)
    device.run(1.0)

    assert time.passed_s == 2.25


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=20))
def test_the_device_is_never_faster_than_its_kernels(kernels: list[tuple[float, float]]) -> None:
    time = FakeTime()
    device = time.device()

    for duration_s, host_s in kernels:
        device.run(duration_s)
        time.now_s += host_s

    total_s = sum(duration_s for duration_s, _ in kernels)
    assert time.passed_s >= total_s - 1e-9
    assert device.free_s - 100 == pytest.approx(total_s, abs=1e-9)


# ---- costs ---------------------------------------------------------------------------------------


def test_a_step_is_fixed_cost_and_cost_per_sample() -> None:
    # 2 ms + 8 x 4.5 ms = 38 ms, a third of it forward.
    assert costs().passes_s(8) == pytest.approx((0.038 / 3, 0.076 / 3))
    assert sum(costs().passes_s(16)) == pytest.approx(0.074)
    assert costs().optimizer_s == pytest.approx(0.002)


def test_compute_ms_is_the_whole_step_at_its_batch() -> None:
    job = costs("--compute-ms", "100", "--fixed-ms", "10", "--optimizer-ms", "30")

    assert sum(job.passes_s(8)) + job.optimizer_s == pytest.approx(0.100)
    assert sum(job.passes_s(4)) + job.optimizer_s == pytest.approx(0.070)

    job = costs("--compute-ms", "100", "--optimizer-ms", "20", "--accumulate", "4")
    assert 4 * sum(job.passes_s(8)) + job.optimizer_s == pytest.approx(0.100)


@pytest.mark.parametrize(
    ("where", "forward_s", "backward_s", "optimizer_s", "load_s"),
    [
        ("forward", 0.012, 0.0, 0.0, 0.0),
        ("backward", 0.0, 0.012, 0.0, 0.0),
        ("step", 0.0, 0.0, 0.012, 0.0),
        # Two workers of 3 ms per sample each deliver 8 samples every 12 ms.
        ("loader", 0.0, 0.0, 0.0, 0.003),
    ],
)
def test_a_slow_rank_is_slow_where_it_is_told(
    where: str, forward_s: float, backward_s: float, optimizer_s: float, load_s: float
) -> None:
    argv = ["--slow-rank", "1", "--slow-ms", "12", "--slow-where", where, "--workers", "2"]
    argv += ["--fixed-ms", "0", "--optimizer-ms", "0"]
    slow = costs(*argv, rank=1, world_size=2)
    other = costs(*argv, rank=0, world_size=2)

    assert slow.passes_s(0) == pytest.approx((forward_s, backward_s))
    assert (slow.optimizer_s, slow.load_s) == pytest.approx((optimizer_s, load_s))
    assert (*other.passes_s(0), other.optimizer_s, other.load_s) == (0, 0, 0, 0)


def test_a_slow_rank_is_so_once_per_step_however_often_it_accumulates() -> None:
    argv = ("--slow-rank", "0", "--slow-ms", "12", "--accumulate", "4", "--fixed-ms", "0")

    assert costs(*argv).passes_s(0)[0] == pytest.approx(0.003)


def test_one_rank_at_random_is_slow_in_each_step() -> None:
    argv = ("--random-slow-ms", "20", "--fixed-ms", "0")
    ranks = [costs(*argv, rank=rank, world_size=4) for rank in range(4)]

    steps = [[rank.passes_s(0)[0] for rank in ranks] for _ in range(200)]

    assert all(sorted(step) == [0, 0, 0, 0.02] for step in steps)
    slow = {step.index(0.02) for step in steps}
    assert slow == {0, 1, 2, 3}


def test_a_single_device_has_nobody_to_be_slower_than() -> None:
    assert costs("--random-slow-ms", "20", "--fixed-ms", "0").passes_s(0) == (0, 0)


def test_samples_are_slow_on_all_ranks_or_on_one() -> None:
    everywhere = ("--load-ms", "5", "--load-cpu-ms", "3")
    one = (*everywhere, "--load-rank", "1")

    def seen(argv: tuple[str, ...], rank: int) -> tuple[float, float]:
        job = costs(*argv, rank=rank, world_size=2)
        return job.load_s, job.load_cpu_s

    assert [seen(everywhere, r) for r in (0, 1)] == [(0.005, 0.003)] * 2
    assert [seen(one, r) for r in (0, 1)] == [(0, 0), (0.005, 0.003)]


# ---- network -------------------------------------------------------------------------------------


def test_a_step_of_the_network_takes_its_time_and_gradients_come_one_by_one(
    time: FakeTime,
) -> None:
    argv = ("--fixed-ms", "4", "--sample-ms", "7", "--optimizer-ms", "8")
    device = time.device()
    network = EmulatedNetwork(options(*argv), device, costs(*argv))
    optimizer = EmulatedSGD(
        network.parameters(), device=device, link=_link_that_ended(0.0), duration_s=0.008
    )
    ready_s: list[float] = []
    for weight in network.layers:
        weight.register_post_accumulate_grad_hook(lambda _: ready_s.append(time.passed_s))

    # WHEN a batch of 8 takes 4 + 8 x 7 = 60 ms, 20 of them forward
    loss = network(batch(8)).sum()
    assert time.passed_s == pytest.approx(0.020)
    loss.backward()
    assert time.passed_s == pytest.approx(0.060)
    optimizer.step()

    # THEN each of four layers has its gradient after another 10 ms
    assert ready_s == pytest.approx([0.030, 0.040, 0.050, 0.060])
    assert time.passed_s == pytest.approx(0.068)


def test_an_update_waits_for_the_link(time: FakeTime) -> None:
    device = time.device()
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = EmulatedSGD([weight], device=device, link=_link_that_ended(100.25), duration_s=0.5)
    weight.grad = torch.ones(3)

    optimizer.step()

    assert time.passed_s == 0.75
    assert weight.tolist() == pytest.approx([-0.1] * 3)


def test_a_batch_costs_as_much_as_its_first_sample_is_long(time: FakeTime) -> None:
    argv = ("--fixed-ms", "0", "--sample-ms", "3")
    network = EmulatedNetwork(options(*argv), time.device(), costs(*argv))

    network(batch(8, length=1.5)).sum().backward()

    assert time.passed_s == pytest.approx(8 * 1.5 * 0.003)


def test_gradients_depend_on_the_batch(time: FakeTime) -> None:
    network = EmulatedNetwork(options("--params", "6", "--layers", "2"), time.device(), costs())

    # GIVEN y = x + mean(w1) + mean(w2), w = 0, and a loss of sum(y^2)
    network(torch.tensor([[0.5, 1.0], [2.0, 1.0]])).square().sum().backward()

    # THEN d/dw = sum(2 y) / 3 = 5 / 3
    assert [w.grad.tolist() for w in network.layers] == [pytest.approx([5 / 3] * 3)] * 2


@given(layers=st.integers(1, 50), params=st.integers(1, 10_000))
def test_layers_share_the_parameters_evenly(layers: int, params: int) -> None:
    sizes = emulated.layer_sizes(params, layers)

    assert (len(sizes), sum(sizes)) == (layers, params)
    assert max(sizes) - min(sizes) <= 1


def _link_that_ended(time_s: float) -> Link:
    return SimpleNamespace(free_s=time_s)  # type: ignore[return-value]


# ---- data ----------------------------------------------------------------------------------------


def samples(size: int, *argv: str) -> Samples:
    return Samples(size, options(*argv), costs(*argv))


def test_samples_are_as_long_as_each_other_unless_uneven() -> None:
    assert set(samples(50).samples[:, 1].tolist()) == {1.0}

    lengths = samples(1000, "--uneven", "0.5").samples[:, 1]

    assert lengths.min() >= 0.5
    assert lengths.max() <= 1.5
    # Uniform: mean 1, standard deviation 0.5 / sqrt(3).
    assert lengths.mean() == pytest.approx(1, abs=0.03)
    assert lengths.std() == pytest.approx(0.2887, abs=0.02)


def test_samples_are_the_same_on_all_ranks_and_follow_the_seed() -> None:
    assert torch.equal(samples(20).samples, samples(20).samples)
    assert not torch.equal(samples(20).samples, samples(20, "--seed", "1").samples)


@pytest.mark.parametrize(
    ("argv", "size"),
    [
        ((), 65_536),
        (("--dataset-size", "100", "--epoch-stall-ms", "50"), 100),
        # 20 steps x 8 samples x 2 micro-steps x 4 devices
        (("--epoch-stall-ms", "50", "--accumulate", "2"), 1280),
    ],
)
def test_epochs_are_short_where_their_starts_shall_be_felt(
    argv: tuple[str, ...], size: int
) -> None:
    assert emulated.dataset_size(options(*argv), 4) == size


def test_a_batch_by_value_arrives_as_the_tensor() -> None:
    original = batch(3)

    arrived = pickle.loads(pickle.dumps(emulated.ByValue(original)))

    assert isinstance(arrived, torch.Tensor)
    assert torch.equal(arrived, original)


# ---- link ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world_size", "latency_s", "bytes_per_s", "cost_s"),
    [
        (1, 0.005, 1e6, 0.0),
        (2, 0.0, 1.25e6, 0.032),  # 2 (1/2) 40 kB at 10 Mbit/s
        (4, 0.005, 0.0, 0.030),  # 6 hops of 5 ms
        (4, 0.005, 1e6, 0.090),  # and 2 (3/4) 40 kB at 1 MB/s
    ],
)
def test_a_link_costs_what_a_ring_does(
    world_size: int, latency_s: float, bytes_per_s: float, cost_s: float
) -> None:
    link = Link(
        FakeTime().device(), world_size=world_size, latency_s=latency_s, bytes_per_s=bytes_per_s
    )
    link.close()

    assert link.cost_s(40_000) == pytest.approx(cost_s)


def test_options_reach_their_fields() -> None:
    given = options("--link-mbps", "10", "--bucket-mb", "0.5", "--busy-host", "2")

    assert given == replace(options(), link_mbps=10.0, bucket_mb=0.5, busy_host=2)


def test_every_option_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    section = page.split("## `emulated`")[1]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line[:3] == "| `"]

    described = re.findall(r"`(--[a-z-]+)", " ".join(first_cells))

    assert sorted(described) == sorted(f"--{f.name.replace('_', '-')}" for f in fields(Options))

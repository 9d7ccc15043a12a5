"""pytest plugin: the fixture ``scaling`` sweeps or gates inside a test.

If pytest-benchmark is installed the figures go through it: its table and its saved JSON show
the step time at the largest device count, and ``extra_info`` efficiency and time shares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sfbench.common.schema import Point, SweepResult
    from sfbench.gating.gate_report import GateReport, SideReport
    from sfbench.report.notebook import Results


class MeasuredClock:
    """A timer for pytest-benchmark that shows times which were measured elsewhere."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def replay(self, times_s: Iterator[float]) -> None:
        """Let the next of the times pass."""
        self._now_s += next(times_s)


class ScalingFixture:
    """What the fixture ``scaling`` is."""

    def __init__(self, folder: Path, clock: MeasuredClock, benchmark: Any = None) -> None:
        """``folder``: where results go; ``benchmark``: pytest-benchmark's fixture, where it is."""
        self._folder = folder
        self._clock = clock
        self._benchmark = benchmark
        self._told = False

    def sweep(self, target: str | Path, args: Sequence[str] = (), **options: Any) -> Results:
        """Run a sweep, as ``sfbench.sweep`` does; ``result.at(2).efficiency.low`` is a figure.

        Results go to a temporary folder unless ``output`` is given.

        Raises:
            SfbenchError: as the command would say.
        """
        from sfbench.api import sweep

        results = sweep(target, args, **{"output": self._folder, **options})
        measured = [point for point in results.result.points if point.status == "ok"]
        if measured:
            self._tell(_block_step_s(measured[-1]), _figures(results.result, measured))
        return results

    def gate(self, target: str | Path, args: Sequence[str] = (), **options: Any) -> GateReport:
        """Run the gate: ``base="main"`` or ``baseline="results/nightly"``.

        ``report.verdict`` is ``pass``, ``fail``, ``inconclusive``, ``contaminated`` or
        ``not-touched``, as in ``gate --json``.

        Raises:
            ScriptError: a side is broken: its script failed.
            MeasureError: a side could not be measured.
            SfbenchError: as the command would say.
        """
        from sfbench.api import gate
        from sfbench.common.errors import MeasureError, ScriptError

        report = gate(target, args, **options)
        if report.verdict == "broken":
            raise ScriptError(" ".join(report.reasons))
        if report.verdict == "not-measured":
            raise MeasureError(" ".join(report.reasons))
        samples = report.candidate.samples_per_step if report.candidate else None
        if samples is not None:
            times_s = [samples / s.samples_per_s for s in report.slots if s.arm == "candidate"]
            self._tell(times_s, _gated(report))
        return report

    def _tell(self, times_s: Sequence[float], figures: dict[str, Any]) -> None:
        """Give times, and what else was measured, to pytest-benchmark: once in a test."""
        benchmark = self._benchmark
        if benchmark is None or self._told:
            return
        self._told = True
        replayed = iter(times_s)
        if benchmark.enabled:
            benchmark.pedantic(self._clock.replay, args=(replayed,), rounds=len(times_s))
        else:
            benchmark.pedantic(_nothing)
        benchmark.extra_info.update(figures)


class _Plain:
    """The fixture without pytest-benchmark."""

    @pytest.fixture
    def scaling(self, tmp_path_factory: pytest.TempPathFactory) -> ScalingFixture:
        """Sweep or gate a training script."""
        return ScalingFixture(tmp_path_factory.mktemp("scaling"), MeasuredClock())


class _WithBenchmark:
    """The fixture with it: a test that asks for ``scaling`` is a benchmark."""

    @pytest.fixture
    def _scaling_clock(self, request: pytest.FixtureRequest) -> MeasuredClock:
        # pytest-benchmark takes its timer from the marker, when its own fixture is made.
        clock = MeasuredClock()
        request.node.add_marker(pytest.mark.benchmark(timer=clock))
        return clock

    @pytest.fixture
    def scaling(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        _scaling_clock: MeasuredClock,
        benchmark: Any,
    ) -> ScalingFixture:
        """Sweep or gate a training script; its figures go through pytest-benchmark."""
        return ScalingFixture(tmp_path_factory.mktemp("scaling"), _scaling_clock, benchmark)


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixture that suits what is installed."""
    with_benchmark = config.pluginmanager.hasplugin("benchmark")
    config.pluginmanager.register(_WithBenchmark() if with_benchmark else _Plain())


def _nothing() -> None:
    """If benchmarks are disabled the fixture still has to be used."""


def _block_step_s(point: Point) -> list[float]:
    """Seconds per step of each measured block, of all launches."""
    rates = [rate for launch in point.launches for rate in launch.blocks]
    return [(point.global_batch or 1.0) / rate for rate in rates]


def _figures(result: SweepResult, measured: Sequence[Point]) -> dict[str, Any]:
    """Figures at the largest count by themselves, and all points."""
    largest = measured[-1]
    efficiency = largest.efficiency
    return {
        "target": result.target,
        "emulated": result.emulated,
        "devices": largest.devices,
        "samples_per_s": largest.samples_per_s.value if largest.samples_per_s else None,
        "efficiency": efficiency.value if efficiency else None,
        "efficiency_low": efficiency.low if efficiency else None,
        "efficiency_high": efficiency.high if efficiency else None,
        "time_share": _shares(largest),
        "points": [_point(point) for point in measured],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "devices": point.devices,
        "samples_per_s": dataclasses.asdict(point.samples_per_s) if point.samples_per_s else None,
        "efficiency": dataclasses.asdict(point.efficiency) if point.efficiency else None,
        "time_share": _shares(point),
    }


def _shares(point: Point) -> dict[str, float | None] | None:
    """Those that are figures; None for the others, as in the table."""
    if point.time_share is None:
        return None
    from sfbench.common.units import is_known

    shares = {f.name: point.time_share.of(f.name) for f in dataclasses.fields(point.time_share)}
    return {part: share.value if is_known(share) else None for part, share in shares.items()}


def _parts(side: SideReport | None) -> dict[str, float | None] | None:
    """Those that are figures; None for the others, as in the gate's own table."""
    from sfbench.common.units import UNKNOWN_HALF

    if side is None:
        return None
    halves = {part: side.parts_half_width.get(part) for part in side.parts}
    known = {part for part, half in halves.items() if half is not None and half <= UNKNOWN_HALF}
    return {part: value if part in known else None for part, value in side.parts.items()}


def _gated(report: GateReport) -> dict[str, Any]:
    base, candidate = report.base, report.candidate
    return {
        "target": report.target,
        "emulated": report.emulated,
        "devices": report.devices,
        "verdict": report.verdict,
        "samples_per_s": candidate.samples_per_s if candidate else None,
        "efficiency": candidate.efficiency if candidate else None,
        "change": dataclasses.asdict(report.change) if report.change else None,
        "time_share": {
            "base": _parts(base),
            "candidate": _parts(candidate),
        },
    }

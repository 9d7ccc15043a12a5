"""What A/A pairs say a machine can detect, and where that is kept."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from gates import OPTIONS, slot
from test_gate_inputs import GOLDEN

from sfbench.common.errors import ResultError
from sfbench.gating import calibration_files
from sfbench.gating.fingerprint import Fingerprint, of_result
from sfbench.gating.gate_report import SlotValue
from sfbench.gating.output.terminal import render_calibration
from sfbench.gating.statistics.calibration import (
    LEAST_BAND,
    MOST_BAND,
    Calibration,
    Simulation,
    calibrate,
    control_band,
    upper_bound,
)
from sfbench.gating.statistics.control import BAND
from sfbench.gating.statistics.judge import pairs

FINGERPRINT: Fingerprint = of_result(GOLDEN, 8)
JOB = calibration_files.Job(fingerprint=FINGERPRINT, script="/a/train.py", seconds=OPTIONS.seconds)


def noisy(ratio: float, count: int = 16) -> list[SlotValue]:
    """A/A pairs whose sides differ by chance, by this ratio (standard deviation)."""
    rng = np.random.default_rng(5)
    found = []
    for pair in range(count):
        found.append(slot("base", pair, 1000.0 * float(np.exp(rng.normal(0, ratio)))))
        found.append(slot("candidate", pair, 1000.0 * float(np.exp(rng.normal(0, ratio)))))
    return found


def calibrated(ratio: float) -> Calibration:
    return calibrate(
        noisy(ratio),
        OPTIONS,
        fingerprint=FINGERPRINT,
        script="/a/train.py",
        measured_at="2026-01-02T03:04:05+00:00",
        pair_s=8.0,
    )


@functools.cache
def a_calibration() -> Calibration:
    """One with as many draws as a person gets."""
    return calibrated(0.01)


def test_a_quiet_machine_detects_much_and_never_cries_wolf() -> None:
    found = a_calibration()
    assert found.false_fail.value == 0.0
    assert found.false_fail.upper == pytest.approx(0.00075, abs=1e-5)
    assert found.passed.value > 0.99
    assert found.caught is not None
    assert 0.08 < found.caught <= 0.12
    assert found.suggested_margin is not None
    assert found.suggested_margin <= 0.05
    # at that margin twelve pairs decide, and four confirm, at 8 s each
    assert found.suggested_budget_s == 140.0


def test_the_suggested_margin_grows_with_the_noise() -> None:
    quiet, loud = a_calibration(), calibrated(0.04)
    assert (quiet.suggested_margin or 1) < (loud.suggested_margin or 1)
    assert loud.false_fail.value <= 0.01


def test_a_machine_too_noisy_for_any_margin_says_so() -> None:
    found = calibrated(2.0)
    assert (found.caught, found.suggested_margin) == (None, None)
    text = render_calibration(found, 100)
    assert "no margin works here" in text
    assert "no slow-down is caught" in text


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 A/A pairs are too few"):
        calibrate(
            noisy(0.01, count=5),
            OPTIONS,
            fingerprint=FINGERPRINT,
            script="",
            measured_at="",
            pair_s=1.0,
        )


def test_simulated_gates_have_a_known_slow_down() -> None:
    gates = Simulation(pairs(noisy(0.01)), OPTIONS, band=BAND, pair_s=8.0)
    assert gates.run(0.3, 50).share("fail") == 1.0
    assert gates.run(0.0, 50).share("fail") == 0.0
    # a budget for six pairs leaves nothing to go on with
    poor = Simulation(pairs(noisy(0.05)), replace(OPTIONS, budget_s=50.0), band=BAND, pair_s=8.0)
    assert max(poor.run(0.0, 50).pairs) == 6


def test_the_band_of_the_control_is_what_it_moves_by_itself() -> None:
    still = pairs(noisy(0.01))
    assert control_band(still, 1) == LEAST_BAND
    shaky = [(b, replace(c, cached_samples_per_s=3300.0)) for b, c in still]
    assert control_band(shaky, 1) == pytest.approx(0.1, abs=0.01)
    wild = [(b, replace(c, cached_samples_per_s=6000.0)) for b, c in still]
    assert control_band(wild, 1) == MOST_BAND
    bare = [(b, replace(c, cached_samples_per_s=None)) for b, c in still]
    assert control_band(bare, 1) == BAND


def test_upper_bound_by_hand() -> None:
    # the rule of three: none in n leaves 3 / n, more exactly 1 - 0.05^(1/n)
    assert upper_bound(0, 2000) == pytest.approx(1 - 0.05 ** (1 / 2000))
    assert upper_bound(5, 5) == 1.0


def test_a_calibration_is_kept_by_machine_and_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFBENCH_CACHE", str(tmp_path))
    assert calibration_files.load(JOB) is None
    found = a_calibration()
    path = calibration_files.store(found)
    assert path.parent == tmp_path / "gate"
    assert calibration_files.load(JOB) == found
    assert calibration_files.load(replace(JOB, fingerprint=replace(FINGERPRINT, cores=3))) is None
    # AND another project's script of the same name has its own, as have longer launches
    assert calibration_files.load(replace(JOB, script="/b/train.py")) is None
    assert calibration_files.load(replace(JOB, seconds=9.0)) is None


def test_a_damaged_calibration_is_named_and_another_version_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFBENCH_CACHE", str(tmp_path))
    path = calibration_files.store(a_calibration())
    path.write_text("{")
    with pytest.raises(ResultError, match="damaged"):
        calibration_files.load(JOB)
    path.write_bytes(b"\xff")
    with pytest.raises(ResultError, match="damaged"):
        calibration_files.load(JOB)
    path.unlink()
    path.mkdir()
    with pytest.raises(ResultError, match="cannot be read: Is a directory"):
        calibration_files.load(JOB)
    path.rmdir()
    path.write_text('{"schema": 99}')
    assert calibration_files.load(JOB) is None


def test_the_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SFBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibration_files.folder() == tmp_path / "sfbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert calibration_files.folder() == tmp_path / "home" / ".cache" / "sfbench"


def test_its_age_is_told() -> None:
    note = calibration_files.note(
        a_calibration(), datetime(2026, 2, 6, 3, 4, 5, tzinfo=timezone.utc)
    )
    assert note.age_days == 35.0


def test_what_a_machine_detects_as_text() -> None:
    text = render_calibration(a_calibration(), 100)
    assert "16 A/A pairs of" in text
    assert "false FAIL    0.00 % (at most 0.07 %, 4000 draws)" in text
    assert "Suggested: --margin" in text

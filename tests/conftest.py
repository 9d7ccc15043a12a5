"""Settings that hold for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No unit test is timed: on a busy machine any single example may take long.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

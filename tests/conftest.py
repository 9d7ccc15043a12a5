"""Settings that hold for all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# No unit test is timed: on a busy machine any single example may take long.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What is started in the background of a shell ignores these, and so would every command under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

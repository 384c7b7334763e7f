"""For all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# No test times a machine.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

# A shell has what it runs in the background ignore SIGINT, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

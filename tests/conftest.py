"""For all tests."""

from __future__ import annotations

import gc
import signal

from hypothesis import HealthCheck, settings

# No test times a machine.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

# A shell has what it runs in the background ignore SIGINT, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """As services do (`services.console.launch`): looking for garbage among all tests took a sixth of their time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)

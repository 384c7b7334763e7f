"""For all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "muster", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no test times a machine
settings.load_profile("muster")

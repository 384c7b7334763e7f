"""For all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test times a machine.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

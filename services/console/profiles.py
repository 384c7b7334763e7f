"""The profiles that the command line knows by name."""

from __future__ import annotations

from events.policy import DEFAULT_POLICY, Profile
from services.console.errors import Unusable

SCORES = ("least-allocated", "binpack")
PROFILES = {
    "default": DEFAULT_POLICY.profile,
    "binpack": Profile(name="binpack", queue_order="coscheduling", node_score="binpack"),
}


class UnknownProfile(Unusable):
    """Names the profiles that there are."""


def profile(name: str) -> Profile:
    """Raises UnknownProfile."""
    if name not in PROFILES:
        raise UnknownProfile(f"profile {name!r}: expected one of {', '.join(PROFILES)}")
    return PROFILES[name]

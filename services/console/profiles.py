"""The profiles that the command line knows by name."""

from __future__ import annotations

from events.policy import DEFAULT_POLICY, Profile
from services.console.errors import Unusable

SCORES = ("least-allocated", "binpack")
QUEUE_ORDERS = ("coscheduling", "koordinator", "kube-batch")
PROFILES = {
    "default": DEFAULT_POLICY.profile,
    "binpack": Profile(name="binpack", queue_order="coscheduling", node_score="binpack"),
    "coscheduling": Profile(name="coscheduling", queue_order="coscheduling", node_score="least-allocated"),
    "koordinator": Profile(name="koordinator", queue_order="koordinator", node_score="least-allocated"),
    "kube-batch": Profile(name="kube-batch", queue_order="kube-batch", node_score="least-allocated"),
}


class UnknownProfile(Unusable):
    """Names the profiles that there are."""


def profile(name: str) -> Profile:
    """Raises UnknownProfile."""
    if name not in PROFILES:
        raise UnknownProfile(f"profile {name!r}: expected one of {', '.join(PROFILES)}")
    return PROFILES[name]

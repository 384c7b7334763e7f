"""The profiles that the command line knows by name."""

from __future__ import annotations

import msgspec

from events.policy import DEFAULT_POLICY, Profile
from services.console.errors import Unusable

SCORES = ("least-allocated", "binpack")
QUEUE_ORDERS = ("coscheduling", "koordinator", "kube-batch")
CUSTOM = "custom"
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
        raise UnknownProfile(f"--profile {name!r}: expected one of {', '.join(PROFILES)}")
    return PROFILES[name]


def named(chosen: Profile) -> Profile:
    """These rules under the name that they have here: their own if that is right, else the first that is."""
    for name in (chosen.name, *PROFILES):
        if PROFILES.get(name) == (renamed := msgspec.structs.replace(chosen, name=name)):
            return renamed
    return msgspec.structs.replace(chosen, name=CUSTOM)

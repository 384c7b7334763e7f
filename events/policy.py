"""The policy: every bound and default that a decision depends on. Part of the log, so that a log decides again alike."""

from __future__ import annotations

from events.objects import Value


class Profile(Value, frozen=True):
    """Which rules run together."""

    name: str
    queue_order: str
    """coscheduling (seed 000), koordinator (seed 002) or kube-batch (seed 004)."""
    node_score: str
    """least-allocated or binpack."""


class Policy(Value, frozen=True):
    """Every bound with its unit. Changed as a whole by `PolicyChanged`, adopted first by `PolicyAdopted`.

    A field that came later has a value that turns it off: so a policy that was stored without it reads as it was meant.
    It comes with a state version of its own, as it is part of the state: so no older version writes a policy without it.
    """

    profile: Profile
    permit_waiting_ms: int
    """How long a held assignment waits for its gang (seed 000, Permit: 10 s)."""
    backoff_initial_ms: int
    """First backoff of a group that was refused; doubles with each further refusal (Kubernetes: 1 s)."""
    backoff_max_ms: int
    """Largest backoff (Kubernetes: 10 s)."""
    retry_ms: int
    """A refused group is tried again after this long even if nothing changed."""
    cycle_pods: int
    """Pods that one planning cycle, hence one commit, considers at most (at least one group)."""
    gang_pods: int
    """Pods that one gang may have: its proposal and its permit must each fit one message."""
    replacement_hold_ms: int
    """How long the room of a failed member of a running gang is kept for its replacement."""
    replacement_policy: str
    """What happens to a gang below its minimum when that time is over: keep (seed 002, After Gang) or evict."""
    lookahead_pods: int = 0
    """Waiting pods of other shards, before its own in queue order, that a shard leaves room for in one cycle; and pods
    that back off and that it tries all the same, before those of a lower priority have the room."""
    nominate_after_refusals: int = 0
    """After so many refusals in a row of its proposals a gang gets what still stands of the last nominated; 0: never."""
    nomination_hold_ms: int = 0
    """How long that room is kept for it."""
    reserve_after_refusals: int = 0
    """After so many refusals in a row for lack of room a gang gets room reserved where it is free first; 0: never."""
    reservation_hold_ms: int = 0
    """How long that room is kept for it."""
    reservations: int = 0
    """How many gangs may have room reserved at a time."""


DEFAULT_POLICY = Policy(
    profile=Profile(name="default", queue_order="coscheduling", node_score="least-allocated"),
    permit_waiting_ms=10_000,
    backoff_initial_ms=1_000,
    backoff_max_ms=10_000,
    retry_ms=300_000,
    cycle_pods=4_096,
    gang_pods=50_000,
    replacement_hold_ms=60_000,
    replacement_policy="keep",
    lookahead_pods=1_024,
    nominate_after_refusals=3,
    nomination_hold_ms=10_000,
    reserve_after_refusals=5,
    reservation_hold_ms=600_000,
    reservations=1,
)
"""What a binder adopts in a log that has no policy yet. A default never changes: the log carries its own copy."""

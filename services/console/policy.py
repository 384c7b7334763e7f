"""The policy in the log: what it is, and the admin's change of it.

A change is one event, `PolicyChanged`, with the whole policy: what was not named stays as it was. It holds from its
place on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

import events as ev
from events.log import EventLog
from events.policy import DEFAULT_POLICY, Policy
from services.console import admin
from services.console.errors import Unusable
from services.console.kinds import check_of_a_cluster
from services.console.profiles import QUEUE_ORDERS, SCORES, named, profile
from services.console.replay import replay

REPLACEMENT = ("keep", "evict")
LEAST = {"cycle_pods": 1, "gang_pods": 1, "backoff_initial_ms": 1, "backoff_max_ms": 1, "retry_ms": 1_000}
"""Smallest values; 0 for whatever is not named."""
MOST = 1 << 40
NO_POLICY = "its rules and bounds stand in each job, and it has no policy"


class InvalidPolicy(Unusable):
    """Names the field, what stood there and what was expected."""


def changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    """The policy with these fields: those of `Policy`, ``profile`` by name, ``queue_order`` and ``node_score``.

    Raises InvalidPolicy; UnknownProfile for a profile that there is not.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    chosen = profile(given.pop("profile")) if "profile" in given else policy.profile
    for name, allowed in (("queue_order", QUEUE_ORDERS), ("node_score", SCORES)):
        if name in given:
            _one_of(name, given[name], allowed)
            chosen = named(msgspec.structs.replace(chosen, **{name: given.pop(name)}))
    for name, value in given.items():
        if name == "replacement_policy":
            _one_of(name, value, REPLACEMENT)
        elif not LEAST.get(name, 0) <= value <= MOST:
            raise InvalidPolicy(f"{_flag(name)} {value}: expected at least {LEAST.get(name, 0)} and at most {MOST}")
    new = msgspec.structs.replace(policy, profile=chosen, **given)
    if new.backoff_max_ms < new.backoff_initial_ms:
        raise InvalidPolicy(
            f"--backoff-max-ms {new.backoff_max_ms}: expected at least --backoff-initial-ms, {new.backoff_initial_ms}"
        )
    return new


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidPolicy(f"{_flag(name)} {value!r}: expected one of {', '.join(allowed)}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


async def current(log: EventLog) -> tuple[int, Policy | None]:
    """Up to where the log was read, and the policy there; None while it has none. Raises Unusable, LogError,
    UnknownCommit."""
    await check_of_a_cluster(log, NO_POLICY)
    state = await replay(log)
    return state.sequence, state.policy


class Change(NamedTuple):
    """What became of one."""

    sequence: int
    """The policy's place, or up to where the log was read."""
    policy: Policy
    written: bool
    """False: it was the policy already, and whoever says so twice has no error of it."""


async def change(log: EventLog, changes: Mapping[str, Any]) -> Change:
    """Append the changed policy, unless the log says the same. Raises InvalidPolicy, Unusable when another admin was
    faster or it is a federation's log, LogError."""
    await check_of_a_cluster(log, NO_POLICY)
    writer, state = await admin.look(log)
    new = changed(state.policy or DEFAULT_POLICY, changes)
    if new == state.policy:
        return Change(state.sequence, new, written=False)
    return Change(await admin.write(writer, state, ev.PolicyChanged(policy=new)), new, written=True)

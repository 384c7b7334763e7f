"""How the log of a benchmark begins: its writers, its nodes, its policy; the binder's first decision comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import events as ev
from events.policy import DEFAULT_POLICY, Policy

BLOCK = 500
"""Facts in one commit."""


def opening(
    nodes: Sequence[ev.NodeObserved],
    *,
    shards: Sequence[str] = ("0",),
    classes: Sequence[ev.SchedulingClassObserved] = (),
    policy: Policy = DEFAULT_POLICY,
) -> Iterator[tuple[str, list[ev.Event], str]]:
    """Of each commit its writer, its events and its cause."""
    yield "ingest", [ev.IngestTaken(holder="bench")], "taken"
    if classes:
        yield "ingest", [*classes], "facts"
    for start in range(0, len(nodes), BLOCK):
        yield "ingest", [*nodes[start : start + BLOCK]], "facts"
    yield "ingest", [ev.ClusterSynced(nodes=len(nodes), pods=0)], "facts"
    yield "admin", [ev.PolicyChanged(policy=policy)], "admin"
    for shard in shards:
        yield f"planner.{shard}", [ev.PlannerTaken(shard=shard, holder="bench")], "taken"
    yield "binder", [ev.BinderTaken(holder="bench")], "taken"

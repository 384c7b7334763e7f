"""Watches bring what happens in one order, lists and relists in others: what the log says in the end is the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from events import Event
from events.facts import (
    NodeObserved,
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodObserved,
    PodTerminating,
)
from services.ingest.differ import Ingest
from services.kubernetes.objects import Pod
from tests.ingest.objects import ingest, node, pod

STEPS = [
    "",
    "bind",
    "bind run",
    "bind run end",
    "bind run leave",
    "bind run end leave",
    "bind run leave end",
    "bind fail leave",
    "leave",
    "fail",
]


@st.composite
def lives(draw: st.DrawFn, relabelled: bool = True) -> list[tuple[str, Pod]]:
    """One or two pods under one name, each from creation on, with resourceVersions that grow; ended or not."""
    version = draw(st.integers(1, 50))
    life: list[tuple[str, Pod]] = []
    for uid in draw(st.sampled_from([["u1"], ["u1", "u2"]])):
        ours = draw(st.booleans())
        state: dict[str, Any] = {"scheduler": "muster" if ours else "default-scheduler"}
        steps = draw(st.sampled_from(STEPS)).split()
        happened = [state]
        for step in steps:
            state = dict(state)
            state |= {
                "bind": {"node": "n1"},
                "run": {"phase": "Running"},
                "end": {"phase": "Succeeded"},
                "fail": {"phase": "Failed", "reason": "OutOfcpu"},
                "leave": {"deleting": True},
            }[step]
            happened += [state] * draw(st.integers(1, 2))
        for each in happened:
            version += draw(st.integers(1, 3))
            labels = {"scheduling.x-k8s.io/pod-group": draw(st.sampled_from("gh"))} if relabelled else {}
            life.append(("MODIFIED", pod(version=version, uid=uid, labels=labels, **each)))
        if uid == "u1" and life and draw(st.booleans()):
            version += 1
            life.append(("DELETED", pod(version=version, uid=uid, **state)))
    return life


def watched(life: Iterable[tuple[str, Pod]]) -> tuple[Ingest, list[Event]]:
    core = Ingest(["muster"])
    events: list[Event] = []
    for happened, seen in life:
        if happened == "DELETED":
            events += core.deleted("Pod", seen.metadata)
        else:
            events += core.observe(seen)
    return core, events


def standing(core: Ingest, life: list[tuple[str, Pod]]) -> dict[str, PodObserved]:
    """The pods that want a place or have one, without the resourceVersion at which it was said; not those that ended."""
    ended = {seen.metadata.uid for _, seen in life if seen.status.phase in ("Succeeded", "Failed")}
    return {
        uid: msgspec.structs.replace(seen, resource_version="")
        for uid, seen in core.pods.items()
        if uid not in ended and (seen.node or seen.status == "pending")
    }


@settings(max_examples=300, deadline=None)
@given(lives(), st.data())
def test_every_order_of_a_watch_ends_in_the_same_state(life: list[tuple[str, Pod]], data: st.DataObject) -> None:
    in_order, _ = watched(life)
    shuffled = data.draw(st.permutations(life + data.draw(st.lists(st.sampled_from(life), max_size=3))))
    core, events = watched(shuffled)
    assert standing(core, life) == standing(in_order, life)
    again = Ingest(["muster"])
    for event in events:
        again.fold(event)
    assert again.pods == core.pods


@settings(max_examples=300, deadline=None)
@given(lives(relabelled=False), st.data())
def test_at_most_four_facts_for_a_pods_life(life: list[tuple[str, Pod]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(life)) if data.draw(st.booleans()) else life
    _, events = watched(shuffled)
    for uid in {seen.metadata.uid for _, seen in life}:
        facts = [type(event) for event in events if getattr(event, "uid", "") == uid]
        assert len(facts) <= 4
        assert len(set(facts)) == len(facts), "each kind of fact once"
        assert facts == sorted(facts, key=[PodObserved, PodAssigned, PodTerminating, PodFinished, PodDeleted].index), (
            "in the order of a life"
        )


@given(st.permutations([node(version=1), node(version=2, labels={"a": "1"}), node(version=3, uid="new")]))
def test_every_order_of_a_nodes_events(order: list[Any]) -> None:
    core = ingest(*order)
    assert isinstance(fact := core.named["Node"]["", "n1"], NodeObserved)
    assert fact.uid == "new"

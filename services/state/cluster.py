"""What there is in the cluster beside pods and gangs: nodes, priority classes, objects that cannot be taken as they are.

And whether ingest has said all of it: between its `IngestTaken` and its `ClusterSynced` the picture may be partial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.state import classes, pods, reservations, versions
from services.state.records import PROPOSED, Node

if TYPE_CHECKING:
    from services.state.fold import State


def ingest_taken(state: State, event: ev.IngestTaken) -> None:
    state.synced = False
    versions.taken(state, event)
    classes.ingest_taken(state)


def cluster_synced(state: State, event: ev.ClusterSynced) -> None:
    state.synced = True


def node_observed(state: State, event: ev.NodeObserved) -> None:
    """A node's first fact, or a newer one. Claims on it may have come before its first, and count from here on."""
    node = state.nodes.get(event.name)
    if node is None:
        node = state.nodes[event.name] = Node(name=event.name)
    elif node.fact is not None and pods.older(event, node.fact):
        return
    known = node.fact is not None
    node.fact = event
    row = state.table.put(event)
    if not known:
        for uid in node.claims:
            claim = state.claims[uid]
            state.table.claim(row, state.table.classes[claim.scheduling_class], 1, claim.stage == PROPOSED)
    node.touched = state.sequence
    state.room_sequence = state.sequence
    reservations.doubt(state, event.name)
    state.rejections.pop(f"Node//{event.name}", None)


def node_deleted(state: State, event: ev.NodeDeleted) -> None:
    """The node's room is gone. Claims on it stay until their pods go, and with them what is known of it."""
    node = state.nodes.get(event.name)
    if node is None or node.fact is None or node.fact.uid != event.uid:
        return
    node.fact = None
    node.touched = state.sequence
    state.table.remove(event.name)
    state.rejections.pop(f"Node//{event.name}", None)
    if not node.claims:
        del state.nodes[event.name]


def rejected(state: State, event: ev.DeclarationRejected) -> None:
    state.rejections[f"{event.kind}/{event.namespace}/{event.name}"] = event


def rejection_ended(state: State, event: ev.RejectionEnded) -> None:
    state.rejections.pop(f"{event.kind}/{event.namespace}/{event.name}", None)


def priority_class_observed(state: State, event: ev.PriorityClassObserved) -> None:
    state.priority_classes[event.name] = event
    state.rejections.pop(f"PriorityClass//{event.name}", None)


def priority_class_deleted(state: State, event: ev.PriorityClassDeleted) -> None:
    state.priority_classes.pop(event.name, None)

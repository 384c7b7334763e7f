"""From an answer of the API server to an outcome in the log.

A binding has three kinds of answers. A definite yes or no is an outcome. A resourceVersion that moved on is a no to every
attempt of the old intent: the pod is read, and if nothing that matters changed, the intent is renewed. If nothing
changed at all, somebody refused with a 409 or a 404, as a webhook may. No answer, or one that leaves it open, is no
outcome: the same intent is tried again (design, rule 5).
"""

from __future__ import annotations

from typing import NamedTuple

import events as ev

Outcome = ev.PodBound | ev.BindingFailed | ev.BindingRenewed
BY_THE_POD = frozenset({"gone", "precondition"})
"""Answers of which only the pod says what they mean: a webhook may give them, too."""
REFUSALS = frozenset({"Forbidden", "Rejected"})
"""Answers that say nothing of an earlier attempt: the pod is as it was."""


class Intent(NamedTuple):
    """One binding that is intended and not settled."""

    uid: str
    namespace: str
    name: str
    node: str
    resource_version: str


class Seen(NamedTuple):
    """The pod as the API server has it."""

    uid: str
    resource_version: str
    node: str
    terminating: bool
    gated: bool
    ended: bool
    """It succeeded or failed: the API server would bind it all the same."""


def outcome(intent: Intent, answer: str, message: str, assigned_node: str) -> Outcome | None:
    """The outcome of a definite answer; None: read the pod (`BY_THE_POD`) or try again (the rest)."""
    match answer:
        case "bound":
            return bound(intent)
        case "assigned":
            return assigned(intent, message, assigned_node)
        case "forbidden":
            return failed(intent, "Forbidden", message)
        case "rejected":
            return failed(intent, "Rejected", message)
    return None


def settled_by(intent: Intent, seen: Seen | None, message: str) -> Outcome:
    """What an answer of `BY_THE_POD` means, given the pod as it is now; `message`: the server's words.

    The pod is named: all of its group that wait are told this.
    """
    pod = f"pod {intent.namespace}/{intent.name}"
    if seen is None or seen.uid != intent.uid:
        return failed(intent, "PodGone", f"{pod} is gone")
    if seen.node:
        return assigned(intent, f"already assigned to node {seen.node}", seen.node)
    if seen.ended or seen.terminating:
        return failed(intent, "PodGone", f"{pod} has ended" if seen.ended else f"{pod} is being deleted")
    if seen.gated:
        return failed(intent, "Rejected", f"{pod} has scheduling gates")
    if seen.resource_version == intent.resource_version:
        return failed(intent, "Rejected", message)
    return ev.BindingRenewed(
        uid=intent.uid,
        namespace=intent.namespace,
        name=intent.name,
        node=intent.node,
        resource_version=seen.resource_version,
    )


def assigned(intent: Intent, message: str, node: str) -> Outcome:
    """The pod has a node: the one that was meant, or another."""
    return bound(intent) if node == intent.node else failed(intent, "AlreadyAssigned", message, node)


def bound(intent: Intent) -> ev.PodBound:
    return ev.PodBound(uid=intent.uid, namespace=intent.namespace, name=intent.name, node=intent.node)


def failed(intent: Intent, reason: str, message: str, assigned_node: str = "") -> ev.BindingFailed:
    return ev.BindingFailed(
        uid=intent.uid,
        namespace=intent.namespace,
        name=intent.name,
        node=intent.node,
        reason=reason,
        message=message,
        assigned_node=assigned_node,
    )

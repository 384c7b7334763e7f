"""The Binding subresource: its request and what its answers mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from services.kubernetes.errors import ApiError, Unreachable
from services.kubernetes.transport import Answer, error_of

Outcome = Literal["bound", "assigned", "precondition", "gone", "forbidden", "rejected", "in_doubt", "not_executed"]
"""What became of a binding.

- ``bound``: accepted now.
- ``assigned``: the pod has a node already, `BindResult.node`: ours from an earlier attempt, or somebody else's.
- ``precondition``: UID or resourceVersion are not those of the intent any more. After an attempt in doubt this may be
  that attempt's own doing: only the pod tells.
- ``gone``: no such pod, or it is being deleted; or a webhook says so, which only the pod tells.
- ``forbidden``: 403, or a policy's 401; the message names what is missing, or who denies it.
- ``rejected``: any other definite no.
- ``in_doubt``: no answer, a server error, or one of etcd's: it may have been executed, or may still be.
- ``not_executed``: the server, or a webhook, was too busy (429), the server refused the connection, or took this client
  for nobody (401): that says nothing of the pod, as while a token is exchanged, or who knows tokens is away.
"""


@dataclass(frozen=True, slots=True)
class BindResult:
    """The answer to a binding. `node` is set where the server named the node that the pod has, `retry_after_s` where it
    asked to be left alone for so long."""

    outcome: Outcome
    message: str = ""
    node: str = ""
    retry_after_s: float = 0.0
    answered: bool = True
    """Whether it is an answer at all."""
    final: bool = False
    """Whether no other attempt of the same binding, with the same resourceVersion, can have taken hold either."""


BOUND = BindResult("bound")
CREATED = 201
_encode = msgspec.json.Encoder().encode
_OF_THE_STORAGE = "Operation cannot be fulfilled on pods/binding "
"""So begins a conflict of what the Binding itself met; that of a precondition is about pods."""
_assigned = re.compile(r'already assigned to node "([^"]*)"')


def body(namespace: str, name: str, uid: str, resource_version: str, node: str) -> bytes:
    """The Binding, with its preconditions in its metadata; an empty one is none."""
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return _encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


def result(request: str, answer: Answer) -> BindResult:
    """What the server's answer means. Only its own yes is one: something between may answer 200 to everything, or send
    elsewhere whoever asks."""
    if answer.code == CREATED:
        return BOUND
    if answer.code < 400:
        return BindResult("in_doubt", f"{request}: {answer.code}: expected {CREATED}, of the API server")
    return result_of(error_of(request, answer))


def result_of(error: ApiError) -> BindResult:
    """What a refusal, or no answer at all, means."""
    outcome: Outcome = "rejected"
    if isinstance(error, Unreachable):
        outcome = "in_doubt" if error.sent else "not_executed"
    elif error.code == 429 or error.for_nobody:
        outcome = "not_executed"
    elif error.code in (401, 403):
        outcome = "forbidden"
    elif error.code == 404:
        outcome = "gone"
    elif error.code == 409:
        return _conflict(error)
    elif error.retryable:
        outcome = "in_doubt"
    answered = not isinstance(error, Unreachable)
    return BindResult(
        outcome, str(error), retry_after_s=error.retry_after_s or 0.0, answered=answered, final=error.final
    )


def _conflict(error: ApiError) -> BindResult:
    """Kubernetes tells its conflicts apart only in words (pkg/registry/core/pod/storage). What goes wrong between it and
    etcd is one, too: a binding whose time ran out there may still land."""
    if found := _assigned.search(error.message):
        return BindResult("assigned", str(error), node=found[1])
    if "is being deleted" in error.message:
        return BindResult("gone", str(error))
    if "schedulingGates" in error.message:
        return BindResult("rejected", str(error))
    if error.final:
        return BindResult("rejected", str(error), final=True)
    if error.message.startswith(_OF_THE_STORAGE):
        return BindResult("in_doubt", str(error))
    return BindResult("precondition", str(error))

"""What users and autoscalers read: the PodScheduled condition and Kubernetes events, derived from the state.

Pods of a group that was refused for room get the reason Unschedulable, on which autoscalers act; pods that wait for
members, for another gang or for a declaration get a reason of their own, on which they don't. Pods that wait at permit
have a place and lack nothing themselves: they keep the condition that they had. A condition is written again only when
the refusal's reason or its set of resources changes (`refusals.said`), not when a count does.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import events as ev
from events import dialects
from services.state import reasons, refusals
from services.state.fold import State
from services.state.records import PENDING

BINDING_FAILED = "BindingFailed"
"""The reason of the condition of a pod that waits as its own binding, or one of its gang's, came to nothing."""
MOST_TOLD = 32
"""Events of what one pod's bindings met, for as long as the API server keeps them, an hour mostly: about as many as
Kubernetes' own recorder lets through of one object (25 at once, 12 an hour). Its condition has the last words."""


class Condition(NamedTuple):
    """PodScheduled=False with `reason` and `message`; `said` is what `Pod.reported` will hold."""

    said: str
    reason: str
    message: str


def condition(state: State, uid: str, *, in_doubt: bool = False) -> Condition | None:
    """What the pod's condition should say now; None when it says it already or there is nothing to say.

    `in_doubt`: what it says may be something else than the log has of it.
    """
    pod = state.pods.get(uid)
    if pod is None or pod.status != PENDING or pod.fact.gated or uid in state.claims:
        return None
    group = state.groups.get(pod.group)
    if group is None or not group.cohort:
        return None
    cohort = state.cohorts[group.cohort]
    reason = reasons.follows(cohort.reason).word
    said, message = refusals.said(state, group)
    if not reason or (said == pod.reported and not in_doubt):
        return None
    return Condition(said, reason, message)


class KubernetesEvent(NamedTuple):
    """An event on an object, as ``kubectl describe`` shows it. `time_ns` 0: now."""

    name: str
    regarding: tuple[str, str, str, str, str]
    """apiVersion, kind, namespace, name, uid."""
    reason: str
    action: str
    note: str
    warning: bool
    time_ns: int


API_VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    dialects.WORKLOAD: "scheduling.k8s.io/v1alpha1",
    **{dialects.pod_group_kind(dialect): version for dialect, version in dialects.POD_GROUPS.items()},
}
"""A kind as rejections name it → its apiVersion."""


def scheduled(event: ev.PodBound, time_ns: int) -> KubernetesEvent:
    regarding = ("v1", "Pod", event.namespace, event.name, event.uid)
    note = f"Successfully assigned {event.namespace}/{event.name} to {event.node}"
    return KubernetesEvent(_event_name(event.name, event.uid), regarding, "Scheduled", "Binding", note, False, time_ns)


def failed_scheduling(fact: ev.PodObserved, due: Condition) -> KubernetesEvent:
    """What the pod's condition says. Of its binding it may have the event already, under the same name."""
    regarding = ("v1", "Pod", fact.namespace, fact.name, fact.uid)
    what = _of_binding(due.message) if due.reason == BINDING_FAILED else due.message
    name = _event_name(fact.name, fact.uid, what)
    return KubernetesEvent(name, regarding, "FailedScheduling", "Scheduling", due.message, True, 0)


def failed_binding(event: ev.BindingFailed) -> KubernetesEvent:
    """What the API server said of this attempt; the pod is tried again after its backoff."""
    regarding = ("v1", "Pod", event.namespace, event.name, event.uid)
    name = _event_name(event.name, event.uid, _of_binding(event.message))
    return KubernetesEvent(name, regarding, "FailedScheduling", "Binding", event.message, True, 0)


def _of_binding(message: str) -> str:
    """A webhook's words may differ each time, by a time or a request's number: of one pod there are `MOST_TOLD` names at
    most, so that what goes on for days does not fill up the API server, which takes none of a name that it has."""
    return f"Binding {zlib.crc32(message.encode()) % MOST_TOLD}"


def rejected(event: ev.DeclarationRejected, time_ns: int) -> KubernetesEvent:
    version = API_VERSIONS.get(event.kind, "")
    regarding = (version, event.kind.partition(".")[0], event.namespace, event.name, event.uid)
    note = refusals.rejected(event)
    name = _event_name(event.name, event.uid, event.field + event.value)
    return KubernetesEvent(name, regarding, "DeclarationRejected", "Reading", note, True, time_ns)


def _event_name(name: str, uid: str, what: str = "") -> str:
    """The same thing said twice has the same name, so that a restart repeats nothing. What is cut of a name must end as
    one may: in front of the dot there is a letter or a digit."""
    return f"{name[:230].rstrip('-.')}.{zlib.crc32(f'{uid}{what}'.encode()):08x}"

"""Whether anything can still change: in the log, and between the log and the cluster.

The log is at rest when nobody can decide anything, and no passing of time would change that. The cluster is at rest
when the log has every pod as it is there, and no pod is going to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from services.console.again import is_worth_a_try
from services.kubernetes.resources import PODS
from services.simulator.kubelet import DURATION, annotated_number
from services.state import cohorts
from services.state.fold import State
from services.state.records import FAILED, PENDING, SUCCEEDED
from services.state.reservations import KEEPS

if TYPE_CHECKING:
    from services.kubernetes.client import Client


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod]


_decoder = msgspec.json.Decoder(_Pods)


def waits_for_time(state: State) -> bool:
    """Whether something would happen if only time passed: a held gang times out, nominated room expires, reserved room
    that is kept from somebody does, or a refused group that was given reason to be tried again sits out its backoff.

    The retry that comes after `retry_ms` in any case does not count: where nothing has changed, it is refused again.
    """
    if state.holding or state.nominations or state.group_nominations:
        return True
    for cohort in state.cohorts.values():
        if state.reservations and KEEPS in cohort.condition:
            return True
        if cohort.backing_off and is_worth_a_try(state, cohort):
            return True
    return False


def waits_for_mark(state: State) -> bool:
    """Whether a pod that timed out has its annotation still to come: it is not written yet, or ingest has not seen it.

    Ingest never sees one on a pod whose annotations cannot be read any more, so nobody waits for that.
    """
    unreadable = {rejected.uid for rejected in state.rejections.values()} if state.marks else set()
    return any(not mark.written or uid not in unreadable for uid, mark in state.marks.items())


def log_at_rest(state: State) -> bool:
    """Whether no core has anything to say of this state, nor would after any time."""
    if not state.synced or not state.epoch:
        return False
    if state.proposals or state.permitted or state.lost or state.evictions or state.room_requests:
        return False
    if waits_for_mark(state) or waits_for_time(state):
        return False
    return not cohorts.waiting(state)


async def cluster_at_rest(client: Client, state: State, scheduler_names: frozenset[str]) -> bool:
    """Whether cluster and log agree on every pod of ours, and none is about to end. Raises ApiError."""
    async for page in client.pages(PODS):
        for pod in _decoder.decode(page).items:
            if pod.spec.scheduler_name in scheduler_names and not _at_rest(pod, state):
                return False
    return True


def _at_rest(pod: _Pod, state: State) -> bool:
    known = state.pods.get(pod.metadata.uid)
    if pod.metadata.deletion_timestamp is not None:
        return False
    if pod.status.phase in ("Succeeded", "Failed"):
        return known is None or known.status in (SUCCEEDED, FAILED)
    if pod.spec.node_name:
        ends = annotated_number(pod.metadata.annotations, DURATION) is not None
        return not ends and known is not None and known.node == pod.spec.node_name
    if known is None:
        return any(rejected.uid == pod.metadata.uid for rejected in state.rejections.values())
    return known.status == PENDING

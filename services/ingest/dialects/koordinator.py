"""Koordinator (seed 002, API): annotations on pods, or a community PodGroup with annotations; both, and the pod's win.

A pod is Koordinator's if it names a gang, and any annotation of Koordinator's but ``timeout`` stands on it or its
schedulerName is ``koord-scheduler``. The name is looked for in the label ``pod-group.scheduling.sigs.k8s.io``, the label
``…/name``, the annotation ``gang.scheduling.koordinator.sh/name``, in this order.

The text is silent about bad values; Koordinator's code logs them and takes the default. Here they are rejected, but for a
total below the minimum, which counts as the minimum there and here. The text bounds no group; here a gang that names more
than `MOST_GANGS` has a bad value. The text has two names for the annotation of gang groups, ``groups`` and, once,
``gang-groups``, which the code does not read: both are taken, and ``groups`` goes before. Names "should be in the form of
RFC 1123" there, which its code does not ask for: whatever a label may say is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from events.dialects import (
    ONCE_SATISFIED,
    ONLY_WAITING,
    TIMEOUT_ANNOTATION,
    WAITING_AND_RUNNING,
    api_group,
    declared_in,
)
from events.objects import Declaration, Membership
from events.wire import UNDECODABLE
from services.ingest.dialects import coscheduling
from services.ingest.dialects.reading import annotation, gang_key, label, misnamed, of_annotation, of_label, one_of
from services.ingest.durations import milliseconds
from services.ingest.rejection import LONGEST_VALUE, Rejection, integer
from services.kubernetes.objects import Metadata, Pod, PodGroup

DIALECT = "koordinator/v1alpha1"
SCHEDULER = "koord-scheduler"
PREFIX = "gang.scheduling.koordinator.sh/"
MINIMUM_LABEL = coscheduling.V0_18.minimum
MOST_GANGS = 128
"""That one may name in its group: whoever forms the group walks all that its gangs name, and plans them as one."""
_groups = msgspec.json.Decoder(list[str])


def _read_groups(value: str, field: str) -> tuple[str, ...] | Rejection:
    """Keys of gangs; empty for none."""
    expected = 'a JSON list of "namespace/gang"'
    try:
        found = _groups.decode(value) if value else []
    except UNDECODABLE:
        return Rejection(field, value[:LONGEST_VALUE], expected)
    named = sorted(set(found))
    if len(named) > MOST_GANGS:
        return Rejection(field, f"{len(named)} gangs", f"at most {MOST_GANGS} gangs in a group")
    for one in named:
        namespace, _, name = one.partition("/")
        if misnamed(namespace, field) or misnamed(name, field):
            return Rejection(field, one[:LONGEST_VALUE], expected)
    return tuple(named)


def _read_mode(value: str, field: str) -> str | Rejection:
    return one_of(value, field, ("Strict", "NonStrict"))


def _read_policy(value: str, field: str) -> str | Rejection:
    return one_of(value, field, (ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED))


def _read_total(value: str, field: str) -> int | Rejection:
    return integer(value, field, least=0)


Read = Callable[[str, str], Any]
ON_GROUPS: dict[str, tuple[str, Read]] = {
    PREFIX + "total-number": ("total_member", _read_total),
    PREFIX + "mode": ("mode", _read_mode),
    PREFIX + "gang-groups": ("groups", _read_groups),
    PREFIX + "groups": ("groups", _read_groups),
    "pod-group.scheduling.sigs.k8s.io/match-policy": ("match_policy", _read_policy),
    PREFIX + "match-policy": ("match_policy", _read_policy),
}
"""Annotations that a PodGroup may have as well as a pod → what they say. Of two names the later one counts."""
ON_PODS: dict[str, tuple[str, Read]] = {
    PREFIX + "min-available": ("min_member", integer),
    PREFIX + "waiting-time": ("waiting_time_ms", milliseconds),
    **ON_GROUPS,
}


def membership(pod: Pod) -> Membership | Rejection | None:
    metadata = pod.metadata
    if not (_annotated(metadata) or pod.spec.scheduler_name == SCHEDULER):
        return None
    key = _gang(metadata)
    if key is None or isinstance(key, Rejection):
        return key
    declared = _declared(metadata, key)
    if isinstance(declared, Rejection):
        return declared
    return Membership(gang=key, dialect=DIALECT, declared=declared)


def timed_out(pod: Pod, found: Membership) -> bool:
    """Whether the pod says so of its gang. That may be Koordinator's by its PodGroup alone, whatever its pods are."""
    says = annotation(pod.metadata, TIMEOUT_ANNOTATION) == "true"
    return says and api_group(DIALECT) in declared_in(found.gang, found.dialect)


def _gang(metadata: Metadata) -> str | Rejection | None:
    for key in (coscheduling.V0_19.gang, coscheduling.V0_18.gang):
        if name := label(metadata, key):
            return gang_key(DIALECT, metadata, name, of_label(key))
    if name := annotation(metadata, PREFIX + "name"):
        return gang_key(DIALECT, metadata, name, of_annotation(PREFIX + "name"))
    return None


def _declared(metadata: Metadata, key: str) -> Declaration | Rejection | None:
    """What the pod itself says, and which fields that are; None if it says nothing."""
    found = _said(metadata, key, ON_PODS)
    if isinstance(found, Rejection):
        return found
    if "min_member" not in found and (minimum := label(metadata, MINIMUM_LABEL)):
        found["min_member"] = integer(minimum, of_label(MINIMUM_LABEL))
        if isinstance(found["min_member"], Rejection):
            return found["min_member"]
    if not found:
        return None
    return _declaration(Declaration(min_member=1, waiting_time_ms=0, said=tuple(sorted(found))), found)


def is_of_group(seen: PodGroup) -> bool:
    """Whether the PodGroup is Koordinator's by its annotations."""
    return _annotated(seen.metadata)


def declaration(seen: PodGroup) -> Declaration | Rejection:
    """A PodGroup's with Koordinator's annotations. Minimum and waiting time stand in its spec alone."""
    base = coscheduling.declaration(seen)
    if isinstance(base, Rejection):
        return base
    found = _said(seen.metadata, f"{seen.metadata.namespace}/{seen.metadata.name}", ON_GROUPS)
    return found if isinstance(found, Rejection) else _declaration(base, found)


def _declaration(base: Declaration, found: dict[str, Any]) -> Declaration:
    declared: Declaration = msgspec.structs.replace(base, **({"match_policy": ONCE_SATISFIED} | found))
    if 0 < declared.total_member < declared.min_member:
        declared = msgspec.structs.replace(declared, total_member=declared.min_member)
    return declared


def _said(metadata: Metadata, key: str, known: dict[str, tuple[str, Read]]) -> dict[str, Any] | Rejection:
    """Fields of a Declaration that annotations fill. An empty annotation says nothing; of groups, that there are none."""
    found: dict[str, Any] = {}
    annotations = metadata.annotations or {}
    for name, (field, read) in known.items():
        value = annotations.get(name)
        if value is None or (not value and field != "groups"):
            continue
        found[field] = read(value, of_annotation(name))
        if isinstance(found[field], Rejection):
            rejection: Rejection = found[field]
            return rejection
    if found.get("groups"):
        others = {key, *found["groups"]}
        found["groups"] = tuple(sorted(others)) if len(others) > 1 else ()
    return found


def _annotated(metadata: Metadata) -> bool:
    """By its user: what the binder writes must not change whose the pod is, and so what its gang's minimum is."""
    return any(key.startswith(PREFIX) and key != TIMEOUT_ANNOTATION for key in metadata.annotations or ())

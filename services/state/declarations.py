"""Who speaks for a gang: its PodGroup, and of its pods the oldest.

- Only the PodGroup that the oldest member's dialect reads counts (`events.dialects.declared_in`); those of other API
  groups may share its name and mean other gangs or none.
- Of the pods that declare something the oldest counts. A PodGroup wins over what pods declare.
- In Koordinator's dialect it is the other way round, field by field: "the annotation mode's parameter will overwrite
  CRD's mode if both exist" (seed 002, API). `Declaration.said` tells which fields those are.
- A gang is Koordinator's if its PodGroup has Koordinator's annotations, its oldest pod is Koordinator's, or the pod that
  is heard: a mode and gang groups are Koordinator's alone, and so is what ends the waiting of who has them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

import events as ev
from events import dialects
from events.objects import Declaration, Membership
from services.state import tallies
from services.state.records import Gang
from services.state.speakers import Speakers, declares, said

if TYPE_CHECKING:
    from services.state.fold import State

KOORDINATOR = "koordinator/v1alpha1"
LOOKED_AT = 8
"""Members, at most, that are looked at for one that declares something; of the others it is kept."""


def pod_group_key(dialect: str, namespace: str, name: str) -> str:
    """Where `State.pod_groups` has the PodGroup: those of several API groups may share a name."""
    return f"{dialects.api_group(dialect)}/{namespace}/{name}"


def pod_groups(state: State, key: str, dialect: str) -> list[str]:
    """Keys of the PodGroups that may declare the gang for a member of `dialect`, best first; of any if that is empty."""
    if not state.pod_groups:
        return []
    namespace, name = dialects.name_of(key)
    found = (f"{group}/{namespace}/{name}" for group in dialects.declared_in(key, dialect))
    return [one for one in found if one in state.pod_groups]


def joined(state: State, gang: Gang, uid: str, membership: Membership) -> None:
    """A pod became a member, or was observed anew: does it speak for the gang now, or no longer?"""
    declares, before = membership.declared is not None, gang.declarer
    if declares and not before:
        gang.declarer = uid
    elif declares and before != uid and next(reversed(gang.members)) != uid:
        gang.declarer = _next_declarer(state, gang)  # an older one may have begun to declare
    elif before == uid and not declares:
        gang.declarer = _next_declarer(state, gang)
    if gang.declarer != before or uid in (before, next(iter(gang.members))):
        declare(state, gang)


def left(state: State, gang: Gang, uid: str) -> None:
    """A member is gone, and out of `gang.members`."""
    if gang.declarer and (gang.declarer == uid or said(state, gang.key, gang.declarer) is None):
        gang.declarer = _next_declarer(state, gang)
    declare(state, gang)


def declare(state: State, gang: Gang) -> None:
    """Settle the gang's declaration, source and dialect from its PodGroups and the pods that speak for it.

    Whoever declares a gang otherwise acts: that it timed out before means nothing any more (`services.state.timeouts`).
    That a declaration is first heard of is no act.
    """
    before = gang.declaration
    _settle(state, gang)
    if gang.timed_out and before not in (None, gang.declaration):
        tallies.all_unsay_timed_out(state, gang)


def _settle(state: State, gang: Gang) -> None:
    oldest = next(iter(gang.members), "")
    speaker = said(state, gang.key, oldest)
    own = speaker if gang.declarer == oldest else said(state, gang.key, gang.declarer)
    found = pod_groups(state, gang.key, speaker.dialect if speaker is not None else "")
    gang.pod_group = found[0] if found else ""
    if not found:
        declared = own.declared if own is not None else None
        whole = declared is not None and (not declared.said or "min_member" in declared.said)
        gang.declaration = declared if whole else None
        gang.source = gang.declarer if whole else ""
        gang.dialect = own.dialect if own is not None else speaker.dialect if speaker is not None else gang.dialect
        return
    pod_group = state.pod_groups[found[0]]
    gang.source, gang.dialect = pod_group.uid, pod_group.dialect
    if any(one is not None and dialects.family(one.dialect) == "koordinator" for one in (speaker, own)):
        gang.dialect = KOORDINATOR
    gang.declaration = _overlaid(pod_group, own, gang.dialect)


def _overlaid(pod_group: ev.PodGroupObserved, own: Membership | None, dialect: str) -> Declaration:
    """The PodGroup's declaration with what the pod's annotations say in its place."""
    declaration = pod_group.declaration
    changes: dict[str, Any] = {}
    if dialect != pod_group.dialect:
        changes["match_policy"] = dialects.ONCE_SATISFIED  # this PodGroup says nothing of it: Koordinator's default
    if own is not None and own.declared is not None:
        changes |= {field: getattr(own.declared, field) for field in own.declared.said}
    if not changes:
        return declaration
    merged: Declaration = msgspec.structs.replace(declaration, **changes)
    if 0 < merged.total_member < merged.min_member:
        merged = msgspec.structs.replace(merged, total_member=merged.min_member)
    return merged


def _next_declarer(state: State, gang: Gang) -> str:
    """The oldest member that declares something; empty: none does."""
    for uid in islice(gang.members, LOOKED_AT):
        if declares(state, gang.key, uid):
            return uid
    if len(gang.members) <= LOOKED_AT:
        return ""
    tally = state.tallies[gang.key]
    if tally.speakers is None:
        tally.speakers = Speakers({uid: declares(state, gang.key, uid) for uid in gang.members})
    return tally.speakers.oldest

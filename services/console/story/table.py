"""What events mean to a pod or a gang whose story is told: event → the steps that it is.

A telling is called behind the commit of its event, in the order of the commit. It compares what the event says with
what the story knew before (`Followed`) and with the state behind the commit; an event that changed nothing, as the fold
ignored it or it is about somebody else, is no step. It keeps what it tells in `Followed`, so that nothing is told twice.
"""

from __future__ import annotations

import events as ev
from services.console.story import facts, rooms, verdicts
from services.console.story.steps import Telling

OF_A_POD: dict[type, Telling] = {
    ev.PodAssigned: facts.assigned,
    ev.PodTerminating: facts.terminating,
    ev.PodFinished: facts.finished,
    ev.PodDeleted: facts.deleted,
    ev.PodBound: facts.bound,
    ev.BindingFailed: facts.binding_failed,
    ev.EvictionIntended: verdicts.eviction_intended,
    ev.PodEvicted: verdicts.evicted,
    ev.EvictionFailed: verdicts.eviction_failed,
}
"""event → what it means to a pod that is there, and that it names by its `uid`."""
TELLINGS: dict[type, Telling] = {
    ev.PodObserved: facts.observed,
    ev.DeclarationRejected: facts.rejected,
    ev.GroupsRefused: verdicts.refused,
    ev.GangPlaced: verdicts.placed,
    ev.RoomRequested: rooms.room_requested,
    ev.ProposalRefused: verdicts.proposal_refused,
    ev.GangHeld: verdicts.held,
    ev.GangPermitted: verdicts.permitted,
    ev.GangReleased: verdicts.released,
    ev.GangTimedOut: verdicts.timed_out,
    ev.DeadlockFound: verdicts.deadlock,
    ev.DisagreementDetected: verdicts.disagreement,
    ev.RoomNominated: rooms.room_nominated,
    ev.NominationEnded: rooms.nomination_ended,
    ev.GroupNominated: rooms.group_nominated,
    ev.GroupNominationEnded: rooms.group_nomination_ended,
    ev.RoomReserved: rooms.room_reserved,
    ev.RoomDeclined: rooms.room_declined,
    ev.ReservationEnded: rooms.reservation_ended,
}
"""event → what it means to a pod or a gang that it may be about. Events that are in neither table mean nothing to
anybody, or are seen from the state (`changes`)."""

"""What facts, and outcomes that a fact may come before, mean to a pod or a gang."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import events as ev
from services.console.counted import counted
from services.console.story.followed import POD, Followed, Seen
from services.console.story.steps import Step, standing
from services.state import refusals
from services.state.records import BOUND, FAILED, FINISHED, PENDING, PERMITTED, SUCCEEDED, TERMINATING


def observed(of: Followed, event: ev.PodObserved) -> Iterable[Step]:
    if event.uid in of.members:
        return _observed_again(of, event)
    return _observed_first(of, event) if of.is_of(event) else ()


def _observed_first(of: Followed, event: ev.PodObserved) -> Iterator[Step]:
    now = of.state.pods.get(event.uid)
    if now is not None and of.kind != POD and now.gang != of.name:
        return  # it stays with another gang until what is intended for it is settled
    before, of.last = of.last, event.uid
    of.newcomers.append(event.uid)
    of.put(event.uid, Seen(event, event.status, event.node))
    if of.kind == POD:
        what, again = "seen", ""
        if before == event.uid:
            what, again = "there again", "under the UID of before, as where etcd was restored from a backup: "
        elif before:
            what, again = "made anew", f"another one of this name, of the UID {event.uid}: "
        yield Step(what, again + _of_a_pod(event), what, counts=True)
    else:
        yield standing(of, "seen", f"{counted(len(of.members), 'pod')} now")


def _of_a_pod(event: ev.PodObserved) -> str:
    whose = "without a gang" if event.gang is None else f"of gang {event.gang.gang} ({event.gang.dialect})"
    parts = [whose if event.candidate else "another scheduler's"]
    if event.candidate:
        parts.append(f"priority {event.priority}")
    if event.gated:
        parts.append("its scheduling gates are not removed")
    if event.status != PENDING:
        parts.append(f"{event.status} on node {event.node}" if event.node else event.status)
    return ", ".join(parts)


def _observed_again(of: Followed, event: ev.PodObserved) -> Iterator[Step]:
    before, now = of.members[event.uid], of.state.pods.get(event.uid)
    if now is None or now.fact is not event:  # an older one, or a newer one follows
        return
    old = before.fact
    if of.kind != POD and now.gang != of.name:
        of.pop(event.uid)
        yield standing(of, "a pod left", f"its label names another gang; {counted(len(of.members), 'pod')} now")
        return
    of.put(event.uid, before._replace(fact=event))
    if old.gated and not event.gated:
        left = "it may be placed" if of.kind == POD else f"{counted(of.gated, 'pod')} left with gates"
        yield standing(of, "gates removed", left)
    if changes := "; ".join(_changes(of, old, event)):
        yield Step("changed", changes, f"changed {changes}", counts=True)
    if event.node and before.status not in FINISHED:
        yield from _moves(of, event.uid, event.status, event.node, "")
    elif before.status == PENDING:
        yield from _moves(of, event.uid, event.status, before.node, "")


def _changes(of: Followed, old: ev.PodObserved, new: ev.PodObserved) -> Iterator[str]:
    if old.priority != new.priority:
        yield f"priority {new.priority}, it was {old.priority}"
    if old.scheduling_class != new.scheduling_class:
        yield "what it asks for" if of.kind == POD else "what a pod asks for"
    was, now = (fact.gang.gang if fact.gang is not None else "" for fact in (old, new))
    if was != now and of.kind == POD:
        yield f"it names the gang {now}" if now else "it names no gang any more"
    if old.candidate != new.candidate and of.kind == POD:
        yield "this scheduler's now" if new.candidate else "another scheduler's now"


def assigned(of: Followed, event: ev.PodAssigned) -> Iterator[Step]:
    if of.members[event.uid].status not in FINISHED:
        yield from _moves(of, event.uid, BOUND, event.node, "")


def terminating(of: Followed, event: ev.PodTerminating) -> Iterator[Step]:
    if of.members[event.uid].status not in FINISHED:
        yield from _moves(of, event.uid, TERMINATING, of.members[event.uid].node, "")


def finished(of: Followed, event: ev.PodFinished) -> Iterator[Step]:
    if of.members[event.uid].status not in FINISHED:
        status = SUCCEEDED if event.succeeded else FAILED
        yield from _moves(of, event.uid, status, of.members[event.uid].node, event.reason)


def _moves(of: Followed, uid: str, status: str, node: str, why: str) -> Iterator[Step]:
    """A pod is of another status, or on another node, than the story knew."""
    before = of.members[uid]
    if status == BOUND and before.status == TERMINATING:
        status = TERMINATING
    if (status, node) == (before.status, before.node):
        return
    meant = before.stage == PERMITTED and before.at == node
    stands = not node and status not in FINISHED
    stage, at = (before.stage, before.at) if stands else ("", "")
    of.put(uid, before._replace(status=status, node=node, stage=stage, at=at))
    if node and node != before.node:
        by = "" if meant else ", by somebody else"
        where = f"to node {node}" if of.kind == POD else of.bound()
        yield standing(of, "bound", where + by)
    if status == TERMINATING != before.status:
        yield standing(of, "terminating", "it is being deleted" if of.kind == POD else of.share(of.statuses[status]))
    elif status in FINISHED:
        of.ended[status] += 1
        said = f": {why}" if why else ""
        where = f"on node {node}" if node else "on no node"
        yield standing(of, status, (where if of.kind == POD else f"{counted(of.ended[status], 'pod')} so far") + said)


def deleted(of: Followed, event: ev.PodDeleted) -> Iterator[Step]:
    before = of.members[event.uid]
    of.pop(event.uid)
    of.evicting.pop(event.uid, None)
    if of.kind == POD:
        was = "had" if before.status in FINISHED else "was"
        stood = f"it {was} {before.status} on node {before.node}" if before.node else "it was not bound"
        yield Step("gone", stood, "gone", counts=True)
    else:
        of.ended["gone"] += 1
        yield standing(of, "gone", f"{counted(of.ended['gone'], 'pod')} so far, {len(of.members)} left")


def rejected(of: Followed, event: ev.DeclarationRejected) -> Iterator[Step]:
    if of.is_declared_by(event.kind, event.namespace, event.name):
        of.rejections[f"{event.kind}/{event.namespace}/{event.name}"] = None
        why = f"{event.kind} {event.namespace}/{event.name} cannot be taken: {refusals.rejected(event)}"
        yield Step("rejected", why, why, counts=True)


def bound(of: Followed, event: ev.PodBound) -> Iterator[Step]:
    if _is_intended(of, event.uid, event.node):
        yield from _moves(of, event.uid, BOUND, event.node, "")


def _is_intended(of: Followed, uid: str, node: str) -> bool:
    """Whether an outcome answers an intent that is open."""
    return (of.members[uid].stage, of.members[uid].at) == (PERMITTED, node)


def binding_failed(of: Followed, event: ev.BindingFailed) -> Iterator[Step]:
    if not _is_intended(of, event.uid, event.node):
        return
    if event.assigned_node:
        yield from _moves(of, event.uid, BOUND, event.assigned_node, "")
        return
    of.give_back([event.uid])
    what = f"to node {event.node}" if of.kind == POD else f"{of.named(event.uid)} to node {event.node}"
    why = f"{what}: {event.message or event.reason}. {of.backs_off()}".removesuffix(". ")
    yield Step("binding failed", why, f"failed {event.reason}", counts=True)

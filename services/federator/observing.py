"""What an answer, or none, adds to the log: pure functions of the state and what a backend said.

An answer is written down when it says something new, or when it is the first from after a moment that matters: the end of
a guard time or of an extra time. So the log has no heartbeats, and every deadline is judged on an answer, not on a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec

from events import ClusterObserved, ClusterSilent, Event, RemainsFound, RunReleased, StrayFound, SubmissionHeld, Ticked
from events.federation import RunSeen
from services.federator.backends import GONE, RUNNING, TERMINAL, UNKNOWN, Listing, Run
from services.federator.records import ENDED, NOTHING, NS_PER_MS, SUBMITTED, Cluster, Job, Key, Place
from services.federator.rules import gone, guard, priority, returned
from services.federator.state import State
from services.state.clock import JUMP_NS

MOST_SEEN = 10_000
"""Places of one commit, whatever their aliases: half of what a message takes."""
MOST_TOLD = 3_000
"""Other events of one commit, however long the words in them: they stand beside as many places as that."""
MOST_STRAYS = 1_000
"""A cluster that invents some has the log grow by so many for each list that clears them, and the state no further."""


def ticked(state: State, clock_ns: int) -> Ticked:
    """The tick that stands in front of an observation. `clock_ns`: the federator's clock, never behind its log time."""
    step_ns = clock_ns - state.clock.time_ns
    return Ticked(time_ns=clock_ns, jumped_ns=step_ns if step_ns > JUMP_NS else 0)


def log_time_ns(state: State, clock_ns: int) -> int:
    """The log time (`State.now_ns`) after that tick."""
    step_ns = clock_ns - state.clock.time_ns
    return state.clock.counted_ns + (step_ns if 0 <= step_ns <= JUMP_NS else 0)


def missing(state: State, account: str, listing: Listing) -> list[Key]:
    """R20: places that the list does not show. They have ended if the cluster says that nothing is left."""
    listed = {run.name: run.uid for run in listing.runs}
    return [
        (uid, place.cluster)
        for uid, place in _open(state, account)
        if gone.may_be_gone(place) and listed.get(place.name) != place.uid
    ]


def observed(
    state: State,
    account: str,
    listing: Listing,
    *,
    asked_ns: int,
    now_ns: int,
    before_ns: int,
    absent: Collection[Key] = (),
) -> ClusterObserved | None:
    """What a cluster's list adds to the log; None when it need not be written down.

    `asked_ns`: log time of the question. `now_ns`: log time of the answer. `before_ns`: log time of the last question
    before this that the cluster answered; -1: none of this federator. `absent`: those of the `missing` places of which
    the cluster confirmed that nothing is left.
    """
    cluster = state.clusters[account]
    listed = {run.name: run for run in listing.runs}
    runs = [
        seen
        for uid, place in _open(state, account)
        if (seen := _gone(uid, place, absent)) is not None
        or (seen := _seen(uid, place, listed, listing, now_ns, before_ns)) is not None
    ]
    if runs or not cluster.answers or is_due(state, cluster, asked_ns):
        return ClusterObserved(account=account, asked_ns=asked_ns, runs=tuple(runs))
    return None


def commits(said: Sequence[Event]) -> Iterator[list[Event]]:
    """The same, cut where a list shows more than one message takes. It is one question's answer: whoever appends that
    decides nothing between two of them."""
    commit: list[Event] = []
    for event in said:
        if len(commit) == MOST_TOLD:
            yield commit
            commit = []
        rest = event
        while isinstance(rest, ClusterObserved) and len(rest.runs) > MOST_SEEN:
            yield [*commit, msgspec.structs.replace(rest, runs=rest.runs[:MOST_SEEN])]
            commit, rest = [], msgspec.structs.replace(rest, runs=rest.runs[MOST_SEEN:])
        commit.append(rest)
    yield commit


def silent(state: State, account: str, reason: str, *, before_ns: int) -> ClusterSilent | None:
    """The event that a cluster does not answer; None when the log says so already. `before_ns`: as in `observed`."""
    cluster = state.clusters[account]
    if cluster.silent:
        return None
    return ClusterSilent(account=account, reason=reason, asked_ns=before_ns)


def remains(state: State, account: str, federation: str, listing: Listing) -> list[RemainsFound]:
    """Submissions that came late: held runs of ours that are neither the run that the log knows nor one it waits for; one
    of each place at a time. Nor is one meant that was seen to have ended: its cluster was restored to before its release.
    """
    found: dict[Key, RemainsFound] = {}
    for run, job, place in _held(state, account, federation, listing):
        waited_for = not (place.is_there or place.phase == ENDED)
        meant = run.uid == place.uid and not (place.given_up or returned.is_unwanted(job, place))
        if place.remains == NOTHING and not waited_for and not meant:
            remains = RemainsFound(job=job.uid, cluster=place.cluster, name=run.name, uid=run.uid)
            found.setdefault((job.uid, place.cluster), remains)
    return [*found.values()]


def strays(state: State, account: str, federation: str, listing: Listing) -> list[StrayFound]:
    """R22: the same for jobs that are forgotten. Whether they may be cleared only a later list says: this one may have
    been asked for before the job was forgotten. No more than `MOST_STRAYS` are to be cleared of one cluster."""
    known = state.strays.get(account, {})
    found = {
        held.run.uid: StrayFound(
            account=account, job=owner.job, cluster=owner.cluster, name=held.run.name, uid=held.run.uid
        )
        for held in listing.held
        if (owner := held.owner) is not None
        and owner.federation == federation
        and state.is_forgotten(owner.job)
        and held.run.uid not in known
    }
    return list(islice(found.values(), max(0, MOST_STRAYS - len(known))))


def released(state: State, account: str, listing: Listing) -> list[RunReleased]:
    """Of runs that are to be let go those that are not held any more: an attempt whose answer was lost took effect."""
    if not state.releasing:
        return []
    listed = {run.name: run for run in listing.runs}
    found = []
    for uid, place in _open(state, account):
        run = listed.get(place.name) if (uid, place.cluster) in state.releasing else None
        if run is not None and run.uid == place.uid and not run.held:
            found.append(RunReleased(job=uid, cluster=place.cluster))
    return found


def held_again(state: State, account: str, federation: str, listing: Listing) -> dict[str, SubmissionHeld]:
    """By UID, runs that were released and are shown held. One list may be from before the release, a second one is not:
    then the cluster was restored to before it."""
    return {
        run.uid: SubmissionHeld(job=job.uid, cluster=place.cluster, uid=run.uid, adopted=False)
        for run, job, place in _held(state, account, federation, listing)
        if (place.phase, place.uid, place.held) == (SUBMITTED, run.uid, False)
    }


def back(state: State, account: str, listing: Listing) -> list[Key]:
    """R18: places that had ended, and of which the list shows something that runs, by their names. Whose it is says
    the cluster when it is asked by name (`core.came_back`)."""
    there = {place.name for _, place in _open(state, account)}
    return [
        (job.uid, place.cluster)
        for run in listing.runs
        if run.name not in there and run.state not in TERMINAL
        for job in _may_be_of(state, run.name)
        for place in job.places.values()
        if (place.account, place.name) == (account, run.name)
        if returned.is_unwanted(job, place) and returned.runs_again(place, run)
    ]


def unknown(state: State, account: str, listing: Listing) -> list[Run]:
    """Runs that go on, and have the name of no place here: others', or of a federation whose log was set back. Whose they
    are says the cluster when it is asked by name. What is held is cleared (`strays`)."""
    there = {place.name for _, place in _open(state, account)}
    return [
        run
        for run in listing.runs
        if run.name not in there and not run.held and run.state not in TERMINAL
        if not any(
            (place.account, place.name, place.uid) == (account, run.name, run.uid)
            for job in _may_be_of(state, run.name)
            for place in job.places.values()
        )
    ]


def _may_be_of(state: State, name: str) -> Iterator[Job]:
    """Jobs whose names the name of a run may begin with (`specialize.name_on`)."""
    end = name.rfind("-")
    while end > 0:
        if (uid := state.names.get(name[:end])) is not None:
            yield state.jobs[uid]
        end = name.rfind("-", 0, end)


def is_due(state: State, cluster: Cluster, asked_ns: int) -> bool:
    """Whether an answer without news must be written down, because a guard time or an extra time ends with it."""
    for uid, alias in state.timed[cluster.account]:
        job = state.jobs[uid]
        place = job.places[alias]
        if guard.is_due(job, place, cluster, asked_ns) or priority.is_due(job, place, cluster, asked_ns):
            return True
    return False


def _open(state: State, account: str) -> Iterator[tuple[str, Place]]:
    """(job's UID, place) of the account's places that did not end."""
    for uid, alias in state.open.get(account, ()):
        yield uid, state.jobs[uid].places[alias]


def _held(state: State, account: str, federation: str, listing: Listing) -> Iterator[tuple[Run, Job, Place]]:
    """Held runs that are ours, each with the place of this account that it names. What is said of a place on another
    cluster is not believed: there it would be cleared."""
    for held in listing.held:
        owner = held.owner
        place = state.place(owner.job, owner.cluster) if owner is not None and owner.federation == federation else None
        if owner is not None and place is not None and place.account == account:
            yield held.run, state.jobs[owner.job], place


def _gone(uid: str, place: Place, absent: Collection[Key]) -> RunSeen | None:
    if (uid, place.cluster) not in absent or not gone.may_be_gone(place):
        return None
    return RunSeen(job=uid, cluster=place.cluster, state=GONE, attempt=place.attempt, started_ns=0)


def _seen(
    uid: str, place: Place, listed: dict[str, Run], listing: Listing, now_ns: int, before_ns: int
) -> RunSeen | None:
    if not place.is_there:
        return None
    run = listed.get(place.name)
    if run is None or run.uid != place.uid:
        if place.run in ("", UNKNOWN):
            return None
        return RunSeen(job=uid, cluster=place.cluster, state=UNKNOWN, attempt=place.attempt, started_ns=0)
    if run.state == place.run and (run.attempt == place.attempt or run.state == UNKNOWN):
        return None
    started_ns = _started_ns(run, listing, now_ns, before_ns) if run.state == RUNNING else 0
    return RunSeen(job=uid, cluster=place.cluster, state=run.state, attempt=run.attempt, started_ns=started_ns)


def _started_ns(run: Run, listing: Listing, now_ns: int, before_ns: int) -> int:
    """R4: when the run started, as log time: by its age on the cluster's own clock, but not before the last answer that
    did not show it running."""
    known = run.started_ms > 0 and listing.clock_ms > 0
    age_ns = (listing.clock_ms - run.started_ms) * NS_PER_MS if known else 0
    return min(max(now_ns - age_ns, before_ns, 0), now_ns)

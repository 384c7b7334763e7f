"""Each rule broken on purpose: `PLANTS` has bugs for each, and histories must find them.

``python -m tests.federator.plants`` says after how many. A plant replaces a function, or a row of a table; `planted` puts
everything back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import events as ev
from services.federator import core, observing, records, state
from services.federator.backends import RUNNING, UNKNOWN
from services.federator.rules import ending, forgotten, gone, guard, names, priority, race, returned
from services.federator.transitions import answers, places

Plant = Callable[[], None]


def _replaced(module: Any, name: str, otherwise: Any) -> Plant:
    return lambda: setattr(module, name, otherwise)


def _fold(kind: type, otherwise: Callable[[state.State, Any], None]) -> Plant:
    """Another transition."""
    return lambda: state.APPLY.update({kind: otherwise})


def _then(kind: type, more: Callable[[state.State, Any], None]) -> Plant:
    """Something more than the transition."""
    original = state.APPLY[kind]

    def both(folded: state.State, event: Any) -> None:
        original(folded, event)
        more(folded, event)

    return _fold(kind, both)


def _only_the_first() -> None:
    original = state.APPLY[ev.JobFederated]

    def fewer(folded: state.State, event: Any) -> None:
        original(folded, event)
        for key in list(folded.submitting)[1:]:
            folded.submitting.pop(key)

    state.APPLY[ev.JobFederated] = fewer


def _silence_counts(folded: state.State, event: Any) -> None:
    cluster = folded.clusters[event.account]
    cluster.covered_ns += 5_000_000_000


def _attempts_go_on() -> None:
    original = answers._run_seen

    def run_seen(folded: state.State, cluster: Any, seen: Any) -> None:
        place = folded.jobs[seen.job].places[seen.cluster]
        kept = (place.earned_ns, place.since_ns)
        original(folded, cluster, seen)
        if seen.state == RUNNING and place.run == RUNNING and kept[1] >= 0:
            place.earned_ns, place.since_ns = kept

    answers._run_seen = run_seen  # type: ignore[assignment]


def _outage_counts() -> None:
    def taken(folded: state.State, event: Any) -> None:
        folded.holder = event.holder
        for uid, alias in folded.submitting:
            folded.jobs[uid].places[alias].doubtful = True

    state.APPLY[ev.FederatorTaken] = taken


def _nothing_in_doubt(folded: state.State, event: Any) -> None:
    for uid, alias in folded.submitting:
        folded.jobs[uid].places[alias].doubtful = False


def _gives_up(folded: state.State, event: Any) -> None:
    place = folded.place(event.job, event.cluster)
    if place is not None and place.phase == records.ABANDONED:
        place.doubtful = False
        folded.move(event.job, place, "withdrawn")


def _withdrawn_anyway() -> None:
    """Both lines of defence: who says it, and the fold."""

    def withdrawn(folded: state.State, event: Any) -> None:
        place = folded.place(event.job, event.cluster)
        assert place is not None
        folded.move(event.job, place, "withdrawn")

    core.is_withdrawn = lambda place, tried: place.phase == records.ABANDONED
    state.APPLY[ev.SubmissionWithdrawn] = withdrawn


def _all_names_are_ours(job: Any, place: Any, owner: Any, described: Any) -> ev.Event:
    return ev.SubmissionAccepted(job=job.uid, cluster=place.cluster, uid="", adopted=True)


def _no_name_is_ours(job: Any, place: Any, owner: Any, described: Any) -> ev.Event:
    return ev.NameTaken(job=job.uid, cluster=place.cluster)


def _starts_by_the_clusters_clock(run: Any, listing: Any, now_ns: int, before_ns: int) -> int:
    return min(run.started_ms * 1_000_000, now_ns)


def _stops_are_ends() -> None:
    records.TRANSITIONS[records.SUBMITTED, "stop"] = records.ENDED


def _winner_is_lost(folded: state.State, event: Any) -> None:
    """After a decision the race is opened again when the winner ends."""
    for job in folded.jobs.values():
        winner = job.places.get(job.winner)
        if winner is not None and winner.run == "failed" and not job.cancelled:
            job.phase, job.winner = records.RACING, ""
            folded.touch(job.uid)


def _always_heard(holder: Any, clusters: Any, end_ns: int) -> bool:
    return True


def _keeps_first_extra_time() -> None:
    def scheduled(folded: state.State, event: Any) -> None:
        job = folded.jobs[event.job]
        if not job.held_ns:
            job.held_ns = event.guard_ended_ns
        job.holder = event.cluster
        folded.touch(job.uid)

    state.APPLY[ev.JobScheduled] = scheduled


def _lost_holder_holds(job: Any, place: Any) -> None:
    pass


def _first_of(key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda scheduled: min(scheduled, key=key, default=None)


def _answers_anyway(job: Any, place: Any, cluster: Any) -> bool:
    return bool(place.runs and records.guard_ns(place, cluster) >= job.guard_ns)


def _equal_ones_stay(first: Any, job: Any, clusters: Any) -> Any:
    for event in race_held_by(first, job, clusters):
        if not (isinstance(event, ev.StopIntended) and event.reason == race.NOT_EARLIEST):
            yield event


def _higher_ones_go(first: Any, job: Any, clusters: Any) -> Any:
    yield from race_held_by(first, job, clusters)
    for place in job.contenders():
        if place.priority_milli > first.priority_milli:
            yield ev.StopIntended(job=job.uid, cluster=place.cluster, reason=race.LOWER_PRIORITY)


def _goes_on_unknown() -> None:
    original = answers._run_seen

    def run_seen(folded: state.State, cluster: Any, seen: Any) -> None:
        place = folded.jobs[seen.job].places[seen.cluster]
        kept = (place.earned_ns, place.since_ns)
        original(folded, cluster, seen)
        if seen.state == UNKNOWN:
            place.earned_ns, place.since_ns = kept

    answers._run_seen = run_seen  # type: ignore[assignment]


def _earns_from_the_question_on() -> None:
    original = answers._run_seen

    def run_seen(folded: state.State, cluster: Any, seen: Any) -> None:
        original(folded, cluster, seen)
        place = folded.jobs[seen.job].places[seen.cluster]
        place.earned_ns = max(0, place.earned_ns)

    answers._run_seen = run_seen  # type: ignore[assignment]


def _silent_until_it_is_noticed(folded: state.State, account: str, reason: str, *, before_ns: int) -> Any:
    if folded.clusters[account].silent:
        return None
    return ev.ClusterSilent(account=account, reason=reason, asked_ns=folded.now_ns)


def _jumps_count(folded: state.State, clock_ns: int) -> ev.Ticked:
    return ev.Ticked(time_ns=clock_ns, jumped_ns=0)


def _heard_without_a_word(holder: Any, clusters: Any, end_ns: int) -> bool:
    cluster = clusters[holder.account]
    return bool(cluster.answers and cluster.seen_ns >= end_ns)


def _another_attempt_holds() -> None:
    """A holder is lost only when it ends."""
    original = places.loses_hold

    def loses_hold(job: Any, place: Any) -> None:
        if place.run in ("", RUNNING) and not place.given_up:
            return
        original(job, place)

    places.loses_hold = loses_hold


def _any_refusal_settles(folded: state.State, event: Any) -> None:
    place = folded.place(event.job, event.cluster)
    if place is not None and place.phase in (records.SUBMITTING, records.ABANDONED):
        place.refusal = event.code
        folded.move(event.job, place, "refused")


def _always_sole(folded: state.State, event: Any) -> None:
    place = folded.place(event.job, event.cluster)
    assert place is not None
    place.sole = True


def _kept_although_cancelled(job: Any) -> Iterator[ev.Event]:
    if job.phase != records.RACING and all(
        place.phase == records.ENDED for place in job.places.values() if place.cluster != job.winner
    ):
        yield ev.JobSettled(job=job.uid)


def _by_name_alone() -> None:
    original = observing._seen

    def seen(uid: str, place: Any, listed: Any, *more: Any) -> Any:
        same = listed.get(place.name)
        if same is not None:
            listed = {place.name: msgspec.structs.replace(same, uid=place.uid)}
        return original(uid, place, listed, *more)

    observing._seen = seen


def _foreign_ones_came_back() -> None:
    original = core.came_back
    core.came_back = lambda job, place, owner, described: original(
        job, place, owner, msgspec.structs.replace(described, owner=owner)
    )


def _comes_back_as_it_ended() -> None:
    """What it was seen to be before counts, and so its end is no news."""
    original = state.APPLY[ev.SubmissionAccepted]

    def submitted(folded: state.State, event: Any) -> None:
        place = folded.place(event.job, event.cluster)
        run = place.run if place is not None else ""
        original(folded, event)
        if place is not None:
            place.run = run

    state.APPLY[ev.SubmissionAccepted] = submitted


race_held_by = race._held_by

PLANTS: dict[str, Plant] = {
    "R1 submitted to one cluster": _only_the_first,
    "R2 no guard time": _replaced(guard, "is_scheduled", lambda job, place, cluster: place.runs and cluster.answers),
    "R2 the clusters' silence earns": _then(ev.ClusterSilent, _silence_counts),
    "R2 our outage earns": _outage_counts,
    "R2 another attempt goes on": _attempts_go_on,
    "R2 what is not known earns": _goes_on_unknown,
    "R2 from the question on, not from the answer": _earns_from_the_question_on,
    "R2 silence earns until it is noticed": _replaced(observing, "silent", _silent_until_it_is_noticed),
    "R2 jumps of the clock earn": _replaced(observing, "ticked", _jumps_count),
    "R3 the others are not cancelled": _replaced(race, "_held_by", lambda *given: list(race_held_by(*given))[:2]),
    "R4 the latest start": _replaced(
        guard, "first", _first_of(lambda p: (-p.priority_milli, -p.started_ns, p.cluster))
    ),
    "R4 the lowest priority": _replaced(
        guard, "first", _first_of(lambda p: (p.priority_milli, p.started_ns, p.cluster))
    ),
    "R4 another alias": _replaced(guard, "first", _first_of(lambda p: (-p.priority_milli, p.cluster, p.started_ns))),
    "R4 starts by the cluster's clock": _replaced(observing, "_started_ns", _starts_by_the_clusters_clock),
    "R5 equal ones are not cancelled": _replaced(race, "_held_by", _equal_ones_stay),
    "R5 higher ones are cancelled": _replaced(race, "_held_by", _higher_ones_go),
    "R6 half the extra time": _replaced(
        priority,
        "ends_ns",
        lambda job, holder, place: job.held_ns + (place.priority_milli - holder.priority_milli) * job.scale_ns // 2_000,
    ),
    "R6 by the priority alone": _replaced(
        priority, "ends_ns", lambda job, holder, place: job.held_ns + place.priority_milli * job.scale_ns // 1_000
    ),
    "R6 in whole points": _replaced(
        priority,
        "ends_ns",
        lambda job, holder, place: job.held_ns + (place.priority_milli - holder.priority_milli) // 1_000 * job.scale_ns,
    ),
    "R6 extra times never end": _replaced(priority, "is_over", lambda *given: False),
    "R7 too late takes over": _replaced(
        priority, "is_in_time", lambda job, holder, place, clusters: place.priority_milli > holder.priority_milli
    ),
    "R7 when it is looked at, not when it ended": _replaced(
        guard, "ended_ns", lambda job, place, cluster: cluster.seen_ns
    ),
    "R7 nobody takes over": _replaced(priority, "is_in_time", lambda *given: False),
    "R7 not heard before its end": _replaced(priority, "_is_late", lambda *given: True),
    "R8 extra times of the first": _keeps_first_extra_time,
    "R9 decided for a silent holder": _replaced(priority, "_was_heard", _always_heard),
    "R9 a holder that is not known is heard": _replaced(priority, "_was_heard", _heard_without_a_word),
    "R9 a silent holder is placed": _replaced(race, "is_seen", lambda *given: True),
    "R10 a success is not seen": _replaced(ending, "succeeded", lambda job: None),
    "R11 who failed is in the race": lambda: records.TRANSITIONS.pop((records.SUBMITTED, "end seen"), None) and None,
    "R12 a lost holder holds": _replaced(places, "loses_hold", _lost_holder_holds),
    "R12 another attempt of the holder holds": _another_attempt_holds,
    "R13 unplaced too early": _replaced(
        records.Job, "contenders", lambda job: [p for p in job.places.values() if p.phase == records.SUBMITTED]
    ),
    "R14 who does not answer is elected": _replaced(guard, "is_scheduled", _answers_anyway),
    "R15 started again": _then(ev.ClusterObserved, _winner_is_lost),
    "R16 a refusal settles doubt": _then(ev.FederatorTaken, _nothing_in_doubt),
    "R16 any refusal settles it": _fold(ev.SubmissionRefused, _any_refusal_settles),
    "R16 an unwanted one in doubt is given up": _then(ev.SubmissionDoubted, _gives_up),
    "R16 withdrawn although it was sent": _withdrawn_anyway,
    "R16 its own is not adopted": _replaced(core, "name_described", _no_name_is_ours),
    "R17 a foreign one is adopted": _replaced(core, "name_described", _all_names_are_ours),
    "R17 one name and no more": _replaced(names, "MOST_NAMES", 1),
    "R18 settled when stops are sent": _stops_are_ends,
    "R18 settled at once": _replaced(
        ending, "settled", lambda job: [ev.JobSettled(job=job.uid)] if job.phase != records.RACING else []
    ),
    "R18 what runs again is not looked for": _replaced(observing, "back", lambda *given: []),
    "R18 a foreign one of its name is taken for it": _foreign_ones_came_back,
    "R18 the winner that runs again is stopped": _replaced(
        returned, "is_unwanted", lambda job, place: place.phase == records.ENDED and not place.given_up
    ),
    "R18 what runs again is not seen to end": _comes_back_as_it_ended,
    "R20 gone although another attempt may land": _replaced(
        gone, "may_be_gone", lambda place: bool(place.is_there and place.uid)
    ),
    "R20 a run is the only one although it was in doubt": _then(ev.SubmissionAccepted, _always_sole),
    "R20 another run of its name is taken for it": _by_name_alone,
    "R20 nothing is ever gone": _replaced(gone, "may_be_gone", lambda place: False),
    "R21 what is shown is given up": _replaced(gone, "kept_up", lambda place, cluster: ""),
    "R21 what is given up stays": _fold(ev.RunGivenUp, lambda folded, event: None),
    "R19 the winner goes on": _replaced(
        ending,
        "unwanted",
        lambda job: (
            ev.StopIntended(job=job.uid, cluster=p.cluster, reason=ending.CANCELLED)
            for p in job.contenders()
            if job.cancelled and p.cluster != job.winner
        ),
    ),
    "R22 forgotten while its winner runs": _replaced(
        forgotten, "is_over", lambda job, origin: job.phase == records.SETTLED
    ),
    "R22 what was given up is forgotten": _replaced(
        forgotten,
        "is_over",
        lambda job, origin: (
            job.phase == records.SETTLED
            and all(p.phase == records.ENDED and p.remains == records.NOTHING for p in job.places.values())
        ),
    ),
    "R6 only who runs is timed": _replaced(state, "is_timed", lambda job, place: place.runs),
    "R18 settled with a cancelled winner": _replaced(ending, "settled", _kept_although_cancelled),
    "R22 nobody is forgotten": _replaced(forgotten, "forgotten", lambda over: iter(())),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With this bug, and then without it."""
    owners: list[Any] = [
        answers,
        core,
        ending,
        forgotten,
        gone,
        guard,
        names,
        observing,
        places,
        priority,
        race,
        records.Job,
        returned,
        state,
    ]
    tables: list[dict[Any, Any]] = [state.APPLY, records.TRANSITIONS]
    before = [dict(vars(owner)) for owner in owners]
    rows = [dict(table) for table in tables]
    PLANTS[name]()
    try:
        yield
    finally:
        for owner, kept in zip(owners, before, strict=True):
            for attribute, value in kept.items():
                if vars(owner)[attribute] is not value:
                    setattr(owner, attribute, value)
        for table, row in zip(tables, rows, strict=True):
            table.clear()
            table.update(row)


def found(name: str, seeds: int = 5_000, first: int = 0) -> tuple[str, int, str]:
    """After how many histories from `first` on the bug that is planted is found, and by what; 0 when it is not."""
    from tests.federator import simulation

    for seed in range(first, first + seeds):
        violation, _ = simulation.run(seed)
        if violation:
            return name, seed + 1 - first, violation
    return name, 0, "not found"


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.federator.plants", description=__doc__).parse_args()
    return tell(_found(name) for name in PLANTS)


def _found(name: str) -> tuple[str, int, str]:
    with planted(name):
        return found(name)


def tell(each: Iterable[tuple[str, int, str]]) -> int:
    """A line for each plant: after how many histories it was found, and by what. 1 if one was not."""
    missed = planted = 0
    for name, seeds, violation in each:
        planted += 1
        missed += not seeds
        print(f"{name:44} {seeds or '-':>5} histories  {violation[:120]}", flush=True)
    print(f"{planted - missed} of {planted} planted bugs found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

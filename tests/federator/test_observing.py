"""What an answer adds to the log, and what it does not (`services.federator.observing`)."""

from __future__ import annotations

from typing import Any

import pytest

import events as ev
from events.federation import RunSeen
from services.federator import observing
from services.federator.backends import Described, InDoubt, Listing, Owner, Run
from services.federator.records import NS_PER_MS, account_of
from services.state.clock import JUMP_NS
from tests.federator.world import EPOCH_NS, Federation, of_type

ACCOUNT, KEY = account_of("a", "a"), ("u1", "a")


def accepted() -> Federation:
    """One cluster that answers and has the job; it did not show it yet."""
    world = Federation(a=50)
    world.at(0)
    world.accept(identified=True)
    return world


def run(state: str = "running", uid: str = "uid of a", **given: Any) -> Run:
    return Run(name="mc-job-name-a", uid=uid, state=state, attempt=given.pop("attempt", 0), started_ms=0, **given)


def seen(world: Federation, *runs: Run, absent: tuple[tuple[str, str], ...] = ()) -> list[RunSeen]:
    """What is said of a list that was asked for and answered now; appended."""
    now_ns = world.state.now_ns
    said = observing.observed(
        world.state,
        ACCOUNT,
        Listing(runs=runs, clock_ms=0),
        asked_ns=now_ns,
        now_ns=now_ns,
        before_ns=-1,
        absent=absent,
    )
    if said is None:
        return []
    world.append(said)
    return list(said.runs)


def test_what_has_its_name_before_the_cluster_took_it_may_be_anybodys() -> None:
    world = Federation(a=50)
    world.answer("a", InDoubt(reason="no answer"))
    world.at(0)
    assert seen(world, run(uid="")) == []


def test_a_run_of_another_identity_is_another_run() -> None:
    """A submission that came late has the name of one that somebody deleted."""
    world = accepted()
    assert seen(world, run(uid="another")) == []
    assert [one.state for one in seen(world, run("waiting"))] == ["waiting"]
    assert [one.state for one in seen(world, run(uid="another"))] == ["unknown"]
    missing = observing.missing(world.state, ACCOUNT, Listing(runs=(run(uid="another"),), clock_ms=0))
    assert missing == [KEY], "its cluster is asked whether it is gone"
    assert observing.missing(world.state, ACCOUNT, Listing(runs=(run(),), clock_ms=0)) == []


def test_a_run_that_no_list_showed_yet_is_not_missed() -> None:
    world = accepted()
    assert seen(world) == []
    assert seen(world, run())
    assert [one.state for one in seen(world)] == ["unknown"]
    assert seen(world) == [], "that is said once"


def test_what_a_list_shows_as_before_is_no_news() -> None:
    """Else each poll would be a commit."""
    world = accepted()
    assert [one.state for one in seen(world, run("waiting"))] == ["waiting"]
    assert seen(world, run("waiting")) == []
    assert [one.attempt for one in seen(world, run("waiting", attempt=1))] == [1]
    assert [one.state for one in seen(world, run("unknown", attempt=1))] == ["unknown"]
    assert seen(world, run("unknown", attempt=2)) == [], "what is not known is of no attempt"


def test_what_its_cluster_says_is_gone_keeps_its_attempt() -> None:
    world = accepted()
    seen(world, run(attempt=2))
    (gone,) = seen(world, absent=(KEY,))
    assert (gone.state, gone.attempt) == ("gone", 2)


def test_while_another_attempt_may_land_nothing_is_gone() -> None:
    world = Federation(a=50)
    world.at(0)
    world.answer("a", InDoubt(reason="no answer"))
    world.accept(identified=True)
    assert observing.missing(world.state, ACCOUNT, Listing(runs=(), clock_ms=0)) == []
    assert seen(world, absent=(KEY,)) == []


@pytest.mark.parametrize(
    ("started_ms", "clock_ms", "before_ms", "meant_ms"),
    [
        (990_000, 1_000_000, -1, 90_000),
        (990_000, 1_000_000, 95_000, 95_000),  # the last answer did not show it running
        (1_010_000, 1_000_000, -1, 100_000),  # a clock that was set back
        (1, 1_000_000, -1, 0),  # before the log began
        (0, 1_000_000, -1, 100_000),
        (990_000, 0, -1, 100_000),
        (990_000, 0, 95_000, 100_000),
    ],
)
def test_when_a_run_began_is_told_by_its_age(started_ms: int, clock_ms: int, before_ms: int, meant_ms: int) -> None:
    began = Run(name="r", uid="", state="running", attempt=0, started_ms=started_ms)
    listing = Listing(runs=(began,), clock_ms=clock_ms)
    before_ns = before_ms * NS_PER_MS if before_ms >= 0 else -1
    assert observing._started_ns(began, listing, 100_000 * NS_PER_MS, before_ns) == meant_ms * NS_PER_MS


@pytest.mark.parametrize(
    ("step_ns", "jumped_ns", "counted_ns"), [(-1, 0, 0), (JUMP_NS, 0, JUMP_NS), (JUMP_NS + 1, JUMP_NS + 1, 0)]
)
def test_a_jump_counts_as_no_time(step_ns: int, jumped_ns: int, counted_ns: int) -> None:
    state = Federation(a=50).state
    assert observing.ticked(state, EPOCH_NS + step_ns).jumped_ns == jumped_ns
    assert observing.log_time_ns(state, EPOCH_NS + step_ns) == state.clock.counted_ns + counted_ns


def test_a_silence_is_said_once() -> None:
    world = accepted()
    world.silent("a")
    world.at(20)
    assert len(of_type(world.log, ev.ClusterSilent)) == 1


def test_what_another_federation_holds_is_left_alone() -> None:
    """Of the same job and name, and it came late."""
    world = accepted()
    late = [
        Described(run=run("waiting", uid=who, held=True), owner=Owner(federation=who, job="u1", cluster="a"))
        for who in ("other", "fed")
    ]
    listing = Listing(runs=(), clock_ms=0, held=(Described(run=run(held=True), owner=None), *late))
    assert [remains.uid for remains in observing.remains(world.state, ACCOUNT, "fed", listing)] == ["fed"]

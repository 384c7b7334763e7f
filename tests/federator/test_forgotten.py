"""R22: jobs that are over and are forgotten, and what comes late of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import events as ev
from events.federation import Contender
from services.decider import LogTime
from services.federator import core, observing, rules
from services.federator.backends import Accepted, Described, InDoubt, Listing, Owner, Run, Stopped
from services.federator.mcc import InvalidJob
from services.federator.records import Stray
from services.federator.rules import forgotten
from services.federator.service.polling import Polling
from services.federator.snapshot import FORM
from services.federator.state import State
from services.federator.validate import validate_state
from services.state.form import at_once
from tests.federator.test_polling import HOLDING
from tests.federator.world import Federation

JOB = "fed.u1"
ACCOUNT = "a@a"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 0)


def keep(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr(forgotten, "KEPT", jobs)


def equal(job: str = JOB) -> Federation:
    world = Federation(a=50, b=50, job=job)
    world.accept()
    return world


def placed(job: str = JOB) -> Federation:
    """On a; b ended."""
    world = equal(job)
    world.at(0, a="running")
    assert world.at(11, b="stopped")
    return world


def over(*ends: str, settled: tuple[str, ...] = ()) -> State:
    """Jobs of one cluster, accepted in the order of `settled`, that were over in the order of `ends`."""
    state = State()
    for uid in settled or ends:
        at = Contender(cluster="a", uri="a", user="a", gpu_type="", priority_milli=0, name=f"{uid}-a")
        request = ev.JobFederated(job=uid, name=f"job {uid}", digest="", guard_ms=0, scale_ms=0, clusters=(at,))
        state.apply(state.sequence + 1, [request])
    for uid in ends:
        refused = ev.SubmissionRefused(job=uid, cluster="a", code="", message="", of_content=True)
        state.apply(state.sequence + 1, [refused])
        state.apply(state.sequence + 1, [ev.JobUnplaced(job=uid)])
        state.apply(state.sequence + 1, [ev.JobSettled(job=uid)])
    validate_state(state)
    return state


def late(job: str, uid: str = "late", federation: str = "fed") -> Listing:
    """One that is held, of this job."""
    run = Run(name="mc-job-name-a", uid=uid, state="waiting", attempt=0, started_ms=0, held=True)
    owner = Owner(federation=federation, job=job, cluster="a")
    return Listing(runs=(run,), clock_ms=0, held=(Described(run=run, owner=owner),))


# ------------------------------------------------------------------------------------------------------------ over


def test_r22_a_job_is_forgotten_when_its_winner_ended_as_well() -> None:
    world = placed()
    assert (world.job.phase, world.job.winner) == ("settled", "a")
    assert world.at(30) == []
    assert world.at(31, a="succeeded") == [ev.JobForgotten(job=JOB)]
    assert (world.state.jobs, world.state.names, world.state.over) == ({}, {}, {})
    assert not any((world.state.open[ACCOUNT], world.state.timed[ACCOUNT], world.state.intents()))


def test_r22_its_name_is_free_then_and_not_before() -> None:
    world = placed()
    with pytest.raises(InvalidJob, match="there was a job 'mc-job-name' already"):
        core.federated(world.state, world.mcc, "fed.u2", "digest")
    world.at(31, a="succeeded")
    world.append(core.federated(world.state, world.mcc, "fed.u2", "digest"))
    assert world.state.names == {"mc-job-name": "fed.u2"}


def test_r22_whose_winner_may_run_is_not_forgotten() -> None:
    world = placed()
    world.silent("a")
    assert world.at(60) == []
    world.back("a")
    world.delete("a", left=True)
    assert world.at(90) == []
    assert world.place("a").run == "unknown"


def test_r22_a_job_that_was_placed_nowhere_is_forgotten() -> None:
    world = equal()
    said = world.at(1, a="failed", b="failed")
    assert [type(event) for event in said] == [ev.JobUnplaced, ev.JobSettled, ev.JobForgotten]


def test_r22_what_is_to_be_cleared_is_not_over() -> None:
    world = Federation(a=50, b=50, job=JOB)
    world.accept(identified=True)
    world.at(1, a="failed", b="failed")
    assert world.job.phase == "settled"
    for alias in ("a", "b"):
        assert not world.state.over
        world.append(ev.RemainsCleared(job=JOB, cluster=alias, uid=f"uid of {alias}"))
    assert world.decide() == [ev.JobForgotten(job=JOB)]


def test_r22_what_comes_late_while_it_is_known_is_cleared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 1)
    world = equal()
    world.at(1, a="failed", b="failed")
    assert list(world.state.over) == [JOB]
    world.append(*observing.remains(world.state, ACCOUNT, "fed", late(JOB)))
    assert not world.state.over
    world.append(ev.RemainsCleared(job=JOB, cluster="a", uid="late"))
    assert list(world.state.over) == [JOB]


def test_r22_what_was_given_up_stays() -> None:
    """It may be there after all; whoever asks finds who said that it is not, and its name is not given again."""
    world = equal()
    world.at(0, a="running", b="running")
    world.silent("b")
    world.at(10)
    assert world.give_up("b") == [ev.JobSettled(job=JOB)]
    assert world.at(20, a="succeeded") == []
    assert not world.state.over


def test_r22_a_job_of_before_there_were_origins_stays() -> None:
    """What came late of it would not be known for this log's."""
    world = placed("u1")
    assert world.at(31, a="succeeded") == []
    assert world.state.origin == ""
    another = msgspec.structs.replace(world.mcc, name="another")
    world.append(core.federated(world.state, another, "fed.u2", "digest"))
    assert (world.state.origin, list(world.state.over)) == ("fed", [])


# ------------------------------------------------------------------------------------------------------------ the hold


def test_r22_the_last_that_are_over_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the order in which they ended, not in which they were accepted."""
    keep(monkeypatch, 2)
    state = over("o.2", "o.4", "o.1", settled=("o.1", "o.2", "o.3", "o.4"))
    assert core.decide(state) == [ev.JobForgotten(job="o.2")]
    state.apply(state.sequence + 1, core.decide(state))
    assert (list(state.over), list(state.jobs)) == (["o.4", "o.1"], ["o.1", "o.3", "o.4"])
    assert core.decide(state) == []


def test_r22_a_commit_forgets_so_many_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "MOST", 2)
    state = over("o.1", "o.2", "o.3")
    state.apply(state.sequence + 1, core.decide(state))
    assert list(state.over) == ["o.3"]
    state.apply(state.sequence + 1, core.decide(state))
    assert not state.jobs


def test_r22_the_text_names_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert f"{forgotten.KEPT:,}" in (rules.__doc__ or "")


def test_r22_nobody_else_is_forgotten() -> None:
    world = placed()
    world.append(ev.JobForgotten(job=JOB), ev.JobForgotten(job="fed.u9"))
    assert (list(world.state.jobs), world.state.ignored) == ([JOB], {"JobForgotten": 2})


# -------------------------------------------------------------------------------------------------------- what is late


def forgetting() -> Federation:
    world = placed()
    world.at(31, a="succeeded")
    assert not world.state.jobs
    return world


def test_r22_what_comes_late_of_a_forgotten_job_is_found_by_its_marker_and_cleared() -> None:
    world = forgetting()
    found = observing.strays(world.state, ACCOUNT, "fed", late(JOB))
    assert found == [ev.StrayFound(account=ACCOUNT, job=JOB, cluster="a", name="mc-job-name-a", uid="late")]
    world.append(*found)
    assert world.state.strays == {ACCOUNT: {"late": Stray(JOB, "a", "mc-job-name-a")}}
    assert observing.strays(world.state, ACCOUNT, "fed", late(JOB)) == []
    world.append(ev.StrayCleared(account=ACCOUNT, job=JOB, cluster="a", uid="late"))
    assert world.state.strays == {}
    assert not world.state.ignored


def test_r22_a_cluster_that_invents_what_came_late_is_heard_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a list of a hundred thousand was a commit that no server takes, and ended the federator."""
    monkeypatch.setattr(observing, "MOST_STRAYS", 3)
    world = forgetting()
    (one,) = late(JOB).held
    runs = [msgspec.structs.replace(one.run, uid=uid) for uid in ("x", "x", "y", "z", "zz")]
    many = msgspec.structs.replace(late(JOB), held=tuple(Described(run=run, owner=one.owner) for run in runs))
    found = observing.strays(world.state, ACCOUNT, "fed", many)
    assert [stray.uid for stray in found] == ["x", "y", "z"]
    world.append(*found)
    assert observing.strays(world.state, ACCOUNT, "fed", many) == []
    assert not world.state.ignored


def test_r22_every_list_that_a_job_is_open_for_shows_what_came_late() -> None:
    world = forgetting()
    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"))
    found = Polling(decider, LogTime(), {})._seen(ACCOUNT, late(JOB), 0, ())
    assert [event.uid for event in found if isinstance(event, ev.StrayFound)] == ["late"]


async def test_r22_what_its_cluster_did_not_clear_is_not_said_to_be_cleared() -> None:
    world, said = forgetting(), list[ev.Event]()
    world.append(*observing.strays(world.state, ACCOUNT, "fed", late(JOB)))

    async def say(make: Callable[[], list[ev.Event]], cause: str) -> None:
        said.extend(make())

    async def observe() -> Listing:
        return late(JOB)

    async def clear(name: str, uid: str) -> Stopped:
        return answers.pop()

    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"), say=say)
    backend: Any = SimpleNamespace(**dict.fromkeys(HOLDING, observe) | {"clear": clear})
    answers: list[Stopped] = [Accepted(uid="late"), InDoubt(reason="no answer")]
    await Polling(decider, LogTime(), {})._sweep(ACCOUNT, backend)
    assert said == []
    await Polling(decider, LogTime(), {})._sweep(ACCOUNT, backend)
    assert said == [ev.StrayCleared(account=ACCOUNT, job=JOB, cluster="a", uid="late")]


@pytest.mark.parametrize(
    ("job", "federation"), [("other.u1", "fed"), ("u1", "fed"), (JOB, "other"), ("fed.u2", "fed"), ("", "fed")]
)
def test_r22_what_is_held_of_others_is_left_alone(job: str, federation: str) -> None:
    """Another federation of the same name; one that is known; one of before there were origins."""
    world = forgetting()
    world.append(core.federated(world.state, world.mcc, "fed.u2", "digest"))
    assert observing.strays(world.state, ACCOUNT, "fed", late(job, federation=federation)) == []


def test_r22_a_stray_of_a_known_job_or_cleared_twice_is_ignored() -> None:
    world = placed()
    stray = ev.StrayFound(account=ACCOUNT, job=JOB, cluster="a", name="mc-job-name-a", uid="late")
    world.append(stray, ev.StrayCleared(account=ACCOUNT, job=JOB, cluster="a", uid="late"))
    assert world.state.ignored == {"StrayFound": 1, "StrayCleared": 1}


def test_r22_a_log_begins_all_its_uids_alike() -> None:
    state = over("o.1")
    one, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    assert core.uid_of(State(), one) == "0123456789abcdef.0123456789abcdef"
    assert core.uid_of(state, other) == "o.fedcba9876543210"


# ------------------------------------------------------------------------------------------------------------ snapshots


def test_r22_a_snapshot_has_it_all() -> None:
    world = forgetting()
    world.append(*observing.strays(world.state, ACCOUNT, "fed", late(JOB)))
    again = at_once(FORM.unpack(*FORM.pack(world.state)))
    validate_state(again)
    assert FORM.digest(again) == FORM.digest(world.state)
    assert (again.origin, again.strays, again.open) == ("fed", world.state.strays, {ACCOUNT: {}, "b@b": {}})
    again.apply(again.sequence + 1, [ev.FederatorTaken(holder="another")])
    restored = at_once(FORM.unpack(*FORM.pack(over("o.2", "o.1", settled=("o.1", "o.2")))))
    assert list(restored.over) == ["o.2", "o.1"]


def test_r22_the_state_of_an_old_log_is_recorded_as_it_was() -> None:
    world = placed("u1")
    world.at(31, a="succeeded")
    names = {line.split(b" ", 1)[0] for line in FORM.lines(world.state)}
    assert names == {b"sequence", b"holder", b"clock", b"jobs", b"clusters", b"set_aside"}


def test_r22_what_no_federator_says_in_one_commit_is_folded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 1)
    state = over("o.1")
    state.apply(state.sequence + 1, [ev.JobCancelled(job="o.1"), ev.JobForgotten(job="o.1")])
    validate_state(state)
    assert not state.jobs

"""R18, of clusters that are restored to an earlier moment: what had ended there runs again, and is stopped again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import events as ev
from services.federator import core, observing
from services.federator.backends import Described, Listing, Owner, Run
from services.federator.backends.gangs import PHASE, RELEASED
from services.federator.explain import Said, explained
from services.federator.records import PLACED, SETTLED, Job, account_of
from services.federator.service import agenda, polling
from services.federator.snapshot import FORM
from services.federator.validate import validate_state
from services.simulator.cluster import SimulatedCluster
from services.simulator.openpai.server import OpenPai
from services.state.form import at_once
from tests.federator.backends.sites import KubernetesSite
from tests.federator.field import Field
from tests.federator.test_holding import Field as Holding
from tests.federator.test_holding import scheduled
from tests.federator.world import Federation

OURS = Owner(federation="fed", job="u1", cluster="b")
ACCOUNT = account_of("b", "b")


def settled() -> Federation:
    """A job that `a` has won; what ran on `b` was seen stopped."""
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    world.at(0, a="running", b="running")
    world.at(11)
    world.at(12, b="stopped")
    assert (world.job.phase, world.job.winner) == (SETTLED, "a")
    return world


def run(world: Federation, alias: str = "b", *, state: str = "running", uid: str = "", held: bool = False) -> Run:
    place = world.place(alias)
    return Run(name=place.name, uid=uid or place.uid, state=state, attempt=0, started_ms=0, held=held)


def shown(*runs: Run) -> Listing:
    return Listing(runs=runs, clock_ms=0)


def back(world: Federation) -> None:
    world.runs["b"] = run(world)
    said = core.came_back(world.job, world.place("b"), OURS, Described(run=run(world), owner=OURS))
    assert said is not None
    world.append(said)


def test_r18_what_runs_again_is_stopped_and_its_job_settles_anew() -> None:
    """As it was: two survived, and nobody looked."""
    world = settled()
    assert observing.back(world.state, ACCOUNT, shown(run(world))) == [("u1", "b")]
    back(world)
    place = world.place("b")
    assert (world.job.phase, place.phase, place.stopped_for) == (PLACED, "stopping", "NotEarliest")
    assert ("u1", "b") in world.state.stopping
    assert world.at(13, b="running") == []
    assert world.at(14, b="stopped") == [ev.JobSettled(job="u1")]
    assert world.place("b").remains == (place.name, place.uid)
    assert not world.state.ignored


def test_r18_what_failed_runs_again_while_its_job_races_and_is_out_of_the_race() -> None:
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    world.at(0, a="waiting", b="failed")
    back(world)
    assert (world.place("b").phase, world.place("b").stopped_for) == ("stopping", "Returned")
    assert [place.cluster for place in world.job.contenders()] == ["a"]
    world.at(1, a="running", b="stopped")
    assert [type(event) for event in world.at(12)] == [ev.JobScheduled, ev.JobPlaced, ev.JobSettled]


@pytest.mark.parametrize(
    ("again", "why"),
    [
        ({"state": "stopped"}, "it ended"),
        ({"state": "unknown"}, "nobody knows"),
        ({"uid": "another"}, "it is another run of the name"),
        ({"held": True}, "it is cleared, as what came late"),
    ],
)
def test_r18_nothing_else_is_said_to_be_back(again: dict[str, object], why: str) -> None:
    world = settled()
    one = run(world, **again)  # type: ignore[arg-type]
    assert observing.back(world.state, ACCOUNT, shown(one)) == []
    assert core.came_back(world.job, world.place("b"), OURS, Described(run=one, owner=OURS)) is None, why


def test_r18_what_is_somebody_elses_by_its_marker_is_left_alone() -> None:
    world = settled()
    for owner in (
        None,
        Owner(federation="other", job="u1", cluster="b"),
        Owner(federation="fed", job="u2", cluster="b"),
    ):
        assert core.came_back(world.job, world.place("b"), OURS, Described(run=run(world), owner=owner)) is None


def test_r15_a_winner_that_runs_again_is_left_alone_and_stopped_when_it_was_cancelled() -> None:
    world = settled()
    world.at(20, a="succeeded")
    assert observing.back(world.state, account_of("a", "a"), shown(run(world, "a"))) == []
    world.append(ev.SubmissionAccepted(job="u1", cluster="a", uid=world.place("a").uid, adopted=True))
    assert world.state.ignored == {"SubmissionAccepted": 1}
    cancelled = Federation(a=50, b=50)
    cancelled.accept(identified=True)
    cancelled.append(ev.JobCancelled(job="u1"))
    cancelled.decide()
    cancelled.at(1, a="stopped", b="stopped")
    assert cancelled.job.phase == SETTLED
    back(cancelled)
    assert cancelled.job.phase == "unplaced"


def test_r21_what_was_given_up_is_its_operators() -> None:
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    world.silent("b")
    world.at(0, a="running")
    world.at(11)
    world.give_up("b")
    assert observing.back(world.state, ACCOUNT, shown(run(world))) == []


def test_r18_a_loser_that_is_held_again_is_cleared() -> None:
    """As it was: whatever had ended was thought to be in an older list."""
    world = settled()
    world.append(ev.RemainsCleared(job="u1", cluster="b", uid=world.place("b").uid))
    held = Described(run=run(world, state="waiting", held=True), owner=OURS)
    listing = Listing(runs=(held.run,), clock_ms=0, held=(held,))
    (said,) = observing.remains(world.state, ACCOUNT, "fed", listing)
    assert (said.name, said.uid) == (world.place("b").name, world.place("b").uid)


class Unlisted(dict[str, Job]):
    """Jobs that are looked up, and not gone through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all jobs are gone through")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_what_comes_back_costs_no_look_at_the_other_jobs() -> None:
    """A cluster that was restored may bring back all that ever ran there, one by one."""
    world = settled()
    again = ev.SubmissionAccepted(job="u1", cluster="b", uid=world.place("b").uid, adopted=True)
    world.state.jobs = Unlisted(world.state.jobs)
    world.state.apply(world.state.sequence + 1, [again])
    assert [*world.state.open[ACCOUNT]] == [("u1", "b")]


def test_who_takes_over_looks_at_what_is_open_again_in_the_order_of_the_jobs_as_behind_a_snapshot() -> None:
    world = settled()
    first, second = world.log[2], ev.SubmissionAccepted(job="u1", cluster="b", uid=world.place("b").uid, adopted=True)
    assert isinstance(first, ev.JobFederated)
    world.append(ev.JobFederated(job="u2", name="another", digest="", guard_ms=0, scale_ms=0, clusters=first.clusters))
    world.append(second)
    validate_state(world.state)
    restored = at_once(FORM.unpack(*FORM.pack(world.state)))
    assert restored.open == world.state.open
    touched = []
    for state in (world.state, restored):
        for _ in state._touch_open():
            pass
        touched.append([*state._touched])
    assert touched == [["u1", "u2"], ["u1", "u2"]]


def test_its_story_says_so() -> None:
    world = settled()
    back(world)
    story = explained([Said(n, 0, [event]) for n, event in enumerate(world.log, 1)], world.job.name)
    assert story is not None
    assert (story[-1].cluster, story[-1].what, story[-1].rule) == ("b", "back", "R18")


@pytest.fixture
async def field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Field]:
    """Looked at often."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    monkeypatch.setattr(polling, "SWEEP_S", 0.1)
    async with OpenPai() as pai:
        made = Field(pai, tmp_path)
        yield made
        await made.kill()


async def test_a_loser_that_runs_again_is_stopped_where_no_job_is_open(field: Field) -> None:
    """OpenPAI's database is restored to before the stop, and nobody asks that cluster for anything any more."""
    field.cluster("a", waiting_ms=50)
    field.cluster("b", waiting_ms=600_000)
    await field.start()
    await field.federate("train", a=0, b=0)
    await field.settled("train")
    (loser,) = field.pai.clusters["b"].jobs.values()
    loser.steps, loser.stop_ms = loser.uncut, None
    await field.until(lambda: loser.stop_ms is not None, "it to be stopped again")
    await field.until(lambda: field.alive() == {"train": ["a"]}, "it to end")
    await field.settled("train")
    assert field.job("train").winner == "a"
    assert not field.folded().ignored


async def test_on_kubernetes_a_loser_that_is_released_again_is_stopped_and_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Etcd is restored to behind the release, and before the stop."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    monkeypatch.setattr(agenda, "SELDOM_S", 0.2)
    monkeypatch.setattr(polling, "SWEEP_S", 0.1)
    async with SimulatedCluster() as a, SimulatedCluster() as b:
        field = Holding({"a": KubernetesSite(a), "b": KubernetesSite(b)})
        await field.start()
        kept = a.faults.plan(verb="delete", resource="jobs", status=503, times=0)
        async with scheduled(field, "b"):
            await field.submit("train", a=0, b=0)
            await field.settled("train")
        for job in [job for job in a.list("Job") if job["metadata"]["name"].startswith("train-a")]:
            said = {"metadata": {"annotations": {PHASE: RELEASED}}, "spec": {"suspend": False}}
            a.patch("Job", job["metadata"]["name"], said)
        await field.until(lambda: any(map(_is_back, field.said())), "it to be found")
        a.faults.lift(kept)
        await field.settled("train")
        await field.cleared()
        await field.until(lambda: field.left() == {"train": ["b"]}, "nothing to be left of it")
        assert field.job("train").winner == "b"
        assert not field.folded().ignored
        await field.kill()


def _is_back(event: ev.Event) -> bool:
    return isinstance(event, ev.SubmissionAccepted) and event.adopted

"""A job's story (`services.federator.explain`): given these events, these lines."""

from itertools import chain

import msgspec
import pytest

import events as ev
from services.federator import core
from services.federator.backends import InDoubt, Refused
from services.federator.explain import Line, Said, Story, explained
from services.federator.records import ENDED
from services.federator.requests import by_name, shown
from services.federator.rules import forgotten
from services.federator.state import State
from tests.federator import simulation
from tests.federator.held import HeldWorld
from tests.federator.logs import history
from tests.federator.world import Federation


def story(world: Federation) -> list[Line]:
    lines = explained([Said(n, 0, [event]) for n, event in enumerate(world.log, 1)], world.job.name)
    assert lines is not None
    return lines


def told(world: Federation) -> list[tuple[str, str, str]]:
    """Behind the submissions: cluster, what, rule."""
    return [(at.cluster, at.what, at.rule) for at in story(world) if at.what not in ("accepted", "submitted")]


def raced(job: str = "u1", **priorities: float) -> Federation:
    world = Federation(job=job, **priorities)
    world.accept()
    return world


def test_the_first_good_cluster_wins() -> None:
    world = raced(a=50, b=50)
    world.at(1, a="running", b="waiting")
    world.at(11)
    world.at(12, b="stopped")
    assert told(world) == [
        ("a", "running", "R2"),
        ("b", "waiting", "R2"),
        ("a", "scheduled", "R2"),
        ("a", "placed", "R3"),
        ("b", "to be stopped", "R3"),
        ("b", "stopped", "R18"),
        ("", "settled", "R18"),
    ]
    assert [at.reason for at in story(world) if at.what == "to be stopped"] == [
        "a of the same priority was scheduled, and holds the job"
    ]


def test_each_step_of_a_race_has_its_reason() -> None:
    world = raced(low=10, mid=20, high=50)
    world.at(1, low="running", mid="waiting", high="waiting")
    world.at(5, low="unknown")
    world.at(6, low="running")
    world.at(7, mid="failed")
    world.at(18, high="running")
    world.at(30, low="stopped")
    world.at(31, high="failed")
    over = "everything that is not kept was seen to have ended, or can never come to be"
    placed = "it is scheduled, and nobody of higher priority is left in the race"
    assert [(at.cluster, at.what, at.reason) for at in story(world)] == [
        ("", "accepted", "submitted to all, by priority: low (10), mid (20), high (50)"),
        *((cluster, "submitted", "the cluster took it") for cluster in ("low", "mid", "high")),
        ("low", "running", "its guard time begins"),
        ("mid", "waiting", "no guard time is earned"),
        ("high", "waiting", "no guard time is earned"),
        ("low", "unknown", "the cluster does not say how it is"),
        ("low", "running", "its guard time goes on"),
        ("mid", "failed", "out of the race"),
        ("low", "scheduled", "it ran for its guard time of 10 min; extra time of higher priorities (R6): high 40 min"),
        ("high", "running", "its guard time begins"),
        ("high", "scheduled", "it ran for its guard time of 10 min and takes over from low"),
        ("high", "placed", placed),
        ("low", "to be stopped", "high of higher priority was scheduled"),
        ("low", "stopped", "a run that is not kept"),
        ("", "settled", over),
        ("high", "failed", "the winner's run"),
    ]


@pytest.mark.parametrize(
    ("ends", "rule", "reason"),
    [
        ("failed", "R12", "the holder is lost: the race is open again"),
        ("waiting", "R12", "no guard time is earned"),
        ("gone", "R20", "its cluster has nothing of it any more, and it held the job"),
    ],
)
def test_what_the_holders_end_means(ends: str, rule: str, reason: str) -> None:
    world = raced(low=10, high=50)
    world.at(1, low="running", high="waiting")
    world.at(12)
    world.at(13, low=ends)
    assert [(at.cluster, at.what, at.rule, at.reason) for at in story(world)][-1] == ("low", ends, rule, reason)
    world.at(14, high="succeeded")
    assert [(at.what, at.rule, at.reason) for at in story(world) if at.cluster == "high"][-2:] == [
        ("succeeded", "R10", "before anything was decided"),
        ("placed", "R10", "it succeeded before anything was decided"),
    ]


def test_what_became_of_a_submission() -> None:
    """Each as the cluster answered, in the words of whoever said no."""
    world = Federation(a=50, b=50, c=50, d=50)
    world.answer("a", InDoubt(reason="timeout"))
    world.answer("b", Refused(code="NoSuchImage", message="none of this name", of_content=True))
    of = {"job": world.uid, "cluster": "c"}
    world.append(ev.NameTaken(**of))
    world.decide()
    again = world.place("c").name
    world.append(core.cancelled(world.job))
    world.decide()
    world.append(ev.SubmissionWithdrawn(job=world.uid, cluster="d"))
    assert [(at.cluster, at.what, at.rule, at.reason) for at in story(world)][1:] == [
        ("a", "in doubt", "R16", "no answer: timeout"),
        ("b", "refused", "R16", "NoSuchImage: none of this name"),
        ("c", "name taken", "R17", "what is there is somebody else's"),
        ("c", "submitted anew", "R17", f"as {again}"),
        ("", "cancelled", "R19", "by its user: every run is stopped"),
        *((cluster, "to be stopped", "R19", "its user cancelled the job") for cluster in "acd"),
        ("d", "withdrawn", "R18", "nothing had reached the cluster"),
    ]


def test_a_higher_priority_takes_over_within_its_extra_time() -> None:
    world = raced(low=10, high=50)
    world.at(1, low="running")
    world.at(15, high="running")
    world.at(26)
    steps = told(world)
    assert [step for step in steps if step[1] in ("scheduled", "placed", "to be stopped")] == [
        ("low", "scheduled", "R2"),
        ("high", "scheduled", "R8"),
        ("high", "placed", "R3"),
        ("low", "to be stopped", "R5"),
    ]
    first = next(at for at in story(world) if at.what == "scheduled")
    assert first.reason.endswith("(R6): high 40 min")


def test_who_has_extra_times_to_face_is_not_told_to_be_kept() -> None:
    """As it was: b went as a "is kept", and c took over from a."""
    world = raced(a=10, b=10, c=80)
    world.at(1, a="running", b="waiting", c="waiting")
    world.at(12)
    world.at(13, c="running", b="stopped")
    world.at(24)
    assert world.job.winner == "c"
    (reason,) = [at.reason for at in story(world) if (at.cluster, at.what) == ("b", "to be stopped")]
    assert reason == "a of the same priority was scheduled, and holds the job"


def test_an_extra_time_that_is_over() -> None:
    world = raced(low=10, high=50)
    world.at(1, low="running", high="waiting")
    world.at(52)
    assert [step for step in told(world) if step[1] in ("placed", "to be stopped")] == [
        ("low", "placed", "R6"),
        ("high", "to be stopped", "R6"),
    ]


def test_it_fails_within_its_guard_time() -> None:
    world = raced(a=50, b=50)
    world.at(1, a="running")
    world.at(5, a="failed")
    world.at(6, b="failed")
    assert told(world) == [
        ("a", "running", "R2"),
        ("a", "failed", "R11"),
        ("b", "failed", "R11"),
        ("", "placed nowhere", "R13"),
        ("", "settled", "R18"),
    ]


def test_the_holder_falls_silent_and_answers_again() -> None:
    world = raced(low=10, high=50)
    world.at(1, low="running")
    world.at(12)
    world.silent("low")
    world.at(13)
    world.back("low")
    world.at(14)
    assert told(world)[-2:] == [("low", "silent", "R9"), ("low", "answers again", "R14")]


def test_the_next_process_begins_without_what_the_one_before_knew_of_a_silence() -> None:
    """As it was: the story ended with the silence, however long the cluster had answered again, and whatever came of
    that: it "is not elected", and was."""
    world = raced(low=10, high=50)
    world.silent("low")
    world.at(1)
    world.append(ev.FederatorTaken(holder="next"))
    assert told(world)[-2:] == [("low", "silent", "R14"), ("low", "asked anew", "R14")]
    assert not any(at["silent"] for at in shown(world.state, world.job)["clusters"])
    world.back("low")
    world.at(2, low="running")
    assert told(world)[-1] == ("low", "running", "R2")


def test_a_cluster_that_did_not_answer_before_the_job_came_is_told_of() -> None:
    """As it was: nothing, as long as it went on to be silent, and the job went on to be submitted there."""
    world = Federation(low=10, high=50)
    world.silent("high")
    world.at(1)
    later = msgspec.structs.replace(next(one for one in world.log if isinstance(one, ev.JobFederated)), job="u2")
    world.append(msgspec.structs.replace(later, name="later"))
    lines = explained([Said(n, 0, [event]) for n, event in enumerate(world.log, 1)], "later")
    assert lines is not None
    assert [(at.cluster, at.what, at.rule) for at in lines] == [("", "accepted", "R1"), ("high", "silent", "R14")]
    of_each = {at["cluster"]: at["silent"] for at in shown(world.state, world.state.jobs["u2"])["clusters"]}
    assert of_each == {"low": "", "high": world.state.clusters[world.place("high").account].silent}
    assert of_each["high"]


def test_cancelled_by_its_user() -> None:
    world = raced(a=50, b=50)
    cancelled = core.cancelled(world.job)
    assert cancelled is not None
    world.append(cancelled)
    world.decide()
    assert told(world) == [("", "cancelled", "R19"), ("a", "to be stopped", "R19"), ("b", "to be stopped", "R19")]


def test_what_a_purge_left_of_it() -> None:
    world = raced(a=50, b=50)
    world.at(1, a="running", b="waiting")
    place = len(world.log)
    state = State()
    for number, event in enumerate(world.log, 1):
        state.apply(number, [event])
    world.at(11)
    left = Story(world.job.name, state)
    for number, event in enumerate(world.log[place:], place + 1):
        left.add(Said(number, 0, [event]))
    lines = left.lines
    assert (lines[0].sequence, lines[0].what) == (place, "as of a snapshot")
    assert lines[0].reason == "everything before was purged; it was racing"
    assert lines[1:] == story(world)[-len(lines) + 1 :]
    assert Story("other", state).lines == []


def test_of_what_was_purged_it_says_who_had_fallen_silent() -> None:
    """Who goes on to be silent says nothing more: as it was, the story had nothing of it."""
    world = raced(a=50, b=50)
    world.silent("b")
    world.at(1, a="running")
    state = State()
    for number, event in enumerate(world.log, 1):
        state.apply(number, [event])
    lines = Story(world.job.name, state).lines
    assert [(at.cluster, at.what) for at in lines] == [("", "as of a snapshot"), ("b", "silent")]


def test_a_name_that_no_job_has_is_not_explained() -> None:
    assert explained([Said(1, 0, raced(a=1, b=2).log)], "other") is None


def test_forgotten_and_what_came_late_and_the_next_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "KEPT", 0)
    world = raced(a=50, b=50, job="fed.u1")
    world.at(1, a="failed", b="failed")
    late = {"account": "a@a", "job": "fed.u1", "cluster": "a", "uid": "late"}
    world.append(ev.StrayFound(**late, name="mc-job-name-a"), ev.StrayCleared(**late))
    world.append(ev.StrayFound(**late | {"job": "fed.u9"}, name="another-a"))
    commits = [Said(n, 0, [event]) for n, event in enumerate(world.log, 1)]
    steps = [
        ("", "settled", "R18"),
        ("", "forgotten", "R22"),
        ("a", "came late", "R16"),
        ("a", "cleared", "R18"),
    ]
    name = world.mcc.name
    assert [(at.cluster, at.what, at.rule) for at in explained(commits, name) or ()][-4:] == steps
    again = core.federated(world.state, world.mcc, "fed.u2", "digest")
    lines = explained([*commits, Said(len(commits) + 1, 0, [again])], name) or []
    assert [(at.cluster, at.what, at.rule) for at in lines][-5:] == [*steps, ("", "accepted", "R1")]


RUNS = {"waiting", "running", "stopping", "unknown", "succeeded", "failed", "stopped", "gone"}
HEARD = {"silent": True, "answers again": False, "asked anew": False}
BACK = {"back": ""}
"""It is there again, and how it is was not seen yet."""


@pytest.mark.parametrize("of", [simulation.World, HeldWorld])
@pytest.mark.parametrize("seed", range(40, 60))
def test_at_any_place_the_last_word_of_the_story_is_what_the_status_says(seed: int, of: type[simulation.World]) -> None:
    commits = history(seed, of)
    state = State()
    stories = {
        event.name: Story(event.name, State()) for event in chain(*commits) if isinstance(event, ev.JobFederated)
    }
    for number, commit in enumerate(commits, 1):
        state.apply(number, commit)
        for name, tale in stories.items():
            tale.add(Said(number, 0, commit))
            job = by_name(state, name)
            if job is None:
                continue
            accepted = max(at for at, line in enumerate(tale.lines) if line.what == "accepted")
            for at in shown(state, job)["clusters"]:
                steps = [line.what for line in tale.lines[accepted:] if line.cluster == at["cluster"]]
                heard = [HEARD[step] for step in steps if step in HEARD]
                runs = [BACK.get(step, step) for step in steps if step in RUNS | BACK.keys()]
                if at["phase"] != ENDED:
                    assert bool(at["silent"]) == (heard or [False])[-1], f"{number}: {name} on {at}: {steps}"
                if job.places[at["cluster"]].is_there:
                    assert at["run"] == (runs or [""])[-1], f"{number}: {name} on {at}: {steps}"

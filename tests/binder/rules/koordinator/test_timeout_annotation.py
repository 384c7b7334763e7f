"""The annotation of a gang that ran out of waiting time: intent, outcome and fact, in whatever order they come."""

import msgspec
import pytest

import events as ev
from services.state import timeouts
from tests.binder.rules.koordinator.timed_out import KOORDINATOR, TRAIN, ended, over, waiting
from tests.world import World, of_type, refusals


@pytest.mark.parametrize("order", ["outcome, fact", "fact, outcome", "fact", "renewed, outcome, fact", "failed"])
def test_outcome_and_fact_may_come_in_any_order(order: str) -> None:
    """Every arrival order of outcome and fact is legal and folds to the same (design, rule 6)."""
    world, uids = ended()
    for uid in uids:
        for step in order.split(", "):
            about = ((uid, world.version()),)
            if step == "fact":
                world.says(uid)
            elif step == "failed":
                failed = ev.TimeoutMarkFailed(uid=uid, namespace="default", name=uid, message="no")
                world.append("binder", [failed], cause="outcome")
            else:
                event = ev.TimeoutMarked(pods=about) if step == "outcome" else ev.TimeoutMarkRenewed(pods=about)
                world.append("binder", [event], cause="outcome")
    assert not world.state.marks
    assert list(world.state.gangs["default/train"].timed_out) == uids
    assert refusals(world.plan()) == ["GangTimedOut"]


def test_an_outcome_that_comes_late_is_none_of_a_later_timeout() -> None:
    """The fact that showed it was faster; its user removed it; and the gang ran out of its time again."""
    world, uids = ended()
    late = tuple((uid, world.version()) for uid in uids)
    for uid in uids:
        world.says(uid)
        world.says(uid, timed_out=False)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(6)
    assert of_type(world.judge(), ev.GangTimedOut)
    world.append("binder", [ev.TimeoutMarked(pods=late)], cause="outcome")
    assert list(world.state.marks) == uids
    assert refusals(world.plan()) == ["GangTimedOut"]
    assert world.mark() == uids
    assert not world.state.marks


def test_only_an_intent_that_is_open_is_renewed() -> None:
    world, uids = ended()
    written = world.version()
    world.append("binder", [ev.TimeoutMarked(pods=((uids[0], written),))], cause="outcome")
    world.says(uids[1])
    before = world.state.marks[uids[0]].resource_version
    renewed = tuple((uid, world.version()) for uid in uids)
    world.append("binder", [ev.TimeoutMarkRenewed(pods=renewed)], cause="outcome")
    marks = {uid: (mark.resource_version, mark.written) for uid, mark in world.state.marks.items()}
    assert marks == {uids[0]: (before, written), uids[2]: (renewed[2][1], "")}


def test_what_was_written_is_not_asked_for_again() -> None:
    """Of every pod that does not say so yet."""
    world, uids = waiting()
    world.says(uids[0])
    world.pass_s(6)
    (event,) = of_type(world.judge(), ev.GangTimedOut)
    assert [uid for uid, _ in event.pods] == uids[1:]


def test_our_own_annotation_that_is_seen_late_is_no_news() -> None:
    """The user declared the gang otherwise before anyone saw what the binder wrote."""
    world, uids = ended()
    world.append("binder", [ev.TimeoutMarked(pods=tuple((uid, world.version()) for uid in uids))], cause="outcome")
    fact = world.state.pods[uids[0]].fact
    assert fact.gang is not None
    longer = msgspec.structs.replace(TRAIN, waiting_time_ms=60_000)
    gang = msgspec.structs.replace(fact.gang, declared=longer, timed_out=True)
    world.facts(msgspec.structs.replace(fact, gang=gang, resource_version=world.version()))
    for uid in uids[1:]:
        world.says(uid)
    assert not world.state.marks
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_an_annotation_that_was_removed_before_it_was_seen_is_removed() -> None:
    """A fact that is newer than our write, and does not have it."""
    world, uids = ended()
    for uid in uids:
        world.append("binder", [ev.TimeoutMarked(pods=((uid, world.version()),))], cause="outcome")
        world.says(uid, timed_out=False)
    assert not world.state.marks
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_an_annotation_that_was_removed_before_our_word_of_it_is_removed() -> None:
    """The facts without it came first, and the gang was refused: nothing but this word can have it tried again."""
    world, uids = ended()
    assert refusals(world.plan()) == ["GangTimedOut"]
    ours = tuple((uid, world.version()) for uid in uids)
    for uid in uids:
        world.says(uid, timed_out=False)
    assert not world.plan_would()
    world.append("binder", [ev.TimeoutMarked(pods=ours)], cause="outcome")
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


@pytest.mark.parametrize("word_first", [True, False])
def test_that_a_pod_was_assigned_is_newer_than_our_write_and_does_not_show_it(word_first: bool) -> None:
    """Its user removed the annotation, and somebody bound the pod, while nobody looked (seed 314448)."""
    world, uids = ended()
    ours = tuple((uid, world.version()) for uid in uids)
    word = ev.TimeoutMarked(pods=ours)
    if word_first:
        world.append("binder", [word], cause="outcome")
    world.assigned(uids[0], "n0")
    if not word_first:
        world.append("binder", [word], cause="outcome")
    assert list(world.state.marks) == uids[1:]
    assert list(world.state.gangs["default/train"].timed_out) == uids[1:]


def test_a_pod_that_goes_leaves_no_intent_behind() -> None:
    """Nothing leaks (design, 7.13)."""
    world, uids = ended()
    world.deleted(uids[0])
    world.terminating(uids[1])
    world.finished(uids[2])
    assert not world.state.marks


def test_pods_that_said_so_before_say_so_of_a_later_timeout() -> None:
    """The user declared the gang otherwise and left the annotations where they were: nobody is asked to write them
    again, and they count again."""
    world, uids = over()
    longer = msgspec.structs.replace(TRAIN, waiting_time_ms=6_000)
    fact = world.state.pods[uids[0]].fact
    assert fact.gang is not None
    gang = msgspec.structs.replace(fact.gang, declared=longer)
    world.facts(msgspec.structs.replace(fact, gang=gang, resource_version=world.version()))
    assert not timeouts.stands(world.state, world.state.groups["default/train"])
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(7)
    assert of_type(world.judge(), ev.GangTimedOut) == [ev.GangTimedOut(group="default/train", pods=())]
    assert refusals(world.plan()) == ["GangTimedOut"]


def test_an_annotation_that_means_nothing_any_more_is_no_news_when_its_pod_changes() -> None:
    world, uids = over()
    world.pod_group("train", 3, 6_000, dialect=KOORDINATOR)
    for uid in uids:
        world.says(uid)
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_our_word_of_a_pod_that_left_its_gang_ends_its_intent() -> None:
    """A user took it out of the gang before the answer came: what it was to say is of no gang of its own."""
    world, uids = ended()
    ours = world.version()
    world.pod(uids[2])
    world.append("binder", [ev.TimeoutMarked(pods=((uids[2], ours),))], cause="outcome")
    assert list(world.state.marks) == uids[:2]


def test_a_group_of_which_a_gang_is_not_koordinators_is_tried_again_by_itself() -> None:
    """The rule is for those whose gangs are all of this dialect: here a pod that came later names the group."""
    world = World()
    world.node("n0")
    names = {"groups": ("default/a", "default/b"), "said": ("groups",)}
    own = msgspec.structs.replace(TRAIN, min_member=1, **names)
    world.pod("a-0", "a", dialect=KOORDINATOR, declared=msgspec.structs.replace(own, said=("min_member", "groups")))
    world.pod_group("b", 3, 1_000)
    world.pod("b-0", "b", dialect="coscheduling/v1alpha1")
    world.pod("b-1", "b", dialect=KOORDINATOR, declared=own)
    assert world.state.groups["default/a"].gangs == ("default/a", "default/b")
    world.propose("default/a", {"a-0": "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    world.pass_s(11)
    assert [type(event) for event in world.judge()] == [ev.GangReleased]

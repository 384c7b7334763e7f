"""Etcd is restored from a backup: resourceVersions go back, and what came after them never was. The lists decide."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

import events as ev
from events import Event
from events.facts import NodeDeleted, NodeObserved, PodObserved
from services.ingest.decoding import WORKLOAD
from services.ingest.differ import Ingest
from services.state.records import FINISHED
from services.state.validate import validate_state
from tests.ingest.objects import ingest, names, node, pod, pod_group, priority_class, workload
from tests.ingest.test_restart import KINDS, KOORDINATORS, OURS, Api, binds, observed
from tests.world import World


def test_an_older_version_in_a_list_is_what_there_is() -> None:
    """As it was: what a watch may bring late was left out of a list, too, until the versions had caught up: for a day."""
    core = ingest()
    core.observe(node(version=7, labels={"zone": "b"}))
    core.observe(pod(version=9, node="n1"))
    assert core.observe(node(version=6)) == core.observe(pod(version=8)) == []
    gone, there = core.observe(node(version=6, labels={"zone": "a"}), listed=True)
    assert isinstance(gone, NodeDeleted)
    assert isinstance(there, NodeObserved)
    assert (there.resource_version, there.labels) == ("6", {"zone": "a"})
    assert names(core.observe(pod(version=8), listed=True)) == ["PodDeleted", "SchedulingClassObserved", "PodObserved"]
    assert core.observe(pod(version=8), listed=True) == []
    assert names(core.observe(pod(version=9, node="n2"))) == ["PodAssigned"]


@pytest.mark.parametrize("version", [3, 5])
def test_of_versions_that_were_no_news_nothing_is_taken_back(version: int) -> None:
    """As it was: after a list of a running ingest every node that had a heartbeat since the backup was gone and there
    again, and every pod whose status changed."""
    core = ingest()
    for heartbeat in (3, 9):
        core.observe(node(version=heartbeat))
        core.observe(pod(version=heartbeat, node="n1"))
    assert core.observe(node(version=version), listed=True) == []
    assert core.observe(pod(version=version, node="n1"), listed=True) == []
    assert core.undone == 2
    assert names(core.observe(node(version=6, spec={"unschedulable": True}))) == ["NodeObserved"]
    assert names(core.observe(pod(version=6, node="n1", deleting=True))) == ["PodTerminating"]


def test_what_the_binder_was_told_and_no_fact_says_is_taken_back_too() -> None:
    """As it was: a pod of which only the binder knew that it was bound was so in the log for ever, and never placed."""
    core, world = ingest(), World()
    world.facts(*core.observe(node()), *core.observe(pod(version=2)), core.synced())
    world.plan()
    world.judge()
    world.append("binder", [ev.PodBound(uid="uid-p1", namespace="default", name="p1", node="n1")], cause="outcome")
    core = Ingest.of(world.state, OURS)
    world.facts(*core.observe(pod(version=2), listed=True))
    validate_state(world.state)
    assert [type(event) for event in world.plan()] == [ev.GangPlaced]


def test_a_write_of_the_binders_that_never_was_is_taken_back() -> None:
    core, world = ingest(), World()
    world.facts(*core.observe(pod(version=2)), core.synced())
    world.append("binder", [ev.ConditionsReported(reason="Why", pods=(("uid-p1", "9"),))], cause="outcome")
    for version, found in ((8, ["PodDeleted", "SchedulingClassObserved", "PodObserved"]), (9, [])):
        again = Ingest.of(world.state, OURS)
        assert names(again.observe(pod(version=version), listed=True)) == found
        again.synced()
        assert again.observe(pod(version=version), listed=True) == []


def test_up_to_where_the_log_knew_a_pod_goes_back_too() -> None:
    """Else a timeout's annotation that comes and goes before that version is caught up with is waited for."""
    core, world = ingest(), World()
    world.facts(*core.observe(pod(version=2, annotations=KOORDINATORS)), core.synced())
    world.append("binder", [ev.ConditionsReported(reason="Why", pods=(("uid-p1", "9"),))], cause="outcome")
    core = Ingest.of(world.state, OURS)
    assert core.observe(pod(version=9, annotations=KOORDINATORS), listed=True) == []
    core.synced()
    assert names(core.observe(pod(version=5, annotations=KOORDINATORS), listed=True)) == ["PodObserved"]
    assert names(core.observe(pod(version=7, annotations=KOORDINATORS), listed=True)) == ["PodObserved"]


def test_a_version_that_is_no_number_takes_nothing_back() -> None:
    core = ingest()
    odd = pod(version="none")  # type: ignore[arg-type]
    core.observe(pod(version=3))
    assert core.observe(odd, listed=True) == []
    assert core.undone == 0


def test_what_was_deleted_is_there_again() -> None:
    core = ingest()
    core.observe(pod(version=3))
    core.deleted("Pod", pod(version=4).metadata)
    assert core.observe(pod(version=3)) == []
    assert names(core.observe(pod(version=3), listed=True)) == ["SchedulingClassObserved", "PodObserved"]


ON_N1, GOES, ENDED = {"node": "n1"}, {"deleting": True}, {"phase": "Succeeded"}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("was", "found", "again"),
    [
        (ON_N1, {"node": "n2"}, True),
        (ON_N1, {}, True),
        (GOES, {}, True),
        (GOES | ON_N1, ON_N1, True),
        (ON_N1 | ENDED, ON_N1, True),
        (ON_N1 | ENDED, ON_N1 | GOES, True),
        ({}, ON_N1, False),
        (ON_N1, ON_N1 | GOES, False),
        (GOES, GOES | ON_N1, False),
        (GOES | ON_N1, ON_N1 | ENDED, False),
        (ON_N1 | ENDED, ON_N1 | ENDED | GOES, False),
    ],
)
def test_a_life_that_went_backwards_is_another_though_its_version_is_later(
    was: dict[str, Any], found: dict[str, Any], again: bool, listed: bool
) -> None:
    """Also where a watch says so first, whose versions have caught up (seed 395810): the pod stayed on its way out in the
    log, whatever lists said later."""
    core = ingest(pod(version=3), pod(version=4, **was))
    told = names(core.observe(pod(version=5, **found), listed=listed))
    assert (core.undone, "PodObserved" in told) == (again, again)
    assert core.observe(pod(version=2, **found), listed=False) == [], "too old for anything"


@pytest.mark.parametrize(("was", "found"), [("Succeeded", "Failed"), ("Failed", "Succeeded")])
def test_a_pod_that_ended_otherwise_is_gone_as_one_that_was_never_seen(was: str, found: str) -> None:
    """As it was: the log said for good that it succeeded, and its gang's minimum counted it."""
    core = ingest(pod(version=3, node="n1"), pod(version=4, node="n1", phase=was))
    assert names(core.observe(pod(version=5, node="n1", phase=found), listed=True)) == ["PodDeleted"]
    assert core.observe(pod(version=5, node="n1", phase=found), listed=True) == []
    assert core.undone == 1


def test_what_is_new_in_a_list_takes_nothing_back() -> None:
    """Be it the next of a name, on another node, or without a UID."""
    core = ingest(pod(uid="former", version=3, node="n1", deleting=True))
    core.observe(pod(uid="latter", version=5, node="n2"), listed=True)
    core.observe(pod(uid="latter", version=7, node="n2", deleting=True), listed=True)
    for version in (2, 1):
        nobody = node("n1", version)
        nobody.metadata.uid = ""
        core.observe(nobody, listed=True)
    assert core.undone == 0
    core.observe(pod(uid="latter", version=8, node="n2"), listed=True)
    assert core.undone == 1


@pytest.mark.parametrize("make", [pod, node, partial(pod_group, minMember=2), priority_class])
def test_whoever_had_its_name_before_has_it_again(make: Callable[..., Any]) -> None:
    core = ingest()
    core.observe(make(uid="former", version=3))
    core.observe(make(uid="latter", version=5))
    assert core.observe(make(uid="former", version=3)) == []
    gone, *_, there = core.observe(make(uid="former", version=3), listed=True)
    assert [name[-7:] for name in names([gone, there])] == ["Deleted", "bserved"]
    assert (gone.uid, there.uid) == ("latter", "former")


def test_a_workload_that_had_its_name_before_declares_again() -> None:
    member = pod(workloadRef={"name": "w1", "podGroup": "all"})
    core = ingest(workload(uid="former", version=3, all=2), member, workload(uid="latter", version=5, all=3))
    told = core.observe(workload(uid="former", version=3, all=2), listed=True)
    said = [each.gang.declared for each in told if isinstance(each, PodObserved) and each.gang is not None]
    assert [each and each.min_member for each in said] == [2]
    assert core.undone == 1
    assert core.missing(WORKLOAD.name, {"former"}) == []


def listed(core: Ingest, api: Api) -> list[Event]:
    """Full lists of every kind, as the service takes them in."""
    found: list[Event] = []
    for kind in KINDS:
        for each in api.seen(kind):
            found += core.observe(each, listed=True)
        found += core.missing(kind, set(api.objects[kind]))
    return found


def said(core: Ingest, api: Api) -> list[object]:
    """What the log says, without the versions: what is as it was is not written anew. Of pods those which a log that
    begins would have, too: it has none that are over, none that go before they have a node, and no strangers without."""
    there = {each.metadata.uid: each for each in api.seen("Pod")}
    assert core.pods.keys() <= there.keys()
    pods = [each for uid, each in core.pods.items() if core._pods.matters(there[uid]) and (each.candidate or each.node)]
    whose = {each.uid for each in pods}
    rejected = [each for each in core.rejected.values() if each.kind != "Pod" or each.uid in whose]
    facts = [*pods, *rejected, *(fact for kind in core.named.values() for fact in kind.values())]
    return sorted((msgspec.structs.replace(each, resource_version="") for each in facts), key=repr)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_after_the_lists_the_log_says_what_one_says_that_knew_nothing(seed: int, restarted: bool) -> None:
    source = random.Random(seed)
    api, world, core = Api(source), World(), Ingest(OURS)
    backup = copy.deepcopy(api.objects), api.versions
    for _ in range(120):
        if source.random() < 0.05:
            backup = copy.deepcopy(api.objects), api.versions
        for what, kind, seen in api.step():
            if events := observed(core, what, kind, seen):
                world.facts(*events)
        if source.random() < 0.1:
            binds(world, api)
    api.objects, api.versions = backup
    for _ in range(source.randrange(60)):
        api.step()
    if restarted:
        core = Ingest.of(world.state, OURS)
    if found := listed(core, api):
        world.facts(*found)
    new = Ingest(OURS)
    listed(new, api)
    assert said(core, api) == said(new, api)
    assert said(Ingest.of(world.state, OURS), api) == said(new, api)
    validate_state(world.state)
    assert listed(core, api) == []
    if restarted:  # else it does not know what the binder did
        there = {uid: kept.get("node", "") for uid, kept in api.objects["Pod"].items()}
        alive = {uid: pod.node for uid, pod in world.state.pods.items() if pod.status not in FINISHED}
        assert alive == {uid: there[uid] for uid in alive}

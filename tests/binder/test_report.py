"""What users and autoscalers read: conditions."""

from __future__ import annotations

import re

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder.binding import Intent, failed
from services.binder.report import (
    BINDING_FAILED,
    MOST_TOLD,
    Condition,
    condition,
    failed_binding,
    failed_scheduling,
    rejected,
    scheduled,
)
from tests.facts import pod
from tests.why import why_waiting
from tests.world import World

WAITS = Condition("InsufficientRoom: cpu", "Unschedulable", "no room")


def said(world: World, uid: str) -> tuple[str, str] | None:
    found = condition(world.state, uid)
    return None if found is None else (found.reason, found.message)


def test_pods_refused_for_room_are_unschedulable_and_autoscalers_act() -> None:
    world = World()
    world.node("n0", cpu=1)
    uids = world.gang("train", 3, 3)
    world.plan()
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "gang default/train: 1 of the 3 pods that must start together have a node."
    )
    assert [said(world, uid) for uid in uids] == [("Unschedulable", message)] * 3


def test_a_cluster_without_nodes_is_told_in_the_kube_schedulers_words() -> None:
    world = World()
    world.pod("alone")
    uids = world.gang("train", 2, 2)
    world.plan()
    assert said(world, "alone") == ("Unschedulable", "no nodes available to schedule pods")
    told = said(world, uids[0])
    assert told is not None
    assert told[1].startswith("no nodes available to schedule pods. gang default/train")


def test_pods_that_wait_for_members_are_not() -> None:
    world = World()
    world.gang("train", 2, 3)
    world.plan()
    assert said(world, "train-0") == (
        "WaitingForMembers",
        "gang default/train has 2 of its minimum of 3 pods: less than minAvailable",
    )


def test_a_gated_pod_keeps_the_condition_that_the_api_server_gave_it() -> None:
    """SchedulingGated: its gates are what it waits for, and not ours to overwrite."""
    world = World()
    world.pod_group("train", 2)
    world.pod("train-0", "train")
    world.pod("train-1", "train", gated=True)
    world.plan()
    found = said(world, "train-0")
    assert found is not None
    assert found[0] == "WaitingForMembers"
    assert said(world, "train-1") is None


def test_pods_that_wait_for_their_pod_group_say_so() -> None:
    world = World()
    world.pod("train-0", "train")
    world.plan()
    assert said(world, "train-0") == ("WaitingForPodGroup", "gang default/train waits for its PodGroup")


def test_pods_that_wait_for_a_gang_of_their_group_say_so() -> None:
    """No node would help: an autoscaler leaves them alone."""
    world = World()
    world.node("n0", cpu=1)
    uids = world.koordinator("default/a", 2, 2, {"groups": ("default/a", "default/b")})
    world.plan()
    told = said(world, uids[0])
    assert told is not None
    assert told[0] == "WaitingForGang"


def test_of_a_gang_that_went_while_its_group_was_refused_it_is_said_that_it_is_not_there() -> None:
    """The simulator of faults found it, seed 731125: the first refusal still said that it lacks its minimum, and what the
    next one said counted as told."""
    world = World()
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    world.koordinator("default/b", 1, 2)
    about = "gang default/a names default/b in its gang group, which"
    refused = [event for event in world.plan_without_appending() if about in getattr(event, "detail", "")]
    assert [event.detail for event in refused] == [f"{about} does not run with its minimum yet"]  # type: ignore[union-attr]
    world.deleted("b-0")
    world.append("planner.a", refused, cause="decide", basis=world.state.sequence)
    assert said(world, "a-0") == ("WaitingForGang", f"{about} is not there yet")


def test_an_unsupported_constraint_is_named() -> None:
    world = World()
    world.pod("alone", unsupported=("resource claims",))
    world.plan()
    assert said(world, "alone") == ("UnsupportedConstraint", "not supported yet: resource claims")


@pytest.mark.parametrize("case", ["bound", "gated", "proposed", "ready", "unknown", "released", "done", "foreign"])
def test_there_is_nothing_to_say_of_pods_that_do_not_wait_for_a_reason(case: str) -> None:
    world = World()
    world.node("n0", cpu=1)
    uids = [world.pod("train-0", "train", minimum=1, gated=case == "gated")]
    match case:
        case "bound":
            world.settle()
        case "proposed":
            world.plan()
        case "unknown":
            uids = ["ghost"]
        case "released":
            world.pod_group("train", 2)
            world.pod("train-1", "train")
            world.propose("default/train", {"train-0": "n0"})
            world.judge()
            world.pass_s(11)
            world.judge()
        case "done":
            world.settle()
            world.pod("train-1", "train", minimum=1, cpu=9)
            world.finished("train-0")
            world.plan()
            assert said(world, "train-1")
        case "foreign":
            uids = [world.pod("stranger", candidate=False)]
    assert said(world, uids[0]) is None


def test_pods_that_wait_at_permit_are_not_told_what_the_others_lack() -> None:
    world = World()
    world.node("n0", cpu=2)
    uids = world.koordinator("default/train", 3, 3, {"mode": "NonStrict"})
    world.settle()
    told = [said(world, uid) for uid in uids]
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert told[2][0] == "Unschedulable"


def test_a_condition_is_written_again_when_the_set_of_resources_changes_not_when_a_count_does() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("alone", cpu=2)
    world.plan()
    first = condition(world.state, "alone")
    assert first is not None
    report = ev.ConditionsReported(reason=first.said, pods=(("alone", "900"),))
    world.append("binder", [report], cause="outcome")
    assert condition(world.state, "alone") is None
    world.node("n1", cpu=1)
    world.pass_s(2)
    world.plan()
    assert condition(world.state, "alone") is None
    world.node("n2", cpu=1, unschedulable=True)
    world.pass_s(3)
    world.plan()
    again = condition(world.state, "alone")
    assert again is not None
    assert again.message == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."


def test_a_gang_that_is_too_large_is_told_by_which_limit() -> None:
    """An admin raised it, and its pods went on saying the old one: "more than the limit of 1", where 2 are allowed; or
    that, where a commit takes no more."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, gang_pods=1))

    def told(*uids: str) -> list[str]:
        found = {uid: condition(world.state, uid) for uid in uids}
        for uid, due in found.items():
            if due is not None:
                report = ev.ConditionsReported(reason=due.said, pods=((uid, world.version()),))
                world.append("binder", [report], cause="outcome")
        return ["" if due is None else due.message for due in found.values()]

    first, second, third = world.gang("train", 3, 3)
    world.plan()
    assert told(first) == ["gang default/train has 3 pods, more than the limit of 1"]
    larger = msgspec.structs.replace(DEFAULT_POLICY, gang_pods=2)
    world.append("admin", [ev.PolicyChanged(policy=larger)], cause="admin")
    world.plan()
    assert told(first, second) == ["gang default/train has 3 pods, more than the limit of 2"] * 2
    world.pod("train-3", "train", minimum=3)
    world.plan()
    assert told(first, third) == ["", "gang default/train has 4 pods, more than the limit of 2"], "not for a count"
    world.append("admin", [ev.PolicyChanged(policy=DEFAULT_POLICY)], cause="admin")
    too_large = "a permit for 4 pods of gang default/train is 9 bytes too large for a commit"
    refusal = ev.GroupsRefused(
        reason="GangTooLarge",
        detail=too_large,
        attempt=0,
        needed=4,
        placeable=0,
        nodes=0,
        node_reasons={},
        groups=("default/train",),
    )
    world.append("planner.a", [refusal], cause="by hand")
    assert told(first) == [too_large]
    again = msgspec.structs.replace(refusal, detail=too_large.replace("9 bytes", "12 bytes"))
    world.append("planner.a", [again], cause="by hand")
    assert told(first) == [""], "nor for a count here"


def test_a_gang_that_is_set_aside_again_is_told_about_which_node() -> None:
    """As it was: its pods went on naming the node of the first time."""
    world = World()
    for node in ("n0", "n1"):
        world.node(node, cpu=1)
    uids = world.gang("train", 2, 2)
    for node in ("n0", "n1"):
        world.propose("default/train", dict.fromkeys(uids, node))
        world.judge()
        due = condition(world.state, uids[0])
        assert due is not None
        assert (due.reason, due.message) == ("SetAside", f"set aside: planner and binder disagree about node {node}")
        world.append("binder", [ev.ConditionsReported(reason=due.said, pods=((uids[0], "900"),))], cause="outcome")
        assert condition(world.state, uids[0]) is None, "said once"
        world.pod(f"train-{node}", "train", minimum=2)  # a fact about the gang, so that it is tried again


@pytest.mark.parametrize("cut", ["a", "-", ".", "..", "-."])
def test_an_event_has_a_name_that_the_api_takes_however_long_its_pods_is(cut: str) -> None:
    """Pods' names have up to 253 characters, and their events' names the same: what is cut may end in a dot."""
    name = "a" * (230 - len(cut)) + cut + "b" * 23
    bound = ev.PodBound(uid="uid", namespace="default", name=name, node="n0")
    made = scheduled(bound, 0).name
    assert len(made) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)


def test_what_kubectl_describe_shows() -> None:
    """As the kube-scheduler says it: type Normal for what was done, Warning for what was not."""
    done = scheduled(ev.PodBound(uid="u", namespace="ml", name="train-0", node="n0"), 7)
    assert done.name.startswith("train-0.")
    assert done[1:] == (
        ("v1", "Pod", "ml", "train-0", "u"),
        "Scheduled",
        "Binding",
        "Successfully assigned ml/train-0 to n0",
        False,
        7,
    )
    failed = failed_scheduling(pod("train-0", "class", uid="u", namespace="ml"), WAITS)
    assert failed[1:] == (("v1", "Pod", "ml", "train-0", "u"), "FailedScheduling", "Scheduling", "no room", True, 0)


def test_a_webhook_whose_words_differ_each_time_makes_few_events_of_a_pod() -> None:
    """As it was: one for each attempt, hundreds an hour of each pod of a gang."""

    def name(message: str, uid: str = "u") -> str:
        return failed_binding(failed(Intent(uid, "team", "p", "n0", "1"), "Forbidden", message)).name

    denied = [f'admission webhook "quota" denied the request: trace {number}' for number in range(1000)]
    assert len({name(message) for message in denied}) == MOST_TOLD
    assert name("no budget") == name("no budget") != name("no quota") != name("no quota", "v")
    refused = Condition(BINDING_FAILED, BINDING_FAILED, "no budget")
    assert failed_scheduling(pod("p", "class", uid="u", namespace="team"), refused).name == name("no budget")


def test_events_that_say_different_things_have_different_names() -> None:
    """What has one name is one event: the API server has the first, and nobody reads the others."""
    about = {"kind": "Pod", "namespace": "ml", "name": "p", "uid": "u", "resource_version": "1", "expected": "a number"}

    def failed(message: str, **named: str) -> str:
        return failed_scheduling(
            pod(named.get("name", "p"), "class", uid=named.get("uid", "u")), WAITS._replace(message=message)
        ).name

    def refused(field: str, value: str, **other: str) -> str:
        return rejected(ev.DeclarationRejected(**{**about, **other}, field=field, value=value), 0).name

    said = [failed("no room"), failed("no room at all"), failed("no room", name="q"), failed("no room", uid="v")]
    said += [refused("f", "x"), refused("f", "y"), refused("g", "x"), refused("f", "x", name="q")]
    said += [failed(f"{number} of its pods have a node") for number in range(MOST_TOLD)]  # no words of a webhook
    said += [refused("f", "x", uid="v"), scheduled(ev.PodBound(uid="u", namespace="ml", name="p", node="n0"), 0).name]
    assert len(set(said)) == len(said)
    assert all(name.startswith(("p.", "q.")) for name in said), "each begins like the object that it is about"
    assert refused("f", "x") == refused("f", "x", resource_version="2"), "a restart tells nothing twice"


@pytest.mark.parametrize(
    ("field", "value", "expected", "note"),
    [
        ("spec.minMember", "abc", "an integer", "spec.minMember is 'abc'; expected an integer"),
        ("status.allocatable", "", "a quantity", "status.allocatable is empty or missing; expected a quantity"),
        ("spec.priority", "", "int, got str", "spec.priority: expected int, got str"),
        ("spec.priority", "x", "int, got str", "spec.priority is 'x'; expected int, got str"),
        ("", "", "object, got array", "expected object, got array"),
    ],
)
def test_what_is_wrong_with_an_object_is_told_as_it_stands_there(
    field: str, value: str, expected: str, note: str
) -> None:
    """As it was: a node without allocatable, and a field of another type, were told that '' stands there."""
    about = {"kind": "Node", "namespace": "", "name": "n0", "uid": "u", "resource_version": "1"}
    assert rejected(ev.DeclarationRejected(**about, field=field, value=value, expected=expected), 7).note == note


@pytest.mark.parametrize(
    ("kind", "version", "shown"),
    [
        ("Pod", "v1", "Pod"),
        ("PodGroup", "scheduling.x-k8s.io/v1alpha1", "PodGroup"),
        ("PodGroup.scheduling.volcano.sh", "scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("PriorityClass", "scheduling.k8s.io/v1", "PriorityClass"),
        ("Node", "v1", "Node"),
        ("Workload.scheduling.k8s.io", "scheduling.k8s.io/v1alpha1", "Workload"),
    ],
)
def test_a_rejected_object_is_told_of_in_its_own_api(kind: str, version: str, shown: str) -> None:
    event = ev.DeclarationRejected(
        kind=kind,
        namespace="ml",
        name="train",
        uid="u",
        resource_version="1",
        field="f",
        value="x",
        expected="a number",
    )
    told = rejected(event, 7)
    assert told[1:] == (
        (version, shown, "ml", "train", "u"),
        "DeclarationRejected",
        "Reading",
        "f is 'x'; expected a number",
        True,
        7,
    )


REJECTED = {
    "coscheduling/2020": ("train", "PodGroup", "train", "default/train: its PodGroup train"),
    "coscheduling/v0.18": ("train", "PodGroup.scheduling.sigs.k8s.io", "train", "default/train: its PodGroup train"),
    "kube-batch/v1alpha1": (
        "train",
        "PodGroup.scheduling.incubator.k8s.io",
        "train",
        "default/train@batch: its PodGroup train",
    ),
    "volcano/v1beta1": ("train", "PodGroup.scheduling.volcano.sh", "train", "default/train@batch: its PodGroup train"),
    "kubernetes/v1alpha1": (
        "jobs:train:7",
        "Workload.scheduling.k8s.io",
        "jobs",
        "default/jobs:train:7@kubernetes: its Workload jobs",
    ),
}


@pytest.mark.parametrize("dialect", REJECTED)
def test_pods_whose_pod_group_cannot_be_read_are_told_why(dialect: str) -> None:
    """It is there, so that waiting for it would be no answer (design, section 7, 9)."""
    gang, kind, name, whose = REJECTED[dialect]
    world = World()
    world.pod("train-0", gang, dialect=dialect)
    world.plan()
    waits = said(world, "train-0")
    assert waits is not None
    assert " waits for its " in waits[1]
    about = {"kind": kind, "namespace": "default", "name": name, "uid": "u"}
    what = {"field": "spec.minMember", "value": "abc", "expected": "an integer"}
    world.facts(ev.DeclarationRejected(**about, resource_version="1", **what))
    told = ("WaitingForPodGroup", f"gang {whose} is rejected: spec.minMember is 'abc'; expected an integer")
    assert said(world, "train-0") == told
    assert why_waiting(world.state, world.state.pods["train-0"]) == told[1]
    found = condition(world.state, "train-0")
    assert found is not None
    world.append("binder", [ev.ConditionsReported(reason=found.said, pods=(("train-0", "2"),))], "outcome")
    assert said(world, "train-0") is None, "said once"
    world.facts(ev.RejectionEnded(**about))
    assert said(world, "train-0") == waits


def test_pods_of_a_gang_that_backs_off_are_told_of_its_pod_group_when_it_is_tried_again() -> None:
    """Until then it is the room that it was refused for."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    for uid in ("train-0", "train-1"):
        world.pod(uid, "train", dialect="coscheduling/v1alpha1")
    world.plan()
    waits = said(world, "train-0")
    assert waits is not None
    assert "Insufficient cpu" in waits[1]
    about = {"kind": "PodGroup", "namespace": "default", "name": "train", "uid": "pg-train"}
    what = {"field": "spec.minMember", "value": "abc", "expected": "an integer"}
    world.pod_group_deleted("train")
    world.facts(ev.DeclarationRejected(**about, resource_version="9", **what))
    assert said(world, "train-0") == waits
    world.pass_s(2)
    world.plan()
    told = said(world, "train-0")
    assert told is not None
    assert "its PodGroup train is rejected" in told[1]


def test_another_gangs_rejected_pod_group_is_none_of_a_pods_business() -> None:
    world = World()
    world.pod("train-0", "train", dialect="coscheduling/2020")
    world.plan()
    waits = said(world, "train-0")
    what = {"uid": "u", "resource_version": "1", "field": "f", "value": "v", "expected": "e"}
    world.facts(
        ev.DeclarationRejected(kind="PodGroup", namespace="default", name="other", **what),
        ev.DeclarationRejected(kind="PodGroup", namespace="ml", name="train", **what),
        ev.DeclarationRejected(kind="PodGroup.scheduling.volcano.sh", namespace="default", name="train", **what),
        ev.DeclarationRejected(kind="Pod", namespace="default", name="train", **what),
    )
    assert said(world, "train-0") == waits

"""Who speaks for a gang: PodGroups of several API groups under one name, pods that disagree, annotations over the CRD."""

from __future__ import annotations

import random

import msgspec
import pytest

import events as ev
from events import dialects
from events.objects import Declaration, Membership
from services.state import snapshot
from services.state.fold import State
from services.state.records import Gang
from tests.world import World

X_K8S, SIGS, VOLCANO = "coscheduling/v1alpha1", "coscheduling/v0.19", "volcano/v1beta1"
KOORDINATOR, KUBE_BATCH, NATIVE = "koordinator/v1alpha1", "kube-batch/v1alpha1", "kubernetes/v1alpha2"


def declaration(minimum: int, **more: object) -> Declaration:
    return msgspec.structs.replace(Declaration(min_member=minimum, waiting_time_ms=0), **more)


def group(world: World, dialect: str, minimum: int, name: str = "train", **more: object) -> str:
    """Observe a PodGroup; returns its UID."""
    uid = f"pg-{dialects.api_group(dialect)}-{name}"
    world.facts(
        ev.PodGroupObserved(
            namespace="default",
            name=name,
            uid=uid,
            resource_version=world.version(),
            dialect=dialect,
            created_ns=0,
            declaration=declaration(minimum, **more),
        )
    )
    return uid


def gone(world: World, dialect: str, name: str = "train") -> None:
    uid = f"pg-{dialects.api_group(dialect)}-{name}"
    world.facts(ev.PodGroupDeleted(namespace="default", name=name, uid=uid, dialect=dialect))


def member(world: World, name: str, dialect: str, declared: Declaration | None = None) -> str:
    world.pod(name)
    key = dialects.gang_key(dialect, "default", "train")
    membership = Membership(gang=key, dialect=dialect, declared=declared)
    world.facts(msgspec.structs.replace(world.state.pods[name].fact, gang=membership, resource_version=world.version()))
    return name


def minimum(world: World, key: str = "default/train") -> int | None:
    found = world.state.gangs[key].declaration
    return None if found is None else found.min_member


def test_pod_groups_of_different_api_groups_under_one_name_do_not_clobber_each_other() -> None:
    world = World()
    for count, dialect in enumerate((X_K8S, SIGS, VOLCANO, KUBE_BATCH, NATIVE), 2):
        group(world, dialect, count)
    assert len(world.state.pod_groups) == 5
    member(world, "a", X_K8S)
    member(world, "v", VOLCANO)
    member(world, "n", NATIVE)
    assert minimum(world) == 2
    assert minimum(world, "default/train@batch") == 4, "Volcano's, of the two that group-name may mean"
    assert minimum(world, "default/train@kubernetes") == 6
    gone(world, VOLCANO)
    assert (minimum(world), minimum(world, "default/train@batch")) == (2, 5)
    gone(world, X_K8S)
    assert minimum(world) is None, "the PodGroup of another API group is none of this pod's"
    world.deleted("a")
    member(world, "s", SIGS)
    assert minimum(world) == 3


def test_pods_of_two_dialects_in_one_gang_the_oldest_speaks() -> None:
    world = World()
    group(world, X_K8S, 2)
    group(world, SIGS, 3)
    member(world, "a", SIGS)
    member(world, "b", X_K8S)
    assert (minimum(world), world.state.gangs["default/train"].dialect) == (3, SIGS)
    world.deleted("a")
    assert (minimum(world), world.state.gangs["default/train"].dialect) == (2, X_K8S)


def test_pods_of_one_gang_that_declare_different_minimums_the_oldest_is_heard() -> None:
    world = World()
    for count, name in enumerate("abc", 2):
        world.pod(name, "train", minimum=count)
    assert minimum(world) == 2
    world.deleted("a")
    assert minimum(world) == 3
    world.pod("b", "train", minimum=7)
    assert minimum(world) == 7


def test_an_older_pod_that_begins_to_declare_is_heard_from_then_on() -> None:
    world = World()
    for name, count in (("a", 0), ("b", 3), ("c", 0)):
        world.pod(name, "train", minimum=count)
    assert minimum(world) == 3
    world.pod("a", "train", minimum=2)
    assert minimum(world) == 2
    world.pod("c", "train", minimum=5)
    assert minimum(world) == 2


def test_when_the_pod_that_is_heard_declares_nothing_any_more_the_next_is_heard() -> None:
    world = World()
    world.node("n0")
    a, b = world.gang("train", 2, 2)
    world.pod(a, "train")
    assert minimum(world) == 2
    world.pod(b, "train", minimum=1)
    assert minimum(world) == 1
    world.pod(b, "train")
    assert minimum(world) is None


def test_a_gang_whose_oldest_pod_was_relabelled_while_it_is_placed_hears_the_next() -> None:
    """What the pod said counts until something else of its gang changes; then the gang was without a declaration."""
    world = World()
    world.node("n0")
    a, b, c = world.gang("train", 3, 2)
    world.plan()
    world.pod(a, "other", minimum=7)
    assert (minimum(world), list(world.state.gangs["default/train"].members)) == (2, [a, b, c])
    world.deleted(c)
    assert minimum(world) == 2
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]


def test_annotations_win_over_the_crd_field_by_field() -> None:
    world = World()
    group(world, KOORDINATOR, 5, total_member=6, mode="Strict", groups=("default/other", "default/train"))
    said = declaration(7, mode="NonStrict", said=("groups", "min_member"))
    member(world, "a", KOORDINATOR, said)
    found = world.state.gangs["default/train"].declaration
    assert found is not None
    assert (found.min_member, found.mode, found.groups) == (7, "Strict", ()), "what the pod does not say is the CRD's"
    assert found.total_member == 7, "a minimum larger than the total: the total counts as the minimum"
    group(world, KOORDINATOR, 5, total_member=1)
    found = world.state.gangs["default/train"].declaration
    assert found is not None
    assert found.total_member == 7, "however small that is"
    gone(world, KOORDINATOR)
    assert minimum(world) == 7, "the annotation way needs no CRD"


def test_annotations_without_a_minimum_wait_for_the_crd() -> None:
    """If pods arrive to scheduler before Gang CRD, we have to […] collect all related pods, and need to suspend the
    scheduling of pods until parse the configuration from real Gang CRD."""
    world = World()
    world.node("n0")
    member(world, "a", KOORDINATOR, declaration(1, mode="NonStrict", said=("mode",)))
    assert (minimum(world), world.state.gangs["default/train"].source) == (None, "")
    [refused] = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.reason == "GangNotDeclared"
    group(world, KOORDINATOR, 2)
    found = world.state.gangs["default/train"].declaration
    assert found is not None
    assert (found.min_member, found.mode) == (2, "NonStrict")


@pytest.mark.parametrize("first", ["pod", "group"])
def test_a_pod_group_without_annotations_is_koordinators_where_its_pods_are(first: str) -> None:
    world = World()
    if first == "group":
        group(world, SIGS, 2)
    member(world, "a", KOORDINATOR)
    if first == "pod":
        group(world, SIGS, 2)
    gang = world.state.gangs["default/train"]
    assert gang.declaration is not None
    assert (gang.dialect, gang.declaration.match_policy) == (KOORDINATOR, "once-satisfied")
    world.deleted("a")
    assert gang.declaration.match_policy == "waiting-and-running", "without pods it is coscheduling's again"


def test_a_gang_is_koordinators_where_the_pod_that_is_heard_is() -> None:
    """As it was: it had the pod's mode, or was of the gang group that it names, and was coscheduling's all the same: what
    it held was given back when its time was over, and got again, for ever."""
    world = World()
    group(world, SIGS, 2)
    member(world, "a", SIGS)
    gang = world.state.gangs["default/train"]
    assert gang.dialect == SIGS
    member(world, "b", KOORDINATOR)
    assert gang.dialect == SIGS, "says nothing of the gang"
    member(world, "c", KOORDINATOR, declaration(1, mode="NonStrict", said=("mode",)))
    assert gang.declaration is not None
    assert (gang.dialect, gang.declaration.mode, gang.declaration.min_member) == (KOORDINATOR, "NonStrict", 2)
    assert gang.declaration.match_policy == "once-satisfied"
    world.deleted("c")
    assert (gang.dialect, gang.declaration.mode) == (SIGS, "Strict")


def test_a_pod_group_with_annotations_is_koordinators_whatever_its_pods_say() -> None:
    world = World()
    member(world, "a", SIGS)
    group(world, KOORDINATOR, 2, match_policy="only-waiting")
    gang = world.state.gangs["default/train"]
    assert gang.declaration is not None
    assert (gang.dialect, gang.declaration.match_policy) == (KOORDINATOR, "only-waiting")


def test_what_speaks_for_a_gang_is_in_the_snapshot() -> None:
    world = World()
    group(world, KOORDINATOR, 2)
    member(world, "a", KOORDINATOR, declaration(3, said=("min_member",)))
    again = snapshot.decode(snapshot.encode(world.state))
    assert again.gangs["default/train"] == world.state.gangs["default/train"]
    assert snapshot.digest(again) == snapshot.digest(world.state)


def heard(state: State, gang: Gang) -> tuple[Declaration | None, str, str]:
    """A gang's declaration, whose it is, and its dialect: from the facts alone, as the rules have it."""
    facts = [state.pods[uid].fact for uid in gang.members]
    says = {fact.uid: fact.gang for fact in facts if fact.gang is not None and fact.gang.gang == gang.key}
    oldest = says.get(facts[0].uid) if facts else None
    own, uid = next(((each, uid) for uid, each in says.items() if each.declared is not None), (None, ""))
    declared = own.declared if own is not None else None
    read = dialects.declared_in(gang.key, oldest.dialect if oldest is not None else "")
    groups = {dialects.api_group(each.dialect): each for each in state.pod_groups.values() if each.name == "train"}
    group = next((groups[api] for api in read if api in groups), None)
    if group is None:
        speaker = own or oldest
        dialect = speaker.dialect if speaker is not None else gang.dialect
        if declared is None or (declared.said and "min_member" not in declared.said):
            return None, "", dialect
        return declared, uid, dialect
    found, dialect = group.declaration, group.dialect
    if KOORDINATOR in {each.dialect for each in (oldest, own) if each is not None} and dialect != KOORDINATOR:
        found, dialect = msgspec.structs.replace(found, match_policy="once-satisfied"), KOORDINATOR
    for field in declared.said if declared is not None else ():
        found = msgspec.structs.replace(found, **{field: getattr(declared, field)})
    if found.total_member:
        found = msgspec.structs.replace(found, total_member=max(found.total_member, found.min_member))
    return found, group.uid, dialect


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_and_goes_those_are_heard_that_the_rules_name(seed: int) -> None:
    source, world = random.Random(seed), World()
    world.node("n0")
    for _ in range(60):
        name, dialect = source.choice("abcde"), source.choice((X_K8S, SIGS, KOORDINATOR))
        count = source.randrange(1, 5)
        step = source.choice(("member", "member", "member", "relabelled", "deleted", "group", "gone", "settled"))
        if step == "member":
            said = source.choice(((), ("mode",), ("min_member",), ("min_member", "total_member")))
            declared = declaration(count, mode="NonStrict", total_member=source.choice((0, 2)), said=said)
            if name not in world.state.pods:
                world.pod(name)
            gang = Membership(gang="default/train", dialect=dialect, declared=source.choice((None, declared)))
            fact = world.state.pods[name].fact
            world.facts(msgspec.structs.replace(fact, gang=gang, resource_version=world.version()))
        elif step == "relabelled":
            world.pod(name, source.choice(("", "other")))
        elif step == "deleted" and name in world.state.pods:
            world.deleted(name)
        elif step == "group":
            group(world, dialect, count, total_member=source.choice((0, count + 1)))
        elif step == "gone" and f"{dialects.api_group(dialect)}/default/train" in world.state.pod_groups:
            gone(world, dialect)
        elif step == "settled":
            world.settle()
        found = world.state.gangs.get("default/train")
        assert found is None or (found.declaration, found.source, found.dialect) == heard(world.state, found)

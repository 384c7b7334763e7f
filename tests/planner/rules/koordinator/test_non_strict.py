"""Seed 002, Strict and NonStrict: what is proposed when not all of a gang finds a node."""

import msgspec

import events as ev
from tests.world import World, of_type, refusals

LOOSE = {"mode": "NonStrict"}
ROLES = ("default/a", "default/b")


def proposed(events: list[ev.Event]) -> list[str]:
    [event] = of_type(events, ev.GangPlaced)
    return sorted(uid for one in (*event.required, *event.optional) for uid in one.pods)


def test_if_a_pod_failed_to_be_scheduled_it_has_no_impact_on_any_other_pod() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, LOOSE)
    assert proposed(world.plan()) == ["a-0", "a-1"]


def test_what_it_takes_is_not_there_for_those_behind_it() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, LOOSE, created_s=1)
    world.pod("late", created_s=2)
    said = world.plan()
    assert proposed(said) == ["a-0", "a-1"]
    assert refusals(said) == ["InsufficientRoom"]


def test_in_strict_a_pod_that_failed_keeps_all() -> None:
    """If Strict, we will set scheduleCycleValid to false and release all assumed pods."""
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3)
    assert refusals(world.plan()) == ["InsufficientRoom"]


def test_pods_beyond_a_minimum_wait_until_the_other_gangs_of_the_group_have_theirs() -> None:
    """They would take room from them, and start nothing."""
    world = World()
    world.node("n0", cpu=4)
    world.koordinator("default/a", 3, 2, LOOSE | {"groups": ROLES})
    world.koordinator("default/b", 1, 1, LOOSE | {"groups": ROLES})
    large = world.scheduling_class(cpu=8)
    fact = world.state.pods["b-0"].fact
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=large))
    assert proposed(world.plan()) == ["a-0", "a-1"]


def test_we_will_continue_to_accumulate_until_the_condition_of_gang_is_met() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 5, 4, LOOSE | {"waiting_time_ms": 60_000})
    for nodes in range(1, 3):
        world.settle()
        assert len(world.state.groups["default/a"].held) == nodes + 1
        assert world.bound() == []
        world.pass_s(2)
        world.node(f"n{nodes}", cpu=1)
    world.pass_s(5)
    world.settle()
    assert len(world.bound()) == 4
    assert not world.state.holding


def test_beyond_its_minimum_nothing_waits_with_it() -> None:
    """What is beyond a minimum could only wait: it takes its room once the gang is complete."""
    world = World()
    world.node("n0", cpu=3)
    world.koordinator("default/a", 4, 1, LOOSE | {"groups": ("default/a", "default/b")})
    world.koordinator("default/b", 3, 3, LOOSE | {"groups": ("default/a", "default/b")})
    assert proposed(world.plan()) == ["a-0", "b-0", "b-1"]


def test_check_whether_childes_in_gang_has_met_the_requirements_of_minimum_number() -> None:
    """If NonStrict, we only do step1 and step2."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 2, 3, LOOSE)
    assert refusals(world.plan()) == ["TooFewPods"]


def test_a_gated_or_impossible_pod_is_one_that_failed() -> None:
    world = World()
    world.node("n0")
    [first, second, third] = world.koordinator("default/a", 3, 3, LOOSE)
    declared = world.state.pods[first].fact.gang
    assert declared is not None
    of = {"dialect": "koordinator/v1alpha1", "declared": declared.declared}
    world.pod(second, "a", gated=True, **of)
    world.pod(third, "a", unsupported=("volumes",), **of)
    assert proposed(world.plan()) == ["a-0"]
    world.judge()
    [event] = of_type(world.plan(), ev.GroupsRefused)
    assert (event.reason, event.detail) == ("UnsupportedConstraint", "not supported yet: volumes")


def test_a_strict_gang_that_does_not_fit_keeps_its_whole_group() -> None:
    world = World()
    world.node("n0", cpu=3)
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, LOOSE | groups)
    world.koordinator("default/b", 4, 4, groups)
    assert refusals(world.plan()) == ["InsufficientRoom"]


def test_also_when_the_others_of_its_group_do_not_fit_either() -> None:
    world = World()
    world.node("n0", cpu=3)
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 4, 4, groups)
    world.koordinator("default/b", 4, 4, LOOSE | groups)
    assert refusals(world.plan()) == ["InsufficientRoom"]


def test_a_non_strict_gang_that_does_not_fit_keeps_nobody_of_its_group() -> None:
    world = World()
    world.node("n0", cpu=3)
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, groups)
    world.koordinator("default/b", 4, 4, LOOSE | groups)
    [event] = of_type(world.plan(), ev.GangPlaced)
    assert [uid for one in event.required for uid in one.pods] == ["a-0", "a-1"]
    assert [uid for one in event.optional for uid in one.pods] == ["b-0"]


def test_a_gang_that_lacks_room_is_told_what_it_lacks_besides() -> None:
    """It takes what room it gets for the pods that may be placed, so that room is what they wait for; but whoever adds
    some for them is told that the gang does not start with these alone."""
    world = World()
    world.node("n0", cpu=0)
    detail = "gang default/a: 0 of the 2 pods that must start together have a node."

    def told() -> str:
        (event,) = of_type(world.plan(), ev.GroupsRefused)
        assert event.reason == "InsufficientRoom"
        return event.detail

    world.koordinator("default/a", 2, 2, LOOSE)
    fact = world.state.pods["a-1"].fact
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), gated=True))
    gated = " Besides, gang default/a needs 2 more pods; 1 may be scheduled, others are gated or done."
    assert told() == detail + gated
    world.pass_s(2)
    volumes = world.scheduling_class(unsupported=("volumes",))
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=volumes))
    assert told() == f"{detail} Besides, not supported yet: volumes."
    world.pass_s(5)
    world.facts(msgspec.structs.replace(fact, resource_version=world.version()))
    assert told() == detail


def test_of_a_gang_whose_running_pods_do_not_count_too_few_may_be_placed() -> None:
    """only-waiting: one runs and one waits for room, and two must wait together."""
    world = World()
    world.node("n0", cpu=0)
    world.node("n1", unschedulable=True)
    uids = world.koordinator("default/a", 2, 2, LOOSE | {"match_policy": "only-waiting"})
    world.assigned(uids[0], "n1")
    (event,) = of_type(world.plan(), ev.GroupsRefused)
    about = "gang default/a needs 2 more pods; 1 may be scheduled, others are gated or done"
    assert event.detail == f"gang default/a: 0 of the 2 pods that must start together have a node. Besides, {about}."


def test_of_a_gang_whose_rules_are_off_nothing_is_said_besides() -> None:
    """It started, and needs no minimum any more."""
    world = World()
    world.node("n0", cpu=2)
    first, second = world.koordinator("default/a", 2, 2, LOOSE | {"groups": ROLES})
    world.assigned(first, "n0")
    fact = world.state.pods[second].fact
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), gated=True))
    world.koordinator("default/b", 4, 4, {"groups": ROLES})
    (event,) = of_type(world.plan(), ev.GroupsRefused)
    assert event.reason == "InsufficientRoom"
    assert event.detail.endswith(": 1 of the 4 pods that must start together have a node.")


def test_a_pod_beyond_its_gangs_minimum_that_finds_no_room_lacks_one_node() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 2, 2)
    world.settle()
    world.koordinator("default/a", 3, 2)
    (event,) = of_type(world.plan(), ev.GroupsRefused)
    assert (event.reason, event.needed, event.node_reasons) == ("InsufficientRoom", 1, {"Insufficient cpu": 1})
    assert event.detail == "gang default/a: 0 of the 1 pods that must start together have a node."

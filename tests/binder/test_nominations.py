"""Fairness between shards: a gang that loses its room time and again gets what still stands nominated."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import HostPort, NodeAssignment
from events.policy import DEFAULT_POLICY
from services.state.records import NOMINATED
from tests.world import World, of_type

GANG = "default/train"
WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def contested(nodes: int = 3, cpu: int = 2, *, after: int = 3, size: int = 4, **asks: object) -> World:
    """A gang of four on three nodes of two cpu, planned for by one shard; strangers come as `steal` says."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, nominate_after_refusals=after))
    for i in range(nodes):
        world.node(f"n{i}", cpu=cpu)
    world.gang("train", size, size, **asks)
    return world


def lose(world: World, turn: int) -> list[ev.Event]:
    """The gang is planned; before the verdict a stranger takes one of its nodes, and goes again afterwards."""
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    node = placed.required[0].node
    world.pod(f"stranger-{turn}", node=node, candidate=False, cpu=2)
    judged = world.judge()
    world.deleted(f"stranger-{turn}")
    return judged


def kinds(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def nominated(world: World) -> list[str]:
    """The node of each nominated claim."""
    return sorted(claim.node for claim in world.state.claims.values() if claim.stage == NOMINATED)


def after_three() -> World:
    world = contested()
    for turn in range(2):
        assert kinds(lose(world, turn)) == ["ProposalRefused"]
    assert kinds(lose(world, 2)) == ["ProposalRefused", "GroupNominated"]
    return world


def test_the_third_refusal_in_a_row_nominates_what_still_stands() -> None:
    world = after_three()
    nomination = world.state.group_nominations[GANG]
    pods = [uid for assignment in nomination.assignments for uid in assignment.pods]
    assert len(pods) == len(nominated(world)) > 0
    assert len(pods) < 4, "what the stranger took is not kept"
    assert world.judge() == [], "it has its time"


def test_nobody_else_gets_the_room() -> None:
    world = after_three()
    kept = nominated(world)
    for i in range(9):
        world.pod(f"p{i}", cpu=1, priority=9)
    places = {event.group: event for event in of_type(world.plan(), ev.GangPlaced)}
    assert len(places) == 6 - len(kept), "of six places only those that are not kept"
    assert GANG not in places


def test_the_gang_goes_where_its_room_is_kept() -> None:
    world = after_three()
    kept = nominated(world)
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    uses = [a.node for a in placed.required for _ in a.pods]
    for node in kept:
        uses.remove(node)
    judged = world.judge()
    assert kinds(judged) == ["GroupNominationEnded", "GangPermitted"]
    assert of_type(judged, ev.GroupNominationEnded)[0].reason == "Taken"
    assert nominated(world) == []
    world.settle()
    assert all(world.where(*(f"train-{i}" for i in range(4))))


def test_the_binder_counts_it_against_everybody_elses_proposals() -> None:
    world = after_three()
    node = nominated(world)[0]
    world.pod("stranger", cpu=2)
    world.propose("pod/default/stranger", {"stranger": node})
    refused = world.judge()[0]
    assert isinstance(refused, ev.ProposalRefused)
    assert refused.reason == "NoRoom"


def test_a_later_refusal_nominates_anew_and_the_first_ones_time_runs_on() -> None:
    world = after_three()
    world.pass_s(6)
    since = world.state.group_nominations[GANG].since
    placed = of_type(world.plan(), ev.GangPlaced)[0]
    free = sorted({a.node for a in placed.required} - set(nominated(world)))[0]
    world.pod("thief", node=free, candidate=False, cpu=2)
    judged = world.judge()
    assert kinds(judged) == ["ProposalRefused", "GroupNominated"]
    assert world.state.group_nominations[GANG].since == since
    assert world.judge() == [], "that time is not over"
    world.pass_s(5)
    (ended,) = world.judge()
    assert ended == ev.GroupNominationEnded(group=GANG, reason="Expired")
    assert world.state.groups[GANG].conflicts == 0
    world.deleted("thief")
    world.settle()
    assert all(world.where(*(f"train-{i}" for i in range(4))))


def test_one_whose_time_is_over_while_a_proposal_stands_is_not_nominated_anew_for_ever() -> None:
    """Seed 52091: the first one's time had run out, and of the second no deadline ran (design, 7.13)."""
    world = after_three()
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    free = sorted({a.node for a in placed.required} - set(nominated(world)))[0]
    world.pass_s(11)
    world.pod("thief", node=free, candidate=False, cpu=2)
    assert kinds(world.judge()) == ["ProposalRefused", "GroupNominated"]
    assert world.judge() == [ev.GroupNominationEnded(group=GANG, reason="Expired")]
    assert nominated(world) == []


def test_what_is_over_already_ends_but_once() -> None:
    world = after_three()
    ended = ev.GroupNominationEnded(group=GANG, reason="Expired")
    world.append("binder", [ended, ended], cause="by hand")
    assert nominated(world) == []


def test_it_expires_in_log_time_unless_a_proposal_stands() -> None:
    world = after_three()
    world.plan()
    world.pass_s(11)
    assert world.state.group_nominations[GANG].due
    judged = world.judge()
    assert kinds(judged) == ["GroupNominationEnded", "GangPermitted"]
    assert of_type(judged, ev.GroupNominationEnded)[0].reason == "Taken"


def test_each_ends_for_itself_and_a_proposal_that_a_later_decision_judges_stands_too() -> None:
    world = World(msgspec.structs.replace(DEFAULT_POLICY, cycle_pods=1))
    world.node("n0")
    kept = []
    for name in "abc":
        world.gang(name, 1, 1)
        here = (NodeAssignment("n0", (f"{name}-0",)),)
        kept.append(ev.GroupNominated(group=f"default/{name}", assignments=here, waiting_ms=10_000))
    world.append("binder", list(kept), cause="by hand")
    world.deleted("c-0")
    assert world.judge() == [ev.GroupNominationEnded(group="default/c", reason="GroupGone")]
    world.pod("first")
    world.propose("pod/default/first", {"first": "n0"})
    world.propose("default/a", {"a-0": "n0"})
    world.pass_s(11)
    assert kinds(world.judge()) == ["GangPermitted", "GroupNominationEnded"]
    assert list(world.state.group_nominations) == ["default/a"]
    assert kinds(world.judge()) == ["GroupNominationEnded", "GangPermitted"]


def test_it_ends_when_the_gang_is_refused_for_another_reason() -> None:
    world = after_three()
    for i in range(3):
        world.node(f"n{i}", cpu=1)
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["InsufficientRoom"]
    assert world.judge() == [ev.GroupNominationEnded(group=GANG, reason="Refused")]
    assert nominated(world) == []


def test_it_ends_with_the_gang() -> None:
    world = after_three()
    for i in range(4):
        world.deleted(f"train-{i}")
    assert world.judge() == [ev.GroupNominationEnded(group=GANG, reason="GroupGone")]
    assert not world.state.claims


def test_nothing_is_kept_for_a_gang_that_went_while_it_was_decided() -> None:
    world = contested()
    kept = (NodeAssignment("n0", ("train-0",)),)
    for i in range(4):
        world.deleted(f"train-{i}")
    world.append("binder", [ev.GroupNominated(group=GANG, assignments=kept, waiting_ms=10_000)], cause="by hand")
    assert world.state.ignored == {"GroupNominated": 1}
    assert not world.state.group_nominations


def test_it_ends_with_a_gang_that_another_of_its_name_replaced() -> None:
    world = after_three()
    for i in range(4):
        world.deleted(f"train-{i}")
    world.gang("train", 4, 4)
    (ended,) = of_type(world.judge(), ev.GroupNominationEnded)
    assert ended.reason == "GroupGone"


@pytest.mark.parametrize("between", ["gated", "held", "parked"])
def test_only_refusals_in_a_row_count(between: str) -> None:
    world = contested()
    lose(world, 0)
    lose(world, 1)
    match between:
        case "gated":
            world.plan()
            world.pod("train-0", "train", minimum=4, gated=True)
            assert of_type(world.judge(), ev.ProposalRefused)[0].reason == "PodGated"
            world.pod("train-0", "train", minimum=4)
        case "held":
            world.propose(GANG, {"train-0": "n0"})
            assert kinds(world.judge()) == ["GangHeld"]
        case "parked":
            for i in range(3):
                world.node(f"n{i}", cpu=1)
            world.plan()
            for i in range(3):
                world.node(f"n{i}", cpu=2)
            world.pass_s(2)
    assert world.state.groups[GANG].conflicts == 0
    assert kinds(lose(world, 2)) == ["ProposalRefused"]


def twice() -> World:
    """The next refusal for room nominates what still stands."""
    world = contested()
    for turn in range(2):
        lose(world, turn)
    return world


def test_a_refusal_for_another_reason_nominates_nothing() -> None:
    world = twice()
    world.plan()
    world.pod("train-0", "train", minimum=4, gated=True)
    assert kinds(world.judge()) == ["ProposalRefused"]


def test_where_nothing_of_it_stands_nothing_is_nominated() -> None:
    """An empty nomination would let the gang into room that is reserved for others."""
    world = contested(nodes=1, cpu=4)
    for turn in range(4):
        assert kinds(lose(world, turn)) == ["ProposalRefused"]
    assert not world.state.group_nominations


def test_a_disagreement_nominates_nothing() -> None:
    """Nobody was faster: planner and binder see the same room otherwise."""
    world = twice()
    world.propose(GANG, {"train-0": "n0", "train-1": "n0", "train-2": "n0", "train-3": "n1"})
    assert kinds(world.judge()) == ["ProposalRefused", "DisagreementDetected"]


def test_what_is_kept_stays_kept_for_those_who_are_judged_behind_its_gang() -> None:
    world = after_three()
    kept = nominated(world)[0]
    world.plan()
    world.pod("train-0", "train", minimum=4, gated=True)
    world.pod("stranger", cpu=2)
    world.propose("pod/default/stranger", {"stranger": kept})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["PodGated", "NoRoom"]


def test_a_policy_without_it_never_nominates() -> None:
    world = contested(after=0)
    for turn in range(8):
        assert kinds(lose(world, turn)) == ["ProposalRefused"]


def test_a_node_of_the_nomination_that_vanishes_costs_its_part_only() -> None:
    world = after_three()
    gone = nominated(world)[0]
    world.facts(ev.NodeDeleted(name=gone, uid=f"uid-{gone}"))
    world.node("n9", cpu=4)
    world.settle()
    assert all(world.where(*(f"train-{i}" for i in range(4))))
    assert not world.state.group_nominations


def test_host_ports_are_kept_as_well() -> None:
    world = contested(nodes=3, size=3, after=1, cpu=1, ports=WEB)
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    taken = placed.required[0].node
    world.pod("thief", node=taken, candidate=False, cpu=0.1, ports=WEB)
    assert kinds(world.judge()) == ["ProposalRefused", "GroupNominated"]
    kept = nominated(world)
    assert len(kept) == 2
    world.pod("web", cpu=0, ports=WEB)
    world.propose("pod/default/web", {"web": kept[0]})
    refused = world.judge()[0]
    assert isinstance(refused, ev.ProposalRefused)
    assert refused.reason == "NoRoom"
    world.deleted("web")
    world.deleted("thief")
    world.settle()
    assert all(world.where("train-0", "train-1", "train-2"))


def test_room_whose_host_port_a_stranger_has_by_now_is_not_proposed() -> None:
    """The simulator of faults found it, seed 4379: the port counted as the nomination's own, and the binder disagreed."""
    world = contested(nodes=3, size=3, after=1, cpu=1, ports=WEB)
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    world.pod("thief", node=placed.required[0].node, candidate=False, cpu=0.1, ports=WEB)
    assert kinds(world.judge()) == ["ProposalRefused", "GroupNominated"]
    world.deleted("thief")
    world.pod("stranger", node=nominated(world)[0], candidate=False, cpu=0, ports=WEB)
    assert of_type(world.plan(), ev.GangPlaced) == []
    assert kinds(world.judge()) == ["GroupNominationEnded"]


def test_what_is_nominated_is_what_stands_one_assignment_after_the_other() -> None:
    world = contested(nodes=2, size=4, after=1)
    basis = world.state.sequence
    world.pod("thief", node="n0", candidate=False, cpu=1)
    world.propose(GANG, {"train-0": "n0", "train-1": "n0", "train-2": "n1", "train-3": "n1"}, basis=basis)
    refused, kept = world.judge()
    assert isinstance(refused, ev.ProposalRefused)
    assert isinstance(kept, ev.GroupNominated)
    assert kept.assignments == (
        NodeAssignment("n0", ("train-0",)),
        NodeAssignment("n1", ("train-2",)),
        NodeAssignment("n1", ("train-3",)),
    )


def test_a_later_nomination_has_its_own_time() -> None:
    """The deadline of one that ended is about nothing any more, though it is for the same group."""
    world = after_three()
    world.append("binder", [ev.GroupNominationEnded(group=GANG, reason="Expired")])
    world.pass_s(6)
    for turn in range(3, 6):
        lose(world, turn)
    assert nominated(world)
    world.pass_s(6)
    assert not world.state.group_nominations[GANG].due
    world.pass_s(6)
    assert world.state.group_nominations[GANG].due


def test_a_pod_that_came_from_another_group_takes_none_of_what_that_one_keeps() -> None:
    """The claim is the pod's, and stays the first group's: ended or spent by the second, it was lost to the first."""
    world = World()
    for node in ("n0", "n1"):
        world.node(node, cpu=2)
    for gang in ("a", "b"):
        world.gang(gang, 2, 2)

    def keep(gang: str, uids: tuple[str, ...], node: str) -> None:
        kept = ev.GroupNominated(f"default/{gang}", (NodeAssignment(node, uids),), 10_000)
        world.append("binder", [kept], cause="by hand")

    keep("a", ("a-0", "a-1"), "n0")
    world.pod("a-1", "b", minimum=2)
    keep("b", ("b-0", "a-1"), "n1")
    world.pod("a-1", "a", minimum=2)
    world.append("binder", [ev.GroupNominationEnded("default/b", "Expired")], cause="by hand")
    assert nominated(world) == ["n0", "n0"]
    world.append("binder", [ev.GroupNominationEnded("default/a", "Expired")], cause="by hand")
    assert nominated(world) == []

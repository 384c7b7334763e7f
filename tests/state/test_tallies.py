"""What is counted of a gang as its members change: a fact costs the same, however many members there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import events as ev
from events.objects import Declaration
from services.binder import core as binder
from services.planner import core as planner
from services.state import membership, snapshot, timeouts
from services.state.fold import State
from services.state.records import PARKED
from tests.state.looks import Counting
from tests.world import World

PODS = 200


def gang_of(pods: int, *, running: bool = True) -> World:
    """A gang of so many with a minimum of as many, of Volcano's tasks ps and worker."""
    world = World()
    world.node("n0", cpu=2 * PODS, memory_gi=2 * PODS, pods=2 * PODS)
    world.pod_group("job", pods, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": pods - 1})
    for i in range(pods):
        world.volcano(f"p{i}", "job", "worker" if i else "ps")
    if running:
        world.plan()
        world.judge()
        world.bind()
        assert len(world.bound()) == pods
    return world


def that_run(world: World) -> tuple[int, int]:
    """(members of the gang that run; of these, those still alive)."""
    (tally,) = world.state.tallies.values()
    return tally.running, tally.live


def observed_again(world: World, **changes: Any) -> list[ev.Event]:
    facts = [pod.fact for pod in world.state.pods.values()]
    return [msgspec.structs.replace(fact, resource_version=world.version(), **changes) for fact in facts]


def failed(world: World) -> list[ev.Event]:
    about = [{"uid": uid, "namespace": "default", "name": uid} for uid in world.state.pods]
    return [ev.PodFinished(**of, resource_version=world.version(), succeeded=False, reason="") for of in about]


def deleted(world: World) -> list[ev.Event]:
    return [ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in world.state.pods]


def looks(world: World, events: list[ev.Event]) -> int:
    """How often the fold of these events looks at a pod, or for its claim."""
    state = snapshot.decode(snapshot.encode(world.state))
    state.pods, state.claims = Counting(state.pods), Counting(state.claims)
    world.facts(*events)
    begin = world.log.commits[-1]
    state.apply_stored(begin)
    looked = state.pods.looks + state.claims.looks
    assert snapshot.digest(state) == snapshot.digest(world.state)
    assert looked
    return looked


@pytest.mark.parametrize("happens", [failed, deleted, observed_again])
def test_a_fact_about_a_member_looks_at_few_others(happens: Callable[[World], list[ev.Event]]) -> None:
    world = gang_of(PODS)
    assert looks(world, happens(world)) < 20 * PODS


def terminating(world: World) -> list[ev.Event]:
    about = [{"uid": uid, "namespace": "default", "name": uid} for uid in world.state.pods]
    return [ev.PodTerminating(**of, resource_version=world.version()) for of in about]


@pytest.mark.parametrize("happens", [failed, deleted, terminating])
def test_a_fact_about_one_that_runs_looks_at_few_others_while_one_waits_for_room(
    happens: Callable[[World], list[ev.Event]],
) -> None:
    """Whether the group has something left to place."""
    world = World()
    world.node("n0", cpu=PODS, memory_gi=PODS, pods=PODS)
    for i in range(PODS):
        world.pod(f"p{i}", "job", minimum=PODS // 2, cpu=1 if i < PODS - 1 else 10 * PODS)
    world.settle()
    (group,) = world.state.groups.values()
    assert (group.phase, len(world.bound())) == (PARKED, PODS - 1)
    assert looks(world, happens(world)[:-1]) < 20 * PODS


@pytest.mark.parametrize("happens", [terminating, deleted, observed_again])
def test_a_fact_about_one_that_runs_looks_at_few_others_after_its_gang_timed_out(
    happens: Callable[[World], list[ev.Event]],
) -> None:
    """Whether it still stands that it did: those that run say so, too."""
    world = World()
    said = Declaration(min_member=PODS, waiting_time_ms=0, match_policy="once-satisfied", said=("min_member",))
    world.node("n0")
    for i in range(PODS):
        world.pod(f"p{i}", "job", dialect="koordinator/v1alpha1", declared=said, timed_out=True)
    world.plan()
    for i in range(PODS - 1):
        world.assigned(f"p{i}", "n0")
    world.plan()
    (group,) = world.state.groups.values()
    assert timeouts.stands(world.state, group)
    assert looks(world, happens(world)[:-1]) < 20 * PODS
    assert timeouts.stands(world.state, group)
    world.says(f"p{PODS - 1}", timed_out=False)
    assert not timeouts.stands(world.state, group)


def test_a_gang_whose_pods_lose_their_gates_one_by_one() -> None:
    world = gang_of(PODS, running=False)
    world.facts(*observed_again(world, gated=True))
    world.plan()
    assert looks(world, observed_again(world, gated=False)) < 20 * PODS


def test_a_gang_whose_pods_come_one_by_one_while_it_is_refused_for_them() -> None:
    world = gang_of(PODS, running=False)
    begin = snapshot.decode(snapshot.encode(world.state))
    came = [pod.fact for pod in begin.pods.values()]
    world.facts(*deleted(world)[1:])
    world.plan()
    assert looks(world, list(came[1:])) < 20 * PODS


def test_a_decision_about_lost_members_looks_at_few_others() -> None:
    """Their room is nominated, and then each decision asks of each nomination whether its gang is still broken."""
    world = gang_of(PODS)
    world.facts(*failed(world)[: PODS // 2])
    for _ in range(2):
        world.state.pods = Counting(world.state.pods)
        decided = binder.decide_now(world.state)
        assert world.state.pods.looks < 20 * PODS
        world.append("binder", decided, cause="decide")
        assert len(world.state.nominations) == PODS // 2


def test_a_decision_about_many_gangs_that_lost_a_member_looks_at_few_nominations() -> None:
    """Each of their proposals has the room of its own gang's failed members, whatever others lost."""
    gangs = PODS // 4
    world = World()
    world.node("n0", cpu=3 * gangs, memory_gi=3 * gangs, pods=3 * gangs)
    for i in range(gangs):
        world.gang(f"g{i}", 2, 2)
    world.settle()
    for i in range(gangs):
        world.deleted(f"g{i}-0")
    world.settle()
    assert len(world.state.nominations) == gangs
    for i in range(gangs):
        world.pod(f"g{i}-2", f"g{i}", minimum=2)
    for decide in (lambda: planner.decide_now(world.state, "a"), lambda: binder.decide_now(world.state)):
        world.state.nominations = Counting(world.state.nominations)
        decided = decide()
        assert len(decided) >= gangs
        assert 0 < world.state.nominations.looks < 10 * gangs
        world.append("planner.a" if isinstance(decided[0], ev.GangPlaced) else "binder", decided, cause="decide")
    assert not world.state.nominations


def test_what_is_counted_is_what_the_records_say_whatever_happens_to_a_member() -> None:
    """`World` compares after each commit (`validate_state`); here is one of each transition."""
    world = gang_of(4, running=False)
    world.plan()
    world.judge()
    (gang,) = world.state.gangs.values()
    assert that_run(world) == (4, 4)  # permitted
    world.append("binder", [failed_binding("p3", "")], cause="outcome")
    assert that_run(world) == (3, 3)
    world.bind()
    world.finished("p0")
    world.terminating("p1")
    assert (that_run(world), membership.total(world.state, gang)) == ((2, 1), 3)
    assert membership.below_task_minimum(world.state, gang, "worker")
    assert not membership.below_task_minimum(world.state, gang, "ps")
    world.facts(*observed_again(world, priority=7, status="bound", node="n0")[2:3])
    assert world.state.groups[gang.group].priority == 7
    world.deleted("p2")
    assert world.state.groups[gang.group].priority == 0
    for uid in ("p0", "p1", "p3"):
        world.deleted(uid)
    assert not world.state.tallies


def failed_binding(uid: str, node: str) -> ev.BindingFailed:
    about = {"uid": uid, "namespace": "default", "name": uid, "node": "n0"}
    return ev.BindingFailed(**about, reason="Rejected", message="no", assigned_node=node)


def test_a_restored_state_counts_the_same() -> None:
    world = gang_of(5)
    world.finished("p1")
    world.terminating("p2")
    restored: State = snapshot.decode(snapshot.encode(world.state))
    assert restored.tallies == world.state.tallies

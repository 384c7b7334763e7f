"""A stream of small pods for ever, and one large gang: without the rule it never binds, with it soon.

Planner and binder together (`tests.world`): one small pod after another ends, and another comes at once.
"""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import ClassRoom, HostPort, SelectorRequirement, SelectorTerm
from events.policy import DEFAULT_POLICY, Policy
from services.binder import core as binder
from services.state.reservations import rooms
from tests.walk.checks import refold
from tests.why import why_waiting
from tests.world import World, of_type

GANG = "default/train"
NODES, CPU = 4, 4
MEMBERS = tuple(f"train-{i}" for i in range(8))


def policy(after: int = 3, *, hold_ms: int = 600_000, reservations: int = 1) -> Policy:
    return msgspec.structs.replace(
        DEFAULT_POLICY, reserve_after_refusals=after, reservation_hold_ms=hold_ms, reservations=reservations
    )


class Busy:
    """Every node is full of small pods, more of which wait, and a gang that needs half of the cluster comes."""

    def __init__(self, policy: Policy) -> None:
        self.world = World(policy)
        for i in range(NODES):
            self.world.node(f"n{i}", cpu=CPU)
        self.made = 0
        for _ in range(NODES * CPU + 3):
            self.come()
        self.world.settle()
        self.world.gang("train", 8, 8)
        self.world.settle()

    def come(self) -> str:
        self.made += 1
        return self.world.pod(f"small-{self.made:03}", created_s=self.made)

    def end_one(self) -> None:
        """The small pod that has run longest ends, another comes, and everybody has his say; time passes."""
        for oldest in [uid for uid in self.world.bound() if uid.startswith("small")][:1]:
            self.world.finished(oldest)
            self.world.deleted(oldest)
        self.come()
        self.world.settle()
        self.world.pass_s(2)
        self.world.settle()

    def until_bound(self, most: int) -> int:
        """How many small pods end before the gang runs; `most` if it doesn't."""
        for completions in range(most):
            if all(self.world.where(*MEMBERS)):
                return completions
            self.end_one()
        return most

    @property
    def kept(self) -> dict[str, int]:
        """node → pods for which room is reserved."""
        (reservation,) = self.world.state.reservations.values()
        return {node: pods for _, node, pods in rooms(reservation)}


def test_without_the_rule_the_gang_never_binds() -> None:
    busy = Busy(policy(after=0))
    assert busy.until_bound(60) == 60
    assert not busy.world.state.reservations


def test_with_it_the_gang_binds_after_a_bounded_number_of_completions() -> None:
    busy = Busy(policy(after=3))
    bound_after = busy.until_bound(60)
    # Three refusals, each after one that ended; then at most the small pods that ran where room is kept, oldest first.
    assert bound_after <= 3 + NODES * CPU
    assert not busy.world.state.reservations
    refold(busy.world)


def test_small_pods_pass_where_no_room_is_kept() -> None:
    busy = Busy(policy(after=1))
    while not busy.world.state.reservations:
        busy.end_one()
    kept = busy.kept
    assert sum(kept.values()) == 8
    passed = 0
    while not all(busy.world.where(*MEMBERS)):
        before = set(busy.world.bound())
        busy.end_one()
        came = set(busy.world.bound()) - before
        passed += len([uid for uid in came if uid.startswith("small")])
        for node, pods in kept.items() if busy.world.state.reservations else ():
            here = [uid for uid in busy.world.bound() if busy.world.where(uid) == [node]]
            if any(uid in came and uid.startswith("small") for uid in here):
                assert len(here) <= CPU - pods, "a small pod took room that the gang needs"
    assert passed > 0


def test_those_held_back_are_told_for_whom() -> None:
    busy = Busy(policy(after=1))
    while not busy.world.state.reservations:
        busy.end_one()
    world = busy.world
    reasons: set[str] = set()
    for _ in range(8):
        waiting = [pod for pod in world.state.pods.values() if pod.status == "pending"]
        reasons.update(why_waiting(world.state, pod) for pod in waiting if pod.fact.uid.startswith("small"))
        if not world.state.reservations:
            break
        gang = why_waiting(world.state, world.state.pods["train-0"])
        assert "Room for 8 pods on" in gang
        assert "is kept for it as it becomes free" in gang
        busy.end_one()
    assert any("node(s) keep room for gang default/train" in reason for reason in reasons)


def test_it_ends_in_log_time_and_the_others_go_on() -> None:
    busy = Busy(policy(after=2, hold_ms=5_000))
    world = busy.world
    while not world.state.reservations:
        busy.end_one()
    running = [uid for uid in world.bound() if world.where(uid)[0] in busy.kept]
    world.finished(running[0])
    world.settle()
    waited = [uid for uid, pod in world.state.pods.items() if pod.status == "pending" and uid.startswith("small")]
    world.pass_s(6)
    ended = of_type(world.judge(), ev.ReservationEnded)
    assert [(event.group, event.reason) for event in ended] == [(GANG, "Expired")]
    world.pass_s(11)
    world.settle()
    assert any(world.where(*waited)), "what was kept from them is theirs again"
    assert world.state.groups[GANG].attempts < 2, "it counts anew"


def test_a_gang_that_would_not_fit_an_empty_cluster_gets_none_and_is_told() -> None:
    busy = Busy(policy(after=2))
    world = busy.world
    for uid in MEMBERS:
        world.deleted(uid)
    world.gang("huge", NODES * CPU + 1, NODES * CPU + 1)
    for _ in range(6):
        busy.end_one()
    assert not world.state.reservations
    why = why_waiting(world.state, world.state.pods["huge-0"])
    assert "it would not fit if every pod that could leave were gone" in why


def test_pods_that_are_not_ours_are_not_expected_to_end() -> None:
    busy = Busy(policy(after=2))
    world = busy.world
    for uid in MEMBERS:
        world.deleted(uid)
    for i in range(NODES):
        world.node(f"n{i}", cpu=CPU + 1)
        world.pod(f"daemon-{i}", node=f"n{i}", candidate=False)
    world.gang("train", NODES, NODES, cpu=CPU + 1)
    for _ in range(6):
        busy.end_one()
    assert not world.state.reservations
    assert "it would not fit" in why_waiting(world.state, world.state.pods["train-0"])


def test_a_group_of_a_higher_priority_is_not_held_off() -> None:
    busy = Busy(policy(after=1))
    world = busy.world
    while not world.state.reservations:
        busy.end_one()
    node = next(iter(busy.kept))
    (victim, *_) = [uid for uid in world.bound() if world.where(uid) == [node]]
    world.pod("urgent", priority=5)
    world.finished(victim)
    world.pass_s(12)
    world.settle()
    assert world.where("urgent") == [node]
    assert GANG in world.state.reservations, "the claim goes on; that room is free again later"


def two_gangs(**bounds: int) -> tuple[Busy, list[str]]:
    """In the place of the one; and their pods."""
    busy = Busy(policy(**bounds))
    for uid in MEMBERS:
        busy.world.deleted(uid)
    for name in ("one", "two"):
        busy.world.gang(name, 8, 8, created_s=1)
    return busy, [f"{name}-{i}" for name in ("one", "two") for i in range(8)]


def test_two_starving_gangs_do_not_block_each_other() -> None:
    busy, both = two_gangs(after=2, reservations=2)
    world = busy.world
    for _ in range(60):
        busy.end_one()
        if len(world.state.reservations) == 2:
            sums: dict[str, int] = {}
            for one in world.state.reservations.values():
                for _, node, pods in rooms(one):
                    sums[node] = sums.get(node, 0) + pods
            assert max(sums.values()) <= CPU
        if all(world.where(*both)):
            break
    assert all(world.where(*both))


def test_with_one_reservation_at_a_time_they_take_turns() -> None:
    busy, both = two_gangs(after=2)
    world = busy.world
    for _ in range(60):
        busy.end_one()
        assert len(world.state.reservations) <= 1
        if all(world.where(*both)):
            break
    assert all(world.where(*both))


def test_at_rest_nobody_asks_again_and_again() -> None:
    """What a reservation's end gives back is room for others only: the gangs that starve are tried, and that is all."""
    world = World(policy(after=1, hold_ms=1_000))
    for i in range(2):
        world.node(f"n{i}", cpu=4)
    for i in range(7):
        world.pod(f"small-{i}")
    world.settle()
    for name in ("one", "two", "three"):
        world.gang(name, 4, 4)
    world.settle()
    world.deleted("small-0")
    world.settle()
    for _ in range(60):
        world.pass_s(1)
        world.settle()
    before = world.state.sequence
    for _ in range(60):
        world.pass_s(1)
        assert not world.plan()
        assert not world.judge()
    assert not world.state.reservations
    assert world.state.sequence - before < 150, "ticks alone"


def test_what_a_request_says_is_one_line_for_a_class() -> None:
    busy = Busy(policy(after=1))
    while not busy.world.state.reservations:
        busy.end_one()
    (room,) = busy.world.state.reservations[GANG].room
    assert isinstance(room, ClassRoom)
    assert sorted(room.nodes) == list(room.nodes)
    assert sum(room.nodes.values()) == 8


@pytest.mark.parametrize("gang", [f"g{number}" for number in range(6)])
def test_room_that_is_reserved_and_free_is_used(gang: str) -> None:
    """As it was: pods of three and two and two cpu for nodes of four and three were tried in orders that spread them, as
    many times as there were, while the one arrangement that there is was kept for them, and stood empty."""
    world = World(policy(after=1))
    world.node("n0", cpu=4)
    world.node("n1", cpu=3)
    world.node("other", cpu=1, labels={"pool": "other"})
    world.pod("first", selector={"pool": "other"})
    world.settle()
    uids = [world.pod(f"{gang}-{number}", gang, minimum=3, cpu=cpu) for number, cpu in enumerate((3, 2, 2))]
    world.settle()
    world.deleted("first")  # somewhere room is given back
    for _ in range(20):
        world.pass_s(2)
        world.settle()
    assert world.where(*uids) == ["n1", "n0", "n0"]
    assert not world.state.reservations


def test_reserved_room_is_used_once_its_port_is_free_too() -> None:
    """The same arrangement: the largest pod opens a port that one beside it has open as well."""
    web = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)
    world = World(policy(after=1))
    world.node("n0", cpu=4)
    world.node("n1", cpu=4)
    world.node("other", cpu=1, labels={"pool": "other"})
    world.pod("first", selector={"pool": "other"})
    world.pod("web", node="n1", ports=web)
    world.settle()
    asks = ({"cpu": 3, "ports": web}, {"cpu": 2}, {"cpu": 2})
    uids = [world.pod(f"train-{number}", "train", minimum=3, **of_one) for number, of_one in enumerate(asks)]
    world.settle()
    world.deleted("first")
    for _ in range(20):
        world.pass_s(2)
        world.settle()
    assert world.state.reservations
    assert world.where(*uids) == ["", "", ""]
    world.pod("beside", node="n1")
    world.deleted("web")
    for _ in range(20):
        world.pass_s(2)
        world.settle()
    assert world.where(*uids) == ["n1", "n0", "n0"]


def starving(after: int = 1) -> tuple[Busy, str]:
    """A gang for which room is reserved, and a node where that is."""
    busy = Busy(policy(after))
    while not busy.world.state.reservations:
        busy.end_one()
    return busy, next(iter(busy.kept))


@pytest.mark.parametrize("why", ["it offers less", "somebody came who stays"])
def test_room_that_can_never_be_there_is_kept_no_more(why: str) -> None:
    """As it was: for all of its ten minutes, and the gang may not ask again meanwhile."""
    busy, node = starving()
    world = busy.world
    if why == "it offers less":
        world.node(node, cpu=busy.kept[node] - 1)
    else:
        world.pod("daemon", node=node, candidate=False, cpu=CPU)
    assert [event.reason for event in of_type(world.judge(), ev.ReservationEnded)] == ["Changed"]


def test_nor_where_somebody_who_stays_is_on_his_way() -> None:
    """A DaemonSet's pod: from its permit on its room is taken for ever, however long its binding takes."""
    busy, node = starving()
    world = busy.world
    named = SelectorRequirement(key="metadata.name", operator="In", values=(node,))
    affinity = (SelectorTerm(match_expressions=(), match_fields=(named,)),)
    world.pod("daemon", cpu=CPU, affinity=affinity, priority=1_000)
    for uid in [uid for uid in world.bound() if world.where(uid) == [node]]:
        world.deleted(uid)
    world.plan()
    assert [event.group for event in of_type(world.judge(), ev.GangPermitted)] == ["pod/default/daemon"]
    assert [event.reason for event in of_type(world.judge(), ev.ReservationEnded)] == ["Changed"]


def test_nor_where_it_is_of_one_class_alone() -> None:
    world = World(policy())
    for name in ("n0", "n1"):
        world.node(name, cpu=4)
        world.pod(f"runs-{name}", node=name, cpu=4)
    for i, cpu in enumerate((2, 3)):
        world.pod(f"train-{i}", "train", minimum=2, cpu=cpu)
    world.plan()
    room = tuple(ClassRoom(world.scheduling_class(cpu=cpu), {node: 1}) for cpu, node in ((2, "n0"), (3, "n1")))
    world.append("planner.a", [ev.RoomRequested(group=GANG, room=room)], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    world.node("n1", cpu=2)
    assert [event.reason for event in of_type(world.judge(), ev.ReservationEnded)] == ["Changed"]


def test_what_shrank_while_room_on_it_was_being_reserved_is_noticed() -> None:
    """Seed 460363: the fact came between what the binder had read and what it said."""
    busy = Busy(policy(after=1))
    world = busy.world
    while not world.state.room_requests:
        for oldest in [uid for uid in world.bound() if uid.startswith("small")][:1]:
            world.finished(oldest)
            world.deleted(oldest)
        world.pass_s(2)
        world.plan()
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    (kept,) = of_type(decided, ev.RoomReserved)
    node = next(iter(kept.room[0].nodes))
    world.node(node, cpu=kept.room[0].nodes[node] - 1)
    world.append("binder", decided, cause="decide", basis=basis)
    assert list(world.state.reservations) == [GANG]
    assert [event.reason for event in of_type(world.judge(), ev.ReservationEnded)] == ["Changed"]


def test_a_node_that_changes_otherwise_keeps_its_room() -> None:
    busy, node = starving()
    busy.world.node(node, cpu=CPU, labels={"of": "another-colour"})
    assert not of_type(busy.world.judge(), ev.ReservationEnded)


@pytest.mark.parametrize("touched", [False, True])
def test_a_gang_starves_however_often_one_of_its_pods_is_made_anew(touched: bool) -> None:
    """As it was: its refusals did not count where something about it had changed since the one before."""
    busy = Busy(policy(after=3))
    world = busy.world
    for turn in range(60):
        if all(world.where(*MEMBERS)):
            return
        busy.end_one()
        if touched:  # a spare one
            if turn:
                world.deleted(f"train-{7 + turn}")
            world.pod(f"train-{8 + turn}", "train", minimum=8)
            world.settle()
    raise AssertionError(world.where(*MEMBERS))


def test_pods_beyond_the_minimum_leave_reserved_room_alone_though_a_member_has_failed() -> None:
    """As it was: whoever replaced a member took all of its gang along."""
    world = World(policy(after=1))
    world.node("n0", cpu=2)
    world.gang("elastic", 2, 2)
    world.settle()
    world.node("n1", cpu=6)
    for number in range(6):
        world.pod(f"small-{number}")
    world.settle()
    world.gang("train", 2, 2, cpu=3)  # it needs all of n1
    world.settle()
    world.finished("small-0")
    world.deleted("small-0")
    world.pass_s(2)
    world.settle()
    assert list(world.state.reservations) == [GANG]
    more = [world.pod(f"elastic-{number}", "elastic", minimum=2) for number in range(2, 8)]
    for number in range(1, 5):
        world.finished(f"small-{number}")
        world.deleted(f"small-{number}")
        world.pass_s(12)
        world.settle()
    assert not any(world.where(*more))
    world.deleted("elastic-0")
    for _ in range(2):
        world.settle()
        world.pass_s(12)
    assert sorted(world.where(*more)) == ["", "", "", "", "", "n0"]

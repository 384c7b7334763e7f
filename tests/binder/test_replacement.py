"""The room of failed members (design, section 4): held for a replacement, for a bounded time."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import HostPort
from events.policy import DEFAULT_POLICY
from services.state.nominations import replacement_key
from services.state.records import NOMINATED
from tests.world import World, of_type

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def running(replacement: str = "keep", pods: int = 3, minimum: int = 3, **asks) -> tuple[World, list[str]]:
    """A gang that fills its nodes, one pod on each."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=replacement, replacement_hold_ms=30_000)
    world = World(policy)
    for i in range(pods):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", pods, minimum, **asks)
    world.settle()
    assert sorted(world.where(*uids)) == [f"n{i}" for i in range(pods)]
    return world, uids


def fail(world: World, uid: str, how: str) -> None:
    match how:
        case "OutOfcpu":
            world.finished(uid, succeeded=False, reason="OutOfcpu")
        case "deleted":
            world.deleted(uid)
        case "terminating, deleted":
            world.terminating(uid)
            assert world.judge() == []
            world.deleted(uid)


FAILURES = ["OutOfcpu", "deleted", "terminating, deleted"]


@pytest.mark.parametrize("how", FAILURES)
def test_a_failed_members_room_is_nominated(how: str) -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], how)
    expected = ev.RoomNominated(gang="default/train", pod=uids[1], node=node, waiting_ms=30_000)
    assert world.judge() == [expected]
    claim = world.state.claims[replacement_key(uids[1])]
    assert (claim.stage, claim.node) == (NOMINATED, node)
    assert world.judge() == []


@pytest.mark.parametrize("how", FAILURES)
def test_a_stranger_cannot_take_it_and_the_replacement_can(how: str) -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], how)
    world.judge()
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger") == [""]
    world.pod("train-new", "train", minimum=3)
    world.plan()
    ended, permit = world.judge()
    assert ended == ev.NominationEnded(gang="default/train", pod=uids[1], reason="Taken")
    assert isinstance(permit, ev.GangPermitted)
    world.settle()
    assert world.where("train-new", "stranger") == [node, ""]
    assert not world.state.nominations


def test_the_binder_keeps_strangers_out_whatever_planners_propose() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.pod("stranger")
    basis = world.state.sequence
    fail(world, uids[1], "OutOfcpu")
    world.propose("pod/default/stranger", {"stranger": node}, basis=basis)
    verdicts = world.judge()
    assert [type(event) for event in verdicts] == [ev.RoomNominated, ev.ProposalRefused]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_room_that_is_taken_already_is_not_kept() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.pod("stranger", node=node, candidate=False)
    fail(world, uids[1], "deleted")
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[1], reason="GangGone")]
    assert not world.state.lost


def test_a_node_that_is_gone_has_no_room_to_keep() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.facts(ev.NodeDeleted(name=node, uid=f"uid-{node}"))
    fail(world, uids[1], "deleted")
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["GangGone"]


def test_a_nomination_on_a_node_that_goes_meanwhile_is_inert() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "deleted")
    from services.binder.core import decide

    basis, decided = world.state.sequence, list(decide(world.state))
    world.facts(ev.NodeDeleted(name=node, uid=f"uid-{node}"))
    world.append("binder", decided, cause="decide", basis=basis)
    assert world.state.ignored == {"RoomNominated": 1}
    assert not world.state.claims.get(uids[1])


def test_a_gang_that_still_has_its_minimum_loses_nothing_that_is_kept() -> None:
    world, uids = running(pods=3, minimum=2)
    fail(world, uids[0], "deleted")
    assert world.judge() == []
    fail(world, uids[1], "deleted")
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[1]]


def test_succeeded_members_count_and_lose_nothing() -> None:
    world, uids = running()
    for uid in uids[:2]:
        world.finished(uid)
        assert world.judge() == []
    fail(world, uids[2], "OutOfcpu")
    assert world.judge() == []


def test_a_gang_whose_last_member_fails_keeps_nothing() -> None:
    world, uids = running()
    for uid in uids:
        world.deleted(uid)
    assert {event.reason for event in of_type(world.judge(), ev.NominationEnded)} == {"GangGone"}
    assert of_type(world.judge(), ev.RoomNominated) == []
    assert not world.state.claims
    assert not world.state.lost


def test_a_gang_that_goes_one_by_one_keeps_nothing_in_the_end() -> None:
    world, uids = running()
    for uid in uids:
        world.terminating(uid)
    for uid in uids:
        world.deleted(uid)
        world.judge()
    assert not world.state.claims
    assert not world.state.nominations


def test_a_gang_that_is_deleted_while_its_room_is_kept_gives_it_back() -> None:
    world, uids = running()
    fail(world, uids[0], "OutOfcpu")
    world.judge()
    for uid in uids:
        world.deleted(uid)
    world.judge()
    world.judge()
    assert not world.state.claims
    assert not world.state.nominations


def test_a_second_failure_is_kept_as_well() -> None:
    world, uids = running()
    for uid in uids[:2]:
        fail(world, uid, "OutOfcpu")
        world.judge()
    assert sorted(world.state.nominations) == uids[:2]
    news = [world.pod(f"train-new-{i}", "train", minimum=3) for i in range(2)]
    world.settle()
    assert sorted(world.where(*news, uids[2])) == ["n0", "n1", "n2"]
    assert not world.state.nominations


def test_when_the_time_is_over_keep_leaves_the_rest_as_it_is() -> None:
    """Seed 002, After Gang: if some pods have been pulled up, then the subsequent Gang behavior is meaningless."""
    world, uids = running("keep")
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pod("stranger")
    world.plan()
    world.pass_s(29)
    assert world.judge() == []
    world.pass_s(2)
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[1], reason="Expired")]
    world.settle()
    assert world.where("stranger") == [node]
    assert len(world.bound()) == 3


def test_when_the_time_is_over_evict_evicts_the_rest() -> None:
    world, uids = running("evict")
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pass_s(31)
    ended, *evictions = world.judge()
    assert isinstance(ended, ev.NominationEnded)
    assert [(event.uid, event.resource_version) for event in of_type(evictions, ev.EvictionIntended)] == [
        (uid, world.state.pods[uid].resource_version) for uid in (uids[0], uids[2])
    ]
    assert sorted(world.state.evictions) == [uids[0], uids[2]]
    assert world.judge() == []
    done = [ev.PodEvicted(uid=uid, namespace="default", name=uid) for uid in (uids[0], uids[2])]
    world.append("binder", done, cause="outcome")
    assert not world.state.evictions


def proposed_in_time(world: World, uids: list[str]) -> None:
    """A member fails; before its room's time is over its replacement is proposed, and judged behind the tick."""
    fail(world, uids[1], "deleted")
    world.judge()
    world.pass_s(29)
    world.pod("train-new", "train", minimum=3)
    while world.plan():
        pass
    world.pass_s(2)
    assert world.state.nominations[uids[1]].due


def test_a_gang_whose_replacement_is_permitted_is_not_evicted_by_a_late_tick() -> None:
    """Proposals are judged before timeouts (design, section 3)."""
    world, uids = running("evict")
    proposed_in_time(world, uids)
    assert [type(event) for event in world.judge()] == [ev.NominationEnded, ev.GangPermitted]
    world.settle()
    assert world.bound() == sorted(["train-new", uids[0], uids[2]])
    assert not world.state.evictions


def test_nor_where_its_proposal_is_judged_by_a_later_decision() -> None:
    """`Policy.cycle_pods`."""
    world, uids = running("evict")
    assert world.state.policy is not None
    policy = msgspec.structs.replace(world.state.policy, cycle_pods=1)
    world.append("admin", [ev.PolicyChanged(policy=policy)], cause="admin")
    world.pod("first", priority=1)
    world.plan()
    world.node("n9", cpu=1)
    proposed_in_time(world, uids)
    assert [one.group for one in world.state.proposals.values()] == ["pod/default/first", "default/train"]
    world.settle()
    assert world.bound() == sorted(["first", "train-new", uids[0], uids[2]])
    assert not world.state.evictions


def test_two_expired_nominations_evict_each_pod_once() -> None:
    world, uids = running("evict")
    for uid in uids[:2]:
        fail(world, uid, "OutOfcpu")
    world.judge()
    world.pass_s(31)
    assert [event.uid for event in of_type(world.judge(), ev.EvictionIntended)] == [uids[2]]


def rack(gangs: int, cycle_pods: int) -> tuple[World, list[str]]:
    """Gangs of three that run under the policy *evict*, each of which loses a pod in the same commit; those pods."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=cycle_pods)
    world = World(policy)
    for i in range(gangs):
        world.node(f"n{i}", cpu=3)
        world.gang(f"train{i}", 3, 3)
    world.settle()
    lost = [f"train{i}-0" for i in range(gangs)]
    world.facts(*(ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in lost))
    return world, lost


def test_one_decision_keeps_no_more_room_than_a_cycle_has_pods() -> None:
    world, lost = rack(gangs=5, cycle_pods=2)
    said = [world.judge() for _ in range(4)]
    assert [len(decided) for decided in said] == [2, 2, 1, 0]
    assert [event.pod for decided in said for event in of_type(decided, ev.RoomNominated)] == lost


def test_one_decision_evicts_no_more_gangs_than_it_takes_for_a_cycles_pods() -> None:
    """A commit is one message: a rack whose gangs are all evicted at the same tick would be too large for it."""
    world, lost = rack(gangs=5, cycle_pods=6)
    world.judge()
    world.pass_s(61)
    said = [world.judge() for _ in range(4)]
    assert [len(of_type(decided, ev.NominationEnded)) for decided in said] == [2, 2, 1, 0]
    assert sorted(event.uid for decided in said for event in of_type(decided, ev.EvictionIntended)) == sorted(
        uid for uid in world.state.pods if uid not in lost
    )


def test_two_nominations_of_a_gang_end_together_however_full_the_decision_is() -> None:
    """Whom the first evicts the second does not evict again."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=2)
    world = World(policy)
    world.node("n", cpu=4)
    uids = world.gang("train", 4, 4)
    world.settle()
    world.facts(*(ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in uids[:2]))
    world.judge()
    world.pass_s(61)
    decided = world.judge()
    assert [event.pod for event in of_type(decided, ev.NominationEnded)] == uids[:2]
    assert [event.uid for event in of_type(decided, ev.EvictionIntended)] == uids[2:]
    assert world.judge() == []


def test_the_room_includes_host_ports() -> None:
    world, uids = running(ports=WEB)
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pod("train-new", "train", minimum=3, ports=WEB)
    world.settle()
    assert world.where("train-new") == [node]


def test_a_replacement_is_not_sent_where_the_node_has_shrunk() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.node(node, cpu=0)
    world.pod("train-new", "train", minimum=3)
    refused = of_type(world.plan(), ev.GroupsRefused)
    assert [event.reason for event in refused] == ["InsufficientRoom"]
    world.node("n9", cpu=1)
    world.pass_s(1.5)
    world.settle()
    assert world.where("train-new") == ["n9"]


def test_a_replacement_of_another_class_does_not_spend_the_room() -> None:
    world, uids = running()
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.node("n9", cpu=4)
    world.pod("train-big", "train", minimum=3, cpu=2)
    world.plan()
    world.judge()
    world.settle()
    assert world.where("train-big") == ["n9"]
    assert not world.state.nominations


def test_a_member_that_goes_between_permit_and_binding_is_lost_too() -> None:
    """From its permit on a pod counts: the others will be bound."""
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    node = world.state.claims[uids[0]].node
    world.deleted(uids[0])
    assert [(event.pod, event.node) for event in of_type(world.judge(), ev.RoomNominated)] == [(uids[0], node)]
    world.bind()
    world.pod("stranger")
    world.settle()
    world.pod("train-new", "train", minimum=2)
    world.settle()
    assert world.where("stranger", "train-new") == ["", node]


def test_a_waiting_members_room_is_nobodys() -> None:
    """Before its permit a pod is not running: its gang is released, nothing is kept."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.propose("default/train", dict.fromkeys(uids[:2], "n0"))
    world.judge()
    world.deleted(uids[0])
    assert of_type(world.judge(), ev.RoomNominated) == []
    assert not world.state.lost


def refused_by_admission(world: World, uid: str) -> str:
    """The binding of an open intent is refused for good; the node that it meant."""
    node = world.state.claims[uid].node
    no = ev.BindingFailed(
        uid=uid,
        namespace="default",
        name=uid,
        node=node,
        reason="Forbidden",
        message="a webhook's no",
        assigned_node="",
    )
    world.append("binder", [no], cause="outcome")
    return node


def half_refused(replacement: str) -> tuple[World, list[str], str]:
    """A gang of two that fills its nodes: one is bound, the other's binding refused by admission."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=replacement, replacement_hold_ms=30_000)
    world = World(policy)
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    node = refused_by_admission(world, uids[0])
    assert [(event.pod, event.node) for event in of_type(world.judge(), ev.RoomNominated)] == [(uids[0], node)]
    world.bind()
    return world, uids, node


def test_the_room_of_a_binding_refused_by_admission_is_kept_while_its_pod_backs_off() -> None:
    world, uids, node = half_refused("keep")
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger", uids[0]) == ["", ""]
    world.pass_s(2)
    world.settle()
    assert world.where("stranger", uids[0]) == ["", node]
    assert not world.state.nominations


def test_a_binding_that_is_refused_again_keeps_no_room_beyond_the_first_hold() -> None:
    world, uids, _ = half_refused("evict")
    for _ in range(60):
        world.pass_s(1)
        world.plan()
        if of_type(world.judge(), ev.EvictionIntended):
            break
        if uids[0] in world.state.permitted:
            refused_by_admission(world, uids[0])
            world.judge()
    assert list(world.state.evictions) == [uids[1]]
    assert not world.state.nominations


def refused_once_then_bound() -> tuple[World, list[str]]:
    """The refused pod of `half_refused` is bound two seconds later, on the room that was kept for it."""
    world, uids, node = half_refused("evict")
    world.pass_s(2)
    world.settle()
    assert world.where(uids[0]) == [node]
    return world, uids


def holds_for_s(world: World, most: int) -> int:
    """How many seconds pass until the binder evicts; `most` if it doesn't."""
    for seconds in range(most):
        if of_type(world.judge(), ev.EvictionIntended):
            return seconds
        world.pass_s(1)
    return most


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("hold_ms", [30_000, 20_000])
def test_a_pod_that_was_bound_in_between_has_the_whole_time_when_it_fails(how: str, hold_ms: int) -> None:
    """Its first nomination has ended, and that one's deadline is yet to come: it ends no later one early. Nor late, if
    the policy's time became shorter."""
    world, uids = refused_once_then_bound()
    assert world.state.policy is not None
    policy = msgspec.structs.replace(world.state.policy, replacement_hold_ms=hold_ms)
    world.append("admin", [ev.PolicyChanged(policy=policy)], cause="admin")
    world.pass_s(5)
    fail(world, uids[0], how)
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[0]]
    assert holds_for_s(world, 60) in (hold_ms // 1_000, hold_ms // 1_000 + 1)


def test_deadlines_of_one_pod_that_fall_due_together_end_its_nomination() -> None:
    world, uids = refused_once_then_bound()
    world.pass_s(5)
    fail(world, uids[0], "deleted")
    world.judge()
    world.pass_s(1)
    world.now_ns += 29 * 1_000_000_000
    world.pass_s(0.1)
    world.now_ns += 29 * 1_000_000_000
    world.pass_s(0.1)
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["Expired"]


# -------------------------------------------------------------------------------------------- Volcano: minimums of tasks


def running_job() -> World:
    """A job of one ps and three workers on nodes of their own; its minimum is 3, its ps' 1, its workers' 2."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=30_000))
    for i in range(4):
        world.node(f"n{i}", cpu=1)
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"worker": 2, "ps": 1})
    for name in ("ps-0", "worker-0", "worker-1", "worker-2"):
        world.volcano(name, "job", name.partition("-")[0])
    world.settle()
    assert len(world.bound()) == 4
    return world


@pytest.mark.parametrize("how", FAILURES)
def test_the_room_of_a_task_below_its_minimum_is_kept_although_the_gang_has_its_own(how: str) -> None:
    world = running_job()
    (node,) = world.where("ps-0")
    fail(world, "ps-0", how)
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger") == [""]
    world.volcano("ps-1", "job", "ps")
    world.settle()
    assert world.where("ps-1", "stranger") == [node, ""]
    assert not world.state.nominations


def test_a_member_that_neither_its_gang_nor_its_task_needs_leaves_its_room_to_others() -> None:
    world = running_job()
    (node,) = world.where("worker-0")
    world.deleted("worker-0")
    world.pod("stranger")
    world.settle()
    assert world.where("stranger") == [node]


def test_only_a_pod_of_the_task_takes_the_place_that_its_task_lacks() -> None:
    """A worker is of the same class, waits longer, and its task is named first."""
    world = running_job()
    (node,) = world.where("ps-0")
    world.volcano("worker-3", "job", "worker")
    world.settle()
    world.deleted("ps-0")
    world.pass_s(2)
    world.settle()
    assert world.where("worker-3") == [""]
    world.volcano("ps-1", "job", "ps")
    world.settle()
    assert world.where("ps-1", "worker-3") == [node, ""]


def test_a_proposal_of_another_task_does_not_spend_the_room() -> None:
    """The binder, whatever planners propose."""
    world = running_job()
    (node,) = world.where("ps-0")
    world.deleted("ps-0")
    world.judge()
    world.volcano("worker-3", "job", "worker")
    world.propose("default/job@batch", {}, {"worker-3": node})
    [refused] = of_type(world.judge(), ev.ProposalRefused)
    assert refused.reason == "NoRoom"
    assert list(world.state.nominations) == ["ps-0"]


def test_when_its_time_is_over_the_room_of_a_task_is_for_everybody() -> None:
    world = running_job()
    world.deleted("ps-0")
    world.pod("stranger")
    world.settle()
    world.pass_s(40)
    world.settle()
    assert world.where("stranger") != [""]
    assert not world.state.nominations

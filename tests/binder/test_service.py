"""The services together over the simulated cluster: what they do to it, and what its users read.

Ingest, planner and binder run as tasks over one log in memory; the cluster answers over HTTP, with planned faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import events as ev
from events.dialects import TIMEOUT_ANNOTATION
from events.envelope import Header, decode, encode_events
from events.memory import MemoryLog
from events.objects import NodeAssignment
from events.policy import DEFAULT_POLICY
from events.subjects import subject
from services.binder import service as binder
from services.console.verify import verify
from services.ingest import service as ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.planner import service as planner
from services.simulator.cluster import SimulatedCluster
from services.state.fold import State
from services.state.partitions import partition_of
from services.state.validate import validate_state
from services.writer import Writer
from tests.manifests import node, pod, pod_group
from tests.waiting import until

FAST = binder.Rates(conditions_per_s=1_000.0, events_per_s=1_000.0, groups_per_s=1_000.0, marks_per_s=1_000.0)


class Muster:
    """The services over `cluster`, and what their log says."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.log = MemoryLog("test")
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, *roles: str) -> None:
        for role in roles or ("ingest", "planner", "binder"):
            self._tasks[role] = asyncio.create_task(self._run(role), name=role)

    async def _run(self, role: str) -> None:
        if role == "planner":
            await planner.run(self.log, shard="0", holder="test")
            return
        async with Client(direct(self.cluster.url)) as client:
            if role == "ingest":
                await ingest.run(self.log, client, holder="test")
            else:
                await binder.run(self.log, client, holder="test", rates=FAST)

    async def kill(self, role: str) -> None:
        task = self._tasks.pop(role)
        task.cancel()
        await asyncio.wait({task})

    async def stop(self) -> None:
        for role in list(self._tasks):
            await self.kill(role)

    def events(self, kind: type) -> list[Any]:
        return [event for stored in self.log.commits for event in decode(stored).events if isinstance(event, kind)]

    def state(self) -> State:
        state = State()
        for stored in self.log.commits:
            state.apply_stored(stored)
        return state

    async def check(self) -> None:
        """The state is sound and every decision is reproduced."""
        validate_state(self.state())
        report = await verify(self.log)
        assert report.decided
        assert report.reproduced == report.decided

    def node_of(self, name: str) -> str:
        return str(self.cluster.get("Pod", name)["spec"].get("nodeName", ""))

    def scheduled(self, name: str) -> dict[str, Any]:
        """The pod's PodScheduled condition."""
        conditions = self.cluster.get("Pod", name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    def told(self, reason: str) -> list[dict[str, Any]]:
        """The Kubernetes events of this reason."""
        return [event for event in self.cluster.list("Event", None) if event["reason"] == reason]


@pytest.fixture
async def muster() -> AsyncIterator[Muster]:
    async with running() as services:
        yield services


@asynccontextmanager
async def running(nodes: int = 2) -> AsyncIterator[Muster]:
    async with SimulatedCluster() as cluster:
        for i in range(nodes):
            cluster.create(node(f"n{i}"))
        services = Muster(cluster)
        try:
            yield services
        finally:
            await services.stop()


def create_gang(muster: Muster, name: str, pods: int, minimum: int, cpu: str = "1") -> list[str]:
    muster.cluster.create(pod_group(name, minimum))
    names = [f"{name}-{i}" for i in range(pods)]
    for one in names:
        muster.cluster.create(pod(one, name, cpu))
    return names


# ------------------------------------------------------------------------------------------------- what users read


async def test_a_gang_is_bound_told_of_and_its_pod_group_runs(muster: Muster) -> None:
    names = create_gang(muster, "train", 4, 4)
    muster.start()
    await until(lambda: all(muster.node_of(name) for name in names), "the gang to be bound")
    await until(lambda: len(muster.told("Scheduled")) == 4, "an event for each pod")
    await until(lambda: muster.cluster.get("PodGroup", "train").get("status", {}).get("phase") == "Running")
    assert muster.cluster.get("PodGroup", "train")["status"]["running"] == 4
    notes = sorted(event["message"] for event in muster.told("Scheduled"))
    assert notes[0] == f"Successfully assigned default/train-0 to {muster.node_of('train-0')}"
    await muster.check()


async def test_pods_refused_for_room_are_unschedulable_in_the_kube_schedulers_words(muster: Muster) -> None:
    names = create_gang(muster, "wide", 3, 3, cpu="3")
    muster.start()
    await until(lambda: all(muster.scheduled(name) for name in names), "a condition on each pod")
    for name in names:
        said = muster.scheduled(name)
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        assert said["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    await until(lambda: muster.told("FailedScheduling"), "an event on one of them")
    assert [event["involvedObject"]["kind"] for event in muster.told("FailedScheduling")] == ["Pod"]
    await until(lambda: muster.events(ev.ConditionsReported), "the log to know the pods' new versions")
    await muster.check()


async def test_pods_that_wait_for_members_are_not_unschedulable(muster: Muster) -> None:
    muster.cluster.create(pod_group("late", 3))
    muster.cluster.create(pod("late-0", "late"))
    muster.start()
    await until(lambda: muster.scheduled("late-0"), "a condition")
    assert muster.scheduled("late-0")["reason"] == "WaitingForMembers"
    muster.cluster.create(pod("late-1", "late"))
    muster.cluster.create(pod("late-2", "late"))
    await until(lambda: all(muster.node_of(f"late-{i}") for i in range(3)), "the gang to be bound")


async def test_a_bad_declaration_costs_its_own_pod_and_its_owner_is_told(muster: Muster) -> None:
    bad = {"pod-group/name": "nginx", "pod-group/min-available": "abc"}
    muster.cluster.create(pod("bad", labels=bad))
    muster.cluster.create(pod("good"))
    muster.start()
    await until(lambda: muster.node_of("good"), "the good pod to be bound")
    await until(lambda: muster.told("DeclarationRejected"), "an event on the bad one")
    event = muster.told("DeclarationRejected")[0]
    assert event["involvedObject"]["name"] == "bad"
    assert "min-available" in event["message"]
    assert "'abc'" in event["message"]
    await until(lambda: muster.scheduled("bad"), "a condition, which outlives the event")
    said = muster.scheduled("bad")
    assert (said["status"], said["reason"]) == ("False", "DeclarationRejected")
    assert said["message"] == event["message"]
    assert not muster.node_of("bad")


async def test_a_pod_that_was_unschedulable_and_cannot_be_read_any_more_is_told_so_and_told_anew_when_it_can(
    muster: Muster,
) -> None:
    """An autoscaler would go on adding nodes for it, and when it can be read again, would not."""
    muster.cluster.create(pod("edited", cpu="100"))
    muster.start()
    await until(lambda: muster.scheduled("edited").get("reason") == "Unschedulable", "the pod to be refused")
    for minimum, reason in (("abc", "DeclarationRejected"), ("1", "Unschedulable")):
        labels = {"pod-group/name": "nginx", "pod-group/min-available": minimum}
        muster.cluster.patch("Pod", "edited", {"metadata": {"labels": labels}})
        await until(lambda reason=reason: muster.scheduled("edited")["reason"] == reason, f"the pod to be {reason}")
    await muster.check()


async def test_a_pod_that_is_moved_to_another_gang_is_told_of_that_one(muster: Muster) -> None:
    """It waits for the same as before, and what it says has the gang's name."""
    muster.cluster.create(pod("moved", "first"))
    muster.start()
    await until(lambda: muster.scheduled("moved").get("message") == "gang default/first waits for its PodGroup")
    muster.cluster.patch("Pod", "moved", {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "second"}}})
    await until(lambda: muster.scheduled("moved")["message"] == "gang default/second waits for its PodGroup")
    await muster.check()


async def test_a_rejected_pod_that_runs_is_not_told_that_it_waits(muster: Muster) -> None:
    bad = {"pod-group/name": "nginx", "pod-group/min-available": "abc"}
    bound = pod("bound", labels=bad)
    bound["spec"]["nodeName"] = "n0"
    muster.cluster.create(bound)
    muster.cluster.create(pod("bad", labels=bad))
    muster.start()
    await until(lambda: muster.scheduled("bad"), "a condition on the one that waits")
    await until(lambda: len(muster.told("DeclarationRejected")) == 2, "an event on both")
    assert not muster.scheduled("bound")


# -------------------------------------------------------------------------------------------- intent, effect, outcome


async def test_a_pod_that_changed_since_the_permit_is_bound_with_a_renewed_intent(muster: Muster) -> None:
    """409 on the resourceVersion is a no to the old intent; nothing that matters changed, so there is a new one."""
    muster.cluster.create(pod("annotated"))
    muster.start("ingest")
    await until(lambda: muster.events(ev.PodObserved), "the pod's fact")
    muster.cluster.patch("Pod", "annotated", {"metadata": {"annotations": {"seen": "by somebody"}}})
    muster.start("planner", "binder")
    await until(lambda: muster.node_of("annotated"), "the pod to be bound")
    await until(lambda: muster.events(ev.PodBound), "its outcome")
    assert len(muster.events(ev.BindingRenewed)) == 1
    await muster.check()


@pytest.mark.parametrize("applied", [False, True])
async def test_a_binding_in_doubt_is_repeated_until_the_answer_is_definite(muster: Muster, applied: bool) -> None:
    """The connection breaks before or after the API server did it; in the end the pod is bound, once."""
    muster.cluster.create(pod("doubtful"))
    muster.cluster.faults.plan(verb="bind", hang_up=True, applied=applied, times=1)
    muster.start()
    await until(lambda: muster.events(ev.GangPermitted) and not muster.state().permitted, "the intent to be settled")
    claims = [(claim.stage, claim.node) for claim in muster.state().claims.values()]
    assert claims == [("bound", muster.node_of("doubtful"))]
    assert not muster.events(ev.BindingFailed)
    await muster.check()


async def test_a_binder_that_starts_anew_goes_on_with_the_intents_of_the_log(muster: Muster) -> None:
    names = create_gang(muster, "train", 4, 4)
    muster.cluster.faults.plan(verb="bind", status=503, times=0)
    muster.start()
    await until(lambda: muster.events(ev.GangPermitted), "the permit")
    await muster.kill("binder")
    assert not any(muster.node_of(name) for name in names)
    muster.cluster.faults.lift()
    muster.start("binder")
    await until(lambda: len(muster.events(ev.PodBound)) == 4, "the intents to be settled")
    assert len(muster.events(ev.GangPermitted)) == 1
    await muster.check()


async def test_a_pod_deleted_between_permit_and_bind_gives_its_room_back(muster: Muster) -> None:
    muster.cluster.faults.plan(verb="bind", status=503, times=0)
    muster.cluster.create(pod("gone", cpu="4"))
    muster.cluster.create(pod("other", cpu="4"))
    muster.cluster.create(pod("next", cpu="4"))
    muster.start()
    await until(lambda: len(muster.events(ev.GangPermitted)) == 2, "two permits")
    permitted = [event.group.rpartition("/")[2] for event in muster.events(ev.GangPermitted)]
    muster.cluster.delete("Pod", permitted[0])
    await until(lambda: muster.events(ev.PodDeleted), "the deletion")
    muster.cluster.faults.lift()
    rest = {"gone", "other", "next"} - {permitted[0]}
    await until(lambda: all(muster.node_of(name) for name in rest), "both others to be bound")
    await muster.check()


async def test_a_pod_that_somebody_else_bound_stays_where_it_is(muster: Muster) -> None:
    muster.cluster.faults.plan(verb="bind", status=503, times=0)
    muster.cluster.create(pod("stolen"))
    muster.start()
    await until(lambda: muster.events(ev.GangPermitted), "the permit")
    intended = muster.state().claims[muster.cluster.get("Pod", "stolen")["metadata"]["uid"]].node
    elsewhere = "n1" if intended == "n0" else "n0"
    muster.cluster.bind("stolen", elsewhere)
    muster.cluster.faults.lift()
    await until(lambda: muster.events(ev.PodAssigned), "the fact")
    await until(lambda: not muster.state().permitted, "the intent to be settled")
    claims = [claim.node for claim in muster.state().claims.values()]
    assert claims == [elsewhere]
    await muster.check()


async def test_who_is_taken_for_nobody_asks_again_and_keeps_the_room(muster: Muster) -> None:
    """A 401 says nothing of the pod: a token was exchanged, or who knows tokens is away. As it was, the room of a gang's
    member was given to others, while the rest of its gang was bound."""
    names = create_gang(muster, "train", 4, 4)
    muster.cluster.faults.plan(verb="bind", hang_up=True, name=names[1])
    refusing = muster.cluster.faults.plan(verb="bind", status=401, name=names[1], times=3)
    muster.start()
    await until(lambda: len(muster.events(ev.PodBound)) == 4, "all of the gang to be bound")
    assert refusing.hits == 3
    assert not muster.events(ev.BindingFailed)
    assert len(muster.events(ev.GangPermitted)) == 1
    await muster.check()


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refusal_after_an_attempt_in_doubt_is_no_answer_until_a_write_of_our_own_fenced_that_attempt(
    muster: Muster, status: int
) -> None:
    """Design, rule 5: given up only after this writer's own acknowledged write, so that every older attempt must fail."""
    muster.cluster.create(pod("refused"))
    before = muster.cluster.get("Pod", "refused")["metadata"]["resourceVersion"]
    muster.cluster.faults.plan(verb="bind", hang_up=True, times=1)
    muster.cluster.faults.plan(verb="bind", status=status, times=1)
    muster.start()
    await until(lambda: muster.events(ev.BindingFailed), "the intent to be given up")
    assert muster.cluster.get("Pod", "refused")["metadata"]["resourceVersion"] != before
    said = muster.scheduled("refused")
    assert (said["status"], said["reason"], bool(said["lastTransitionTime"])) == ("False", "BindingFailed", True)
    assert f"at version {before} was refused: " in said["message"]
    await until(lambda: muster.node_of("refused"), "the pod to be bound after its backoff")
    await muster.check()


async def test_a_pod_whose_binding_is_refused_is_told_what_the_server_said(muster: Muster) -> None:
    """It is tried again and again, and may be for ever: by an admission policy, or for want of a permission."""
    muster.cluster.create(pod("refused"))
    muster.cluster.faults.plan(verb="bind", status=403, times=0)
    muster.start()
    await until(lambda: len(muster.events(ev.BindingFailed)) == 2, "the second refusal")
    await until(lambda: muster.told("FailedScheduling"), "an event on the pod")
    await until(lambda: muster.events(ev.ConditionsReported), "its condition")
    muster.cluster.faults.lift()
    await until(lambda: muster.node_of("refused"), "the binding")
    (told,) = muster.told("FailedScheduling")
    assert told["message"] == muster.events(ev.BindingFailed)[0].message
    assert told["message"].startswith("create pods/binding default/refused: 403 ")
    await muster.check()


async def test_a_refusal_is_no_answer_to_an_attempt_of_a_binder_before(muster: Muster) -> None:
    muster.cluster.create(pod("refused"))
    muster.cluster.faults.plan(verb="bind", status=429, times=0)
    muster.start()
    await until(lambda: muster.events(ev.GangPermitted), "the permit")
    await muster.kill("binder")
    before = muster.cluster.get("Pod", "refused")["metadata"]["resourceVersion"]
    muster.cluster.faults.lift()
    muster.cluster.faults.plan(verb="bind", status=422, times=1)
    muster.start("binder")
    await until(lambda: muster.events(ev.BindingFailed), "the intent to be given up")
    assert muster.cluster.get("Pod", "refused")["metadata"]["resourceVersion"] != before
    await muster.check()


async def evicting(muster: Muster, *faults: dict[str, Any]) -> None:
    """A gang of two loses one and nobody replaces it; its policy is to evict the other, which meets these faults."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", replacement_hold_ms=100)
    admin = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="admin")
    muster.log.append_now(subject("test", "admin"), admin, encode_events([ev.PolicyChanged(policy=policy)]), 0)
    names = create_gang(muster, "train", 2, 2)
    muster.start()
    await until(lambda: len(muster.events(ev.PodAssigned)) == 2, "the gang to run")
    for fault in faults:
        muster.cluster.faults.plan(verb="evict", **fault)
    muster.cluster.delete("Pod", names[0])
    await until(lambda: muster.events(ev.EvictionIntended), "the intent")


async def test_a_refused_eviction_is_repeated_until_it_is_not(muster: Muster) -> None:
    """A webhook or a missing right: given up, it left a gang half bound for good, whatever was granted later."""
    await evicting(muster, {"status": 403, "times": 3})
    await until(lambda: muster.events(ev.PodEvicted), "the eviction")
    assert not muster.events(ev.EvictionFailed)
    assert not muster.cluster.exists("Pod", "train-1")
    await muster.check()


@pytest.mark.parametrize("doubt", [{"hang_up": True}, {"status": 500}])
async def test_a_refusal_after_an_eviction_in_doubt_is_no_answer(muster: Muster, doubt: dict[str, Any]) -> None:
    """The attempt in doubt may still land, and nothing could make it fail: the same eviction is tried again."""
    await evicting(muster, doubt, {"status": 403, "times": 2})
    await until(lambda: muster.events(ev.PodEvicted), "the eviction")
    assert not muster.events(ev.EvictionFailed)
    assert not muster.cluster.exists("Pod", "train-1")
    await muster.check()


async def test_a_conflict_about_a_pod_that_is_still_there_is_no_eviction(muster: Muster) -> None:
    """The API server evicts in two writes, and says Conflict where somebody else wrote the pod in between."""
    await evicting(muster, {"status": 409, "times": 2})
    await until(lambda: muster.events(ev.PodEvicted), "the eviction")
    assert not muster.cluster.exists("Pod", "train-1")
    await muster.check()


async def test_a_gang_that_is_whole_again_is_not_evicted_when_its_budget_lets_go(muster: Muster) -> None:
    await evicting(muster, {"status": 429, "times": 0})
    muster.cluster.create(pod("late", "train"))
    await until(lambda: muster.events(ev.EvictionFailed), "the eviction to be called off")
    muster.cluster.faults.lift()
    assert [one.message for one in muster.events(ev.EvictionFailed)] == ["gang default/train has its minimum again"]
    assert muster.node_of("late")
    assert muster.cluster.exists("Pod", "train-1")
    await muster.check()


async def test_an_eviction_that_may_still_land_is_not_called_off(muster: Muster) -> None:
    """The log would say that the pod stays, and then it goes."""
    await evicting(muster, {"hang_up": True}, {"status": 429, "times": 0})
    budget = muster.cluster.faults.planned[-1]
    await until(lambda: budget.hits, "an attempt after the one in doubt")
    muster.cluster.create(pod("late", "train"))
    await until(lambda: len(muster.events(ev.PodBound)) == 3, "the gang to be whole again")
    tried = budget.hits
    await until(lambda: budget.hits > tried, "another attempt")
    muster.cluster.faults.lift()
    await until(lambda: muster.events(ev.PodEvicted), "the eviction")
    assert not muster.events(ev.EvictionFailed)
    await muster.check()


async def test_no_eviction_outlives_its_binder(muster: Muster) -> None:
    def evictions() -> list[str]:
        coroutines = (str(task.get_coro()) for task in asyncio.all_tasks())
        return [name for name in coroutines if "Effects._evict" in name]

    await evicting(muster, {"status": 429, "times": 0})
    await until(evictions, "an eviction to be tried")
    await muster.kill("binder")
    assert evictions() == []


async def test_an_eviction_of_a_binder_before_may_still_land(muster: Muster) -> None:
    await evicting(muster, {"status": 429, "times": 0})
    await muster.kill("binder")
    muster.cluster.faults.lift()
    muster.cluster.faults.plan(verb="evict", status=403, times=2)
    muster.start("binder")
    await until(lambda: muster.events(ev.PodEvicted), "the eviction")
    assert not muster.events(ev.EvictionFailed)
    await muster.check()


# ------------------------------------------------------------------------------------------- Koordinator's timeout


def koordinators(name: str, gang: str, minimum: int, waiting_time: str) -> dict[str, Any]:
    """A pod of a Koordinator gang, by annotations."""
    made = pod(name)
    said = {"name": gang, "min-available": str(minimum), "waiting-time": waiting_time}
    made["metadata"]["annotations"] = {f"gang.scheduling.koordinator.sh/{key}": value for key, value in said.items()}
    return made


async def hold_one(muster: Muster, uids: list[str]) -> None:
    """A planner proposes the first of the pods alone, and is gone."""
    hand = Writer(muster.log, "planner.0")
    await hand.append([ev.PlannerTaken(shard="0", holder="by hand")], basis=0, cause="taken")
    await until(lambda: muster.events(ev.PartitionsAssigned) and uids[0] in muster.state().pods)
    state = muster.state()
    hand.epoch = state.epoch
    group = state.pods[uids[0]].group
    assignment = NodeAssignment("n0", (uids[0],))
    placed = ev.GangPlaced(group=group, partition=partition_of(group), required=(assignment,), optional=())
    await hand.append([placed], basis=state.sequence, cause="by hand")


def annotated(muster: Muster, names: list[str]) -> list[str]:
    """The pods that say that their gang timed out."""
    found = {name: muster.cluster.get("Pod", name)["metadata"].get("annotations", {}) for name in names}
    return [name for name in names if found[name].get(TIMEOUT_ANNOTATION) == "true"]


async def test_a_koordinator_gang_that_timed_out_says_so_and_waits_for_its_user(muster: Muster) -> None:
    """The binder that takes over writes what the one before it intended; then the user removes the annotations."""
    names = [f"train-{i}" for i in range(3)]
    uids = [muster.cluster.create(koordinators(name, "train", 3, "300ms"))["metadata"]["uid"] for name in names]
    muster.start("ingest", "binder")
    await hold_one(muster, uids)
    await until(lambda: muster.events(ev.GangTimedOut), "the waiting time to be over")
    await muster.kill("binder")
    muster.start("binder", "planner")
    await until(lambda: annotated(muster, names) == names, "the annotation on all pods")
    await until(lambda: all(muster.scheduled(name).get("reason") == "GangTimedOut" for name in names), "a condition")
    await until(lambda: not muster.state().marks, "the log to have outcomes and facts")
    for name in names:
        assert not any(muster.node_of(one) for one in names)
        muster.cluster.patch("Pod", name, {"metadata": {"annotations": {TIMEOUT_ANNOTATION: None}}})
    await until(lambda: all(muster.node_of(name) for name in names), "the gang to be bound")
    validate_state(muster.state())

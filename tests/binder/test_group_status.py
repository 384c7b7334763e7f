"""What stands on a PodGroup, in each dialect's own phases and fields."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import dialects
from events.objects import Declaration, Membership
from services.binder.group_status import group_status, phase
from services.state.records import Gang
from tests.world import World

COSCHEDULING, SIGS, KOORDINATOR = "coscheduling/v1alpha1", "coscheduling/v0.19", "koordinator/v1alpha1"
VOLCANO, KUBE_BATCH, NATIVE = "volcano/v1beta1", "kube-batch/v1alpha1", "kubernetes/v1alpha2"


class Cluster(World):
    """A world with one gang of a dialect, ``default/train``."""

    def __init__(self, dialect: str, minimum: int = 2) -> None:
        super().__init__()
        self.dialect = dialect
        self.key = dialects.gang_key(dialect, "default", "train")
        self.facts(
            ev.PodGroupObserved(
                namespace="default",
                name="train",
                uid="pg",
                resource_version=self.version(),
                dialect=dialect,
                created_ns=0,
                declaration=Declaration(min_member=minimum, waiting_time_ms=0),
            )
        )

    def member(self, name: str, **asks: int) -> str:
        self.pod(name, **asks)
        gang = Membership(gang=self.key, dialect=self.dialect, declared=None)
        fact = self.state.pods[name].fact
        self.facts(msgspec.structs.replace(fact, gang=gang, resource_version=self.version()))
        return name

    @property
    def gang(self) -> Gang:
        return self.state.gangs[self.key]

    def status(self) -> dict[str, object]:
        return group_status(self.state, self.gang)


def phases(dialect: str) -> list[object]:
    """Of a gang's whole life: declared, one pod, both, placed, one ended, all ended."""
    cluster = Cluster(dialect)
    cluster.node("n0")
    found: list[object] = [cluster.status()["phase"]]
    for name in ("a", "b"):
        cluster.member(name)
        found.append(cluster.status()["phase"])
    cluster.settle()
    found.append(cluster.status()["phase"])
    for name in ("a", "b"):
        cluster.finished(name)
        found.append(cluster.status()["phase"])
    return found


@pytest.mark.parametrize("dialect", [COSCHEDULING, SIGS, KOORDINATOR])
def test_the_phases_of_coscheduling_and_koordinator(dialect: str) -> None:
    assert phases(dialect) == ["Pending", "Pending", "Scheduling", "Running", "Running", "Finished"]


@pytest.mark.parametrize("dialect", [VOLCANO, KUBE_BATCH])
def test_the_phases_of_volcano_and_kube_batch(dialect: str) -> None:
    assert phases(dialect) == ["Inqueue", "Inqueue", "Inqueue", "Running", "Running", "Completed"]


@pytest.mark.parametrize(
    ("dialect", "counts"),
    [
        (COSCHEDULING, {"running": 1, "succeeded": 1, "failed": 1}),
        (SIGS, {"running": 1, "succeeded": 1, "failed": 1, "scheduled": 2}),
        (KOORDINATOR, {"running": 1, "succeeded": 1, "failed": 1, "scheduled": 2}),
        (VOLCANO, {"running": 1, "succeeded": 1, "failed": 1}),
        (KUBE_BATCH, {"running": 1, "succeeded": 1, "failed": 1}),
    ],
)
def test_finished_and_failed_members_are_counted_apart_from_running_ones(dialect: str, counts: dict[str, int]) -> None:
    cluster = Cluster(dialect)
    cluster.node("n0")
    for name in "abc":
        cluster.member(name)
    cluster.settle()
    cluster.finished("a")
    cluster.finished("b", succeeded=False)
    status = cluster.status()
    assert {name: count for name, count in status.items() if name != "phase"} == counts


@pytest.mark.parametrize(
    ("dialect", "word"), [(COSCHEDULING, "Failed"), (KOORDINATOR, "Failed"), (VOLCANO, "Completed")]
)
def test_a_gang_that_failed(dialect: str, word: str) -> None:
    cluster = Cluster(dialect)
    cluster.node("n0")
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    cluster.finished("a", succeeded=False)
    cluster.finished("b")
    assert cluster.status()["phase"] == word


def test_a_gang_that_lost_a_member_before_its_minimum_ran_did_not_fail() -> None:
    cluster = Cluster(COSCHEDULING)
    cluster.pod("a", node="n0")
    cluster.member("a")
    cluster.finished("a", succeeded=False)
    assert cluster.status()["phase"] == "Pending"


@pytest.mark.parametrize("dialect", [COSCHEDULING, KOORDINATOR, VOLCANO, KUBE_BATCH])
def test_some_run_and_there_is_no_room_for_the_rest(dialect: str) -> None:
    cluster = Cluster(dialect, minimum=2)
    cluster.node("n0", cpu=2)
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    cluster.deleted("b")
    cluster.member("c", cpu=7)
    cluster.pass_s(120)
    cluster.settle()
    assert cluster.state.groups[cluster.key].cohort, "refused for room"
    assert cluster.status()["phase"] == "Unknown"


def test_volcanos_gang_that_can_never_be_scheduled_stays_pending() -> None:
    cluster = Cluster(VOLCANO, minimum=1)
    policy = cluster.state.policy
    assert policy is not None
    cluster.append("admin", [ev.PolicyChanged(policy=msgspec.structs.replace(policy, gang_pods=1))], cause="admin")
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    assert cluster.status()["phase"] == "Pending"


def test_volcanos_gang_for_which_there_is_no_room_is_inqueue_as_its_controller_expects() -> None:
    cluster = Cluster(VOLCANO)
    cluster.node("n0", cpu=1)
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    assert cluster.state.groups[cluster.key].cohort, "refused for room"
    assert cluster.status()["phase"] == "Inqueue"


def test_volcanos_gang_runs_while_pods_beyond_its_minimum_are_to_come() -> None:
    cluster = Cluster(VOLCANO, minimum=1)
    cluster.node("n0")
    cluster.member("a")
    cluster.member("b", cpu=9)
    cluster.settle()
    cluster.finished("a")
    assert cluster.status()["phase"] == "Running"


def test_volcanos_gang_without_a_minimum_is_inqueue_until_a_pod_runs() -> None:
    cluster = Cluster(VOLCANO, minimum=0)
    assert cluster.status()["phase"] == "Inqueue"


def test_kubernetes_condition() -> None:
    cluster = Cluster(NATIVE)
    assert cluster.status() == {}
    cluster.member("a")
    cluster.plan()
    assert cluster.status() == {}, "it waits for its pods"
    cluster.member("b")
    cluster.plan()
    [said] = cluster.status()["conditions"]  # type: ignore[misc]
    assert (said["type"], said["status"], said["reason"]) == ("PodGroupScheduled", "False", "Unschedulable")
    assert "0 of the 2 pods that must start together have a node" in said["message"]
    cluster.node("n0")
    cluster.pass_s(60)
    cluster.settle()
    scheduled = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    assert cluster.status() == {"conditions": [scheduled]}
    cluster.finished("a", succeeded=False)
    assert cluster.status() == {"conditions": [scheduled]}, "once it is true it stays so"
    assert phase(cluster.state, cluster.gang)


def test_kubernetes_condition_of_a_gang_that_was_set_aside() -> None:
    """A bug of ours is no lack of room: autoscalers must not act on it."""
    cluster = Cluster(NATIVE)
    cluster.node("n0", cpu=1)
    for name in "ab":
        cluster.member(name)
    cluster.propose(cluster.key, {"a": "n0", "b": "n0"})
    cluster.judge()
    [said] = cluster.status()["conditions"]  # type: ignore[misc]
    assert said.pop("message")
    assert said == {"type": "PodGroupScheduled", "status": "False", "reason": "SchedulerError"}


def test_a_gang_that_pods_declare_themselves_has_a_phase_to_show() -> None:
    world = World()
    world.gang("train", 2, 2)
    assert phase(world.state, world.state.gangs["default/train"]) == "Scheduling"

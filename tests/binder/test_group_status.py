"""What stands on a PodGroup, in each dialect's own phases and fields."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import dialects
from events.objects import Declaration, Membership
from services.binder.group_status import group_status, phase, where_ended
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


def test_a_gang_whose_minimum_succeeded_has_finished_whoever_failed_on_the_way() -> None:
    """A Job makes a failed pod anew. Coscheduling's and Koordinator's controllers look at who succeeded last."""
    cluster = Cluster(COSCHEDULING)
    cluster.node("n0")
    for name in "abc":
        cluster.member(name)
    cluster.settle()
    cluster.finished("a", succeeded=False)
    cluster.finished("b")
    assert cluster.status()["phase"] == "Failed"
    cluster.finished("c")
    assert cluster.status()["phase"] == "Finished"


@pytest.mark.parametrize(
    ("dialect", "running", "after"),
    [(COSCHEDULING, 2, "Pending"), (KOORDINATOR, 2, "Pending"), (VOLCANO, 1, "Inqueue"), (KUBE_BATCH, 1, "Inqueue")],
)
def test_a_member_that_is_being_deleted_keeps_the_phase_until_it_is_gone(
    dialect: str, running: int, after: str
) -> None:
    """As their controllers have it; to Volcano's it is *Releasing*, and does not run."""
    cluster = Cluster(dialect)
    cluster.node("n0")
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    cluster.terminating("a")
    status = cluster.status()
    assert (status["phase"], status["running"]) == ("Running", running)
    assert status.get("scheduled", 2) == 2
    cluster.deleted("a")
    status = cluster.status()
    assert (status["phase"], status["running"]) == (after, 1)


@pytest.mark.parametrize(("dialect", "phase"), [(COSCHEDULING, "Scheduling"), (VOLCANO, "Inqueue")])
def test_a_member_that_is_deleted_before_it_was_bound_makes_no_gang_run(dialect: str, phase: str) -> None:
    cluster = Cluster(dialect, minimum=1)
    cluster.member("a")
    cluster.terminating("a")
    assert cluster.status()["phase"] == phase


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


@pytest.mark.parametrize("goes", ["failed", "terminating"])
def test_volcanos_gang_has_no_room_for_the_rest_also_while_one_that_it_replaces_is_there(goes: str) -> None:
    """Volcano's scheduler asks for that first; its controllers restart a Job by it."""
    cluster = Cluster(VOLCANO)
    cluster.node("n0", cpu=2)
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    if goes == "failed":
        cluster.finished("b", succeeded=False)
    else:
        cluster.terminating("b")
    assert cluster.status()["phase"] == "Running"
    cluster.member("c", cpu=7)
    cluster.pass_s(120)
    cluster.settle()
    assert cluster.state.groups[cluster.key].cohort, "refused for room"
    assert cluster.status()["phase"] == "Unknown"


@pytest.mark.parametrize("dialect", [COSCHEDULING, VOLCANO])
def test_pods_beyond_the_minimum_that_find_no_room_change_no_phase(dialect: str) -> None:
    """Who has succeeded counts for the minimum."""
    cluster = Cluster(dialect, minimum=2)
    cluster.node("n0", cpu=2)
    for name in "ab":
        cluster.member(name)
    cluster.member("c", cpu=7)
    cluster.settle()
    cluster.finished("a")
    assert cluster.state.groups[cluster.key].cohort, "refused for room"
    assert cluster.status()["phase"] == "Running"


@pytest.mark.parametrize(("dialect", "phase"), [(COSCHEDULING, "Pending"), (VOLCANO, "Inqueue")])
def test_a_gang_that_lost_more_members_than_came_back_is_not_without_room(dialect: str, phase: str) -> None:
    cluster = Cluster(dialect, minimum=3)
    cluster.node("n0")
    for name in "abc":
        cluster.member(name)
    cluster.settle()
    cluster.deleted("b")
    cluster.deleted("c")
    cluster.member("d")
    cluster.pass_s(120)
    cluster.settle()
    cohort = cluster.state.cohorts[cluster.state.groups[cluster.key].cohort]
    assert cohort.reason == "TooFewPods"
    assert cluster.status()["phase"] == phase


def test_volcanos_gang_that_can_never_be_scheduled_stays_pending() -> None:
    cluster = Cluster(VOLCANO, minimum=1)
    policy = cluster.state.policy
    assert policy is not None
    cluster.append("admin", [ev.PolicyChanged(policy=msgspec.structs.replace(policy, gang_pods=1))], cause="admin")
    for name in "ab":
        cluster.member(name)
    cluster.settle()
    assert cluster.status()["phase"] == "Pending"


def test_volcanos_gang_that_was_set_aside_stays_pending() -> None:
    cluster = Cluster(VOLCANO)
    cluster.node("n0", cpu=1)
    for name in "ab":
        cluster.member(name)
    assert cluster.status()["phase"] == "Inqueue"
    cluster.propose(cluster.key, {"a": "n0", "b": "n0"})
    cluster.judge()
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


@pytest.mark.parametrize("dialect", [COSCHEDULING, KOORDINATOR, VOLCANO, KUBE_BATCH])
def test_how_a_gang_ended_is_left_while_it_has_no_pod_that_has_not(dialect: str) -> None:
    """Of Volcano's and kube-batch's only if it ever ran: a controller waits for the first phase."""
    cluster, batch = Cluster(dialect), dialect in (VOLCANO, KUBE_BATCH)
    cluster.node("n0")

    ends = {word: {"running": 0} for word in ("Finished", "Failed", "Completed")}

    def left() -> dict[str, dict[str, object]]:
        return where_ended(cluster.state, cluster.gang, cluster.status())

    assert left() == ({} if batch else ends), "another scheduler's, of pods that had ended before there was a log"
    for name in "ab":
        cluster.member(name)
    assert left() == {}
    cluster.settle()
    cluster.finished("a")
    assert left() == {}
    cluster.finished("b")
    assert (left(), cluster.status()["phase"]) == ({}, "Completed" if batch else "Finished")
    cluster.deleted("a")
    assert (left(), len(cluster.gang.members)) == (ends, 1)
    cluster.deleted("b")
    assert (left(), len(cluster.gang.members)) == (ends, 0)
    cluster.member("c")
    assert left() == {}


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
    for name in "ab":
        cluster.deleted(name)
    assert cluster.status() == {"conditions": [scheduled]}
    assert where_ended(cluster.state, cluster.gang, cluster.status()) == {}
    assert phase(cluster.state, cluster.gang)


def test_kubernetes_condition_has_another_name_since_1_37() -> None:
    """There kube-scheduler writes, and controllers wait for, PodGroupInitiallyScheduled. Pods say no version."""
    cluster = Cluster("kubernetes/v1beta1")
    cluster.dialect = NATIVE
    for name in "ab":
        cluster.member(name)
    cluster.plan()
    [said] = cluster.status()["conditions"]  # type: ignore[misc]
    assert (said["type"], said["status"]) == ("PodGroupInitiallyScheduled", "False")
    cluster.node("n0")
    cluster.pass_s(60)
    cluster.settle()
    [said] = cluster.status()["conditions"]  # type: ignore[misc]
    assert (said["type"], said["status"]) == ("PodGroupInitiallyScheduled", "True")


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


def test_a_gang_that_nobody_declared_has_a_phase_to_show() -> None:
    world = World()
    world.node("n0")
    world.pod("a", "train")
    assert phase(world.state, world.state.gangs["default/train"]) == "Scheduling"
    world.assigned("a", "n0")
    assert phase(world.state, world.state.gangs["default/train"]) == "Running"

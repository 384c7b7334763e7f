"""What an observation adds to the log: given facts, when an object is seen, then these events; in whatever order."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from events import Event
from events.facts import (
    DeclarationRejected,
    NodeDeleted,
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodGroupDeleted,
    PodGroupObserved,
    PodObserved,
    PodTerminating,
    PriorityClassDeleted,
    PriorityClassObserved,
    SchedulingClassObserved,
)
from services.ingest import normalise
from services.ingest.books import ledger
from services.ingest.decoding import KINDS, WORKLOAD, Malformed
from services.ingest.differ import Ingest
from services.ingest.rejection import Rejection
from services.kubernetes.objects import Pod
from tests.ingest.objects import ingest, names, node, pod, pod_group, priority_class, tables, workload

VOLCANOS = "PodGroup.scheduling.volcano.sh"

# --------------------------------------------------------------------------------------------------------- a pod's life


def test_a_life_is_four_facts_and_a_class() -> None:
    core = ingest()
    life = [
        core.observe(pod(version=1)),
        core.observe(pod(version=2, status={"conditions": [{"type": "PodScheduled", "status": "False"}]})),
        core.observe(pod(version=3, node="n1")),
        core.observe(pod(version=4, node="n1", phase="Running")),
        core.observe(pod(version=5, node="n1", phase="Succeeded")),
        core.observe(pod(version=6, node="n1", phase="Succeeded", deleting=True)),
        core.deleted("Pod", pod(version=7).metadata),
    ]
    assert [names(events) for events in life] == [
        ["SchedulingClassObserved", "PodObserved"],
        [],
        ["PodAssigned"],
        [],
        ["PodFinished"],
        [],
        ["PodDeleted"],
    ]
    assert core.pods == {}


def test_a_class_is_written_before_its_first_pod_and_once() -> None:
    core = ingest()
    first, second = core.observe(pod("a")), core.observe(pod("b"))
    assert isinstance(first[0], SchedulingClassObserved)
    assert isinstance(first[1], PodObserved)
    assert first[0].digest == first[1].scheduling_class
    assert names(second) == ["PodObserved"]


def test_a_terminating_pod_holds_its_room_until_it_is_gone() -> None:
    core = ingest(pod(version=1), pod(version=2, node="n1"))
    assert names(core.observe(pod(version=3, node="n1", phase="Running", deleting=True))) == ["PodTerminating"]
    assert core.pods["uid-p1"].status == "terminating"
    assert core.deleted("Pod", pod(version=5).metadata) == [PodDeleted(uid="uid-p1", namespace="default", name="p1")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminating_pod_that_finishes_is_gone_whatever_finalizers_keep_the_object(phase: str) -> None:
    """As the kube-scheduler has it, which watches no finished pods; and its life is four facts."""
    core = ingest(pod(version=1), pod(version=2, node="n1"), pod(version=3, node="n1", phase="Running", deleting=True))
    ended = pod(version=4, node="n1", phase=phase, deleting=True)
    assert core.observe(ended) == [PodDeleted(uid="uid-p1", namespace="default", name="p1")]
    assert core.pods == {}
    assert core.observe(pod(version=2, uid="before")) == [], "an earlier one of its name"
    assert core.observe(msgspec.structs.replace(ended, metadata=pod(version=5).metadata)) == []
    assert core.missing("Pod", {"uid-p1"}) == []
    assert core.deleted("Pod", pod(version=6).metadata) == []


def test_what_the_kubelet_refused_says_why() -> None:
    core = ingest(pod(version=1), pod(version=2, node="n1"))
    assert core.observe(pod(version=3, node="n1", phase="Failed", reason="OutOfcpu")) == [
        PodFinished(
            uid="uid-p1", namespace="default", name="p1", resource_version="3", succeeded=False, reason="OutOfcpu"
        )
    ]


def test_a_pod_seen_again_only_when_it_is_bound_and_leaving() -> None:
    core = ingest(pod(version=1))
    assert core.observe(pod(version=5, node="n1", deleting=True)) == [
        PodAssigned(uid="uid-p1", namespace="default", name="p1", resource_version="5", node="n1"),
        PodTerminating(uid="uid-p1", namespace="default", name="p1", resource_version="5"),
    ]


@pytest.mark.parametrize(
    "seen",
    [
        pod(scheduler="default-scheduler"),
        pod(node="n1", phase="Succeeded"),
        pod(node="n1", phase="Failed", scheduler="default-scheduler"),
        pod(deleting=True),
    ],
)
def test_pods_that_nobody_needs_to_know_of_are_not_written(seen: Pod) -> None:
    core = ingest()
    assert core.observe(seen) == []
    assert core.deleted("Pod", seen.metadata) == []


def test_a_pod_that_others_placed_is_first_seen_bound() -> None:
    core = ingest(pod(version=1, scheduler="default-scheduler"))
    events = core.observe(pod(version=2, scheduler="default-scheduler", node="n1"))
    assert names(events) == ["SchedulingClassObserved", "PodObserved"]
    assert isinstance(events[1], PodObserved)
    assert (events[1].status, events[1].node, events[1].candidate) == ("bound", "n1", False)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"priority": 5},
        {"schedulingGates": []},
        {"requests": {"cpu": "2"}},
    ],
)
def test_what_scheduling_depends_on_is_written_in_full(change: dict[str, Any]) -> None:
    core = ingest(pod(version=1, **{"schedulingGates": [{"name": "wait"}]}))
    [*_, observed] = core.observe(pod(version=2, **{"schedulingGates": [{"name": "wait"}], **change}))
    assert isinstance(observed, PodObserved)
    assert observed.resource_version == "2"


def test_a_resize_of_a_running_pod_is_written() -> None:
    core = ingest(pod(version=1, node="n1"))
    assert names(core.observe(pod(version=2, node="n1", requests={"cpu": "2"}))) == [
        "SchedulingClassObserved",
        "PodObserved",
    ]


def test_a_class_is_written_again_when_its_last_pod_is_gone() -> None:
    """The log forgot it: one deleted, one missing from a list, one that is of another class now."""
    full = ["SchedulingClassObserved", "PodObserved"]
    core = ingest(pod(version=1, uid="a", name="a"), pod(version=1, uid="b", name="b"))
    core.deleted("Pod", pod(version=2, uid="a", name="a").metadata)
    assert names(core.observe(pod(version=3, uid="c", name="c"))) == ["PodObserved"]
    core.missing("Pod", {"c"})
    assert names(core.observe(pod(version=4, uid="d", name="d"))) == ["PodObserved"]
    for name in "cd":
        core.observe(pod(version=5, uid=name, name=name, requests={"cpu": "9"}))
    assert names(core.observe(pod(version=6, uid="e", name="e"))) == full
    core.deleted("Pod", pod(version=7, uid="e", name="e").metadata)
    assert names(core.observe(pod(version=8, uid="f", name="f"))) == full
    for name in "cd":
        core.deleted("Pod", pod(version=9, uid=name, name=name).metadata)
    assert names(core.observe(pod(version=10, uid="g", name="g", requests={"cpu": "9"}))) == full


@pytest.mark.parametrize("how", ["missing", "vanished"])
def test_nothing_is_remembered_of_what_is_gone(how: str) -> None:
    """But for the UIDs of late events, and of these so many."""
    seen = [node("n1"), pod("a"), pod("b", node="n1", scheduler="other"), pod_group("g", minMember=2), priority_class()]
    bad = [
        node("n2", allocatable={"cpu": "x"}),
        pod_group("bad", minMember=-3),
        workload("w", a=-4),
        workload("v", a=2),
    ]
    malformed = pod("c", labels={"pod-group/name": "g", "pod-group/min-available": "x"})
    core = ingest(*seen, *bad, malformed)
    assert len(core.rejected) == 4
    for kind in KINDS:
        core.missing(kind.name, set()) if how == "missing" else core.vanished(kind.name)
    left = {name: kept for name, kept in tables(core).items() if kept}
    assert len(left.pop("_ledger.deleted", {})) == (10 if how == "missing" else 0)
    del left["_pods._normalise._classes"]
    assert left == {}


def test_another_pod_of_the_same_name_ends_the_first() -> None:
    core = ingest(pod(version=1, uid="old"))
    events = core.observe(pod(version=5, uid="new"))
    assert names(events) == ["PodDeleted", "SchedulingClassObserved", "PodObserved"]
    assert events[0] == PodDeleted(uid="old", namespace="default", name="p1")
    assert core.observe(pod(version=4, uid="old", node="n1")) == []
    assert set(core.pods) == {"new"}


def test_the_pod_before_does_not_come_again_when_the_one_behind_it_is_gone_too() -> None:
    core = ingest(pod(version=1, uid="old", node="n1"), pod(version=5, uid="new"))
    assert names(core.deleted("Pod", pod(version=6, uid="new").metadata)) == ["PodDeleted"]
    assert core.observe(pod(version=3, uid="old", node="n1")) == []
    assert not core.pods


def test_a_late_event_of_the_pod_before_changes_nothing() -> None:
    core = ingest(pod(version=5, uid="new"))
    assert core.observe(pod(version=4, uid="old")) == []
    assert core.deleted("Pod", pod(version=4, uid="old").metadata) == []
    assert set(core.pods) == {"new"}


def test_a_bad_declaration_is_told_once_and_again_only_when_it_changes() -> None:
    core = ingest()

    def declared(version: int, minimum: str, **more: Any) -> list[Event]:
        return core.observe(
            pod(version=version, labels={"pod-group/name": "g", "pod-group/min-available": minimum}, **more)
        )

    assert names(declared(1, "abc")) == ["DeclarationRejected"]
    assert declared(2, "abc") == []
    assert names(declared(3, "-1")) == ["DeclarationRejected"]
    assert names(declared(4, "2")) == ["SchedulingClassObserved", "PodObserved"]
    [withdrawn, rejected] = [each for each in declared(5, "0") if not isinstance(each, SchedulingClassObserved)]
    assert isinstance(withdrawn, PodObserved)
    assert not withdrawn.candidate
    assert isinstance(rejected, DeclarationRejected)


def test_a_bound_pod_with_a_bad_declaration_occupies_its_node() -> None:
    core = ingest()
    events = core.observe(pod(node="n1", requests={"cpu": "1", "memory": "1Ei"}))
    assert names(events) == ["SchedulingClassObserved", "PodObserved", "DeclarationRejected"]
    assert core.pods["uid-p1"].node == "n1"
    assert core.observe(pod(version=2, node="n1", requests={"cpu": "1", "memory": "1Ei"})) == []


# ---------------------------------------------------------------------------------------------- nodes, groups, classes


def test_a_node_is_written_when_something_changed_that_counts() -> None:
    core = ingest()
    assert names(core.observe(node(version=1))) == ["NodeObserved"]
    assert core.observe(node(version=2, images=[{"names": ["x"]}])) == []
    assert names(core.observe(node(version=3, spec={"unschedulable": True}))) == ["NodeObserved"]
    assert core.observe(node(version=2)) == [], "older than what is known"
    assert core.deleted("Node", node(version=4).metadata) == [NodeDeleted(name="n1", uid="uid-n1")]
    assert core.deleted("Node", node(version=4).metadata) == []


def test_a_node_that_cannot_be_read_any_more_is_gone() -> None:
    core = ingest(node(version=1))
    assert names(core.observe(node(version=2, allocatable={}))) == ["NodeDeleted", "DeclarationRejected"]
    assert core.observe(node(version=3, allocatable={})) == []
    assert names(core.observe(node(version=4))) == ["NodeObserved"]


def test_a_node_that_was_made_anew() -> None:
    core = ingest(node(version=1, uid="old"))
    assert names(core.observe(node(version=2, uid="new"))) == ["NodeDeleted", "NodeObserved"]
    assert core.observe(node(version=1, uid="old")) == []


@pytest.mark.parametrize("make", [node, partial(pod_group, minMember=2), priority_class])
def test_the_end_of_an_earlier_object_of_that_name_comes_too_late(make: Any) -> None:
    old, new = make(version=1, uid="old"), make(version=2, uid="new")
    kind = type(new).__name__
    assert ingest(old, new).deleted(kind, old.metadata) == []
    core = ingest(old, new)
    assert names(core.deleted(kind, new.metadata)) == [f"{kind}Deleted"]
    assert core.observe(make(version=3, uid="old")) == []


def test_pod_groups_and_priority_classes() -> None:
    core = ingest()
    [group] = core.observe(pod_group(minMember=3))
    [priority] = core.observe(priority_class())
    assert isinstance(group, PodGroupObserved)
    assert isinstance(priority, PriorityClassObserved)
    assert names(core.observe(pod_group(version=2, minMember=0))) == ["PodGroupDeleted", "DeclarationRejected"]
    assert names(core.observe(pod_group(version=3, minMember=2))) == ["PodGroupObserved"]
    [deleted] = core.deleted("PodGroup", pod_group().metadata)
    assert isinstance(deleted, PodGroupDeleted)
    assert deleted.dialect == "coscheduling/v1alpha1"
    assert core.deleted("PriorityClass", priority_class().metadata) == [
        PriorityClassDeleted(name="high", uid="uid-high")
    ]


def test_what_a_rejected_object_was_before_comes_too_late() -> None:
    """Its fact was forgotten with it, and the version, too: a late word of the valid one stood for good (seed 59851)."""
    core = ingest()
    core.observe(pod_group(version=3, minMember=3))
    assert names(core.observe(pod_group(version=5, minMember=0))) == ["PodGroupDeleted", "DeclarationRejected"]
    assert core.observe(pod_group(version=3, minMember=3)) == []
    assert core.observe(pod_group(version=4, minMember=2)) == []
    assert names(core.observe(pod_group(version=6, minMember=2))) == ["PodGroupObserved"]


def test_what_a_pod_declares_of_its_gang_is_written_as_it_stands() -> None:
    """Only of Workloads is that looked up elsewhere."""
    labels = {"pod-group/name": "train", "pod-group/min-available": "2"}
    *_, written = ingest().observe(pod(labels=labels))
    assert isinstance(written, PodObserved)
    assert written.gang is not None
    assert written.gang.declared is not None
    assert written.gang.declared.min_member == 2


def test_a_priority_class_that_has_the_same_value_changes_no_pod_group() -> None:
    named = pod_group(api="scheduling.volcano.sh/v1beta1", minMember=1, priorityClassName="high")
    core = ingest(priority_class(value=7), named)
    assert names(core.observe(priority_class(version=2, value=7, preemptionPolicy="Never"))) == [
        "PriorityClassObserved"
    ]
    changed = ["PriorityClassObserved", "PodGroupObserved"]
    assert names(core.observe(priority_class(version=3, value=8, preemptionPolicy="Never"))) == changed


def test_an_earlier_pod_group_of_that_name_says_nothing_of_whom_the_later_names() -> None:
    """It comes late from a watch, behind a restart that forgot which UIDs are over."""
    group = partial(pod_group, api="scheduling.volcano.sh/v1beta1", minMember=1)
    core = ingest(priority_class(value=7), priority_class("low", value=1))
    core.observe(group(version=5, uid="later", priorityClassName="high"))
    assert core.observe(group(version=4, uid="earlier", priorityClassName="low")) == []
    assert names(core.observe(priority_class("low", version=6, value=2))) == ["PriorityClassObserved"]
    assert names(core.observe(priority_class(version=7, value=8))) == ["PriorityClassObserved", "PodGroupObserved"]


def test_of_a_pod_group_that_cannot_be_read_nothing_is_left_when_it_goes() -> None:
    """Whom it names neither: there is no fact whose priority could change."""
    core = ingest(priority_class(value=7))
    bad = pod_group(api="scheduling.volcano.sh/v1beta1", minMember=-1, priorityClassName="high")
    assert names(core.observe(bad)) == ["DeclarationRejected"]
    assert names(core.deleted(VOLCANOS, bad.metadata)) == ["RejectionEnded"]
    assert not tables(core)["_ledger.references._named"]


def of_workload(version: int = 1, **more: Any) -> Pod:
    return pod(version=version, workloadRef={"name": "w1", "podGroup": "all"}, **more)


@pytest.mark.parametrize("remade", [{"all": 3}, {"all": -4}], ids=["readable", "not readable"])
def test_what_a_workload_was_before_another_had_its_name_comes_too_late(remade: dict[str, int]) -> None:
    """Nobody saw that it went: a list showed the next one."""
    core = ingest(workload(uid="former", version=2, all=2), of_workload())
    core.observe(workload(uid="latter", version=6, **remade), listed=True)
    assert core.missing(WORKLOAD.name, {"latter"}) == []
    assert core.observe(workload(uid="former", version=4, all=5)) == []
    assert core.deleted(WORKLOAD.name, workload(uid="former", version=5).metadata) == []
    assert "former" not in core._ledger.versions, "nobody forgets it any more"


def test_what_a_workload_was_before_the_one_that_is_seen_is_not_believed() -> None:
    core = ingest(workload(uid="latter", version=6, all=3), of_workload())
    assert core.observe(workload(uid="former", version=4, all=5)) == []
    assert core.workloads["default/w1"].uid == "latter"
    assert names(core.observe(workload(uid="last", version=8, all=4))) == ["PodObserved"]


def test_a_workload_says_nothing_to_pods_that_are_over() -> None:
    core = ingest(workload(all=2), of_workload(), of_workload(2, node="n1"), of_workload(3, node="n1", phase="Failed"))
    assert core.observe(workload(version=2, all=3)) == []


def test_the_end_of_an_earlier_workload_of_that_name_is_not_its_end() -> None:
    core = ingest(workload(all=2), of_workload(), workload(version=5, uid="anew", all=3))
    assert core.deleted(WORKLOAD.name, workload(version=6).metadata) == []
    (told,) = core.deleted(WORKLOAD.name, workload(version=7, uid="anew").metadata)
    assert isinstance(told, PodObserved)
    assert told.gang is not None
    assert told.gang.declared is None


def test_the_end_of_an_earlier_object_of_that_name_leaves_the_later_ones_rejection() -> None:
    core = ingest(pod_group(minMember=2), pod_group(version=5, uid="anew", minMember=-1))
    assert core.deleted("PodGroup", pod_group(version=6).metadata) == []
    assert names(core.deleted("PodGroup", pod_group(version=7, uid="anew").metadata)) == ["RejectionEnded"]


def test_what_was_rejected_and_is_listed_may_be_put_right() -> None:
    core = ingest(pod_group(minMember=-1))
    assert core.missing("PodGroup", {pod_group().metadata.uid}) == []
    assert names(core.observe(pod_group(version=2, minMember=2))) == ["PodGroupObserved"]


def test_of_what_cannot_be_read_it_is_told_what_is_wrong_also_without_a_uid() -> None:
    metadata = msgspec.structs.replace(node().metadata, uid="")
    rejected = normalise.rejected("Node", metadata, Rejection("spec.taints", "7", "a list"))
    assert ingest().observe(Malformed(metadata, rejected)) == [rejected]
    [told] = ingest().observe(msgspec.structs.replace(node(), metadata=metadata))
    assert isinstance(told, DeclarationRejected)
    assert told.field == "metadata.uid"


def test_an_older_version_of_what_changed_in_nothing_that_counts_changes_nothing() -> None:
    """The newest version that was seen counts, not the newest that was written."""
    core = ingest(node(version=5), node(version=9))
    assert core.observe(node(version=7, labels={"zone": "a"})) == []


def test_what_is_gone_does_not_come_again() -> None:
    core = ingest(node(version=5))
    assert names(core.deleted("Node", node(version=6).metadata)) == ["NodeDeleted"]
    assert core.observe(node(version=7)) == []


# -------------------------------------------------------------------------------------------------- restarts and lists


def test_a_new_process_knows_what_was_written_and_finds_what_it_missed() -> None:
    before = Ingest(["muster"])
    written: list[Event] = []
    for seen in (node(), node("n2"), pod("a"), pod("b"), pod("c", node="n1"), pod_group(minMember=2)):
        written += before.observe(seen)
    written += before.observe(pod("bad", labels={"pod-group/name": "g"}))

    after = ingest()
    for event in written:
        after.fold(event)
    assert after.pods == before.pods
    assert after.named == before.named
    listed = [
        pod("a"),
        pod("b", version=2, node="n2"),
        pod("c", version=9, uid="another", node="n1"),
        pod("bad", labels={"pod-group/name": "g"}),
    ]
    found: list[Event] = []
    for each in listed:
        found += after.observe(each)
    found += after.missing("Pod", {each.metadata.uid for each in listed})
    found += after.observe(node())
    found += after.missing("Node", {"uid-n1"})
    found += after.missing("PodGroup", set())
    assert names(found) == ["PodAssigned", "PodDeleted", "PodObserved", "NodeDeleted", "PodGroupDeleted"]
    assert after.missing("Pod", set()) != []
    assert after.pods == {}
    assert after.rejected == {}


def test_pods_of_each_configured_scheduler_name_are_candidates() -> None:
    core = Ingest(["muster", "batch", "default-scheduler"])
    seen = [pod(name, scheduler=name) for name in ("default-scheduler", "muster", "batch", "volcano")]
    found = [event for one in seen for event in core.observe(one) if isinstance(event, PodObserved)]
    assert [(event.name, event.candidate) for event in found] == [
        ("default-scheduler", True),
        ("muster", True),
        ("batch", True),
    ]


def test_other_scheduler_names_after_a_restart() -> None:
    before = Ingest(["muster"])
    written = before.observe(pod("a")) + before.observe(pod("b", scheduler="batch"))
    after = Ingest(["batch"])
    for event in written:
        after.fold(event)
    found = [*after.observe(pod("a")), *after.observe(pod("b", scheduler="batch"))]
    told = {event.name: event.candidate for event in found if isinstance(event, PodObserved)}
    assert told == {"a": False, "b": True}


# ------------------------------------------------------------------------------------------------------ what is forgotten


def test_of_what_is_gone_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it runs, ingest is as large as its cluster, but for two memories of a bounded size."""
    monkeypatch.setattr(ledger, "DELETED_KEPT", 8)
    monkeypatch.setattr(normalise, "CLASSES_KEPT", 8)
    core = ingest()
    for i in range(40):
        cpu = {"requests": {"cpu": f"{i + 1}m"}, "workloadRef": {"name": f"w{i}", "podGroup": "all"}}
        seen = [
            ("PriorityClass", priority_class(f"c{i}")),
            (VOLCANOS, pod_group(f"g{i}", api="scheduling.volcano.sh/v1beta1", priorityClassName=f"c{i}", minMember=2)),
            (WORKLOAD.name, workload(f"w{i}", all=2)),
            ("Node", node(f"n{i}")),
            ("Pod", pod(f"p{i}", **cpu)),
        ]
        changed = [
            node(f"n{i}", version=2, allocatable={"cpu": "many"}),
            pod(f"p{i}", version=2, node="n1", phase="Succeeded", **cpu),
        ]
        for one in (*(obj for _, obj in seen), *changed):
            core.observe(one)
        for kind, one in seen:
            core.deleted(kind, one.metadata)
    kept = tables(core)
    bounded = [kept.pop("_ledger.deleted"), kept.pop("_pods._normalise._classes")]
    for name, left in kept.items():
        assert not left, f"{name} outlives what it is about"
    assert [len(one) for one in bounded] == [8, 8]
    assert list(bounded[0])[-2:] == ["uid-n39", "uid-p39"]

"""PodGroups of every API group, Workloads, and what they name."""

from __future__ import annotations

from typing import Any

import pytest

import events as ev
from events.objects import Declaration
from services.ingest import normalise
from services.ingest.decoding import KINDS, WORKLOAD, Malformed
from services.ingest.differ import Ingest
from services.kubernetes.objects import PodGroup
from tests.ingest.objects import ingest, pod, pod_group, priority_class, workload

X_K8S, SIGS = "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"
VOLCANO, NATIVE = "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1alpha2"
INCUBATOR, SIGS_DEV = "scheduling.incubator.k8s.io/v1alpha1", "scheduling.sigs.dev/v1alpha2"
K = "gang.scheduling.koordinator.sh/"


def observed(seen: PodGroup) -> ev.PodGroupObserved:
    found = normalise.pod_group(seen)
    assert isinstance(found, ev.PodGroupObserved), found
    return found


@pytest.mark.parametrize(
    ("api", "dialect"),
    [
        (X_K8S, "coscheduling/v1alpha1"),
        (SIGS, "coscheduling/v0.19"),
        (INCUBATOR, "kube-batch/v1alpha1"),
        (SIGS_DEV, "kube-batch/v1alpha2"),
        (VOLCANO, "volcano/v1beta1"),
    ],
)
def test_a_minimum_in_each_api_group(api: str, dialect: str) -> None:
    found = observed(pod_group(api=api, minMember=3))
    assert (found.dialect, found.declaration.min_member) == (dialect, 3)


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_kubernetes_own(version: str) -> None:
    api = f"scheduling.k8s.io/{version}"
    gang = observed(pod_group(api=api, schedulingPolicy={"gang": {"minCount": 4}}, priority=7))
    assert (gang.dialect, gang.declaration.min_member, gang.declaration.priority) == (f"kubernetes/{version}", 4, 7)
    assert observed(pod_group(api=api, schedulingPolicy={"basic": {}})).declaration.min_member == 1


def test_a_pod_group_with_koordinators_annotations() -> None:
    annotations = {
        K + "total-number": "7",
        K + "mode": "NonStrict",
        K + "groups": '["a/b"]',
        K + "min-available": "9",
        K + "waiting-time": "1s",
    }
    found = observed(pod_group("g", api=SIGS, annotations=annotations, minMember=5, scheduleTimeoutSeconds=600))
    assert found.dialect == "koordinator/v1alpha1"
    assert found.declaration == Declaration(
        min_member=5,
        waiting_time_ms=600_000,
        total_member=7,
        mode="NonStrict",
        groups=("a/b", "default/g"),
        match_policy="once-satisfied",
    ), "minimum and waiting time stand in the spec alone"


@pytest.mark.parametrize(
    ("said", "spec", "field"),
    [
        ({"mode": "Strict"}, {}, "spec.minMember"),
        ({"mode": "Strict"}, {"minMember": 0}, "spec.minMember"),
        ({"mode": "strict"}, {"minMember": 1}, f"metadata.annotations[{K}mode]"),
        ({"total-number": "seven"}, {"minMember": 1}, f"metadata.annotations[{K}total-number]"),
    ],
)
def test_a_pod_group_of_koordinators_that_cannot_be_taken_is_rejected_as_a_whole(
    said: dict[str, str], spec: dict[str, Any], field: str
) -> None:
    annotations = {K + name: value for name, value in said.items()}
    [rejected] = Ingest(["muster"]).observe(pod_group("bad", api=SIGS, annotations=annotations, **spec))
    assert isinstance(rejected, ev.DeclarationRejected)
    assert (rejected.kind, rejected.field) == ("PodGroup.scheduling.sigs.k8s.io", field)


def test_volcanos_fields() -> None:
    spec: dict[str, Any] = {"minMember": 3, "minTaskMember": {"worker": 2, "ps": 1, "none": 0}, "queue": "q"}
    found = observed(pod_group(api=VOLCANO, **spec)).declaration
    assert (found.task_minimums, found.queue) == ({"ps": 1, "worker": 2}, "q")
    assert list(found.task_minimums) == ["ps", "worker"]
    without = observed(pod_group(api=VOLCANO, queue="")).declaration
    assert (without.min_member, without.queue, without.priority) == (1, "default", None)


@pytest.mark.parametrize("said", [{}, {"minMember": 0}])
def test_without_a_minimum_of_the_whole_those_of_tasks_do_not_count(said: dict[str, Any]) -> None:
    """Volcano's scheduler: they are together more than it. The minimum of one that stands for none must not bring them
    back."""
    found = observed(pod_group(api=VOLCANO, minTaskMember={"ps": 1}, **said)).declaration
    assert (found.min_member, found.task_minimums) == (1, {})
    assert observed(pod_group(api=VOLCANO, minTaskMember={"ps": 1}, minMember=1)).declaration.task_minimums == {"ps": 1}


def test_as_many_tasks_as_may_have_a_minimum() -> None:
    most = {f"t{at:03}": 1 for at in range(1_000)}
    assert observed(pod_group(api=VOLCANO, minMember=1_000, minTaskMember=most)).declaration.task_minimums == most


@pytest.mark.parametrize(
    ("api", "spec", "field"),
    [
        (VOLCANO, {"minMember": -1}, "spec.minMember"),
        (VOLCANO, {"minMember": 1, "minTaskMember": {"ps": "x"}}, "spec.minTaskMember.ps"),
        (VOLCANO, {"minMember": 1, "minTaskMember": [1]}, "spec.minTaskMember"),
        (VOLCANO, {"minMember": 1, "minTaskMember": {"\x1b[31mps": 1}}, "spec.minTaskMember"),
        (VOLCANO, {"minMember": 1, "minTaskMember": {"p" * 254: -1}}, "spec.minTaskMember"),
        (VOLCANO, {"minMember": 1, "minTaskMember": {f"t{at}": 1 for at in range(1_001)}}, "spec.minTaskMember"),
        (VOLCANO, {"minMember": 1, "queue": 3}, "spec.queue"),
        (VOLCANO, {"minMember": 1, "queue": "q" * 254}, "spec.queue"),
        (VOLCANO, {"minMember": 1, "priorityClassName": {}}, "spec.priorityClassName"),
        (VOLCANO, {"minMember": 1, "networkTopology": {"mode": "hard"}}, "spec.networkTopology.mode"),
        (VOLCANO, {"minMember": 1, "networkTopology": {"mode": "Hard"}}, "spec.networkTopology.mode"),
        (
            VOLCANO,
            {"minMember": 1, "networkTopology": {"mode": None, "highestTierAllowed": 1}},
            "spec.networkTopology.mode",
        ),
        (VOLCANO, {"minMember": 1, "networkTopology": {"mode": ["hard"]}}, "spec.networkTopology.mode"),
        (VOLCANO, {"minMember": 1, "subGroupPolicy": [{"subGroupSize": 2}]}, "spec.subGroupPolicy[0].subGroupSize"),
        (VOLCANO, {"minMember": 1, "subGroupPolicy": [{}, {"minSubGroups": 1}]}, "spec.subGroupPolicy[1].minSubGroups"),
        (
            VOLCANO,
            {"minMember": 1, "subGroupPolicy": [{"networkTopology": {"highestTierAllowed": 1}}]},
            "spec.subGroupPolicy[0].networkTopology.mode",
        ),
        (
            VOLCANO,
            {"minMember": 1, "subGroupPolicy": [{"networkTopology": {"mode": "soft"}}, {"minSubGroups": 1}]},
            "spec.subGroupPolicy[1].minSubGroups",
        ),
        (SIGS, {}, "spec.minMember"),
        (NATIVE, {}, "spec.schedulingPolicy"),
        (NATIVE, {"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}}, "spec.schedulingPolicy"),
        (NATIVE, {"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        (NATIVE, {"schedulingPolicy": {"gang": None}}, "spec.schedulingPolicy"),
        (NATIVE, {"schedulingPolicy": {"basic": {}}, "priority": "high"}, "spec.priority"),
        (NATIVE, {"schedulingPolicy": {"basic": {}}, "priority": -(2**31) - 1}, "spec.priority"),
        (
            NATIVE,
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}},
            "spec.schedulingConstraints.topology",
        ),
        (
            NATIVE.replace("alpha2", "beta1"),
            {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "all"},
            "spec.parentCompositePodGroupName",
        ),
    ],
)
def test_bad_values_cost_their_own_object(api: str, spec: dict[str, Any], field: str) -> None:
    core = Ingest(["muster"])
    [rejected] = core.observe(pod_group("bad", api=api, **spec))
    assert isinstance(rejected, ev.DeclarationRejected)
    assert (rejected.field, rejected.name) == (field, "bad")
    assert rejected.kind == f"PodGroup.{api.partition('/')[0]}"
    assert rejected.expected
    [fine] = core.observe(pod_group("bad", uid="x", minMember=1))
    assert isinstance(fine, ev.PodGroupObserved), "of another API group, under the same name"
    assert len(core.rejected) == 1


@pytest.mark.parametrize(("policy", "value"), [({"fair": {}}, "{'fair': {}}"), (None, "")])
def test_a_rejection_says_what_stood_there(policy: dict[str, Any] | None, value: str) -> None:
    [rejected] = Ingest(["muster"]).observe(pod_group("bad", api=NATIVE, schedulingPolicy=policy))
    assert isinstance(rejected, ev.DeclarationRejected)
    assert (rejected.value, rejected.expected) == (value, "one of gang and basic")


def test_pod_groups_of_different_api_groups_do_not_clobber_each_other() -> None:
    core = Ingest(["muster"])
    for number, api in enumerate((X_K8S, SIGS, VOLCANO, INCUBATOR, SIGS_DEV)):
        core.observe(pod_group("g", uid=f"u{number}", api=api, minMember=2))
    assert sum(len(found) for found in core.named.values()) == 5
    [gone] = core.deleted("PodGroup.scheduling.volcano.sh", pod_group("g", uid="u2", api=VOLCANO).metadata)
    assert isinstance(gone, ev.PodGroupDeleted)
    assert gone.dialect == "volcano/v1beta1"
    assert core.vanished("PodGroup.scheduling.sigs.dev") != []
    assert sum(len(found) for found in core.named.values()) == 3
    again = Ingest(["muster"])
    for kind in core.named.values():
        for fact in kind.values():
            again.fold(fact)
    assert again.named == core.named


def test_a_pod_group_that_becomes_koordinators_stays_one_object() -> None:
    core = Ingest(["muster"])
    core.observe(pod_group("g", api=SIGS, minMember=2))
    [changed] = core.observe(pod_group("g", 2, api=SIGS, annotations={K + "mode": "Strict"}, minMember=2))
    assert isinstance(changed, ev.PodGroupObserved)
    assert changed.dialect == "koordinator/v1alpha1"
    [gone] = core.deleted("PodGroup.scheduling.sigs.k8s.io", pod_group("g", 3, api=SIGS).metadata)
    assert isinstance(gone, ev.PodGroupDeleted)


def test_a_kind_that_vanished_may_come_back_with_the_same_objects() -> None:
    core = Ingest(["muster"])
    seen = pod_group("g", api=NATIVE, schedulingPolicy={"basic": {}})
    core.observe(seen)
    assert [type(event) for event in core.vanished("PodGroup.scheduling.k8s.io")] == [ev.PodGroupDeleted]
    assert [type(event) for event in core.observe(seen)] == [ev.PodGroupObserved]


# ------------------------------------------------------------------------------------------------------------- priority


def priorities(events: list[ev.Event]) -> list[int | None]:
    return [event.declaration.priority for event in events if isinstance(event, ev.PodGroupObserved)]


def test_an_unknown_priority_class_is_none_until_it_appears() -> None:
    core = Ingest(["muster"])
    group = pod_group(api=VOLCANO, minMember=1, priorityClassName="high")
    assert priorities(core.observe(group)) == [None]
    assert priorities(core.observe(priority_class(value=10))) == [10]
    assert core.observe(group) == []
    assert priorities(core.observe(priority_class(version=2, value=20))) == [20]
    assert priorities(core.deleted("PriorityClass", priority_class(version=3).metadata)) == [None]


def test_a_priority_class_that_is_there_counts_at_once() -> None:
    core = Ingest(["muster"])
    core.observe(priority_class(value=10))
    assert priorities(core.observe(pod_group(api=INCUBATOR, minMember=1, priorityClassName="high"))) == [10]
    renamed = pod_group(version=2, api=INCUBATOR, minMember=1, priorityClassName="other")
    assert priorities(core.observe(renamed)) == [None]
    assert priorities(core.observe(priority_class(version=2, value=11))) == [], "nobody names it any more"
    assert priorities(core.missing("PriorityClass", set())) == []


def test_a_pod_group_that_was_made_anew_still_names_its_priority_class() -> None:
    core = Ingest(["muster"])
    for version, uid in ((1, "old"), (2, "new")):
        core.observe(pod_group(version=version, uid=uid, api=VOLCANO, minMember=1, priorityClassName="high"))
    assert priorities(core.observe(priority_class(value=10))) == [10]
    core.deleted("PodGroup.scheduling.volcano.sh", pod_group(uid="new", api=VOLCANO).metadata)
    assert priorities(core.observe(priority_class(version=2, value=11))) == []


def test_coscheduling_knows_no_priority_of_the_group() -> None:
    core = Ingest(["muster"])
    core.observe(priority_class(value=10))
    assert priorities(core.observe(pod_group(minMember=1, priorityClassName="high"))) == [None]


# ------------------------------------------------------------------------------------------------------------ workloads


def member(name: str, group: str = "workers", replica: str = "") -> Any:
    reference = {"name": "w1", "podGroup": group, "podGroupReplicaKey": replica}
    return pod(name, workloadRef=reference)


def minimums(core: Ingest) -> dict[str, int | None]:
    found = {}
    for fact in core.pods.values():
        assert fact.gang is not None
        found[fact.name] = fact.gang.declared.min_member if fact.gang.declared is not None else None
    return found


@pytest.mark.parametrize("first", ["pods", "workload"])
def test_a_workload_declares_the_gangs_of_its_groups_and_of_their_replicas(first: str) -> None:
    core = Ingest(["muster"])
    seen: list[Any] = [member("a"), member("b", replica="0"), member("c", "driver"), member("d", "nobody")]
    seen.insert(0 if first == "workload" else len(seen), workload(workers=4, driver=1))
    for one in seen:
        core.observe(one)
    assert minimums(core) == {"a": 4, "b": 4, "c": 1, "d": None}
    gangs = {fact.gang.gang for fact in core.pods.values() if fact.gang is not None}
    assert len(gangs) == 4
    again = Ingest(["muster"])
    for fact in core.pods.values():
        again.fold(fact)
    assert [event for event in again.observe(workload(workers=4, driver=1)) if isinstance(event, ev.PodObserved)] == []


def test_a_workload_that_changes_declares_otherwise_each_time() -> None:
    """If a change were taken for the end of what it was before, the next would come too late."""
    core = ingest(member("a"))
    for version in (1, 2, 3):
        core.observe(workload(version=version, workers=version + 1))
        assert minimums(core) == {"a": version + 1}


def test_a_workload_that_goes_takes_its_declarations_along() -> None:
    core = Ingest(["muster"])
    core.observe(workload(workers=4))
    core.observe(member("a"))
    [changed] = core.deleted("Workload.scheduling.k8s.io", workload().metadata)
    assert isinstance(changed, ev.PodObserved)
    assert minimums(core) == {"a": None}
    core.observe(workload(uid="again", workers=2))
    assert minimums(core) == {"a": 2}
    core.missing("Workload.scheduling.k8s.io", set())
    assert minimums(core) == {"a": None}
    core.observe(workload(uid="third", workers=3))
    core.vanished("Workload.scheduling.k8s.io")
    assert (minimums(core), core.workloads) == ({"a": None}, {})


def test_a_workload_that_went_while_nobody_looked() -> None:
    before, after = Ingest(["muster"]), Ingest(["muster"])
    before.observe(workload(workers=4))
    for event in before.observe(member("a")):
        after.fold(event)
    assert minimums(after) == {"a": 4}
    assert after.knows("Workload.scheduling.k8s.io")
    after.missing("Workload.scheduling.k8s.io", set())
    assert minimums(after) == {"a": None}
    after.observe(pod_group(api="scheduling.volcano.sh/v1beta1", minMember=1, priorityClassName="high"))
    after.deleted("Pod", member("a").metadata)
    assert not after.knows("Workload.scheduling.k8s.io"), "that a PodGroup names something says nothing of Workloads"


def test_a_bad_workload_is_rejected_and_mended() -> None:
    core = Ingest(["muster"])
    core.observe(member("a"))
    [rejected] = core.observe(workload(workers=0))
    assert isinstance(rejected, ev.DeclarationRejected)
    assert (rejected.kind, rejected.field) == (
        "Workload.scheduling.k8s.io",
        "spec.podGroups[0].policy.gang.minCount",
    )
    mended = core.observe(workload(version=2, workers=3))
    assert [type(event) for event in mended] == [ev.RejectionEnded, ev.PodObserved]
    assert core.rejected == {}


def test_every_kind_has_a_name_of_its_own_but_versions_of_one_share_it() -> None:
    names = [kind.name for kind in KINDS]
    assert names.count("PodGroup.scheduling.k8s.io") == 2
    assert len(set(names)) == len(names) - 1
    paths = [kind.resource.path for kind in KINDS]
    assert len(set(paths)) == len(paths)


# ------------------------------------------------------------------------------------------------- what is at the edges


def test_koordinators_annotations_mean_something_on_its_own_pod_groups_alone() -> None:
    assert observed(pod_group(api=VOLCANO, annotations={K + "mode": "NonStrict"}, minMember=2)).dialect == (
        "volcano/v1beta1"
    )


def test_kubernetes_own_priority_goes_before_its_class() -> None:
    core = Ingest(["muster"])
    core.observe(priority_class(value=7))
    for version, (own, priority) in enumerate([({}, 7), ({"priority": 3}, 3), ({"priority": -(2**31)}, -(2**31))], 1):
        policy = {"gang": {"minCount": 2}}
        seen = pod_group(version=version, api=NATIVE, priorityClassName="high", schedulingPolicy=policy, **own)
        (event,) = core.observe(seen)
        assert isinstance(event, ev.PodGroupObserved)
        assert event.declaration == Declaration(min_member=2, waiting_time_ms=0, priority=priority)


@pytest.mark.parametrize("api", [INCUBATOR, SIGS_DEV, VOLCANO])
def test_a_number_beside_its_class_means_something_to_kubernetes_alone(api: str) -> None:
    core = ingest(priority_class(value=7))
    assert priorities(core.observe(pod_group(api=api, minMember=1, priorityClassName="high", priority=3))) == [7]


def test_coscheduling_knows_no_priority_classes() -> None:
    """What it does not read cannot be wrong. Nor does anybody read the class where admission wrote its number."""
    assert observed(pod_group(api=X_K8S, minMember=2, priorityClassName=7)).declaration.min_member == 2
    resolved = pod_group(api=NATIVE, schedulingPolicy={"basic": {}}, priorityClassName=7, priority=3)
    assert observed(resolved).declaration.priority == 3


@pytest.mark.parametrize("said", [{}, {"scheduleTimeoutSeconds": None}, {"scheduleTimeoutSeconds": 0}])
def test_a_timeout_of_none_is_the_policys(said: dict[str, Any]) -> None:
    """Seed 000, Permit: its timeout is the plugin's; seed 002, API: "Default is a global config"."""
    found = observed(pod_group(api=X_K8S, minMember=2, **said))
    assert found.declaration == Declaration(min_member=2, waiting_time_ms=0)


@pytest.mark.parametrize("api", [INCUBATOR, SIGS_DEV, VOLCANO])
def test_the_waiting_time_of_a_dialect_without_one_is_the_policys(api: str) -> None:
    assert observed(pod_group(api=api, minMember=2, scheduleTimeoutSeconds=5)).declaration.waiting_time_ms == 0


def test_so_is_that_of_a_workload() -> None:
    core = ingest(workload(workers=4), member("a"))
    assert core.pods["uid-a"].gang is not None
    assert core.pods["uid-a"].gang.declared == Declaration(min_member=4, waiting_time_ms=0)


@pytest.mark.parametrize("topology", [{"mode": "soft"}, None, "x"])
def test_a_topology_that_says_nothing_hard_keeps_nobody(topology: object) -> None:
    assert observed(pod_group(api=VOLCANO, minMember=2, networkTopology=topology)).declaration.min_member == 2


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [("hard", "hard", "no hard network"), (None, "hard", "no hard network"), ("Hard", "Hard", "one of hard, soft")],
)
def test_a_topology_without_a_mode_is_a_hard_one(mode: str | None, value: str, expected: str) -> None:
    """As Volcano's definition has it: the default of the field, also of one that says nothing else."""
    for more in ({"highestTierAllowed": 1}, {}):
        topology = more | ({"mode": mode} if mode else {})
        [rejected] = Ingest(["muster"]).observe(pod_group(api=VOLCANO, minMember=2, networkTopology=topology))
        assert isinstance(rejected, ev.DeclarationRejected)
        assert rejected.value == value
        assert rejected.expected.startswith(expected)


@pytest.mark.parametrize("said", [None, [], "x", ["x"], [{"subGroupSize": 1, "minSubGroups": 0}], [{"name": "w"}]])
def test_subgroups_that_need_not_start_together_keep_nobody(said: object) -> None:
    assert observed(pod_group(api=VOLCANO, minMember=2, subGroupPolicy=said)).declaration.min_member == 2


@pytest.mark.parametrize("constraints", [["a"], "a", {"topology": []}, {}, None])
def test_constraints_that_constrain_nothing_keep_nobody(constraints: object) -> None:
    policy = {"gang": {"minCount": 2}}
    found = observed(pod_group(api=NATIVE, schedulingPolicy=policy, schedulingConstraints=constraints))
    assert found.declaration.min_member == 2


@pytest.mark.parametrize("group", ["a", None, {}, {"name": ""}, {"name": 5, "policy": {"basic": {}}}])
def test_a_workloads_group_that_is_none_costs_that_workload_only(group: object) -> None:
    seen = workload()
    seen.spec.pod_groups = [{"name": "a", "policy": {"basic": {}}}, group]
    (told,) = Ingest(["muster"]).observe(seen)
    assert isinstance(told, ev.DeclarationRejected)
    assert (told.kind, told.field) == ("Workload.scheduling.k8s.io", "spec.podGroups[1]")


def test_a_workload_that_does_not_fit_its_type_declares_nothing_any_more() -> None:
    core = ingest(member("a"), workload(workers=4))
    assert minimums(core) == {"a": 4}
    about = b'"metadata":{"name":"w1","namespace":"default","uid":"uid-w1","resourceVersion":"2"}'
    _, broken = WORKLOAD.line(b'{"type":"MODIFIED","object":{' + about + b',"spec":3}}')
    assert isinstance(broken, Malformed)
    core.observe(broken)
    assert minimums(core) == {"a": None}


def test_what_a_rejected_workload_declared_before_comes_too_late() -> None:
    core = Ingest(["muster"])
    core.observe(workload(version=3, workers=4))
    core.observe(member("a"))
    rejected = workload(version=5)
    rejected.spec.pod_groups = [None]
    assert {type(event) for event in core.observe(rejected)} == {ev.PodObserved, ev.DeclarationRejected}
    assert core.observe(workload(version=3, workers=4)) == []
    assert minimums(core) == {"a": None}


@pytest.mark.parametrize("groups", ["a", {"name": "a"}, 5])
def test_a_workload_whose_groups_are_no_list_is_told(groups: object) -> None:
    seen = workload()
    seen.spec.pod_groups = groups
    (told,) = Ingest(["muster"]).observe(seen)
    assert isinstance(told, ev.DeclarationRejected)
    assert (told.field, told.value) == ("spec.podGroups", str(groups))


def test_a_workload_without_groups_declares_nothing() -> None:
    seen = workload()
    seen.spec.pod_groups = None
    assert Ingest(["muster"]).observe(seen) == []


@pytest.mark.parametrize("field", ["minMember", "minTaskMember", "queue", "priorityClassName"])
def test_what_is_nested_almost_too_deeply_costs_its_own_object(field: str) -> None:
    """Somewhere there is a depth that the decoder still takes, and whoever says what stood there does not."""
    kind = next(kind for kind in KINDS if kind.name == "PodGroup.scheduling.volcano.sh")
    for depth in range(900, 1_010):
        spec = f'{{"{field}": {"[" * depth}{"]" * depth}}}'
        about = '{"name": "bad", "namespace": "default", "uid": "u", "resourceVersion": "5"}'
        _, seen = kind.line(f'{{"type": "ADDED", "object": {{"metadata": {about}, "spec": {spec}}}}}'.encode())
        rejected = Ingest(["muster"]).observe(seen)[-1]
        assert isinstance(rejected, ev.DeclarationRejected)
        assert len(rejected.value) <= 100

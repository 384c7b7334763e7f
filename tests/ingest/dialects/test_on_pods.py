"""How a pod says that it belongs to a gang, dialect by dialect, and what contradicts itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import events as ev
from events.objects import Declaration, Membership
from services.ingest import dialects
from services.ingest.differ import Ingest
from services.ingest.durations import milliseconds
from services.ingest.rejection import Rejection
from services.kubernetes.objects import OwnerReference
from tests.ingest.objects import pod

K = "gang.scheduling.koordinator.sh/"
SIGS = "pod-group.scheduling.sigs.k8s.io"
GROUP_NAME = "scheduling.k8s.io/group-name"


def member(**of: Any) -> Membership:
    found = dialects.membership(pod(**of))
    assert isinstance(found, Membership), found
    return found


def declared(**of: Any) -> Declaration:
    found = member(**of).declared
    assert found is not None
    return found


def refused(**of: Any) -> Rejection:
    found = dialects.membership(pod(**of))
    assert isinstance(found, Rejection), found
    return found


def koordinator(**said: str) -> dict[str, Any]:
    return {"annotations": {K + name.replace("_", "-"): value for name, value in said.items()}}


# --------------------------------------------------------------------------------------------------------- each dialect


@pytest.mark.parametrize(
    ("of", "dialect", "gang"),
    [
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, "coscheduling/v1alpha1", "default/g"),
        ({"labels": {SIGS: "g"}}, "coscheduling/v0.19", "default/g"),
        ({"labels": {SIGS: "g"}, "annotations": {"example.com/mode": "x"}}, "coscheduling/v0.19", "default/g"),
        ({"labels": {SIGS: "g"}, "scheduler": "koord-scheduler"}, "koordinator/v1alpha1", "default/g"),
        ({"labels": {SIGS: "g"}, **koordinator(mode="Strict")}, "koordinator/v1alpha1", "default/g"),
        (koordinator(name="g"), "koordinator/v1alpha1", "default/g"),
        ({"annotations": {GROUP_NAME: "g"}}, "kube-batch/v1alpha1", "default/g@batch"),
        ({"annotations": {GROUP_NAME: "g"}, "scheduler": "volcano"}, "volcano/v1beta1", "default/g@batch"),
        ({"annotations": {GROUP_NAME: "g", "volcano.sh/task-spec": "ps"}}, "volcano/v1beta1", "default/g@batch"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "kubernetes/v1alpha2", "default/g@kubernetes"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "kubernetes/v1alpha1", "default/w:g@kubernetes"),
    ],
)
def test_a_gang_that_something_else_declares(of: dict[str, Any], dialect: str, gang: str) -> None:
    found = member(**of)
    assert (found.dialect, found.gang) == (dialect, gang)
    assert found.declared is None or found.declared.said == ("mode",)


@pytest.mark.parametrize(
    "of",
    [
        {},
        koordinator(mode="NonStrict"),
        {"scheduler": "koord-scheduler"},
        {"annotations": {GROUP_NAME: ""}},
        {"schedulingGroup": {}},
        {"workloadRef": {}},
        {"scheduler": "volcano"},
        koordinator(timeout="true"),
        {"annotations": {"volcano.sh/task-spec": "ps"}},
    ],
)
def test_a_regular_pod(of: dict[str, Any]) -> None:
    assert dialects.membership(pod(**of)) is None


def test_koordinators_annotations() -> None:
    found = declared(
        **koordinator(
            name="gang-a",
            waiting_time="1h0m0.5s",
            min_available="5",
            total_number="7",
            mode="NonStrict",
            groups='["namespaceB/gang-b", "default/gang-a"]',
            match_policy="only-waiting",
        )
    )
    assert found == Declaration(
        min_member=5,
        waiting_time_ms=3_600_500,
        total_member=7,
        mode="NonStrict",
        groups=("default/gang-a", "namespaceB/gang-b"),
        match_policy="only-waiting",
        said=("groups", "match_policy", "min_member", "mode", "total_member", "waiting_time_ms"),
    )


def test_koordinators_defaults() -> None:
    found = declared(**koordinator(name="g", min_available="5"))
    assert found == Declaration(
        min_member=5, waiting_time_ms=0, mode="Strict", match_policy="once-satisfied", said=("min_member",)
    )


def test_koordinators_names_in_the_documented_order() -> None:
    names = koordinator(name="third", min_available="1")
    assert member(labels={SIGS: "first", f"{SIGS}/name": "second"}, **names).gang == "default/first"
    assert member(labels={f"{SIGS}/name": "second"}, **names).gang == "default/second"
    assert member(**names).gang == "default/third"


def test_the_communitys_minimum_counts_where_koordinators_is_absent() -> None:
    labels = {f"{SIGS}/name": "g", f"{SIGS}/min-available": "3"}
    assert declared(labels=labels, scheduler="koord-scheduler").min_member == 3
    assert declared(labels=labels, **koordinator(min_available="4")).min_member == 4


def test_the_name_of_the_match_policy_that_came_first() -> None:
    alias = {"pod-group.scheduling.sigs.k8s.io/match-policy": "waiting-and-running"}
    found = declared(annotations={K + "name": "g", K + "min-available": "1", **alias})
    assert found.match_policy == "waiting-and-running"


@pytest.mark.parametrize("policy", ["only-waiting", "waiting-and-running", "once-satisfied"])
def test_the_policies_of_matching_that_there_are(policy: str) -> None:
    assert declared(**koordinator(name="g", match_policy=policy)).match_policy == policy


@pytest.mark.parametrize("groups", [None, "", "[]"])
def test_no_groups_three_times(groups: str | None) -> None:
    annotations = {} if groups is None else {"groups": groups}
    found = declared(**koordinator(name="g", min_available="1", **annotations))
    assert found.groups == ()
    assert ("groups" in found.said) == (groups is not None), "but said, it wins over the CRD"


def test_the_other_name_of_the_groups_that_the_text_has() -> None:
    """ "total-number, mode, gang-groups should be found in PodGroup's annotation if needed"."""
    found = declared(**koordinator(name="g", min_available="1", gang_groups='["default/h"]'))
    assert found.groups == ("default/g", "default/h")
    both = {"gang_groups": '["default/h"]', "groups": '["default/i"]'}
    assert declared(**koordinator(name="g", min_available="1", **both)).groups == ("default/g", "default/i")


def test_a_gang_that_timed_out() -> None:
    assert member(**koordinator(name="g", timeout="true")).timed_out is True
    assert member(**koordinator(name="g", timeout="false")).timed_out is UNSET


LABELLED = [
    {SIGS: "g", SIGS + "/min-available": "2"},
    {SIGS + "/name": "g", SIGS + "/min-available": "2"},
    {"pod-group.scheduling.x-k8s.io/name": "g", "pod-group.scheduling.x-k8s.io/min-available": "2"},
    {"pod-group/name": "g", "pod-group/min-available": "2"},
]


@pytest.mark.parametrize("labels", LABELLED, ids=["v0.19", "v0.18", "KEP-2", "2020"])
def test_that_it_timed_out_is_read_of_whatever_pod_and_changes_nothing_else(labels: dict[str, str]) -> None:
    """Its PodGroup alone may make a gang Koordinator's. The binder writes the annotation: were the pod Koordinator's for
    that, its label would be the gang's minimum from then on, where the PodGroup was heard before."""
    before = member(labels=labels)
    after = member(labels=labels, **koordinator(timeout="true"))
    assert after == msgspec.structs.replace(before, timed_out=True)
    assert member(labels=labels, **koordinator(timeout="false")) == before


def test_who_is_declared_elsewhere_does_not_time_out() -> None:
    """Volcano's gangs, Kubernetes' own and those of coscheduling's newest label can never be Koordinator's."""
    for of in ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {"schedulingGroup": {"podGroupName": "g"}}):
        assert member(**of, **koordinator(timeout="true")) == member(**of)
    annotations = {GROUP_NAME: "g", K + "timeout": "true"}
    assert member(annotations=annotations) == member(annotations={GROUP_NAME: "g"})


def test_kube_batch_without_a_pod_group() -> None:
    annotations = {"scheduling.k8s.io/group-min-member": "3"}
    found = member(annotations=annotations, owner="job-uid")
    assert (found.gang, found.dialect) == ("default/job-uid@batch", "kube-batch/v1alpha1")
    assert found.declared == Declaration(min_member=3, waiting_time_ms=0, queue="default")
    assert member(annotations=annotations).gang == "default/uid-p1@batch"
    named = member(annotations={**annotations, GROUP_NAME: "g"})
    assert named.gang == "default/g@batch"
    assert named.declared is not None


def test_an_owner_that_is_no_controller_makes_no_gang() -> None:
    """Whoever else owns the pod may own others, too, as what makes its volumes."""
    seen = pod(annotations={"scheduling.k8s.io/group-min-member": "3"}, owner="job-uid")
    assert seen.metadata.owner_references is not None
    seen.metadata.owner_references.insert(0, OwnerReference(uid="claim-uid"))
    found = dialects.membership(seen)
    assert isinstance(found, Membership)
    assert found.gang == "default/job-uid@batch"


def test_volcano_without_a_pod_group() -> None:
    annotations = {"scheduling.volcano.sh/group-min-member": "3", "scheduling.volcano.sh/queue-name": "q"}
    found = member(annotations=annotations, owner="rs-uid")
    assert (found.gang, found.dialect) == ("default/podgroup-rs-uid@batch", "volcano/v1beta1")
    assert found.declared == Declaration(min_member=3, waiting_time_ms=0, queue="q")
    only_queue = declared(annotations={"scheduling.volcano.sh/queue-name": "q"}, owner="rs-uid")
    assert (only_queue.min_member, only_queue.queue) == (1, "q")


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_volcanos_task(where: str) -> None:
    of: dict[str, Any] = {"annotations": {GROUP_NAME: "g"}}
    of[where] = {**of.get(where, {}), "volcano.sh/task-spec": "ps"}
    assert member(**of).task == "ps"
    assert member(annotations={GROUP_NAME: "g"}).task is UNSET


def test_a_replica_of_a_workloads_group_is_a_gang_of_its_own() -> None:
    reference = {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "0"}
    assert member(workloadRef=reference).gang == "default/w:workers:0@kubernetes"


# ------------------------------------------------------------------------------------------------------- contradictions


def test_two_dialects_on_one_pod_the_first_counts() -> None:
    everything: dict[str, Any] = {
        "labels": {"scheduling.x-k8s.io/pod-group": "x", SIGS: "sigs", "pod-group/name": "2020"},
        "annotations": {K + "name": "koordinator", GROUP_NAME: "batch"},
        "schedulingGroup": {"podGroupName": "native"},
    }
    found = []
    for taken in ("scheduling.x-k8s.io/pod-group", SIGS, None):
        found.append(member(**everything).gang)
        if taken is not None:
            del everything["labels"][taken]
    assert found == ["default/x", "default/sigs", "default/koordinator"]
    assert member(annotations={GROUP_NAME: "batch"}, schedulingGroup={"podGroupName": "native"}).gang.endswith("@batch")


def test_a_minimum_larger_than_the_total_is_the_total() -> None:
    found = declared(**koordinator(name="g", min_available="5", total_number="3"))
    assert (found.min_member, found.total_member) == (5, 5)


def test_a_group_that_names_itself_alone_is_none() -> None:
    assert declared(**koordinator(name="g", min_available="1", groups='["default/g"]')).groups == ()


def test_a_group_that_leaves_itself_out_is_completed() -> None:
    found = declared(**koordinator(name="g", min_available="1", groups='["other/h"]'))
    assert found.groups == ("default/g", "other/h")


# ----------------------------------------------------------------------------------------------------------- bad values


def group_of(gangs: int) -> str:
    return json.dumps([f"default/g{number}" for number in range(gangs)])


def test_a_group_of_too_many_gangs_is_refused_and_says_how_many() -> None:
    assert refused(**koordinator(name="g", groups=group_of(10_000))).value == "10000 gangs"


@pytest.mark.parametrize("groups", [group_of(128), json.dumps(["default/g0"] * 1_000)])
def test_as_many_as_a_group_may_have_and_one_named_again_and_again(groups: str) -> None:
    found = declared(**koordinator(name="g0", min_available="1", groups=groups))
    assert len(found.groups) in (0, 128)


def test_a_group_of_too_many_gangs_costs_its_own_pod_only() -> None:
    core = Ingest(("muster",))
    good, bad = (
        pod(**koordinator(name="g", min_available="1")),
        pod("bad", **koordinator(name="g", groups=group_of(129))),
    )
    [rejected] = [one for one in core.observe(bad) if isinstance(one, ev.DeclarationRejected)]
    assert (rejected.kind, rejected.namespace, rejected.name) == ("Pod", "default", "bad")
    assert (rejected.field, rejected.value) == (f"metadata.annotations[{K}groups]", "129 gangs")
    assert rejected.expected == "at most 128 gangs in a group"
    assert [type(one) for one in core.observe(good)] == [ev.SchedulingClassObserved, ev.PodObserved]


@pytest.mark.parametrize(
    ("said", "key", "expected"),
    [
        ({"min_available": "abc"}, "min-available", "an integer from 1"),
        ({"min_available": "0"}, "min-available", "an integer from 1"),
        ({"waiting_time": "soon"}, "waiting-time", "a duration"),
        ({"waiting_time": "-1s"}, "waiting-time", "a duration"),
        ({"total_number": "-1"}, "total-number", "an integer from 0"),
        ({"mode": "strict"}, "mode", "one of Strict, NonStrict"),
        ({"match_policy": "never"}, "match-policy", "one of only-waiting"),
        ({"groups": "a,b"}, "groups", "a JSON list"),
        ({"groups": '["gang-b"]'}, "groups", "a JSON list"),
        ({"groups": '["a/b/c"]'}, "groups", "a JSON list"),
        ({"groups": '["a/b@batch"]'}, "groups", "a JSON list"),
        ({"groups": r'["a/\u001b[31mb"]'}, "groups", "a JSON list"),
        ({"groups": f'["a/{"b" * 254}"]'}, "groups", "a JSON list"),
        ({"groups": "[" * 100_000}, "groups", "a JSON list"),
        ({"groups": "[1]"}, "groups", "a JSON list"),
        ({"groups": group_of(129)}, "groups", "at most 128 gangs in a group"),
    ],
)
def test_bad_annotations_of_koordinator(said: dict[str, str], key: str, expected: str) -> None:
    found = refused(**koordinator(name="g", **said))
    assert found.field == f"metadata.annotations[{K}{key}]"
    assert len(found.value) <= 100
    assert found.expected.startswith(expected)


@pytest.mark.parametrize(
    ("of", "field"),
    [
        (koordinator(name="g@batch"), f"metadata.annotations[{K}name]"),
        (koordinator(name="a/b"), f"metadata.annotations[{K}name]"),
        ({"annotations": {GROUP_NAME: "g@kubernetes"}}, f"metadata.annotations[{GROUP_NAME}]"),
        ({"annotations": {GROUP_NAME: "g@batch", K + "timeout": "true"}}, f"metadata.annotations[{GROUP_NAME}]"),
        (
            {"labels": {SIGS: "g", SIGS + "/min-available": "0"}, "scheduler": "koord-scheduler"},
            f"metadata.labels[{SIGS}/min-available]",
        ),
        (
            {"annotations": {"scheduling.k8s.io/group-min-member": "many"}},
            "metadata.annotations[scheduling.k8s.io/group-min-member]",
        ),
        (
            {"annotations": {GROUP_NAME: "g", "volcano.sh/task-spec": "\x1b[31m"}},
            "metadata.annotations[volcano.sh/task-spec]",
        ),
        (
            {"annotations": {"scheduling.volcano.sh/queue-name": "q" * 254}},
            "metadata.annotations[scheduling.volcano.sh/queue-name]",
        ),
        ({"schedulingGroup": {"podGroupName": "a/b"}}, "spec.schedulingGroup.podGroupName"),
        ({"workloadRef": {"name": "w", "podGroup": ""}}, "spec.workloadRef.podGroup"),
        ({"workloadRef": {"name": "", "podGroup": "g"}}, "spec.workloadRef.name"),
        (
            {"workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "a:b"}},
            "spec.workloadRef.podGroupReplicaKey",
        ),
    ],
)
def test_bad_names_and_counts(of: dict[str, Any], field: str) -> None:
    assert refused(**of).field == field


@pytest.mark.parametrize(
    ("text", "milliseconds_"),
    [
        ("300s", 300_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        (".5s", 500),
        ("0", 0),
        ("0s", 0),
        ("100us", 1),
        ("+2s", 2_000),
        ("2147483647s", 2_147_483_647_000),
    ],
)
def test_durations_as_go_writes_them(text: str, milliseconds_: int) -> None:
    assert milliseconds(text, "f") == milliseconds_


@pytest.mark.parametrize("text", ["", "s", "1", "1h 2m", "-1s", "1d", "1e3s", "٣s", "9" * 30 + "s", "2147483647001ms"])
def test_what_is_no_duration(text: str) -> None:
    assert isinstance(milliseconds(text, "f"), Rejection)


# ------------------------------------------------------------------------------------------------- what is at the edges


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_anything_of_volcanos_makes_a_named_gang_volcanos(where: str) -> None:
    of: dict[str, dict[str, str]] = {"annotations": {GROUP_NAME: "g"}}
    of.setdefault(where, {})["volcano.sh/job-name"] = "job"
    assert member(**of).dialect == "volcano/v1beta1"


def test_a_minimum_of_none_is_one() -> None:
    assert declared(annotations={"scheduling.volcano.sh/group-min-member": "0"}).min_member == 1


def test_a_label_that_names_no_gang_is_told() -> None:
    """The API server would not let it pass; a manifest may have it."""
    found = refused(labels={"scheduling.x-k8s.io/pod-group": "a/b"})
    assert found.field == "metadata.labels[scheduling.x-k8s.io/pod-group]"


def test_an_empty_annotation_of_koordinators_says_nothing() -> None:
    assert declared(**koordinator(name="g", min_available="2", mode="", total_number="")).said == ("min_member",)


@pytest.mark.parametrize("name", ["a/b@batch", "a/b/c", "/b", "a/", "b"])
def test_what_names_no_gang_of_a_group_is_told(name: str) -> None:
    assert refused(**koordinator(name="g", groups=json.dumps([name]))).value == name


@pytest.mark.parametrize("total", [1, 2, 3, 4])
def test_a_total_below_the_minimum_is_the_minimum(total: int) -> None:
    assert declared(**koordinator(name="g", min_available="3", total_number=str(total))).total_member == max(3, total)

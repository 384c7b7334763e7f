"""Objects to facts: what counts, what is told apart, what is rejected, and what never gets into the log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from events.facts import DeclarationRejected, NodeObserved, PodGroupObserved
from events.objects import (
    DECLARED,
    Declaration,
    HostPort,
    Membership,
    SelectorRequirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from services.ingest import normalise
from services.ingest.normalise import PodFacts, PodNormaliser
from services.kubernetes.objects import Pod
from tests.ingest.objects import metadata, node, pod, pod_group, priority_class


def facts(seen: Pod) -> PodFacts:
    return PodNormaliser(frozenset({"muster"}))(seen)


def gang(labels: dict[str, str]) -> Membership | DeclarationRejected | None:
    found = facts(pod(labels=labels))
    return found.rejected or found.pod.gang


# --------------------------------------------------------------------------------------------------------------- nodes


def test_a_node_has_its_labels_sorted_its_taints_and_what_it_offers() -> None:
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    seen = normalise.node(node(labels={"b": "2", "a": "1"}, spec={"taints": [taint], "unschedulable": True}))
    assert isinstance(seen, NodeObserved)
    assert list(seen.labels) == ["a", "b"]
    assert seen.taints == (Taint(key="k", value="", effect="NoSchedule"),)
    assert seen.unschedulable
    assert seen.allocatable == {"cpu_milli": 4000, "memory_bytes": 8 << 30, "pods": 110}


@pytest.mark.parametrize(
    ("allocatable", "field", "value"),
    [
        (None, "status.allocatable", ""),
        ({}, "status.allocatable", ""),
        ({"cpu": "4", "memory": "lots"}, "status.allocatable.memory", "lots"),
        ({"cpu": "-1"}, "status.allocatable.cpu", "-1"),
        ({"nvidia.com/gpu": "5E"}, "status.allocatable.nvidia.com/gpu", "5E"),
    ],
)
def test_a_node_that_cannot_be_counted_with(allocatable: Any, field: str, value: str) -> None:
    seen = normalise.node(node(allocatable=allocatable))
    assert isinstance(seen, DeclarationRejected)
    assert (seen.kind, seen.name, seen.field, seen.value) == ("Node", "n1", field, value)
    assert seen.expected


# ---------------------------------------------------------------------------------------------------------------- pods


def test_a_pod_of_our_scheduler_is_a_candidate_and_a_gate_holds_it() -> None:
    found = facts(pod(requests={"memory": "1Gi", "cpu": "1"}, priority=7)).pod
    assert (found.namespace, found.name, found.candidate, found.status) == ("default", "p1", True, "pending")
    assert (found.priority, found.gated, found.gang, found.node) == (7, False, None, "")
    assert found.created_ns == 1_767_323_045 * 10**9
    assert not facts(pod(scheduler="default-scheduler")).pod.candidate
    assert not facts(pod(annotations={"kubernetes.io/config.mirror": "5f3e"}, nodeName="n0")).pod.candidate
    assert facts(pod(schedulingGates=[{"name": "x"}])).pod.gated
    assert facts(pod()).pod.priority == 0


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (pod(), "pending"),
        (pod(node="n1", phase="Running"), "bound"),
        (pod(node="n1", phase="Running", deleting=True), "terminating"),
        (pod(node="n1", phase="Succeeded"), "succeeded"),
        (pod(node="n1", phase="Failed", deleting=True), "failed"),
    ],
)
def test_a_pods_status_follows_its_phase_its_node_and_its_deletion(seen: Pod, status: str) -> None:
    assert facts(seen).pod.status == status


def test_equal_pods_share_a_class_and_unequal_ones_do_not() -> None:
    normaliser = PodNormaliser(frozenset({"muster"}))

    def digest(**spec: Any) -> str:
        found = normaliser(pod(**spec))
        assert found.pod.scheduling_class == found.scheduling_class.digest
        return found.pod.scheduling_class

    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}
    apart = [
        digest(),
        digest(requests={"cpu": "2"}),
        digest(nodeSelector={"a": "1"}),
        digest(affinity={"nodeAffinity": required}),
        digest(
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
        ),
        digest(affinity={"nodeAffinity": preferred}),
        digest(tolerations=[{"operator": "Exists"}]),
        digest(containers=[{"name": "main", "ports": [{"containerPort": 1, "hostPort": 80}]}]),
        digest(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
    ]
    assert len(set(apart)) == len(apart)
    assert digest(requests={"cpu": "1000m"}) == apart[0]
    assert digest(nodeSelector={"a": "1", "b": "2"}) == digest(nodeSelector={"b": "2", "a": "1"})
    one, two = ({"name": name, "resources": {"requests": {name: "1"}}} for name in ("cpu", "memory"))
    assert digest(containers=[one, two]) == digest(containers=[two, one])
    assert PodNormaliser(frozenset({"muster"}))(pod()).pod.scheduling_class == apart[0], "from nothing the same digest"


def test_large_classes_are_remembered_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pods that came one after the other, with 12,000 terms each that say nothing, ingest kept a megabyte each: of
    2,000 that were long gone more than it may have."""
    monkeypatch.setattr(normalise, "CLASSES_BYTES", 20_000)
    normaliser = PodNormaliser(frozenset({"muster"}))
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * 100}}
    seen = [pod(affinity={"nodeAffinity": required}, nodeSelector={"of": f"p{at}"}) for at in range(40)]
    digests = [normaliser(one).pod.scheduling_class for one in seen]
    assert sum(map(len, normaliser._classes)) <= 20_000
    assert len(normaliser._classes) > 1, "pods of a gang share one"
    assert [normaliser(one).pod.scheduling_class for one in seen] == digests


def test_preferences_keep_their_weights() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": term} for weight in (5, 100)
        ]
    }
    found = facts(pod(affinity={"nodeAffinity": preferred})).scheduling_class.preferred_affinity
    assert [(one.weight, one.term.match_expressions[0].key) for one in found] == [(5, "zone"), (100, "zone")]


def test_pods_that_others_schedule_are_told_apart_only_by_what_they_occupy() -> None:
    def on(name: str) -> str:
        field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}}
        return facts(pod(node=name, scheduler="default-scheduler", affinity=affinity)).pod.scheduling_class

    assert on("n1") == on("n2")


def test_pods_that_cannot_be_taken_are_told_apart_only_by_what_they_occupy() -> None:
    bad = {"pod-group/name": "g", "pod-group/min-available": "many"}
    found = [facts(pod(node="n1", labels=bad, nodeSelector={"zone": zone})) for zone in ("a", "b")]
    assert all(one.rejected is not None for one in found)
    assert found[0].scheduling_class == found[1].scheduling_class


def test_a_gang_that_another_scheduler_is_asked_for_is_not_read() -> None:
    """Neither is its pod a member of one here, nor is it rejected for what that scheduler may understand."""
    for minimum in ("2", "many"):
        labels = {"pod-group/name": "g", "pod-group/min-available": minimum}
        found = facts(pod(node="n1", scheduler="another", labels=labels))
        assert (found.pod.gang, found.pod.candidate, found.rejected) == (None, False, None)


def test_host_ports_come_in_order_each_once() -> None:
    """However containers list them: what is the same is one class, and has one digest in every process."""
    ports = [{"containerPort": at, "hostPort": at} for at in (9, 80, 443, 8080, 81, 82, 83, 9, 7)]
    found = facts(pod(containers=[{"name": "main", "ports": ports}])).scheduling_class.host_ports
    assert [one.port for one in found] == [7, 9, 80, 81, 82, 83, 443, 8080]


def test_host_ports_count_for_containers_sidecars_and_the_hosts_network() -> None:
    port = {"containerPort": 8080}
    found = facts(
        pod(
            containers=[{"name": "main", "ports": [{**port, "hostPort": 80, "protocol": "UDP"}, port]}],
            initContainers=[
                {"name": "i", "ports": [{**port, "hostPort": 81}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{**port, "hostPort": 82, "hostIP": "10.0.0.1"}]},
            ],
        )
    )
    assert found.scheduling_class.host_ports == (
        HostPort(host_ip="0.0.0.0", protocol="UDP", port=80),
        HostPort(host_ip="10.0.0.1", protocol="TCP", port=82),
    )
    on_host = facts(pod(hostNetwork=True, containers=[{"name": "main", "ports": [port]}]))
    assert on_host.scheduling_class.host_ports == (HostPort(host_ip="0.0.0.0", protocol="TCP", port=8080),)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "persistentVolumeClaim"),
        ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, "ephemeral volume"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}},
            "required podAffinity",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}
                }
            },
            "required podAntiAffinity",
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints DoNotSchedule",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}, "gcePersistentDisk"),
        ({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "d"}}]}, "awsElasticBlockStore"),
        ({"volumes": [{"name": "v", "iscsi": {"iqn": "d", "lun": 0}}]}, "iscsi"),
        ({"volumes": [{"name": "v", "rbd": {"image": "d"}}]}, "rbd"),
    ],
)
def test_hard_constraints_that_are_not_honoured_are_named(spec: dict[str, Any], named: str) -> None:
    assert facts(pod(**spec)).scheduling_class.unsupported == (named,)


def test_soft_constraints_are_not_in_the_way() -> None:
    soft = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    found = facts(
        pod(
            affinity={"podAffinity": soft, "podAntiAffinity": soft},
            topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}],
            volumes=[{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}],
        )
    )
    assert found.scheduling_class.unsupported == ()


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        (
            {
                "containers": [
                    {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {}}]}
                ]
            },
            "RestartAllContainersOnContainerExits",
        ),
        (
            {"initContainers": [{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        (
            {"containers": [{"name": "c", "volumeMounts": [{"name": "v"}, {"bindMountOptions": ["noexec"]}]}]},
            "VolumeBindMountOptions",
        ),
        (
            {"initContainers": [{"name": "i", "volumeMounts": [{"bindMountOptions": ["nodev"]}]}]},
            "VolumeBindMountOptions",
        ),
        ({"containers": [{"name": "c", "volumeMounts": [{"name": "v", "bindMountOptions": []}]}]}, ""),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ""),
        ({"hostNetwork": True, "hostUsers": True}, ""),
        ({"hostUsers": False}, ""),
    ],
)
def test_a_pod_selects_the_features_that_it_needs(spec: dict[str, Any], feature: str) -> None:
    """KEP-5328: a node declares its features, and takes only pods that need no other."""
    selector = facts(pod(nodeSelector={"zone": "a"}, **spec)).scheduling_class.node_selector
    assert selector == {"zone": "a"} | ({DECLARED + feature: ""} if feature else {})


def test_features_that_no_pod_needs_to_be_scheduled_are_no_facts() -> None:
    features = ["ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"]
    seen = normalise.node(node(labels={"zone": "a"}, declaredFeatures=features))
    assert isinstance(seen, NodeObserved)
    assert seen.labels == {"zone": "a", DECLARED + "RestartAllContainersOnContainerExits": ""}


def test_nothing_secret_reaches_a_fact() -> None:
    secret = "hunter2"
    seen = msgspec.json.decode(
        msgspec.json.encode(
            {
                "metadata": metadata("p", "default", annotations={"note": secret}),
                "spec": {
                    "schedulerName": "muster",
                    "containers": [
                        {
                            "name": "c",
                            "image": secret,
                            "command": [secret],
                            "args": [secret],
                            "env": [{"value": secret}],
                        }
                    ],
                    "volumes": [{"name": "s", "secret": {"secretName": secret}}],
                },
            }
        ),
        type=Pod,
    )
    found = facts(seen)
    assert secret not in msgspec.json.encode([found.pod, found.scheduling_class]).decode()


def test_names_with_dots_and_of_253_characters() -> None:
    name = ".".join(["x" * 62] * 4) + "y"
    found = facts(pod(name, labels={"scheduling.x-k8s.io/pod-group": name}))
    assert found.pod.name == name
    assert found.pod.gang is not None
    assert found.pod.gang.gang == f"default/{name}"


# --------------------------------------------------------------------------------------------------------------- gangs


@pytest.mark.parametrize(
    ("labels", "dialect", "minimum"),
    [
        ({"scheduling.x-k8s.io/pod-group": "g"}, "coscheduling/v1alpha1", None),
        ({"pod-group/name": "g", "pod-group/min-available": "3"}, "coscheduling/2020", 3),
        (
            {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "+2147483647",
            },
            "coscheduling/v0.18",
            2**31 - 1,
        ),
        (
            {"pod-group.scheduling.x-k8s.io/name": "g", "pod-group.scheduling.x-k8s.io/min-available": "02"},
            "coscheduling/kep-2",
            2,
        ),
    ],
)
def test_a_label_of_each_generation_names_the_gang(labels: dict[str, str], dialect: str, minimum: int | None) -> None:
    declared = None if minimum is None else Declaration(min_member=minimum, waiting_time_ms=0)
    assert gang(labels) == Membership(gang="default/g", dialect=dialect, declared=declared)


@pytest.mark.parametrize(
    "labels", [{}, {"scheduling.x-k8s.io/pod-group": ""}, {"pod-group/min-available": "3"}, {"app": "x"}]
)
def test_a_pod_without_a_gangs_name_is_a_regular_pod(labels: dict[str, str]) -> None:
    assert gang(labels) is None


@pytest.mark.parametrize(
    "minimum", ["abc", "", "-1", "0", "1.5", "2147483648", "9" * 30, "99999999999999999999", " 3", "٣", "+-3", None]
)
def test_a_bad_minimum_is_rejected_and_the_pod_no_candidate(minimum: str | None) -> None:
    labels = {"pod-group/name": "g"} | ({} if minimum is None else {"pod-group/min-available": minimum})
    found = facts(pod(labels=labels))
    assert found.rejected is not None
    assert (found.rejected.kind, found.rejected.name) == ("Pod", "p1")
    assert found.rejected.field == "metadata.labels[pod-group/min-available]"
    assert found.rejected.value == (minimum or "")
    assert found.rejected.expected == "an integer from 1 to 2147483647"
    assert (found.pod.candidate, found.pod.gang) == (False, None)


def test_a_pod_group_declares_a_minimum_and_a_waiting_time() -> None:
    seen = normalise.pod_group(pod_group(minMember=3, scheduleTimeoutSeconds=10))
    assert isinstance(seen, PodGroupObserved)
    assert (seen.namespace, seen.name, seen.dialect) == ("default", "g1", "coscheduling/v1alpha1")
    assert seen.declaration == Declaration(min_member=3, waiting_time_ms=10_000)
    without = normalise.pod_group(pod_group(minMember=1))
    assert isinstance(without, PodGroupObserved)
    assert without.declaration.waiting_time_ms == 0


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({}, "spec.minMember", ""),
        ({"minMember": 0}, "spec.minMember", "0"),
        ({"minMember": -3}, "spec.minMember", "-3"),
        ({"minMember": "abc"}, "spec.minMember", "abc"),
        ({"minMember": True}, "spec.minMember", "True"),
        ({"minMember": 1.5}, "spec.minMember", "1.5"),
        ({"minMember": 2**63}, "spec.minMember", str(2**63)),
        ({"minMember": {"a": [1]}}, "spec.minMember", "{'a': [1]}"),
        ({"minMember": 2, "scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds", "-1"),
        ({"minMember": 2, "scheduleTimeoutSeconds": "soon"}, "spec.scheduleTimeoutSeconds", "soon"),
    ],
)
def test_a_bad_pod_group(spec: dict[str, Any], field: str, value: str) -> None:
    seen = normalise.pod_group(pod_group(**spec))
    assert isinstance(seen, DeclarationRejected)
    assert (seen.kind, seen.namespace, seen.name) == ("PodGroup", "default", "g1")
    assert (seen.field, seen.value) == (field, value)
    assert seen.expected.startswith("an integer from")


def test_a_priority_class() -> None:
    assert normalise.priority_class(priority_class()).preempts
    never = normalise.priority_class(priority_class(preemptionPolicy="Never"))
    assert (never.name, never.value, never.preempts) == ("high", 1000, False)


# --------------------------------------------------------------------------------------------- what a candidate asks for


def test_tolerations_have_their_operator_and_equality_where_they_have_none() -> None:
    """Left out or empty."""
    equal = {"key": "k", "value": "v", "effect": "NoSchedule"}
    seen = facts(pod(tolerations=[{"operator": "Exists"}, equal, equal | {"operator": ""}]))
    assert seen.scheduling_class.tolerations == (
        Toleration(key="", operator="Exists", value="", effect=""),
        *[Toleration(key="k", operator="Equal", value="v", effect="NoSchedule")] * 2,
    )


def test_a_required_affinity_has_its_terms_with_all_their_values() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
    ]

    def required(said: Any) -> tuple[SelectorTerm, ...] | None:
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": said}}}
        return facts(pod(affinity=affinity)).scheduling_class.required_affinity

    zone = SelectorRequirement(key="zone", operator="In", values=("a", "b"))
    name = SelectorRequirement(key="metadata.name", operator="Exists", values=())
    assert required(terms) == (
        SelectorTerm(match_expressions=(zone,), match_fields=()),
        SelectorTerm(match_expressions=(), match_fields=(name,)),
    )
    assert required(None) == (), "no term: no node"


def test_a_pod_that_no_admission_gave_a_priority_has_none() -> None:
    assert [facts(seen).pod.priority for seen in (pod(), pod(priority=None), pod(priority=-1))] == [0, 0, -1]


def test_an_object_that_does_not_say_when_it_was_made_is_of_the_beginning() -> None:
    """As a manifest is."""
    seen = pod()
    seen.metadata.creation_timestamp = None
    assert facts(seen).pod.created_ns == 0


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize("scheduler", ["muster", "another"])
def test_what_no_message_would_take_is_rejected(scheduler: str, node: str) -> None:
    """An API server takes a pod of 1.2 MB with 300,000 terms that say nothing, which were 12.9 MB here: ingest ended at
    its commit, and again after each start. What occupies a node counts all the same, as far as it fits."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * 100_000}}
    ports = [{"containerPort": 1 + at, "hostPort": 1 + at} for at in range(20_000)]
    for spec, candidates in (({"affinity": {"nodeAffinity": required}}, True), ({"hostPorts": ports}, False)):
        containers = [{"name": "c", "ports": spec.pop("hostPorts", []), "resources": {"requests": {"cpu": "1"}}}]
        found = facts(pod(scheduler=scheduler, node=node, containers=containers, **spec))
        assert len(msgspec.json.encode(found.scheduling_class)) < normalise.LARGEST_CLASS
        assert found.scheduling_class.requests == {"cpu_milli": 1000, "pods": 1}
        assert len(found.scheduling_class.host_ports) == (0 if candidates else normalise.PORTS_COUNTED)
        assert not found.pod.candidate
        if scheduler == "another" and candidates:
            assert found.rejected is None, "its affinity is another scheduler's"
        else:
            assert found.rejected is not None
            assert (found.rejected.field, found.rejected.value.endswith(" bytes")) == ("spec", True)

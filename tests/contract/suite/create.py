"""Create and get: what the server fills in, what it refuses, and with which Status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client, Object, eventually, pod


async def test_create_fills_in_what_the_server_owns(client: Client) -> None:
    made = await client.pod("a", labels={"app": "x"})
    metadata = made["metadata"]
    assert metadata["namespace"] == client.namespace
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["labels"] == {"app": "x"}
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["priority"] == 0
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    read = (await client.get(f"{client.pods}/a")).ok()
    assert read["metadata"]["uid"] == metadata["uid"]
    assert (read["kind"], read["apiVersion"]) == ("Pod", "v1")


async def test_null_is_nothing_in_a_pod(client: Client) -> None:
    body = pod("a", tolerations=None)
    body["spec"]["containers"][0]["resources"] = None
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["containers"][0]["resources"] == {}
    assert len(made["spec"]["tolerations"]) == 2


async def test_limits_become_requests(client: Client) -> None:
    limits = {"cpu": "2", "memory": "1Gi"}
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": {"cpu": "1"}}
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


async def test_limits_of_the_pod_itself_become_requests(client: Client) -> None:
    """What containers ask for together goes before the limit."""
    body = pod("a", resources={"limits": {"cpu": "5", "memory": "1Gi"}})
    body["spec"]["containers"] = [
        {"name": name, "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("a", "500m"), ("b", "250m"))
    ]
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["resources"]["requests"] == {"cpu": "750m", "memory": "1Gi"}


async def test_huge_pages_of_containers_are_their_pods(client: Client) -> None:
    """Where it says anything of its own resources."""
    body = pod("a", resources={"requests": {"cpu": "5"}})
    limits = {"cpu": "1", "hugepages-2Mi": "2Mi"}
    body["spec"]["containers"] = [{"name": name, "image": "x", "resources": {"limits": limits}} for name in "ab"]
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["resources"]["limits"]["hugepages-2Mi"] == "4Mi"
    assert made["spec"]["resources"]["requests"] == {"cpu": "5", "hugepages-2Mi": "4Mi"}


async def test_ports_of_the_hosts_network_are_the_hosts(client: Client) -> None:
    body = pod("a", hostNetwork=True, terminationGracePeriodSeconds=-5)
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 0}, {"containerPort": 81}]
    spec = (await client.post(client.pods, body)).ok(201)["spec"]
    assert [port["hostPort"] for port in spec["containers"][0]["ports"]] == [80, 81]
    assert spec["terminationGracePeriodSeconds"] == 1


async def test_the_default_scheduler_is_named(client: Client) -> None:
    body = pod("a")
    del body["spec"]["schedulerName"]
    body["metadata"]["labels"] = {"contract": "default-scheduler"}
    for unsaid in ({}, {"schedulerName": "", "restartPolicy": ""}):
        body["metadata"]["name"], body["spec"] = f"a{len(unsaid)}", body["spec"] | unsaid
        made = (await client.post(client.pods, body)).ok(201)
        assert (made["spec"]["schedulerName"], made["spec"]["restartPolicy"]) == ("default-scheduler", "Always")


async def test_generate_name_appends_a_suffix(client: Client) -> None:
    body = pod("")
    body["metadata"] = {"generateName": "gen-"}
    names = {(await client.post(client.pods, body)).ok(201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == len("gen-") + 5 for name in names)
    body["metadata"] = {"generateName": "g" * 200}
    assert len((await client.post(client.pods, body)).ok(201)["metadata"]["name"]) == 63


async def test_a_second_create_is_already_exists(client: Client) -> None:
    await client.pod("a")
    status = (await client.post(client.pods, pod("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'pods "a" already exists'
    assert status["details"] == {"name": "a", "kind": "pods"}


async def test_a_namespace_that_does_not_exist_is_not_found(client: Client) -> None:
    status = (await client.post("/api/v1/namespaces/nowhere/pods", pod("a"))).refused(404, "NotFound")
    assert status["message"] == 'namespaces "nowhere" not found'


async def test_the_body_must_agree_with_the_path(client: Client) -> None:
    body = pod("a")
    body["metadata"]["namespace"] = "elsewhere"
    (await client.post(client.pods, body)).refused(400, "BadRequest")


async def test_an_invalid_pod_is_refused_with_its_field(client: Client) -> None:
    body = pod("a")
    body["spec"]["containers"] = []
    status = (await client.post(client.pods, body)).refused(422, "Invalid")
    assert status["details"]["kind"] == "Pod"
    assert "spec.containers" in {cause["field"] for cause in status["details"]["causes"]}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
LABELLED, NAMED = "matchExpressions", "matchFields"
CLAIM = {"name": "c", "resourceClaimName": "c"}
WITH_A_SPACE = {"key": "k", "operator": "In", "values": ["a b"]}


def selecting(part: str, **requirement: Any) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{part: [requirement]}]}}}}


def opening(*ports: Object, **port: Any) -> Object:
    opened = [{"containerPort": 1, **each} for each in ports or (port,)]
    return {"containers": [{"name": "main", "image": "x", "ports": opened}]}


def near(**term: Any) -> Object:
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "k", "labelSelector": {}, **term}]}}}


def liking(weight: int, kind: str = "podAffinity", **term: Any) -> Object:
    wish = {"weight": weight, "podAffinityTerm": {"topologyKey": "k", "labelSelector": {}, **term}}
    return {"affinity": {kind: {PREFERRED: [wish]}}}


def preferring(weight: int, **requirement: Any) -> Object:
    wish = {"weight": weight, "preference": {LABELLED: [{"key": "k", "operator": "Exists", **requirement}]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [wish]}}}


def spreading(**more: Any) -> Object:
    told = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, **more}
    return {"topologySpreadConstraints": [told]}


def called(*names: str) -> Object:
    return {"containers": [{"name": name, "image": "x"} for name in names]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"tolerations": [{"key": "k", "operator": "Exist"}]}, "tolerations[0].operator"),
        ({"tolerations": [{"key": "k", "effect": "noschedule"}]}, "tolerations[0].effect"),
        ({"tolerations": [{}]}, "tolerations[0].operator"),
        ({"tolerations": [{"operator": "Equal", "value": "v"}]}, "tolerations[0].operator"),
        ({"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}, "tolerations[0].operator"),
        (selecting(LABELLED, key="k", operator="Foo"), "operator"),
        (selecting(LABELLED, key="k", operator="In"), "values"),
        (selecting(LABELLED, key="k", operator="Exists", values=["a"]), "values"),
        (selecting(LABELLED, key="k", operator="Gt", values=["1", "2"]), "values"),
        (selecting(NAMED, key="metadata.name", operator="Exists"), "operator"),
        (selecting(NAMED, key="metadata.name", operator="In", values=["a", "b"]), "values"),
        (selecting(NAMED, key="metadata.uid", operator="In", values=["a"]), "key"),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, "nodeSelectorTerms"),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}}}, f"{PREFERRED}[0].weight"),
        (opening(hostPort=99_999), "hostPort"),
        (opening(hostPort=-1), "hostPort"),
        (opening(protocol="tcp"), "protocol"),
        (opening(containerPort=0), "containerPort"),
        ({"restartPolicy": "always"}, "restartPolicy"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z"}]},
            "topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]},
            "topologySpreadConstraints[0].maxSkew",
        ),
        ({"nodeSelector": {"k": "a b"}}, "nodeSelector"),
        ({"nodeSelector": {"k": "v" * 64}}, "nodeSelector"),
        ({"nodeSelector": {"a b": "v"}}, "nodeSelector"),
        ({"nodeSelector": {"Example.com/k": "v"}}, "nodeSelector"),
        ({"nodeSelector": {"/k": "v"}}, "nodeSelector"),
        ({"nodeSelector": {"k" * 64: "v"}}, "nodeSelector"),
        ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key"),
        ({"tolerations": [{"key": "k", "value": "v" * 64}]}, "tolerations[0].operator"),
        ({"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}]}, "tolerations[0].effect"),
        (selecting(LABELLED, key="a b", operator="Exists"), "key"),
        (selecting(LABELLED, key="k", operator="In", values=["a", "v" * 64]), "values[1]"),
        (near(topologyKey="a b"), f"{REQUIRED}[0].topologyKey"),
        (near(labelSelector={"matchLabels": {"k": "a b"}}), "labelSelector.matchLabels"),
        (near(labelSelector={"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}), "operator"),
        (near(labelSelector={"matchExpressions": [{"key": "k", "operator": "NotIn"}]}), "matchExpressions[0].values"),
        (near(mismatchLabelKeys=["a b"]), "mismatchLabelKeys[0]"),
        *((liking(weight), f"podAffinity.{PREFERRED}[0].weight") for weight in (0, 101)),
        (liking(1, topologyKey="a b"), "podAffinityTerm.topologyKey"),
        (
            liking(1, "podAntiAffinity", topologyKey="a b"),
            f"podAntiAffinity.{PREFERRED}[0].podAffinityTerm.topologyKey",
        ),
        (preferring(0), f"nodeAffinity.{PREFERRED}[0].weight"),
        (preferring(1, operator="exists"), "preference.matchExpressions[0].operator"),
        (spreading(topologyKey=""), "topologySpreadConstraints[0].topologyKey"),
        (spreading(whenUnsatisfiable="Anyway"), "topologySpreadConstraints[0].whenUnsatisfiable"),
        (spreading(labelSelector={"matchLabels": {"k": "a b"}}), "labelSelector.matchLabels"),
        (opening(hostPort=65_536), "hostPort"),
        (called("a", "b", "a"), "containers[2].name"),
        (called("Main"), "containers[0].name"),
        (called("a" * 64), "containers[0].name"),
        (opening({"hostPort": 1}, {"hostPort": 1}), "ports[1].hostPort"),
        (opening(hostPort=2) | {"hostNetwork": True}, "ports[0].hostPort"),
        (
            {"initContainers": [{**opening({"hostPort": 1}, {"hostPort": 1})["containers"][0], "name": "first"}]},
            "hostPort",
        ),
        ({"schedulingGates": [{"name": "a b"}]}, "schedulingGates[0]"),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, "schedulingGates[1]"),
        ({"schedulingGates": [{"name": "a"}], "nodeName": "n"}, "nodeName"),
        ({"nodeName": "a b"}, "nodeName"),
        (selecting(NAMED, key="metadata.name", operator="In", values=["a b"]), "values[0]"),
        (near(namespaces=["a.b"]), f"{REQUIRED}[0].namespace"),
        (near(namespaceSelector={"matchLabels": {"k": "a b"}}), "namespaceSelector.matchLabels"),
        (near(matchLabelKeys=["a b"]), "matchLabelKeys[0]"),
        (near(matchLabelKeys=["a"], labelSelector=None), "matchLabelKeys"),
        (near(matchLabelKeys=["a"], mismatchLabelKeys=["a"]), "matchLabelKeys[0]"),
        (spreading(minDomains=0), "minDomains"),
        (spreading(minDomains=1, whenUnsatisfiable="ScheduleAnyway"), "minDomains"),
        (spreading(nodeAffinityPolicy="honor"), "nodeAffinityPolicy"),
        (spreading(nodeTaintsPolicy=""), "nodeTaintsPolicy"),
        (spreading(matchLabelKeys=["a"], labelSelector=None), "matchLabelKeys"),
        (
            {"topologySpreadConstraints": spreading()["topologySpreadConstraints"] * 2},
            "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}, "volumes[1].name"),
        ({"volumes": [{"emptyDir": {}}]}, "volumes[0].name"),
        ({"volumes": [{"name": "v_w", "emptyDir": {}}]}, "volumes[0].name"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]}, "persistentVolumeClaim.claimName"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "ephemeral.volumeClaimTemplate"),
        ({"resourceClaims": [CLAIM, CLAIM]}, "resourceClaims[1].name"),
        ({"resourceClaims": [{"name": "c"}]}, "resourceClaims[0]"),
        ({"resourceClaims": [{**CLAIM, "resourceClaimTemplateName": "c"}]}, "resourceClaims[0]"),
        ({"resourceClaims": [{**CLAIM, "resourceClaimName": "a b"}]}, "resourceClaims[0].resourceClaimName"),
    ],
)
async def test_a_misspelt_value_is_refused_with_its_field(client: Client, spec: Object, field: str) -> None:
    body = pod("a")
    body["spec"] |= spec
    status = (await client.post(client.pods, body)).refused(422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert cause["field"].endswith(f".{field}")
    assert status["message"] == f'Pod "a" is invalid: {cause["field"]}: {cause["message"]}'


@pytest.mark.parametrize("spec", [near(topologyKey=""), liking(1, topologyKey="")])
async def test_a_topology_without_a_key_is_refused(client: Client, spec: Object) -> None:
    """Before anything else is said of it."""
    body = pod("a")
    body["spec"] |= spec
    causes = (await client.post(client.pods, body)).refused(422, "Invalid")["details"]["causes"]
    assert causes[0]["reason"] == "FieldValueRequired"
    assert {cause["field"].rpartition(".")[2] for cause in causes} == {"topologyKey"}


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoExecute"}]},
        selecting(LABELLED, key="k", operator="Gt", values=["x"]),
        selecting(NAMED, key="metadata.name", operator="NotIn", values=["a"]),
        *(selecting(LABELLED, key="k", operator=operator, values=["1"]) for operator in ("NotIn", "In", "Lt")),
        *(selecting(LABELLED, key="k", operator=operator) for operator in ("DoesNotExist", "Exists")),
        *(liking(weight, kind) for weight in (1, 100) for kind in ("podAffinity", "podAntiAffinity")),
        *(preferring(weight) for weight in (1, 100)),
        spreading(whenUnsatisfiable="ScheduleAnyway"),
        *(opening(containerPort=port, hostPort=port, protocol="SCTP") for port in (1, 65_535)),
        {"tolerations": [{"key": "k", "effect": effect} for effect in ("NoSchedule", "PreferNoSchedule")]},
        {"tolerations": [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 3}]},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}},
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}},
        opening(hostPort=80, hostIP="nope"),
        opening({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, {}, {}),
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {LABELLED: [WITH_A_SPACE]}}]}}},
        {"nodeSelector": {"example.com/K_.k": "", "k": "V-v.V_v"}},
        {"tolerations": [{"operator": "Exists"}, {"operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1}]}}},
        near(namespaces=["a"], matchLabelKeys=["a"], mismatchLabelKeys=["b"], namespaceSelector={}),
        spreading(minDomains=1, nodeAffinityPolicy="Honor", nodeTaintsPolicy="Ignore", matchLabelKeys=["a"]),
        {"volumes": [{"name": "v"}]},
        {"initContainers": [{**opening(hostPort=2)["containers"][0], "name": "first"}], "hostNetwork": True},
        {"initContainers": [{**opening(hostPort=2)["containers"][0], "name": name} for name in ("first", "second")]},
    ],
)
async def test_odd_values_are_taken(client: Client, spec: Object) -> None:
    body = pod("a")
    body["spec"] |= spec
    (await client.post(client.pods, body)).ok(201)


def workload(restarts: str, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("")["spec"] | {"restartPolicy": restarts}}
    return {"metadata": {"name": "w"}, "spec": {"template": template, **spec}}


INDEXED = workload("Never", completionMode="Indexed", completions=1_000, parallelism=1)
SELECTED = {"selector": {"matchLabels": {"a": "b"}}}


def expressed(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": "a", "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("apps/v1/deployments", workload("Always"), "spec.selector"),
        ("apps/v1/deployments", workload("Always", selector={"matchLabels": {}}), "spec.selector"),
        ("apps/v1/deployments", workload("", **SELECTED), ""),
        ("apps/v1/deployments", workload("Always", selector={"matchLabels": {"a": "c"}}), "metadata.labels"),
        ("apps/v1/deployments", workload("Always", selector=expressed("In", "c")), "metadata.labels"),
        ("apps/v1/deployments", workload("Always", selector=expressed("NotIn", "c")), ""),
        ("apps/v1/deployments", workload("Always", selector=expressed("Exists")), ""),
        ("apps/v1/deployments", workload("Always", selector=expressed("DoesNotExist")), "metadata.labels"),
        ("apps/v1/deployments", workload("Always", selector=expressed("Lt", "1")), "matchExpressions[0].operator"),
        ("apps/v1/deployments", workload("Never", **SELECTED), "spec.template.spec.restartPolicy"),
        ("apps/v1/statefulsets", workload("", podManagementPolicy="parallel", **SELECTED), "spec.podManagementPolicy"),
        ("apps/v1/statefulsets", workload("", podManagementPolicy="", **SELECTED), ""),
        ("apps/v1/statefulsets", workload("", podManagementPolicy="Parallel", **SELECTED), ""),
        ("batch/v1/jobs", workload("Always"), "spec.template.spec.restartPolicy"),
        ("batch/v1/jobs", workload(""), "spec.template.spec.restartPolicy"),
        ("batch/v1/jobs", workload("Never", completionMode="indexed"), "spec.completionMode"),
        ("batch/v1/jobs", workload("Never", completionMode="Indexed", parallelism=1), "spec.completions"),
        ("batch/v1/jobs", workload("Never", completionMode="Indexed"), ""),
        (
            "batch/v1/jobs",
            workload("Never", completionMode="Indexed", completions=100_001, parallelism=100_001),
            "spec.parallelism",
        ),
        ("batch/v1/jobs", INDEXED | {"metadata": {"name": "a.b"}}, "metadata.name"),
        ("batch/v1/jobs", INDEXED | {"metadata": {"name": "a" * 60}}, "metadata.name"),
        ("batch/v1/jobs", INDEXED | {"metadata": {"name": "a" * 59}}, ""),
    ],
)
async def test_a_workload_of_which_no_pods_can_come_is_refused(
    client: Client, path: str, body: Object, field: str
) -> None:
    version, _, plural = path.rpartition("/")
    answer = await client.post(f"/apis/{version}/namespaces/{client.namespace}/{plural}", body)
    if not field:
        answer.ok(201)
    else:
        causes = answer.refused(422, "Invalid")["details"]["causes"]
        assert any(cause["field"].endswith(field) for cause in causes)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
async def test_an_invalid_name_is_refused(client: Client, name: str) -> None:
    status = (await client.post(client.pods, pod(name))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/namespaces", {"metadata": {"name": "a.b"}}),
        ("/apis/apps/v1/namespaces/{}/statefulsets", workload("Always", **SELECTED) | {"metadata": {"name": "a.b"}}),
        ("/apis/apps/v1/namespaces/{}/statefulsets", workload("Always", **SELECTED) | {"metadata": {"name": "a" * 64}}),
        ("/apis/batch/v1/namespaces/{}/jobs", workload("Never") | {"metadata": {"name": "a" * 64}}),
    ],
)
async def test_some_kinds_are_called_more_narrowly(client: Client, path: str, body: Object) -> None:
    (await client.post(path.format(client.namespace), body)).refused(422, "Invalid")


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"k": "v" * 64}}, "labels"),
        ({"labels": {"k": "-v"}}, "labels"),
        ({"labels": {"a b": "v"}}, "labels"),
        ({"annotations": {"a b": "v"}}, "annotations"),
        ({"annotations": {"Example.com/k": "a b"}}, ""),
    ],
)
async def test_a_misspelt_label_is_refused_wherever_it_stands(client: Client, metadata: Object, field: str) -> None:
    body = pod("a")
    body["metadata"] |= metadata
    job = workload("Never")
    job["spec"]["template"]["metadata"] = metadata
    answers = [
        await client.post(client.pods, body),
        await client.post(f"/apis/batch/v1/namespaces/{client.namespace}/jobs", job),
    ]
    for answer in answers:
        if not field:
            answer.ok(201)
        else:
            causes = answer.refused(422, "Invalid")["details"]["causes"]
            assert any(cause["field"].endswith(f".{field}") for cause in causes)


async def test_labels_must_be_strings(client: Client) -> None:
    body = pod("a")
    body["metadata"]["labels"] = {"min-available": 3}
    (await client.post(client.pods, body)).refused(400, "BadRequest")


async def test_names_with_dots_and_of_253_characters_are_accepted(client: Client) -> None:
    name = ".".join(["a" * 62] * 3 + ["b" * 64])
    assert len(name) == 253
    assert (await client.pod(name))["metadata"]["name"] == name
    assert (await client.get(f"{client.pods}/{name}")).code == 200


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    status = (await client.get(f"{client.pods}/a")).refused(404, "NotFound")
    assert status["message"] == 'pods "a" not found'
    assert status["details"] == {"name": "a", "kind": "pods"}


@pytest.mark.parametrize(
    ("name", "said", "field"),
    [
        ("too-high", {"value": 1_000_000_001}, "value"),
        ("system-mine", {"value": 1}, "metadata.name"),
        ("odd", {"value": 1, "preemptionPolicy": "Sometimes"}, "preemptionPolicy"),
    ],
)
async def test_a_priority_class_that_may_not_be_is_refused(client: Client, name: str, said: Object, field: str) -> None:
    answer = await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, **said})
    (cause,) = answer.refused(422, "Invalid")["details"]["causes"]
    assert cause["field"] == field


async def test_priority_comes_from_the_class(client: Client) -> None:
    name = client.unique("priority")
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1234}
    made = (await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)).ok(201)
    assert made["preemptionPolicy"] == "PreemptLowerPriority"
    try:
        # Admission reads a cache of its own, which may not know the class yet.
        body = pod("a", priorityClassName=name)
        answer = await eventually(lambda: client.post(client.pods, body), lambda answer: answer.code != 403)
        assert answer.ok(201)["spec"]["priority"] == 1234
    finally:
        (await client.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).ok()
    (await client.post(client.pods, pod("b", priorityClassName="nobody"))).refused(403, "Forbidden")
    (await client.post(client.pods, pod("c", priority=5))).refused(403, "Forbidden")
    (await client.post(client.pods, pod("d", preemptionPolicy="Never"))).refused(403, "Forbidden")

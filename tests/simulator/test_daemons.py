"""The pods of DaemonSets: for which nodes, and what ties each to its own."""

from __future__ import annotations

from typing import Any

import pytest

from events.objects import Taint, Toleration
from services.simulator.cluster import SimulatedCluster
from services.simulator.daemons import TOLERATED, aimed_at, target, tolerations
from services.simulator.daemons import takes as taken
from services.simulator.workloads import pods_of
from services.state.tolerations import Tolerations
from tests.simulator.objects import Object, node, template, workload
from tests.waiting import until

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_set(**spec: Any) -> Object:
    return workload("DaemonSet", "d", template=template(**spec))


def labelled(name: str, *taints: Object, **labels: str) -> Object:
    found = node(name)
    found["metadata"]["labels"] = labels
    return found | {"spec": {"taints": list(taints)}}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Object:
    return {"key": key, "value": value, "effect": effect}


def wanted(*terms: Object) -> Object:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def asks(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def takes(daemons: Object, *nodes: Object) -> list[str]:
    return [each["metadata"]["name"] for each in nodes if taken(daemons, each)]


def test_there_is_a_pod_for_each_node_named_and_labelled_as_its_controller_does() -> None:
    (first, second) = pods = list(pods_of(daemon_set(), [node("n1"), node("n2")]))
    assert [target(pod) for pod in pods] == ["n1", "n2"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["generateName"] == "d-"
    assert first["metadata"]["labels"].keys() == {"app", "controller-revision-hash", "pod-template-generation"}
    assert first["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    assert list(pods_of(daemon_set(), [node("n1"), node("n2")])) == pods
    assert list(pods_of(daemon_set())) == []
    assert [target(pod) for pod in pods_of(daemon_set(nodeName="n2"), [node("n1"), node("n2")])] == ["n2"]
    again = daemon_set()
    again["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "4"}
    generations = [
        next(pods_of(one, [node("n1")]))["metadata"]["labels"]["pod-template-generation"]
        for one in (again, daemon_set())
    ]
    assert generations == ["4", "1"]


def test_nodes_are_those_of_its_selector_and_its_required_affinity() -> None:
    nodes = [labelled("a", gpu="4"), labelled("b", gpu="8", old=""), labelled("c")]
    assert takes(daemon_set(), *nodes) == ["a", "b", "c"]
    assert takes(daemon_set(nodeSelector={"gpu": "4"}), *nodes) == ["a"]
    assert takes(daemon_set(nodeName="b"), *nodes) == ["b"]
    for term, names in (
        (asks("gpu", "In", "4", "8"), ["a", "b"]),
        (asks("gpu", "NotIn", "4"), ["b", "c"]),
        (asks("gpu", "Exists"), ["a", "b"]),
        (asks("old", "DoesNotExist"), ["a", "c"]),
        (asks("gpu", "Gt", "4"), ["b"]),
        (asks("gpu", "Lt", "8"), ["a"]),
        (asks("gpu", "Lt", "x"), []),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["b"]}]}, ["a", "c"]),
        ({}, []),
    ):
        assert takes(daemon_set(affinity=wanted(term)), *nodes) == names, term
    either = wanted(asks("old", "Exists"), asks("gpu", "In", "4"))
    assert takes(daemon_set(affinity=either), *nodes) == ["a", "b"]
    assert takes(daemon_set(affinity=either, nodeSelector={"old": ""}), *nodes) == ["b"]


def test_numbers_of_labels_are_those_of_64_bits() -> None:
    largest = (1 << 63) - 1
    nodes = [labelled(name, gpu=str(number)) for name, number in (("a", 0), ("b", largest), ("c", largest + 1))]
    assert takes(daemon_set(affinity=wanted(asks("gpu", "Gt", "0"))), *nodes) == ["b"]
    assert takes(daemon_set(affinity=wanted(asks("gpu", "Lt", str(largest)))), *nodes) == ["a"]
    assert takes(daemon_set(affinity=wanted(asks("gpu", "Lt", str(largest + 1)))), *nodes) == []


def test_an_empty_node_name_names_none() -> None:
    """As it was: there was no pod for any node."""
    nodes = [labelled("a"), labelled("b")]
    assert takes(daemon_set(nodeName=""), *nodes) == ["a", "b"]
    assert takes(daemon_set(nodeName="b"), *nodes) == ["b"]


def test_taints_keep_it_away_but_for_those_that_each_daemon_tolerates() -> None:
    own = [labelled(f"n{place}", taint(key, effect)) for place, (key, effect) in enumerate(TOLERATED)]
    assert sorted(key.partition("/")[2] for key, _ in TOLERATED) == [
        *("disk-pressure", "memory-pressure", "not-ready", "pid-pressure", "unreachable", "unschedulable")
    ]
    assert takes(daemon_set(), *own) == [each["metadata"]["name"] for each in own]
    away = [labelled("gpu", taint("gpu")), labelled("gone", taint("gpu", "NoExecute"))]
    assert takes(daemon_set(), *away, labelled("soft", taint("gpu", "PreferNoSchedule"))) == ["soft"]
    assert takes(daemon_set(tolerations=[{"key": "gpu", "operator": "Exists"}]), *away) == ["gpu", "gone"]
    offline = labelled("offline", taint("node.kubernetes.io/network-unavailable"))
    assert takes(daemon_set(), offline) == []
    assert takes(daemon_set(hostNetwork=True), offline) == ["offline"]


@pytest.mark.parametrize("operator", ["", "Exists", "Equal", "Gt", "Lt", "Odd"])
@pytest.mark.parametrize("key", ["", "k", "other"])
@pytest.mark.parametrize("value", ["", "5", "7", "05", "x"])
def test_a_toleration_means_here_what_it_means_to_muster(operator: str, key: str, value: str) -> None:
    """The simulator knows nothing of the services' cores, so this is written twice."""
    for effect in ("", "NoSchedule", "NoExecute"):
        said = {"key": key, "operator": operator, "value": value, "effect": effect}
        for found in ("", "5", "6", "x"):
            has = Taint(key="k", value=found, effect="NoSchedule")
            expected = Tolerations([Toleration(**said)]).cover(has)
            daemons, tainted = daemon_set(tolerations=[said]), labelled("n", taint("k", value=found))
            assert (takes(daemons, tainted) == ["n"]) is expected, (said, found)


def test_the_nodes_name_stands_in_place_of_what_the_affinity_required() -> None:
    near = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    wished = [{"weight": 1, "preference": asks("gpu", "In", "8")}]
    affinity = wanted(asks("gpu", "Exists")) | near
    affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = wished
    spec = aimed_at({"affinity": affinity}, "n")
    assert spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == wished
    assert [target({"spec": one}) for one in (spec, {"nodeName": "m"}, {})] == ["n", "m", ""]
    (term,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert spec["affinity"]["podAntiAffinity"] == near["podAntiAffinity"]


def test_a_toleration_for_a_while_gives_way_to_the_one_for_ever() -> None:
    brief = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    found = tolerations({"tolerations": [brief | {"tolerationSeconds": 30}, {"key": "a", "operator": "Exists"}]})
    assert found.count(brief) == 1
    assert not any("tolerationSeconds" in each for each in found)
    assert {"key": "a", "operator": "Exists"} in found


async def test_the_cluster_keeps_one_on_each_node_that_comes(cluster: SimulatedCluster) -> None:
    def made() -> dict[str, str]:
        return {target(pod): pod["metadata"]["name"] for pod in cluster.list("Pod")}

    cluster.create(node("n1"))
    cluster.create(daemon_set())
    await until(lambda: made().keys() == {"n1"})
    first = made()["n1"]
    cluster.create(node("n2"))
    cluster.create(labelled("n3", taint("gpu")))
    await until(lambda: made().keys() == {"n1", "n2"})
    told = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 0}
    await until(lambda: cluster.get("DaemonSet", "d")["status"] == told)
    cluster.bind(first, "n1")
    await until(lambda: cluster.get("DaemonSet", "d")["status"] == told | {"numberReady": 1})
    assert len(list(cluster.list("Pod"))) == 2
    cluster.patch("Pod", first, {"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: made().get("n1") not in (None, first))
    cluster.patch("Node", "n2", {"spec": {"taints": [taint("gpu", "NoExecute")]}})
    await until(lambda: made().keys() == {"n1"})
    cluster.create(node("n4"))
    await until(lambda: made().keys() == {"n1", "n4"})
    cluster.delete("Node", "n4")
    await until(lambda: made().keys() == {"n1"})
    cluster.delete("DaemonSet", "d")
    await until(lambda: not made())


async def test_a_taint_that_only_keeps_others_away_costs_no_pod_that_is_there(cluster: SimulatedCluster) -> None:
    cluster.create(node("n1"))
    cluster.create(daemon_set())
    await until(lambda: list(cluster.list("Pod")))
    cluster.patch("Node", "n1", {"spec": {"taints": [taint("gpu")]}})
    await until(lambda: cluster.get("DaemonSet", "d")["status"].get("desiredNumberScheduled") == 0)
    assert len(list(cluster.list("Pod"))) == 1

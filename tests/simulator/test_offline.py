"""Objects as the API server would list them, without a server, a clock or chance."""

from __future__ import annotations

from typing import Any

import pytest

from services.console.simulate import simulate
from services.simulator import admission
from services.simulator.api import Api
from services.simulator.errors import ApiError
from services.simulator.offline import offered, served
from services.simulator.store import Store
from tests.simulator.objects import node, pod, workload


def test_the_same_objects_are_served_the_same() -> None:
    objects = [node("n"), workload("Deployment", "d", replicas=3), workload("Job", "j"), pod("a")]
    first = served(objects)
    assert served(objects) == first
    assert len({obj["metadata"]["uid"] for obj in first}) == len(first) == 6
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in first]
    assert versions == sorted(set(versions))
    assert {obj["metadata"]["creationTimestamp"] for obj in first} == {"2020-01-01T00:00:00Z"}


def test_defaults_and_priority_are_filled_in_wherever_the_class_stands() -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    found = served([pod("a", priorityClassName="urgent"), pod("b"), urgent])
    priorities = {obj["metadata"]["name"]: obj["spec"]["priority"] for obj in found if obj["kind"] == "Pod"}
    assert priorities == {"a": 9, "b": 0}
    assert found[1]["spec"]["schedulerName"] == "default-scheduler"
    assert found[1]["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def priority_class(name: str, value: int, *, default: bool = False) -> dict[str, Any]:
    about = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return about | {"value": value, "globalDefault": default}


def test_a_pod_has_the_priority_that_its_class_has_when_it_comes() -> None:
    api = Api(Store(history=0), seed=0)

    def priority(name: str, **spec: Any) -> int:
        return int(api.apply_new(pod(name, **spec))["spec"]["priority"])

    assert priority("a") == 0
    api.apply_new(priority_class("usual", 5, default=True))
    assert priority("b") == 5
    api.apply_new(priority_class("lower", 3, default=True))
    assert (priority("c"), priority("d", priorityClassName="usual")) == (3, 5)
    api.delete(api.collection("scheduling.k8s.io/v1", "PriorityClass"), "", "lower")
    assert priority("e") == 5


def test_of_two_global_defaults_the_smallest_counts() -> None:
    """As it was: the largest, so that pods without a class were placed before those of the class between the two.

    ``kubectl explain priorityclass.globalDefault`` says which.
    """
    classes = [priority_class("high", 1000, default=True), priority_class("low", 10, default=True)]
    for given in (classes, classes[::-1]):
        (made,) = (obj for obj in served([*given, pod("a")]) if obj["kind"] == "Pod")
        assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (10, "low")


def test_a_pod_costs_the_same_however_many_priority_classes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [priority_class(f"c{i}", i) for i in range(50)]
    gone_through = []
    once = admission.global_default
    monkeypatch.setattr(admission, "global_default", lambda known: gone_through.append(len(known)) or once(known))
    served([*classes, *(pod(f"p{i}", priorityClassName=f"c{i}") for i in range(50))])
    assert gone_through == [52]


def test_what_a_server_would_refuse_is_refused() -> None:
    with pytest.raises(ApiError, match="already exists"):
        served([pod("a"), pod("a")])
    with pytest.raises(ApiError, match="no PriorityClass with name nobody was found"):
        served([pod("a", priorityClassName="nobody")])


def test_only_pods_are_taken_as_another_server_gave_them_out() -> None:
    """A node is to offer its capacity, wherever it comes from, and a misspelt taint is refused."""
    known = node("n")
    known["metadata"]["uid"] = "u"
    (found,) = served([known])
    assert found["status"]["allocatable"] == found["status"]["capacity"]
    with pytest.raises(ApiError, match="effect: Unsupported value"):
        served([known | {"spec": {"taints": [{"key": "a", "effect": "Odd"}]}}])


def test_what_has_no_namespace_may_say_one() -> None:
    """As it was: only nodes and classes might, and a Namespace that names itself was refused."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "namespace": "x"}}
    (made,) = served([namespace])
    assert "namespace" not in made["metadata"]


def test_roles_and_some_others_may_be_called_what_fits_into_a_path() -> None:
    """As it was: each ClusterRole of a chart or a dump, as ``system:basic-user``, was refused."""
    rbac = "rbac.authorization.k8s.io/v1"
    named = [
        *((rbac, "ClusterRole", "system:A_b c"), (rbac, "RoleBinding", "kube-system:x"), ("v1", "Event", "a:b")),
        *(("apiregistration.k8s.io/v1", "APIService", "v1."), ("networking.k8s.io/v1", "IPAddress", "fd00::1")),
        *(("policy/v1", "PodDisruptionBudget", "A_b"), (rbac, "Role", "a/b"), (rbac, "Role", "..")),
        ("v1", "ConfigMap", "a:b"),
    ]
    found, refused, _ = offered({"apiVersion": v, "kind": kind, "metadata": {"name": name}} for v, kind, name in named)
    assert [obj["metadata"]["name"] for obj in found] == [name for _, _, name in named[:6]]
    assert [str(error).partition("metadata.name: ")[2][:44] for error in refused] == [
        "Invalid value: \"a/b\": may not contain '/'",
        "Invalid value: \"..\": may not be '..'",
        'Invalid value: "a:b": a lowercase RFC 1123 s',
    ]


KATA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "500m"}},
    "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}


def test_a_runtime_class_adds_what_the_api_server_adds() -> None:
    """As it was: pods were placed without its overhead, and on nodes where it is not."""
    job = workload("Job", "j")
    job["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    for asked in (pod("a", runtimeClassName="kata", nodeSelector={"zone": "a"}), job):
        spec = {obj["kind"]: obj for obj in served([asked, KATA])}["Pod"]["spec"]
        assert spec["overhead"] == {"cpu": "500m"}
        assert spec["nodeSelector"]["kata"] == "yes"
        assert {"key": "kata", "operator": "Exists"} in spec["tolerations"]
    for own in ({"overhead": {"cpu": "1"}}, {"nodeSelector": {"kata": "no"}}):
        with pytest.raises(ApiError, match='pods "a" is forbidden'):
            served([KATA, pod("a", runtimeClassName="kata", **own)])
    _, refused, _ = offered([KATA | {"scheduling": 5}, pod("a", runtimeClassName="kata")])
    assert [error.code for error in refused] == [400, 403]


def test_a_limit_range_says_what_pods_of_its_namespace_ask_for_wherever_it_stands() -> None:
    """As it was: it was told as unread, and such pods were placed as if they asked for nothing."""
    bounds = {"type": "Container", "defaultRequest": {"cpu": "1500m"}, "max": {"cpu": "2"}}
    about = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "x"}}
    limit_range = {**about, "spec": {"limits": [bounds]}}
    small = pod("small", cpu="3")
    small["metadata"]["namespace"] = "x"
    del small["spec"]["containers"][0]["resources"]
    large = pod("large")
    large["metadata"]["namespace"] = "x"
    large["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "3"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    found, refused, _ = offered([small, large, pod("elsewhere", cpu="3"), limit_range, namespace])
    asked = {
        obj["metadata"]["name"]: obj["spec"]["containers"][0]["resources"] for obj in found if obj["kind"] == "Pod"
    }
    assert asked == {
        "small": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}},
        "elsewhere": {"requests": {"cpu": "3"}},
    }
    assert [error.told for error in refused] == [
        'pods "large" is forbidden: maximum cpu usage per Container is 2, but limit is 3 (namespace x)'
    ]
    (without,) = served([about])
    assert "spec" not in without
    assert simulate([limit_range, small]).unread == {}

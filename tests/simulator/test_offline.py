"""Objects as the API server would list them, without a server, a clock or chance."""

from __future__ import annotations

import pytest

from services.simulator.errors import ApiError
from services.simulator.offline import served
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


def test_what_a_server_would_refuse_is_refused() -> None:
    with pytest.raises(ApiError, match="already exists"):
        served([pod("a"), pod("a")])
    with pytest.raises(ApiError, match="no PriorityClass with name nobody was found"):
        served([pod("a", priorityClassName="nobody")])

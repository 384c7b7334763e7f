"""What a pod requests: our arithmetic against Kubernetes' own code, on generated pods."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.e2e.api import MERGE, Api, path_of
from deploy.e2e.build import BIN
from deploy.e2e.release import installed_minor
from deploy.e2e.workload import node, pod
from services.ingest.quantities import key
from services.ingest.requests import SUMS_SINCE, pod_requests
from services.kubernetes.objects import Pod
from tests.e2e.cluster import Muster, until

NAMES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/fraction")
amounts = st.integers(0, 5000)
quantities = st.one_of(
    st.builds("{}{}".format, amounts, st.sampled_from(["", "m", "u", "n", "k", "M", "Ki", "Mi", "e3", "E2", "e-2"])),
    st.builds(
        "{}.{:03}{}".format, st.integers(0, 99), st.integers(0, 999), st.sampled_from(["", "m", "Gi", "Mi", "k"])
    ),
)
resources = st.dictionaries(st.sampled_from(NAMES), quantities, max_size=4)
requirements = st.fixed_dictionaries({}, optional={"requests": resources, "limits": resources})
named = st.sampled_from([f"c{number}" for number in range(4)])


def containers(**more: Any) -> Any:
    one = st.fixed_dictionaries({"name": named}, optional={"resources": requirements, **more})
    return st.lists(one, max_size=3, unique_by=lambda container: container["name"])


status = st.fixed_dictionaries({"name": named}, optional={"resources": requirements, "allocatedResources": resources})
conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["PodResizePending", "PodResizeInProgress", "Ready"]),
            "status": st.just("True"),
            "reason": st.sampled_from(["Infeasible", "Deferred", ""]),
        }
    ),
    max_size=2,
)
pods = st.fixed_dictionaries(
    {
        "metadata": st.just({"name": "pod", "namespace": "default"}),
        "spec": st.fixed_dictionaries(
            {"containers": containers()},
            optional={
                "initContainers": containers(restartPolicy=st.just("Always")),
                "overhead": resources,
                "resources": requirements,
            },
        ),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "containerStatuses": st.lists(status, max_size=2),
                "initContainerStatuses": st.lists(status, max_size=2),
                "conditions": conditions,
                "resources": requirements,
                "allocatedResources": resources,
            },
        ),
    }
)


@pytest.fixture(scope="module")
def podrequests() -> Any:
    """Asks Kubernetes' code; one process for the whole test."""
    with subprocess.Popen([BIN / "podrequests"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(pod: dict[str, Any]) -> dict[str, int]:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(pod) + "\n")
            process.stdin.flush()
            answer: dict[str, int] = json.loads(process.stdout.readline())
            return answer

        yield ask
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def minor() -> int:
    """Of Kubernetes 1.x, whose code it is."""
    said = subprocess.run([BIN / "podrequests", "--version"], check=True, capture_output=True, text=True).stdout
    return int(said.split(".")[1])


@given(generated=pods)
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
def test_requests_are_those_of_component_helpers(podrequests: Any, minor: int, generated: dict[str, Any]) -> None:
    theirs = {key(name): amount for name, amount in podrequests(generated).items() if amount}
    problems: list[Any] = []
    ours = pod_requests(msgspec.convert(generated, Pod), problems, minor)
    assert not problems
    assert ours == theirs | {"pods": 1}


async def run_with_more(api: Api) -> None:
    """On a node for three cores a pod of another scheduler's, which asks for one and has two allocated."""
    await api.create(node("only", cpu="3"))
    running = pod("running", scheduler="another", cpu="1", nodeName="only")
    await api.create(running)
    told = {"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}
    status = {"phase": "Running", "containerStatuses": [told | {"allocatedResources": {"cpu": "2"}}]}
    await api.call("PATCH", f"{path_of(running)}/status", {"status": status}, MERGE)


async def test_what_runs_is_counted_as_the_api_servers_version_counts(api: Api, muster: Muster) -> None:
    """A container that has more allocated than it asks for: since 1.37 that counts, used or not."""
    await run_with_more(api)
    await api.create(pod("asking", cpu="1500m"))
    muster.start_all()
    if installed_minor() < SUMS_SINCE:
        assert await muster.until_bound(2) == {"running": "only", "asking": "only"}
        return

    async def refused() -> bool:
        return "Insufficient cpu" in (await muster.condition("asking")).get("message", "")

    await until(refused, "there is no room for it")
    assert await muster.bound() == {"running": "only"}

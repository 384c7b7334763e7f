"""The Kubernetes backend against a real API server, with Muster as the scheduler and Kubernetes' own controllers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from deploy.e2e.api import Api
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.processes import Process
from deploy.e2e.workload import nodes
from services.federator.backends import (
    FAILED,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    WAITING,
    Absent,
    Accepted,
    Described,
    Listing,
    Refused,
    Run,
    Submission,
    Taken,
)
from services.federator.backends.gangs import job_names
from services.federator.backends.kubernetes import Kubernetes
from services.federator.specialize import to_yaml
from services.kubernetes import access
from tests.e2e.cluster import Muster, until
from tests.federator.backends.sites import OWNER, job

NAME = "train"
FIRST, OTHERS = job_names(NAME, OWNER)
GIVEN = Submission(name=NAME, body=to_yaml(job(NAME, roles=2)).encode())
STARTED = "2026-01-01T00:00:00Z"
ROLE = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]
"""What docs/federation.md says that the backend needs."""


@pytest.fixture
def controllers(control_plane: ControlPlane, api: Api) -> Iterator[Process]:
    manager = control_plane.start_controllers("job-controller", "garbage-collector-controller")
    yield manager
    manager.stop()


@pytest.fixture
async def backend(control_plane: ControlPlane, api: Api) -> AsyncIterator[Kubernetes]:
    """With no more rights than it needs."""
    for kind, spec in (
        ("ServiceAccount", {}),
        ("Role", {"rules": ROLE}),
        (
            "RoleBinding",
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "federated"},
                "subjects": [{"kind": "ServiceAccount", "name": "federated", "namespace": "default"}],
            },
        ),
    ):
        version = "v1" if kind == "ServiceAccount" else "rbac.authorization.k8s.io/v1"
        metadata = {"name": "federated", "namespace": "default"}
        await api.apply({"apiVersion": version, "kind": kind, "metadata": metadata} | spec)
    token = await api.token_for("default", "federated")
    reached = access.load(str(control_plane.kubeconfig("federated", token)))
    opened = Kubernetes(reached, "default")
    yield opened
    await opened.close()


async def told(api: Api, phase: str, prefix: str = NAME) -> None:
    """The test is the kubelet: KWOK ends Jobs' pods as soon as they run."""
    state = {"running": {"startedAt": STARTED}} if phase == "Running" else {"terminated": {"exitCode": 0}}
    container = {"name": "app", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    for name in await api.names("/api/v1/namespaces/default/pods"):
        if name.startswith(prefix):
            status = {"status": {"phase": phase, "containerStatuses": [container]}}
            path = f"/api/v1/namespaces/default/pods/{name}/status"
            await api.call("PATCH", path, status, "application/merge-patch+json")


async def gone(api: Api) -> None:
    """The kubelets have ended all pods that are to go."""

    async def empty() -> bool:
        await api.delete("/api/v1/namespaces/default/pods")
        return not await api.names("/api/v1/namespaces/default/pods")

    await until(empty, "no pod is left")


async def run(backend: Kubernetes) -> Run | None:
    found = await backend.observe()
    assert isinstance(found, Listing), found
    return next((one for one in found.runs if one.name == NAME), None)


async def seen(backend: Kubernetes, state: str) -> Run:
    found: list[Run] = []

    async def is_so() -> bool:
        now = await run(backend)
        if now is not None and now.state == state:
            found.append(now)
        return bool(found)

    await until(is_so, f"the run to be {state}")
    return found[0]


async def started(backend: Kubernetes, muster: Muster, api: Api) -> str:
    await api.create_all(nodes(2))
    muster.start_all()
    answer = await backend.submit(GIVEN)
    assert isinstance(answer, Accepted), answer
    assert isinstance(await backend.release(GIVEN, answer.uid), Accepted)
    await muster.until_bound(4)
    await told(api, "Running")
    await seen(backend, RUNNING)
    return answer.uid


async def test_two_task_roles_from_held_to_cleared(
    api: Api, muster: Muster, controllers: Process, backend: Kubernetes
) -> None:
    await api.create_all(nodes(2))
    muster.start_all()
    answer = await backend.submit(GIVEN)
    assert isinstance(answer, Accepted), answer
    assert await backend.submit(GIVEN) == Taken()

    async def looked_at() -> bool:
        made = await api.get(f"/apis/batch/v1/namespaces/default/jobs/{FIRST}")
        return bool(made["status"].get("conditions"))

    await until(looked_at, "the Job's controller has looked at it")
    assert (await seen(backend, WAITING)).held
    assert await api.names("/api/v1/namespaces/default/pods") == []
    assert isinstance(await backend.release(GIVEN, answer.uid), Accepted)
    assert isinstance(await backend.release(GIVEN, answer.uid), Accepted), "as often as one likes"
    assert len(await muster.until_bound(4)) == 4
    placed = await seen(backend, WAITING)
    assert placed.placed
    await told(api, "Running")
    running = await seen(backend, RUNNING)
    assert running.uid == answer.uid
    assert running.started_ms > 0
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner == OWNER
    assert isinstance(await backend.stop(NAME, answer.uid), Accepted)
    await seen(backend, STOPPING)
    await gone(api)
    await seen(backend, STOPPED)
    assert await backend.submit(GIVEN) == Taken()
    assert isinstance(await backend.clear(NAME, answer.uid), Accepted)

    async def nothing_left() -> bool:
        jobs = await api.names("/apis/batch/v1/namespaces/default/jobs")
        return not jobs and not await api.names("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups")

    await until(nothing_left, "the garbage collector has taken the rest")
    assert await backend.clear(NAME, answer.uid) == Absent()
    assert await backend.release(GIVEN, answer.uid) == Absent()
    late = await backend.submit(GIVEN)
    assert isinstance(late, Accepted)
    assert late.uid != answer.uid
    assert await backend.release(GIVEN, answer.uid) == Absent(), "it means the one that is gone"
    assert await backend.stop(NAME, answer.uid) == Absent()
    assert await backend.clear(NAME, answer.uid) == Absent()
    assert (await seen(backend, WAITING)).held
    assert isinstance(await backend.clear(NAME, late.uid), Accepted)
    await muster.check()


async def suspended(api: Api, backend: Kubernetes, job: str) -> None:
    """Whoever looks at the run suspends what is left of it."""

    async def is_so() -> bool:
        await run(backend)
        made = await api.get(f"/apis/batch/v1/namespaces/default/jobs/{job}")
        return bool(made["spec"]["suspend"])

    await until(is_so, "the other role's Job to be suspended")


async def test_with_the_role_that_fails_the_other_ends(
    api: Api, muster: Muster, controllers: Process, backend: Kubernetes
) -> None:
    await started(backend, muster, api)
    await told(api, "Failed", OTHERS)
    await seen(backend, STOPPING)

    await suspended(api, backend, FIRST)
    await gone(api)
    await seen(backend, FAILED)
    made = await api.get(f"/apis/batch/v1/namespaces/default/jobs/{FIRST}")
    assert made["spec"]["suspend"], json.dumps(made["status"])


async def test_a_stop_of_what_is_over_changes_nothing(
    api: Api, muster: Muster, controllers: Process, backend: Kubernetes
) -> None:
    uid = await started(backend, muster, api)
    await told(api, "Succeeded")
    over = await seen(backend, "succeeded")
    assert isinstance(await backend.stop(NAME, uid), Accepted)
    assert await run(backend) == over


async def test_a_role_that_succeeded_ends_the_other(
    api: Api, muster: Muster, controllers: Process, backend: Kubernetes
) -> None:
    """Each decides, as nothing else is said; the other one's pods run on until somebody sees it."""
    await started(backend, muster, api)
    for index in range(2):
        await told(api, "Succeeded", f"{FIRST}-{index}-")

    await suspended(api, backend, f"{OTHERS}-1")
    await gone(api)
    await seen(backend, SUCCEEDED)


@pytest.fixture
async def office_hours(api: Api) -> AsyncIterator[None]:
    """A policy by which no Job is let go."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
    denied = {"expression": "object.spec.suspend == true", "message": "not in office hours"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denied], "failurePolicy": "Fail"}
    binding = {"policyName": "office-hours", "validationActions": ["Deny"]}
    version, metadata = "admissionregistration.k8s.io/v1", {"name": "office-hours"}
    made = {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": binding}
    paths = [f"/apis/{version}/validatingadmissionpolic{end}" for end in ("ies", "ybindings")]
    for path, (kind, of_kind) in zip(paths, made.items(), strict=True):
        await api.call("POST", path, {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": of_kind})
    yield
    for path in paths:
        await api.delete(f"{path}/office-hours")


async def test_a_release_that_a_policy_denies_is_refused(api: Api, backend: Kubernetes, office_hours: None) -> None:
    """The API server answers 422, as to a JSON Patch whose tests fail."""
    probes = (Submission(name=f"probe-{n}", body=to_yaml(job(f"probe-{n}")).encode()) for n in count())

    async def in_force() -> bool:
        probe = next(probes)
        answer = await backend.submit(probe)
        assert isinstance(answer, Accepted), answer
        return isinstance(await backend.release(probe, answer.uid), Refused)

    await until(in_force, "the policy to be in force")
    answer = await backend.submit(GIVEN)
    assert isinstance(answer, Accepted), answer
    refused = await backend.release(GIVEN, answer.uid)
    assert isinstance(refused, Refused), refused
    assert "not in office hours" in refused.message
    assert (await seen(backend, WAITING)).held

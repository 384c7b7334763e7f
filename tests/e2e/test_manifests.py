"""What `deploy/` says to Kubernetes: each manifest is accepted, and each service may do what it calls and no more."""

from __future__ import annotations

import pytest

from deploy.e2e.api import Api, ApiError, path_of
from tests.e2e.cluster import MANIFESTS, NAMESPACE, documents


async def test_every_manifest_passes_a_server_side_dry_run(api: Api) -> None:
    applied = 0
    for file in sorted(MANIFESTS.glob("*.yaml")):
        for document in documents(file):
            answer = await api.apply(document, dry_run=True)
            assert path_of(answer) == path_of(document), file
            applied += 1
    assert applied > 10


CUSTOM = (
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.incubator.k8s.io",
    "scheduling.sigs.dev",
    "scheduling.volcano.sh",
)
ALLOWED = {
    "ingest": {
        ("list", "", "nodes"),
        ("watch", "", "nodes"),
        ("list", "", "pods"),
        ("watch", "", "pods"),
        ("list", "scheduling.k8s.io", "priorityclasses"),
        ("watch", "scheduling.k8s.io", "priorityclasses"),
        *((verb, group, "podgroups") for verb in ("list", "watch") for group in (*CUSTOM, "scheduling.k8s.io")),
        *((verb, "scheduling.k8s.io", "workloads") for verb in ("list", "watch")),
    },
    "binder": {
        ("get", "", "pods"),
        ("patch", "", "pods"),
        ("create", "", "pods/binding"),
        ("create", "", "pods/eviction"),
        ("patch", "", "pods/status"),
        ("create", "events.k8s.io", "events"),
        *(("patch", group, "podgroups/status") for group in (*CUSTOM, "scheduling.k8s.io")),
        *((verb, group, "podgroups") for verb in ("get", "patch") for group in CUSTOM),
        ("get", "scheduling.k8s.io", "podgroups"),
    },
    "planner": set(),
    "feed": set(),
    "federator": set(),
    "keeper": set(),
    "nats": set(),
}


@pytest.mark.parametrize("service", sorted(ALLOWED))
async def test_a_service_may_do_what_it_calls_and_no_more(api: Api, service: str) -> None:
    asked = {one for allowed in ALLOWED.values() for one in allowed} | {
        ("delete", "", "pods"),
        ("create", "", "pods"),
        ("update", "", "pods"),
        ("patch", "", "pods"),
        ("patch", "scheduling.k8s.io", "podgroups"),
        ("delete", "scheduling.volcano.sh", "podgroups"),
        ("create", "", "events"),
        ("patch", "events.k8s.io", "events"),
        ("list", "", "secrets"),
        ("get", "", "secrets"),
        ("patch", "", "nodes"),
        ("create", "", "serviceaccounts/token"),
    }
    granted = {one for one in asked if await may(api, service, *one)}
    assert granted == ALLOWED[service]


async def may(api: Api, service: str, verb: str, group: str, resource: str) -> bool:
    """Asks the apiserver's own authorizer."""
    name, _, sub = resource.partition("/")
    attributes = {"namespace": "default", "verb": verb, "group": group, "resource": name, "subresource": sub}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{service}", "groups": groups, "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def test_the_pods_pass_the_restricted_pod_security_standard(api: Api) -> None:
    """The namespace enforces it: a pod made from each template is admitted."""
    admitted = []
    for file in sorted(MANIFESTS.glob("*.yaml")):
        for document in documents(file):
            if document["kind"] in ("Deployment", "StatefulSet", "CronJob"):
                name, spec = document["metadata"]["name"], document["spec"]
                pod = spec.get("jobTemplate", document)["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
                pod["metadata"] |= {"name": name, "namespace": NAMESPACE}
                if document["kind"] == "StatefulSet":
                    pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
                await api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
                admitted.append(name)
                del pod["spec"]["securityContext"]
                with pytest.raises(ApiError, match="violates PodSecurity"):
                    await api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
    assert sorted(admitted) == ["binder", "federator", "feed", "ingest", "nats", "planner", "retention"]

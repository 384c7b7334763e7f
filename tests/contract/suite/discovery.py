"""What an API says of itself."""

from __future__ import annotations

import pytest

from tests.contract.client import Answer, Client, eventually


async def test_discovery_names_what_is_served(client: Client) -> None:
    assert (await client.get("/api")).ok()["versions"] == ["v1"]
    groups = {group["name"] for group in (await client.get("/apis")).ok()["groups"]}
    assert {"apps", "batch", "events.k8s.io", "scheduling.k8s.io", "coordination.k8s.io"} <= groups
    core = (await client.get("/api/v1")).ok()
    assert core["kind"] == "APIResourceList"
    by_name = {resource["name"]: resource for resource in core["resources"]}
    assert {"pods", "pods/status", "pods/binding", "pods/eviction", "nodes", "events", "namespaces"} <= by_name.keys()
    assert by_name["pods"]["namespaced"] is True
    assert by_name["nodes"]["namespaced"] is False
    assert by_name["pods"]["kind"] == "Pod"
    assert (await client.get("/version")).ok()["major"] == "1"
    assert (await client.get("/readyz")).code == 200


CALLED = {
    "/api/v1": {"pods": "po", "nodes": "no", "namespaces": "ns", "limitranges": "limits", "events": "ev"},
    "/apis/apps/v1": {"deployments": "deploy", "replicasets": "rs", "statefulsets": "sts", "daemonsets": "ds"},
    "/apis/batch/v1": {"jobs": ""},
    "/apis/scheduling.k8s.io/v1": {"priorityclasses": "pc"},
    "/apis/node.k8s.io/v1": {"runtimeclasses": ""},
    "/apis/events.k8s.io/v1": {"events": "ev"},
    "/apis/apiextensions.k8s.io/v1": {"customresourcedefinitions": "crd crds"},
}
IN_ALL = {"pods", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs"}


@pytest.mark.parametrize("path", CALLED)
async def test_discovery_says_what_users_call_it(client: Client, path: str) -> None:
    """kubectl knows none of these names by itself."""
    told = {resource["name"]: resource for resource in (await client.get(path)).ok()["resources"]}
    assert {name: " ".join(told[name].get("shortNames", [])) for name in CALLED[path]} == CALLED[path]
    assert {name for name in CALLED[path] if "all" in told[name].get("categories", [])} == IN_ALL & CALLED[path].keys()


async def test_a_kind_that_users_call_by_its_name_alone_may_say_so(client: Client) -> None:
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "shortNames": None, "categories": None}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.dev"},
        "spec": {"group": "example.dev", "names": names, "scope": "Namespaced", "versions": [version]},
    }
    (await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).ok(201)
    served = await eventually(lambda: client.get("/apis/example.dev/v1"), lambda answer: answer.code == 200)
    assert [one["name"] for one in served.body["resources"]] == ["things"]


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_aggregated_discovery_names_every_resource_in_one_answer(crd: Client) -> None:
    def found(answer: Answer) -> dict[tuple[str, str], dict[str, list[str]]]:
        return {
            (group["metadata"]["name"], version["version"]): {
                resource["resource"]: [sub["subresource"] for sub in resource.get("subresources", [])]
                for resource in version["resources"]
            }
            for group in answer.ok()["items"]
            for version in group["versions"]
        }

    answer = await eventually(
        lambda: crd.get("/apis", accept=AGGREGATED), lambda answer: ("scheduling.x-k8s.io", "v1alpha1") in found(answer)
    )
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert answer.media_type == AGGREGATED, "by which kubectl knows that it is not the older list of groups"
    served = found(answer)
    assert served["scheduling.x-k8s.io", "v1alpha1"] == {"podgroups": ["status"]}
    assert "priorityclasses" in served["scheduling.k8s.io", "v1"]
    assert "status" in served["apps", "v1"]["deployments"]
    apps = next(group for group in answer.body["items"] if group["metadata"]["name"] == "apps")
    deployments = next(one for one in apps["versions"][0]["resources"] if one["resource"] == "deployments")
    assert (deployments["shortNames"], deployments["categories"]) == (["deploy"], ["all"])


async def test_a_group_that_is_not_served_is_a_plain_404(client: Client) -> None:
    answer = await client.get("/apis/nobody.example/v1/things")
    assert answer.code == 404
    assert "404 page not found" in str(answer.body)

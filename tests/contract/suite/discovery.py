"""What an API says of itself."""

from __future__ import annotations

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


async def test_a_group_that_is_not_served_is_a_plain_404(client: Client) -> None:
    answer = await client.get("/apis/nobody.example/v1/things")
    assert answer.code == 404
    assert "404 page not found" in str(answer.body)

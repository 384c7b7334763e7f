"""LimitRanges: what they add to a pod, and what is refused for them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import MERGE, Client, Object, pod

GPU = "example.com/gpu"


async def limited(client: Client, **bounds: Any) -> Object:
    """A LimitRange with one item: its spec as it is served."""
    body = {"metadata": {"name": "l"}, "spec": {"limits": [bounds]}}
    made = (await client.post(f"{client.core}/limitranges", body)).ok(201)
    (item,) = made["spec"]["limits"]
    return item


def asking(*resources: Object, first: Object | None = None, sidecar: Object | None = None, **spec: Any) -> Object:
    """A pod whose containers do; `first`: an init container, and with `sidecar` another before it."""
    body = pod("a", **spec)
    named = [(f"c{index}", asked) for index, asked in enumerate(resources)]
    body["spec"]["containers"] = [{"name": name, "image": "x", "resources": asked} for name, asked in named]
    initial = []
    if sidecar is not None:
        initial.append({"name": "sidecar", "image": "x", "restartPolicy": "Always", "resources": sidecar})
    if first is not None:
        initial.append({"name": "first", "image": "x", "resources": first})
    return body if not initial else {**body, "spec": {**body["spec"], "initContainers": initial}}


def requesting(cpu: str, limit: str = "", **more: str) -> Object:
    return {"requests": {"cpu": cpu, **more}, **({"limits": {"cpu": limit}} if limit else {})}


def limiting(**limits: str) -> Object:
    return {"limits": limits}


@pytest.mark.parametrize(
    ("bounds", "asked", "made"),
    [
        ({"default": {"cpu": "2"}}, {}, ({"cpu": "2"}, {"cpu": "2"})),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, {}, ({"cpu": "1"}, {"cpu": "2"})),
        ({"max": {"cpu": "2"}}, {}, ({"cpu": "2"}, {"cpu": "2"})),
        ({"min": {"cpu": "1"}}, {}, ({"cpu": "1"}, {})),
        ({"min": {"cpu": "1"}, "max": {"cpu": "3"}, "default": {"cpu": "2"}}, {}, ({"cpu": "2"}, {"cpu": "2"})),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, limiting(cpu="3"), ({"cpu": "3"}, {"cpu": "3"})),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, requesting("2"), ({"cpu": "2"}, {"cpu": "2"})),
        ({"default": {GPU: "1"}}, requesting("1"), ({"cpu": "1", GPU: "1"}, {GPU: "1"})),
    ],
)
async def test_what_a_container_does_not_say_is_added(
    client: Client, bounds: Object, asked: Object, made: tuple[Object, Object]
) -> None:
    await limited(client, type="Container", **bounds)
    spec = (await client.post(client.pods, asking(asked, first=asked))).ok(201)["spec"]
    for container in (*spec["containers"], *spec["initContainers"]):
        resources = container["resources"]
        assert (resources.get("requests", {}), resources.get("limits", {})) == made


async def test_a_pod_that_says_nothing_is_no_best_effort_in_such_a_namespace(client: Client) -> None:
    await limited(client, type="Container", default={"cpu": "1", "memory": "1Gi"})
    assert (await client.post(client.pods, asking({}))).ok(201)["status"]["qosClass"] == "Guaranteed"


MIN, MAX, RATIO = ({bound: {"cpu": "2"}} for bound in ("min", "max", "maxLimitRequestRatio"))
OVER, UNDER = "maximum cpu usage per {} is 2", "minimum cpu usage per {} is 2"
TIMES = "cpu max limit to request ratio per {} is 2"


@pytest.mark.parametrize(
    ("kind", "bounds", "body", "why"),
    [
        ("Container", MIN, asking(requesting("1500m")), f"{UNDER}, but request is 1500m"),
        ("Container", MIN, asking(requesting("2")), ""),
        ("Container", MIN, asking(requesting("2"), first=requesting("1")), f"{UNDER}, but request is 1"),
        ("Container", MAX, asking(limiting(cpu="2001m")), f"{OVER}, but limit is 2001m"),
        ("Container", MAX, asking(limiting(cpu="2")), ""),
        ("Container", MAX, asking(limiting(cpu="3"), limiting(cpu="3")), f"{OVER}, but limit is 3"),
        ("Container", RATIO, asking({}), f"{TIMES}, but no request is specified or request is 0"),
        ("Container", RATIO, asking(requesting("1")), f"{TIMES}, but no limit is specified or limit is 0"),
        ("Container", RATIO, asking(requesting("1", "2100m")), f"{TIMES}, but provided ratio is 2.100000"),
        ("Container", RATIO, asking(requesting("1", "2")), ""),
        ("Container", {**MIN, **MAX}, asking(requesting("2", "2")), ""),
        ("Container", {**RATIO, "min": {"memory": "1Gi"}}, asking(requesting("1", "3", memory="1")), "["),
        ("Pod", MIN, asking({}), f"{UNDER}.  No request is specified"),
        ("Pod", MIN, asking(requesting("1"), requesting("900m")), f"{UNDER}, but request is 1900m"),
        ("Pod", MIN, asking(requesting("1"), requesting("1")), ""),
        ("Pod", MIN, asking(requesting("1"), first=requesting("2")), ""),
        ("Pod", MAX, asking(requesting("1")), f"{OVER}.  No limit is specified"),
        ("Pod", MAX, asking(limiting(cpu="1"), limiting(cpu="1"), limiting(cpu="1")), f"{OVER}, but limit is 3"),
        ("Pod", MAX, asking(limiting(cpu="1"), limiting(cpu="1"), first=limiting(cpu="2")), ""),
        (
            "Pod",
            MAX,
            asking(limiting(cpu="1"), sidecar=limiting(cpu="1"), first=limiting(cpu="2")),
            f"{OVER}, but limit is 3",
        ),
        ("Pod", MAX, asking({}, resources=limiting(cpu="3")), f"{OVER}, but limit is 3"),
        (
            "Pod",
            {"max": {"memory": "1Gi"}},
            asking(limiting(memory="512Mi"), limiting(memory="1Gi")),
            "maximum memory usage per Pod is 1Gi, but limit is 1536Mi",
        ),
        ("Pod", RATIO, asking(requesting("1", "2"), requesting("1", "3")), f"{TIMES}, but provided ratio is 2.500000"),
        ("PersistentVolumeClaim", {"max": {"storage": "1Gi"}}, asking({}), ""),
    ],
)
async def test_what_goes_beyond_the_bounds_is_forbidden(
    client: Client, kind: str, bounds: Object, body: Object, why: str
) -> None:
    await limited(client, type=kind, **bounds)
    answer = await client.post(client.pods, body)
    if not why:
        answer.ok(201)
    else:
        told = answer.refused(403, "Forbidden")["message"]
        assert told.startswith(f'pods "a" is forbidden: {why.format(kind)}')


async def test_bounds_complete_each_other(client: Client) -> None:
    item = await limited(client, type="Container", min={"cpu": "1", "memory": "1Gi"}, max={"cpu": "3"})
    assert item["default"] == {"cpu": "3"}
    assert item["defaultRequest"] == {"cpu": "3", "memory": "1Gi"}
    path = f"{client.core}/limitranges/l"
    patch = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}
    (item,) = (await client.patch(path, patch, MERGE)).ok()["spec"]["limits"]
    assert item["defaultRequest"] == {"cpu": "2"}
    (await client.patch(path, {"spec": {"limits": [{"type": "pod"}]}}, MERGE)).refused(422, "Invalid")


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([{"type": "pod"}], "limits[0].type"),
        ([{"type": ""}], "limits[0].type"),
        ([{"type": "Pod"}, {"type": "Pod"}], "limits[1].type"),
        ([{"type": "Pod", "default": {"cpu": "1"}}], "limits[0].default"),
        ([{"type": "Pod", "defaultRequest": {"cpu": "1"}}], "limits[0].defaultRequest"),
        ([{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}], "limits[0].min[cpu]"),
        ([{"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"}}], "limits[0].default[cpu]"),
        ([{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}}], "limits[0].default[cpu]"),
        ([{"type": "Container", "max": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}], "limits[0].defaultRequest[cpu]"),
        ([{"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}], "limits[0].defaultRequest[cpu]"),
        (
            [{"type": "Container", "default": {GPU: "2"}, "defaultRequest": {GPU: "1"}}],
            f"limits[0].defaultRequest[{GPU}]",
        ),
        ([{"type": "Pod", "maxLimitRequestRatio": {"cpu": "0.5"}}], "limits[0].maxLimitRequestRatio[cpu]"),
        (
            [{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}],
            "limits[0].maxLimitRequestRatio[cpu]",
        ),
        ([{"type": "Container", "max": {"gpu": "1"}}], "limits[0].max[gpu]"),
        *(
            ([{"type": "Pod", **bounds, "maxLimitRequestRatio": {"cpu": ratio}}], "")
            for bounds, ratio in (
                ({}, "1"),
                ({"min": {"cpu": "1"}}, "3"),
                ({"max": {"cpu": "1"}}, "3"),
                ({"min": {"cpu": "500m"}, "max": {"cpu": "1"}}, "2"),
            )
        ),
        (
            [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}],
            "limits[0].defaultRequest[cpu]",
        ),
        ([{"type": "PersistentVolumeClaim", "min": {"storage": "1"}}], ""),
        ([{"type": "a b/c"}], "limits[0].type"),
        ([{"type": "PersistentVolumeClaim"}], "limits[0].limits"),
        ([{"type": "example.com/Volume", "max": {"storage": "1"}}], ""),
        ([], ""),
    ],
)
async def test_a_limit_range_that_contradicts_itself_is_refused(
    client: Client, items: list[Object], field: str
) -> None:
    answer = await client.post(f"{client.core}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": items}})
    if not field:
        answer.ok(201)
    else:
        causes = answer.refused(422, "Invalid")["details"]["causes"]
        assert f"spec.{field}" in {cause["field"] for cause in causes}

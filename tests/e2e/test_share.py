"""API Priority and Fairness gives Muster's accounts one seat, and turns away who asks while it is taken."""

from __future__ import annotations

import re
from typing import Any

from deploy.e2e.api import Api, Object
from deploy.e2e.workload import gang, nodes, pod_group
from tests.e2e.cluster import Muster

FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
PODS = 200
REJECTED = re.compile(r'^apiserver_flowcontrol_rejected_requests_total\{.*priority_level="tight".*\} (\d+)$', re.M)


def level(name: str, shares: int) -> Object:
    limited: Object = {"nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0}
    limited["limitResponse"] = {"type": "Reject"}
    return made("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def made(kind: str, name: str, spec: dict[str, Any]) -> Object:
    return {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def flow() -> Object:
    """All of Muster's accounts, whatever they ask for."""
    group = {"kind": "Group", "group": {"name": "system:serviceaccounts:muster-system"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    rule = {"subjects": [group], "resourceRules": [everything]}
    spec = {"priorityLevelConfiguration": {"name": "tight"}, "matchingPrecedence": 2, "rules": [rule]}
    return made("FlowSchema", "tight", spec)


async def turned_away(api: Api) -> int:
    async with api.session.get(f"{api.url}/metrics") as answer:
        return sum(map(int, REJECTED.findall(await answer.text())))


async def test_with_one_seat_few_are_asked_for_at_once(api: Api, muster: Muster) -> None:
    """As it was: 64 at once, of which one came through; the others were asked for again together, a second later."""
    muster.start_all()
    await api.create_all(nodes(50))
    made = {"prioritylevelconfigurations": [level("others", 100_000), level("tight", 1)], "flowschemas": [flow()]}
    paths = [f"{FLOWS}/{kind}/{one['metadata']['name']}" for kind, several in made.items() for one in several]
    for kind, several in made.items():
        for one in several:
            await api.call("POST", f"{FLOWS}/{kind}", one)
    try:
        await api.create(pod_group("train", PODS))
        await api.create_all(gang("train", PODS, gpus=0))
        await muster.until_bound(PODS)
        away = await turned_away(api)
    finally:
        for path in reversed(paths):
            await api.delete(path)
    await muster.check()
    print(f"of {PODS} bindings, and what else was asked for meanwhile, {away} requests were turned away")
    assert 0 < away < 10 * PODS

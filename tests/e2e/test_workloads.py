"""Workloads whose controllers change them while their pods are a gang."""

from __future__ import annotations

from deploy.e2e.api import MERGE, Api, Object
from deploy.e2e.processes import Process
from deploy.e2e.workload import GANG_LABEL, node, pod, pod_group
from tests.e2e.cluster import Muster, until

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/serve"


def template(cpu: str) -> Object:
    return {"metadata": {"labels": {GANG_LABEL: "serve"}}, "spec": pod("", cpu=cpu)["spec"]}


async def test_a_rollout_of_a_gang_that_asks_for_something_else(
    api: Api, muster: Muster, kubelets: Process, controllers: Process
) -> None:
    """It has room for one pod more than the gang has. Those that are replaced leave theirs to the new ones."""
    muster.start_all()
    await api.create(node("alone", gpus=7, kubelet=True))
    await api.create(pod_group("serve", 6))
    strategy = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 2}}
    spec = {"replicas": 6, "selector": {"matchLabels": {GANG_LABEL: "serve"}}, "strategy": strategy}
    metadata = {"name": "serve", "namespace": "default"}
    await api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": spec | {"template": template("1")},
        }
    )

    async def rolled_out() -> bool:
        found = await api.get(DEPLOYMENT)
        status = found["status"]
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and all(status.get(count) == 6 for count in ("replicas", "updatedReplicas", "readyReplicas"))

    await until(rolled_out, "the gang runs")
    await api.call("PATCH", DEPLOYMENT, {"spec": {"template": template("2")}}, MERGE)
    await until(rolled_out, "it runs anew", timeout_s=40)
    await muster.check()

"""Bindings that an admission policy forbids, and evictions that a disruption budget does not let through."""

from __future__ import annotations

from deploy.e2e.api import MERGE, Api, ApiError, Object, path_of
from deploy.e2e.processes import Process
from deploy.e2e.workload import GANG_LABEL, gang, nodes, pod, pod_group
from services.state.fold import State
from tests.e2e.cluster import Muster, until

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/tight"
FORBIDDEN = 403


async def forbid_bindings(api: Api, name: str) -> None:
    """Of the pod of that name; returns once the policy is in force."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    no = {"expression": f"object.metadata.name != '{name}'", "message": "not this one", "reason": "Forbidden"}
    policy: Object = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-binding"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [no]},
    }
    await api.call("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
    binding = policy | {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": "no-binding", "validationActions": ["Deny"]},
    }
    await api.call("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    probe = await api.create(pod(name, scheduler="nobody"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    asked = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}

    async def forbidden() -> bool:
        try:
            await api.call("POST", f"{path_of(probe)}/binding?dryRun=All", asked)
        except ApiError as error:
            return error.status == FORBIDDEN
        return False

    await until(forbidden, "the policy is in force")
    await api.delete(path_of(probe))


async def allow_bindings(api: Api) -> None:
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        await api.delete(f"{ADMISSION}/{kind}/no-binding")


async def test_a_member_whose_binding_is_forbidden_is_told_so_and_follows_when_it_may(api: Api, muster: Muster) -> None:
    muster.start_all()
    await forbid_bindings(api, "train-000")
    try:
        await api.create_all(nodes(3, gpus=1))
        await api.create(pod_group("train", 3))
        await api.create_all(gang("train", 3))
        assert sorted(await muster.until_bound(2)) == ["train-001", "train-002"]

        async def told() -> bool:
            events = await api.items("/api/v1/namespaces/default/events")
            said = [one["message"] for one in events if one["involvedObject"]["name"] == "train-000"]
            return any("403 Forbidden" in message and "not this one" in message for message in said)

        await until(told, "the pod has an event with the policy's words")
    finally:
        await allow_bindings(api)
    await muster.until_bound(3)
    await muster.check()


async def nothing_is_evicted(state: State) -> bool:
    """The log has no eviction that is intended and not settled."""
    return not state.evictions


async def test_a_gang_that_is_whole_again_outlives_the_budget_that_kept_its_eviction_waiting(
    api: Api, muster: Muster, kubelets: Process
) -> None:
    muster.start_all()
    await api.create_all(nodes(3, gpus=1, kubelet=True))
    await api.create(pod_group("train", 3))
    await api.create_all(gang("train", 3))
    await muster.until_bound(3)

    async def running() -> bool:
        """Those that are pending no budget keeps."""
        return await muster.count("status.phase=Running") == 3

    await until(running, "the gang runs")
    await muster.set_policy("--replacement-policy", "evict", "--replacement-hold-ms", "100")
    chosen = {"matchLabels": {GANG_LABEL: "train"}}
    metadata = {"name": "tight", "namespace": "default"}
    await api.create(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": {"selector": chosen}}
    )
    try:
        await api.delete("/api/v1/namespaces/default/pods/train-000")
        binder = next(process for process in muster.processes if process.name.startswith("binder"))

        async def kept_waiting() -> bool:
            return "evictions that came to nothing" in binder.log.read_text()

        await until(kept_waiting, "the budget keeps the eviction waiting")
        await api.create(pod("late", labels={GANG_LABEL: "train"}))
        await muster.until_bound(3)
        await muster.until_folded(nothing_is_evicted, "evictions are settled")
        counts = {"disruptionsAllowed": 3, "currentHealthy": 3, "desiredHealthy": 0, "expectedPods": 3}
        status = {"status": {"observedGeneration": 1, **counts}}
        await api.call("PATCH", f"{BUDGET}/status", status, MERGE)
        assert sorted(await muster.bound()) == ["late", "train-001", "train-002"]
        await muster.check()
    finally:
        await api.delete(BUDGET)

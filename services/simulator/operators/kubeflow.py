"""The training operator's jobs (``kubeflow.org/v1``): a PodGroup and the pods of the replica specs.

As with the operator's ``--gang-scheduler-name=scheduler-plugins-scheduler``: a coscheduling PodGroup of the job's name,
whose minimum is ``runPolicy.schedulingPolicy.minAvailable``, or all replicas. Pods are named ``<job>-<type>-<index>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.simulator.operators.making import (
    SCHEDULER_PLUGINS_GROUP,
    SCHEDULER_PLUGINS_LABEL,
    Object,
    counted,
    flag,
    invalid,
    mapping,
    owned,
    owned_pod,
)

REPLICA_SPECS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
"""Kind → the field with its replica specs."""
RESTART_POLICIES = {"Always", "OnFailure", "Never"}


def of_training_job(job: Object, given: Sequence[Object]) -> Iterator[Object]:
    spec = mapping(job, job, "spec", "spec")
    field = REPLICA_SPECS[job["kind"]]
    types = mapping(job, spec, field, f"spec.{field}")
    if not types:
        raise invalid(job, f"spec.{field}: expected at least one replica type")
    run_policy = mapping(job, spec, "runPolicy", "spec.runPolicy")
    if flag(job, run_policy, "suspend", "spec.runPolicy.suspend"):
        return
    told = {name: mapping(job, types, name, f"spec.{field}.{name}") for name in types}
    replicas = {name: counted(job, said, "replicas", 1, f"spec.{field}.{name}.replicas") for name, said in told.items()}
    yield _pod_group(job, run_policy, sum(replicas.values()))
    for name, count in replicas.items():
        for index in range(count):
            yield _pod(job, name, index, told[name], f"spec.{field}.{name}")


def _pod_group(job: Object, run_policy: Object, total: int) -> Object:
    policy = mapping(job, run_policy, "schedulingPolicy", "spec.runPolicy.schedulingPolicy")
    group_spec: Object = {
        "minMember": counted(job, policy, "minAvailable", total, "spec.runPolicy.schedulingPolicy.minAvailable")
    }
    for field in ("minResources", "scheduleTimeoutSeconds"):
        if policy.get(field) is not None:
            group_spec[field] = policy[field]
    return owned(job, SCHEDULER_PLUGINS_GROUP, "PodGroup", job["metadata"]["name"], group_spec)


def _pod(job: Object, replica_type: str, index: int, replica: Object, path: str) -> Object:
    name, kind = job["metadata"]["name"], replica_type.lower()
    labels = {
        "training.kubeflow.org/operator-name": f"{job['kind'].lower()}-controller",
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": str(index),
        SCHEDULER_PLUGINS_LABEL: name,
    }
    if kind in ("master", "chief", "launcher"):
        labels["training.kubeflow.org/job-role"] = "master"
    asked = replica.get("restartPolicy")
    fields: Object = {
        "restartPolicy": asked if isinstance(asked, str) and asked in RESTART_POLICIES else "Never"
    }  # ExitCode is the operator's own
    return owned_pod(job, f"{name}-{kind}-{index}", replica, path, labels, {}, fields)

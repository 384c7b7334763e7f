"""An OpenPAI job as a gang on Kubernetes: what becomes of each field. Pure.

    job (protocol 2)                          a batch/v1 Job for each task role, and a PodGroup, in the entry's namespace
    name                                      the first Job's, as Kubernetes takes it (`kubernetes_name`); an annotation
                                              has it whole; the others' names have a digest of the owner in them
    extras."dev.muster.federator"             an annotation of all: the owner, as JSON
    taskRoles.R.instances                     parallelism = completions, Indexed; the PodGroup's minMember is all of them
    …R.resourcePerInstance cpu, memoryMB, gpu requests and limits: cpu, memory (Mi), the entry's GPU resource. Who
                                              asks for GPUs tolerates the taint of that name
    …R.dockerImage                            the uri of the prerequisite of that name
    …R.commands, the default deployment's     one bash script that ends with the first command that fails, with
      preCommands and postCommands            ``<% $parameters.… %>``, ``$data``, ``$script`` and ``$output`` filled in
    …R.completion.minSucceededInstances       successPolicy, where it is below the number of instances. With so many of
                                              any role, by default all of them, the job succeeds; a role that says -1
                                              does not decide
    …R.extraContainerOptions.shmMB            a memory volume at /dev/shm; 512 without it, as there
    (the entry's scheduler)                   schedulerName, and the label or annotation of its gangs

All Jobs are made suspended: without pods, and *held*. The first takes the name. The others and the PodGroup belong to it,
by owner reference and by label, and go when it goes. How far a run is stands in an annotation of each Job, `PHASE`.

A Job's controller ends its pods: with the first that fails (``backoffLimit`` 0, as OpenPAI's default asks), or when
enough have succeeded. Who then ends the other Jobs stands in `kubernetes`. A pod finds who it is as on OpenPAI, and how
large the other roles are, by the variables that start with ``PAI_`` (`scripts.told`).

What Jobs cannot say is refused and never left out: other completions, retries of the job, secrets, an image that asks
for a password, InfiniBand, a prerequisite by which a role runs one of the runtime's plugins, commands with more of
mustache than references. So is a name of what the job does not have, as the server refuses it. Ports need no mapping,
each pod has an address of its own; ``extras`` are OpenPAI's plugins and mean nothing here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from services.federator.backends import MARKER, Owner, protocol, scripts
from services.federator.backends.protocol import Unsupported

Mapped = dict[str, Any]

NAME = f"{MARKER}.name"
"""The annotation with the run's name, whole."""
MANAGED = "app.kubernetes.io/managed-by"
MANAGER = "muster-federator"
SELECTOR = f"{MANAGED}={MANAGER}"
PHASE = f"{MARKER}.phase"
HELD, RELEASED, STOPPED = "held", "released", "stopped"
"""The annotation that says how far a run is. Made and not to run yet; to run; not to run any more. It never goes back."""
FIRST = f"{MARKER}.first"
"""The label by which the other Jobs of a run name the UID of its first."""
JOBS = f"{MARKER}.jobs"
"""The annotation of the first that says how many there are."""
DECIDES = f"{MARKER}.decides"
"""The annotation of a Job whose success is the run's."""
LACKS_SUCCESS_POLICY = (
    "minSucceededInstances: expected a cluster whose Jobs keep their successPolicy, as from Kubernetes 1.31 on"
)
"""An API server leaves out, without a word, what stands behind a gate that is off there."""
PLUGINS = "com.microsoft.pai.runtimeplugin"
"""So begin the plugins that OpenPAI's runtime knows; a prerequisite without one has no effect there."""
MOST_ROLES = 100
SHARED_MB = 512
"""Of shared memory, where a role does not say."""
LONGEST = 52
"""Of a Job's name: its pods' names and hostnames have their index behind it, and 63 characters."""
_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_INDEX = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}


class Dialect(NamedTuple):
    """How a scheduler is told of a gang."""

    api_version: str
    """Of its PodGroup."""
    labels: bool
    """Whether pods are marked by a label; else by an annotation."""
    key: str


DIALECTS = {
    "coscheduling": Dialect("scheduling.x-k8s.io/v1alpha1", True, "scheduling.x-k8s.io/pod-group"),
    "volcano": Dialect("scheduling.volcano.sh/v1beta1", False, "scheduling.k8s.io/group-name"),
}


class Gang(NamedTuple):
    """The objects of a run, as they are made."""

    first: Mapped
    others: list[Mapped]
    group: Mapped


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster's entry says of all its jobs."""

    scheduler: str = "muster"
    dialect: str = "coscheduling"
    """One of `DIALECTS`."""
    gpu: str = "nvidia.com/gpu"
    """The resource that a GPU is."""
    user: str = ""
    """Whose jobs they are."""


def kubernetes_name(name: str) -> str:
    """The name of a run as Kubernetes takes it: its own where that is possible, else made from it, one for one."""
    if len(name) <= LONGEST and _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    kept = re.sub(r"[^a-z0-9]+", "-", name.lower())[: LONGEST - 11].strip("-")
    return f"{kept}-{digest}" if kept else f"run-{digest}"


@lru_cache(65_536)
def job_names(name: str, owner: Owner) -> tuple[str, str]:
    """Of a run: its first Job's name, and the prefix of each other's number. The latter has the owner in it and is
    never somebody else's."""
    first = kubernetes_name(name)
    return first, f"{first[: LONGEST - 14].rstrip('-')}-{_digest(_encoded(msgspec.to_builtins(owner)))}"


def objects(job: Mapped, placing: Placing) -> Gang:
    """Raises Unsupported."""
    _check(job)
    marker = _encoded(job["extras"][MARKER])
    first, others = job_names(job["name"], msgspec.convert(job["extras"][MARKER], Owner))
    dialect = DIALECTS[placing.dialect]
    about = {
        "labels": {MANAGED: MANAGER},
        "annotations": {NAME: job["name"], MARKER: marker, JOBS: str(len(job["taskRoles"]))},
    }
    group: Mapped = {
        "apiVersion": dialect.api_version,
        "kind": "PodGroup",
        "metadata": {"name": f"{first}-{_digest(marker)}", **about},
        "spec": {"minMember": sum(spec.get("instances", 1) for spec in job["taskRoles"].values())},
    }
    names = [first, *(f"{others}-{number}" for number in range(1, len(job["taskRoles"])))]
    made = [
        _job(name, about, _job_spec(job, role, spec, group["metadata"]["name"], placing), spec)
        for name, (role, spec) in zip(names, job["taskRoles"].items(), strict=True)
    ]
    return Gang(made[0], made[1:], group)


def owned(body: Mapped, first: str, uid: str) -> Mapped:
    """The same object, as one that belongs to the first Job."""
    metadata = body["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": first, "uid": uid}
    labels = metadata["labels"] | {FIRST: uid}
    return body | {"metadata": metadata | {"labels": labels, "ownerReferences": [reference]}}


def _job(name: str, about: Mapped, of_job: Mapped, spec: Mapped) -> Mapped:
    deciding = {DECIDES: "true"} if _succeeded(spec) else {}
    annotations = about["annotations"] | {PHASE: HELD} | deciding
    metadata = {"name": name, "labels": about["labels"], "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": of_job}


def _job_spec(job: Mapped, role: str, spec: Mapped, group: str, placing: Placing) -> Mapped:
    dialect, instances = DIALECTS[placing.dialect], spec.get("instances", 1)
    mark = {dialect.key: group}
    of_pods: Mapped = {
        "labels": {MANAGED: MANAGER, **(mark if dialect.labels else {})},
        "annotations": {NAME: job["name"], **({} if dialect.labels else mark)},
    }
    of_job: Mapped = {
        "suspend": True,
        "parallelism": instances,
        "completions": instances,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": of_pods, "spec": _pod_spec(job, role, spec, placing)},
    }
    if 0 < _succeeded(spec) < instances:
        of_job["successPolicy"] = {"rules": [{"succeededCount": _succeeded(spec)}]}
    return of_job


def succeeded_count(job: Mapped) -> dict[tuple[str, ...], int]:
    """Where a Job says after how many of its pods it is a success, and how many; empty: after all."""
    policy = job["spec"].get("successPolicy")
    path = ("spec", "successPolicy", "rules", "0", "succeededCount")
    return {path: policy["rules"][0]["succeededCount"]} if policy else {}


def _succeeded(spec: Mapped) -> int:
    """How many of a role's instances make the job a success: all of them where it does not say, or says 0, as the server
    has it. 0: none, as it asks for more than there are, or for less than none."""
    instances: int = spec.get("instances", 1)
    count: int = (spec.get("completion") or {}).get("minSucceededInstances") or instances
    return count if 0 < count <= instances else 0


def owner(annotations: Mapping[str, str] | None, name: str) -> Owner | None:
    """Whose it is, by its annotations; None unless they are about this run."""
    if not annotations or annotations.get(NAME) != name:
        return None
    try:
        return msgspec.json.decode(annotations.get(MARKER, ""), type=Owner)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _digest(marker: str) -> str:
    return hashlib.sha256(marker.encode()).hexdigest()[:10]


def _encoded(marker: Any) -> str:
    return json.dumps(marker, sort_keys=True)


def _check(job: Mapped) -> None:
    """Raises Unsupported."""
    roles = job.get("taskRoles")
    if not isinstance(roles, dict) or not 0 < len(roles) <= MOST_ROLES:
        raise Unsupported(f"taskRoles: expected 1 to {MOST_ROLES} task roles")
    if wrong := list(protocol.odd(job, roles)):
        raise Unsupported("; ".join(wrong))
    if MARKER not in (job.get("extras") or {}):
        wrong.append(f"extras.{MARKER}: expected the owner's marker")
    deployment = (job.get("defaults") or {}).get("deployment")
    if deployment is not None and scripts.deployment(job) is None:
        wrong.append("defaults.deployment: expected the name of a deployment")
    if job.get("secrets"):
        wrong.append("secrets: not supported on Kubernetes")
    if job.get("jobRetryCount"):
        wrong.append("jobRetryCount: expected 0: a gang is not started again")
    named = _prerequisites(job)
    for role, spec in roles.items():
        wrong += [f"taskRoles.{role}.{said}" for said in _unsupported(job, spec, named)]
    if wrong:
        raise Unsupported("; ".join(wrong))


def _prerequisites(job: Mapped) -> dict[str, bool]:
    """By name, whether one of them is a plugin: a job may have, and name, very many."""
    named: dict[str, bool] = {}
    for one in job.get("prerequisites") or ():
        named[one.get("name")] = named.get(one.get("name"), False) or str(one.get("plugin") or "").startswith(PLUGINS)
    return named


def _unsupported(job: Mapped, spec: Mapped, named: Mapping[str, bool]) -> Iterator[str]:
    """Of a role."""
    if (spec.get("completion") or {}).get("minFailedInstances") not in (None, 1):
        yield "completion.minFailedInstances: expected 1: a gang ends with the first failure"
    image = _image(job, spec) or {}
    if not image.get("uri"):
        yield "dockerImage: expected a dockerimage prerequisite, with a uri"
    elif "auth" in image:
        yield "dockerImage: auth is not supported on Kubernetes"
    if (spec.get("extraContainerOptions") or {}).get("infiniband"):
        yield "extraContainerOptions.infiniband: not supported on Kubernetes"
    for field in scripts.REFERRED:
        if spec.get(field) is not None and scripts.prerequisite(job, field, spec[field]) is None:
            yield f"{field}: expected the name of a prerequisite of this type"
    for name in spec.get("prerequisites") or ():
        if name not in named:
            yield "prerequisites: expected names of the job's prerequisites"
        elif named[name]:
            yield "prerequisites: plugins are not supported on Kubernetes"


def _image(job: Mapped, spec: Mapped) -> Mapped | None:
    return scripts.prerequisite(job, "dockerimage", spec.get("dockerImage"))


def _pod_spec(job: Mapped, role: str, spec: Mapped, placing: Placing) -> Mapped:
    asked = spec["resourcePerInstance"]
    amounts = {"cpu": str(asked["cpu"]), "memory": f"{asked['memoryMB']}Mi"}
    if asked.get("gpu"):
        amounts[placing.gpu] = str(asked["gpu"])
    container = {
        "name": "app",
        "image": (_image(job, spec) or {})["uri"],
        "command": scripts.command(job, role, spec),
        "env": [
            *({"name": name, "value": value} for name, value in scripts.told(job, role, spec, placing.user).items()),
            *({"name": name, **_INDEX} for name in ("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX")),
        ],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
    }
    shared = (spec.get("extraContainerOptions") or {}).get("shmMB") or SHARED_MB
    pod: Mapped = {
        "schedulerName": placing.scheduler,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared}Mi"}}],
    }
    if asked.get("gpu"):
        # As Kubernetes' admission plugin ExtendedResourceToleration says it, which few clusters have on.
        pod["tolerations"] = [{"key": placing.gpu, "operator": "Exists", "effect": "NoSchedule"}]
    return pod

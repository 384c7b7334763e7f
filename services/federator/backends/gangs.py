"""An OpenPAI job as a gang on Kubernetes: what becomes of each field. Pure.

    job (protocol 2)                          PodGroup and batch/v1 Job, in the entry's namespace
    name                                      the Job's, as Kubernetes takes it (`kubernetes_name`); an annotation has
                                              it whole; the PodGroup's name has a digest of the owner behind it
    extras."dev.muster.federator"             an annotation of both: the owner, as JSON
    taskRoles.R.instances                     parallelism = completions, Indexed; the PodGroup's minMember
    …R.resourcePerInstance cpu, memoryMB, gpu requests and limits: cpu, memory (Mi), the entry's GPU resource
    …R.dockerImage                            the uri of the prerequisite of that name
    …R.commands, the default deployment's     one shell script, with ``<% $parameters.… %>``, ``$data``, ``$script`` and
      preCommands and postCommands            ``$output`` filled in, as the server does it
    …R.completion.minSucceededInstances       successPolicy, where it is below the number of instances
    …R.extraContainerOptions.shmMB            a memory volume at /dev/shm
    (the entry's scheduler)                   schedulerName, and the label or annotation of its gangs

The Job's controller ends a gang: with the first pod that fails (``backoffLimit`` 0, as OpenPAI's default asks), or when
enough have succeeded. A pod finds who it is as on OpenPAI: ``PAI_JOB_NAME``, ``PAI_CURRENT_TASK_ROLE_NAME``,
``PAI_CURRENT_TASK_ROLE_TASK_COUNT``, ``PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX`` and ``PAI_TASK_INDEX``.

A Job has one template and one end. What that cannot say is refused and never left out: several task roles, other
completions, retries of the job, secrets, an image that asks for a password. Ports need no mapping, each pod has an
address of its own; ``extras`` are OpenPAI's plugins and mean nothing here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from services.federator.backends import MARKER, Owner

Mapped = dict[str, Any]

NAME = f"{MARKER}.name"
"""The annotation with the run's name, whole."""
MANAGED = "app.kubernetes.io/managed-by"
MANAGER = "muster-federator"
SELECTOR = f"{MANAGED}={MANAGER}"
LONGEST = 52
"""Of a Job's name: its pods' names and hostnames have their index behind it, and 63 characters."""
_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_REFERENCE = re.compile(r"<%\s*\$(\w+)\.([\w.\[\]-]+)\s*%>")
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


class Placing(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster's entry says of all its jobs."""

    scheduler: str = "muster"
    dialect: str = "coscheduling"
    """One of `DIALECTS`."""
    gpu: str = "nvidia.com/gpu"
    """The resource that a GPU is."""


class Unsupported(ValueError):
    """What a job asks for and a gang here cannot be; names the fields. Shows no value: there may be secrets."""


def kubernetes_name(name: str) -> str:
    """The name of a run as Kubernetes takes it: its own where that is possible, else made from it, one for one."""
    if len(name) <= LONGEST and _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    kept = re.sub(r"[^a-z0-9]+", "-", name.lower())[: LONGEST - 11].strip("-")
    return f"{kept}-{digest}" if kept else f"run-{digest}"


@lru_cache(65_536)
def job_names(name: str, owner: Owner) -> tuple[str, str]:
    """Of a run: its first Job's name, and what stands before the number of each other's. The latter has the owner in it
    and is never somebody else's."""
    first = kubernetes_name(name)
    return first, f"{first[: LONGEST - 14].rstrip('-')}-{_digest(_encoded(msgspec.to_builtins(owner)))}"


def objects(job: Mapped, placing: Placing) -> tuple[Mapped, Mapped]:
    """The PodGroup and the Job. Raises Unsupported."""
    _check(job)
    (role, spec), *_ = job["taskRoles"].items()
    name, instances = kubernetes_name(job["name"]), spec.get("instances", 1)
    dialect = DIALECTS[placing.dialect]
    about: dict[str, dict[str, str]] = {
        "labels": {MANAGED: MANAGER},
        "annotations": {NAME: job["name"], MARKER: _encoded(job["extras"][MARKER])},
    }
    group_name = f"{name}-{_digest(about['annotations'][MARKER])}"
    group = {
        "apiVersion": dialect.api_version,
        "kind": "PodGroup",
        "metadata": {"name": group_name, **about},
        "spec": {"minMember": instances},
    }
    mark = {dialect.key: group_name}
    of_pods = {"labels": {MANAGED: MANAGER, **(mark if dialect.labels else {})}}
    if not dialect.labels:
        of_pods["annotations"] = mark
    of_job: Mapped = {
        "parallelism": instances,
        "completions": instances,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": of_pods, "spec": _pod_spec(job, role, spec, placing)},
    }
    succeeded = (spec.get("completion") or {}).get("minSucceededInstances")
    if succeeded and 0 < succeeded < instances:
        of_job["successPolicy"] = {"rules": [{"succeededCount": succeeded}]}
    return group, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **about}, "spec": of_job}


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
    wrong = []
    roles = job.get("taskRoles")
    if not isinstance(roles, dict) or len(roles) != 1:
        wrong.append("taskRoles: expected one task role: a Job has one template")
    if MARKER not in (job.get("extras") or {}):
        wrong.append(f"extras.{MARKER}: expected the owner's marker")
    if job.get("secrets"):
        wrong.append("secrets: not supported on Kubernetes")
    if job.get("jobRetryCount"):
        wrong.append("jobRetryCount: expected 0: a gang is not started again")
    for role, spec in roles.items() if isinstance(roles, dict) else ():
        failed = (spec.get("completion") or {}).get("minFailedInstances")
        if failed not in (None, 1):
            wrong.append(
                f"taskRoles.{role}.completion.minFailedInstances: expected 1: a Job ends with the first failure"
            )
        if _image(job, spec) is None:
            wrong.append(f"taskRoles.{role}.dockerImage: expected a dockerimage prerequisite")
        elif "auth" in (_image(job, spec) or {}):
            wrong.append(f"taskRoles.{role}.dockerImage: auth is not supported on Kubernetes")
    if wrong:
        raise Unsupported("; ".join(wrong))


def _prerequisite(job: Mapped, kind: str, name: Any) -> Mapped | None:
    found = [one for one in job.get("prerequisites") or () if one.get("type") == kind and one.get("name") == name]
    return found[0] if found else None


def _image(job: Mapped, spec: Mapped) -> Mapped | None:
    return _prerequisite(job, "dockerimage", spec.get("dockerImage"))


def _pod_spec(job: Mapped, role: str, spec: Mapped, placing: Placing) -> Mapped:
    asked = spec["resourcePerInstance"]
    amounts = {"cpu": str(asked["cpu"]), "memory": f"{asked['memoryMB']}Mi"}
    if asked.get("gpu"):
        amounts[placing.gpu] = str(asked["gpu"])
    told = {
        "PAI_JOB_NAME": job["name"],
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT": str(spec.get("instances", 1)),
    }
    container = {
        "name": "app",
        "image": (_image(job, spec) or {})["uri"],
        "command": ["/bin/sh", "-c", _script(job, role, spec)],
        "env": [
            *({"name": name, "value": value} for name, value in told.items()),
            *({"name": name, **_INDEX} for name in ("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX")),
        ],
        "resources": {"requests": amounts, "limits": amounts},
    }
    pod: Mapped = {"schedulerName": placing.scheduler, "restartPolicy": "Never", "containers": [container]}
    if shared := (spec.get("extraContainerOptions") or {}).get("shmMB"):
        container["volumeMounts"] = [{"name": "dshm", "mountPath": "/dev/shm"}]
        pod["volumes"] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared}Mi"}}]
    return pod


def _script(job: Mapped, role: str, spec: Mapped) -> str:
    chosen = (job.get("defaults") or {}).get("deployment")
    deployments = [one for one in job.get("deployments") or () if one["name"] == chosen]
    around = deployments[0]["taskRoles"].get(role, {}) if deployments else {}
    commands = [*around.get("preCommands", ()), *spec["commands"], *around.get("postCommands", ())]
    known = {"parameters": job.get("parameters") or {}}
    for field in ("data", "script", "output"):
        known[field] = _prerequisite(job, field, spec.get(field)) or {}
    script = "\n".join(command.strip() for command in commands)
    return _REFERENCE.sub(lambda found: _looked_up(known.get(found[1]), found[2], found[0]), script)


def _looked_up(value: Any, path: str, otherwise: str) -> str:
    """What stands at ``uri[0]``; what does not stand there stays as it is written."""
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return otherwise
    return value if isinstance(value, str) else json.dumps(value)

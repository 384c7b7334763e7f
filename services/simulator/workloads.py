"""The pods that a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job makes: names, labels and owners as the real
controllers'.

Pure functions of the owner and a number, and for a DaemonSet of a node: so `muster simulate` on a file, and the simulated
cluster's controllers on every run, make the same pods with the same names. Where Kubernetes draws a random suffix, the
suffix here follows from the owner's namespace and name and the pod's number; pods of one owner never collide.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from services.simulator.daemons import aimed_at, takes

Object = dict[str, Any]

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes suffixes of: no vowels, nothing that looks alike."""
_SUFFIXES = len(LETTERS) ** 5
_STEP = 8_868_112
"""Near the golden section of `_SUFFIXES` and coprime to it: neighbours in number are far apart in name."""
LONGEST_BASE = 58
"""A generated name's base is cut so that the whole stays within 63 characters."""

NOT_COPIED = ("deployment.kubernetes.io/", "kubectl.kubernetes.io/last-applied-configuration")
"""A Deployment's annotations that its ReplicaSet does not get."""
GENERATION = "deprecated.daemonset.template.generation"
"""An annotation: how many templates a DaemonSet has had. Its pods have the number as a label."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
"""Of completion indexes, as a Job's status has them: ``1,3-5``."""
WORKLOADS = frozenset(
    {*(("apps/v1", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")), ("batch/v1", "Job")}
)


MOST_PODS = 1_000_000
"""That one object may ask for: they are made here, one by one."""


def is_workload(obj: Object) -> bool:
    """Whether its pods are made here."""
    return (str(obj.get("apiVersion", "")), str(obj.get("kind", ""))) in WORKLOADS


def flatten(objects: Iterable[Object]) -> Iterator[Object]:
    """Objects with the items of lists (``v1/List``, ``PodList``, …) in the lists' places."""
    for obj in objects:
        if str(obj.get("kind", "")).endswith("List") and isinstance(obj.get("items"), list):
            yield from flatten(obj["items"])
        else:
            yield obj


def expand(objects: Iterable[Object], nodes: Sequence[Object] = ()) -> Iterator[Object]:
    """Workloads replaced by the pods that they make first, lists by their items; everything else as it is.

    `nodes`: for which DaemonSets make pods."""
    for obj in flatten(objects):
        if is_workload(obj):
            yield from pods_of(obj, nodes)
        else:
            yield obj


def pods_of(owner: Object, nodes: Sequence[Object] = ()) -> Iterator[Object]:
    """The pods that exist once the controller has seen `owner`; of a Job those that have not ended by its status."""
    spec = owner["spec"]
    match owner["kind"]:
        case "Deployment" if not is_paused(owner):
            yield from pods_of(replica_set_of(owner))
        case "ReplicaSet":
            for number in range(count(spec, "replicas")):
                yield replica(owner, number)
        case "StatefulSet":
            start = (spec.get("ordinals") or {}).get("start", 0)
            for number in range(start, start + count(spec, "replicas")):
                yield member(owner, number)
        case "DaemonSet":
            for number, node in enumerate(node for node in nodes if takes(owner, node)):
                yield daemon(owner, number, node["metadata"]["name"])
        case "Job" if not spec.get("suspend"):
            indexed = spec.get("completionMode") == "Indexed"
            most = at_once(owner)
            for number in islice(_indices_left(owner), most) if indexed else range(most):
                yield job_pod(owner, number, number if indexed else None)


def count(spec: Object, field: str, default: int = 1) -> int:
    """A count of the spec, which may be absent or null."""
    value = spec.get(field)
    return default if value is None else int(value)


def is_paused(deployment: Object) -> bool:
    """Whether it has no pods before it is resumed; one that has some by its status keeps them."""
    return bool(deployment["spec"].get("paused")) and not _counted(deployment, "replicas")


def at_once(job: Object) -> int:
    """How many pods of a Job run at the same time; of one on its way only what is left to do."""
    parallelism, completions = count(job["spec"], "parallelism"), job["spec"].get("completions")
    succeeded = _counted(job, "succeeded")
    if completions is None:  # once one has succeeded, no others are started
        return min(parallelism, _counted(job, "active")) if succeeded else parallelism
    return min(parallelism, max(0, int(completions) - succeeded))


def _indices_left(job: Object) -> Iterator[int]:
    """Of an Indexed Job, lowest first: those that no pod has brought to an end."""
    completions, number = count(job["spec"], "completions", at_once(job)), 0
    ended = (_RANGE.finditer(str(_status(job).get(field) or "")) for field in ("completedIndexes", "failedIndexes"))
    for first, last in sorted((int(found[1]), int(found[2] or found[1])) for found in chain(*ended)):
        yield from range(number, min(first, completions))
        number = max(number, last + 1)
    yield from range(number, completions)


def _counted(owner: Object, field: str) -> int:
    """A count of the status; 0 for what is none, as it is a file's, and checked by nobody."""
    value = _status(owner).get(field)
    return max(0, value) if isinstance(value, int) else 0


def _status(owner: Object) -> Object:
    status = owner.get("status")
    return status if isinstance(status, dict) else {}


# ------------------------------------------------------------------------------------------------------------- one each


def replica_set_of(deployment: Object) -> Object:
    """The ReplicaSet of a Deployment's current template, named by the template's hash."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    digest = template_hash(spec["template"])
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    template = copy_of(spec["template"])
    template["metadata"] = (template.get("metadata") or {}) | {"labels": labels | {"pod-template-hash": digest}}
    selector = spec.get("selector") or {"matchLabels": labels}
    selector = selector | {"matchLabels": (selector.get("matchLabels") or {}) | {"pod-template-hash": digest}}
    made = _metadata(deployment, f"{metadata['name']}-{digest}", template["metadata"]["labels"])
    copied = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(NOT_COPIED)
    }
    if copied:
        made["annotations"] = copied
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": made,
        "spec": {"replicas": count(spec, "replicas"), "selector": selector, "template": template},
    }


def replica(replica_set: Object, number: int) -> Object:
    """Pod `number` of a ReplicaSet, counted over its whole life."""
    base = f"{replica_set['metadata']['name']}-"
    return _pod(replica_set, base, _suffix(replica_set, number), {})


def member(stateful_set: Object, ordinal: int) -> Object:
    """Pod `ordinal` of a StatefulSet: the name stays the same when it is replaced."""
    name, spec = stateful_set["metadata"]["name"], stateful_set["spec"]
    labels = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": f"{name}-{template_hash(spec['template'])}",
        "statefulset.kubernetes.io/pod-name": f"{name}-{ordinal}",
    }
    pod = _pod(stateful_set, f"{name}-", str(ordinal), labels)
    pod["spec"]["hostname"] = f"{name}-{ordinal}"
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    claimed = [_claimed(claim["metadata"]["name"], pod) for claim in spec.get("volumeClaimTemplates") or ()]
    if claimed:
        names = {volume["name"] for volume in claimed}
        others = [volume for volume in pod["spec"].get("volumes") or () if volume.get("name") not in names]
        pod["spec"]["volumes"] = claimed + others
    return pod


def _claimed(name: str, pod: Object) -> Object:
    """The volume of a claim that a StatefulSet makes for each of its pods."""
    return {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod['metadata']['name']}"}}


def daemon(daemon_set: Object, number: int, node: str) -> Object:
    """Pod `number` of a DaemonSet, counted over its whole life, for one node."""
    metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
    labels = {
        "controller-revision-hash": template_hash(template),
        "pod-template-generation": (metadata.get("annotations") or {}).get(GENERATION, "1"),
    }
    pod = _pod(daemon_set, f"{metadata['name']}-", _suffix(daemon_set, number), labels)
    return pod | {"spec": aimed_at(pod["spec"], node)}


def job_pod(job: Object, number: int, index: int | None) -> Object:
    """Pod `number` of a Job, counted with its retries; `index` is the completion index of an Indexed Job."""
    name, uid = job["metadata"]["name"], uid_of(job)
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    if index is None:
        return _pod(job, f"{name}-", _suffix(job, number), labels)
    numbered = f"-{index}-"  # of a long name it is the name that is cut
    base = name[: LONGEST_BASE - len(numbered)] + numbered
    pod = _pod(job, base, _suffix(job, number), labels | {COMPLETION_INDEX: str(index)})
    pod["metadata"]["annotations"] = (pod["metadata"].get("annotations") or {}) | {COMPLETION_INDEX: str(index)}
    pod["spec"]["hostname"] = f"{name}-{index}"
    return pod


# ---------------------------------------------------------------------------------------------------------------- parts


def _pod(owner: Object, base: str, suffix: str, labels: dict[str, str]) -> Object:
    template = copy_of(owner["spec"]["template"])
    asked = template.get("metadata") or {}
    name = base[:LONGEST_BASE] + suffix
    metadata = {"generateName": base, **_metadata(owner, name, (asked.get("labels") or {}) | labels)}
    if asked.get("annotations"):
        metadata["annotations"] = asked["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _metadata(owner: Object, name: str, labels: dict[str, str]) -> Object:
    place = {"name": name, "namespace": namespace_of(owner)}
    return {**place, "labels": dict(labels), "ownerReferences": [reference_to(owner)]}


def namespace_of(obj: Object) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def reference_to(owner: Object) -> Object:
    """How what a controller makes names its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def uid_of(obj: Object) -> str:
    """The object's UID; one that follows from its kind and name where it comes from a file."""
    metadata = obj["metadata"]
    if uid := metadata.get("uid"):
        return str(uid)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{obj['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"))


def generated_name(obj: Object, number: int) -> str:
    """Of what has a generateName only; another for each number."""
    base = str(obj["metadata"]["generateName"])
    return base[:LONGEST_BASE] + _suffix({**obj, "metadata": {**obj["metadata"], "name": base}}, number)


def _suffix(owner: Object, number: int) -> str:
    """Five letters for a name: a permutation of all suffixes that begins somewhere else for each owner."""
    metadata = owner["metadata"]
    first = fnv1a(f"{owner['kind']}/{metadata.get('namespace') or 'default'}/{metadata['name']}".encode())
    place = (first + number * _STEP) % _SUFFIXES
    suffix = ""
    for _ in range(5):
        place, letter = divmod(place, len(LETTERS))
        suffix += LETTERS[letter]
    return suffix


def template_hash(template: Object) -> str:
    """Changes with the template; in the letters and length of Kubernetes' pod-template-hash."""
    digits = str(fnv1a(msgspec.json.encode(template, order="sorted")))
    return "".join(LETTERS[ord(digit) % len(LETTERS)] for digit in digits)


def fnv1a(data: bytes) -> int:
    """FNV-1a with 32 bits."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def copy_of(obj: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(obj))

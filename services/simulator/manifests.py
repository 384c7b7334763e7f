"""Kubernetes objects from YAML (or JSON) files: several documents to a file, lists flattened, errors that say where.

Kinds that nobody here knows are kept as they are. What a scheduler relies on is checked: names, string labels and
annotations, specs that are objects, pods with containers, counts that are counts.

Files may be what ``kubectl get -o yaml`` says of a cluster. Then what has ended is left out, and so is a workload
listed with what it made; and resourceVersions are those of another server.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from services.documents import NotYaml, Unreadable, load_each, read, taken
from services.simulator.admission import SYSTEM_NAMESPACES, SYSTEM_PRIORITIES
from services.simulator.forms import FORMS, misfit
from services.simulator.nulls import without_nulls
from services.simulator.operators import MAKES
from services.simulator.operators.jobset import JOB_SET_LABEL
from services.simulator.workloads import MOST_PODS, generated_name, is_workload

Object = dict[str, Any]

CLUSTER_SCOPED = frozenset(
    {
        *("APIService", "ClusterRole", "ClusterRoleBinding", "ClusterTrainingRuntime", "CSIDriver", "CSINode"),
        *("CustomResourceDefinition", "DeviceClass", "FlowSchema", "IngressClass", "MutatingWebhookConfiguration"),
        *("Namespace", "Node", "PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "Queue"),
        *("ResourceSlice", "RuntimeClass", "StorageClass", "ValidatingAdmissionPolicy", "VolumeAttachment"),
        *("ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
    }
)
"""Kinds without a namespace. Every other kind without one goes to ``default``."""
TEMPLATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
COUNTS = {
    "Deployment": ("replicas",),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
    "Job": ("parallelism", "completions", "backoffLimit"),
}
PODS = ("replicas", "parallelism")
"""Of these, how many there are at once. A server says ``backoffLimit: 2147483647`` where each index has a limit."""
SERVED = {
    **{
        (version, kind): "apps/v1"
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    },
    ("v1alpha1", "PodGroup"): "scheduling.sigs.k8s.io/v1alpha1",
    ("scheduling.k8s.io/v1beta1", "PriorityClass"): "scheduling.k8s.io/v1",
    ("scheduling.k8s.io/v1alpha1", "PriorityClass"): "scheduling.k8s.io/v1",
}
"""apiVersions that no API server serves any more, or that lack their group as in a published design (seed 002): what is
meant."""
EVERYWHERE = {
    *(("v1", "Namespace", name) for name in SYSTEM_NAMESPACES),
    *(("scheduling.k8s.io/v1", "PriorityClass", name) for name in SYSTEM_PRIORITIES),
}
"""What each cluster has from its beginning."""
ENDS = ("Complete", "Completed", "Succeeded", "Failed")
"""Conditions of a job that has ended, each in its project's word: Job and TrainJob, JobSet, Kubeflow's jobs, all."""
DECIDED = ("SuccessCriteriaMet", "FailureTarget")
"""Those of Kubernetes' Job that is to end: it makes no pods any more while its last ones go."""
VOLCANO_ENDS = ("Completed", "Failed", "Terminated", "Aborted")
"""Phases of Volcano's Job without pods; one that was aborted has none before somebody resumes it."""
SUFFIXES = (".yaml", ".yml", ".json")
"""Of the files of a directory that are read."""
STDIN = Path("-")


class ManifestError(ValueError):
    """What is wrong with a file: names the file, the document (from 1), the object, the field, what was expected."""


def read_yaml(paths: Sequence[Path | str]) -> tuple[list[Object], list[ManifestError]]:
    """All objects of the files, in order, and what is wrong with each that cannot be taken, which costs itself only; of a
    directory those of its .yaml, .yml and .json files; ``-``: of stdin.

    Raises ManifestError for a file that cannot be read, and where nothing is left.
    """
    found = [one for path in paths for file in _files(path) for one in _load_file(file)]
    objects = [one for one in found if not isinstance(one, ManifestError)]
    refused = [one for one in found if isinstance(one, ManifestError)]
    _name(objects)
    left = list(_to_come(objects))
    if paths and not left:
        named = ", ".join(named_file(Path(path)) for path in paths)
        raise refused[0] if refused else ManifestError(f"{named}: expected Kubernetes objects, found none")
    return left, refused


def _to_come(objects: Sequence[Object]) -> Iterator[Object]:
    """Without what is there anyway, what has ended, and what has made what stands beside it: it would be made again."""
    made = {maker for obj in objects if _makes_pods(obj) or obj["kind"] == "Pod" for maker in _makers(obj)}
    for obj in objects:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"].get("name", "")
        left_out = (obj["apiVersion"], obj["kind"], name) in EVERYWHERE or _has_ended(obj)
        if not left_out and not (_makes_pods(obj) and (_group(obj), obj["kind"], namespace, name) in made):
            yield obj


def _name(objects: Iterable[Object]) -> None:
    """What has a generateName only gets its name here where pods, and what makes them, are named after it."""
    unnamed = (obj for obj in objects if _makes_pods(obj) and not obj["metadata"].get("name"))
    for number, obj in enumerate(unnamed):
        obj["metadata"]["name"] = generated_name(obj, number)


def _makes_pods(obj: Object) -> bool:
    return is_workload(obj) or (_group(obj), obj["kind"]) in MAKES


def _group(named: Object) -> str:
    return str(named.get("apiVersion", "")).rpartition("/")[0]


def _makers(obj: Object) -> Iterator[tuple[str, str, str, str]]:
    """(API group, kind, namespace, name) of what controls it, and of what controls that: it may not be listed."""
    namespace = obj["metadata"].get("namespace", "")
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = owner["kind"], owner["name"]
            yield _group(owner), kind, namespace, name
            for group, above, named in _above(kind, name, obj["metadata"].get("labels") or {}):
                yield group, above, namespace, named


def _above(kind: str, name: str, labels: Object) -> Iterator[tuple[str, str, str]]:
    """What may control a ReplicaSet or Job of this name, by its name and by what its pods are labelled with."""
    deployment, _, template = name.rpartition("-")
    if kind == "ReplicaSet" and template == labels.get("pod-template-hash"):
        yield "apps", "Deployment", deployment
    if kind == "Job" and JOB_SET_LABEL in labels:  # a TrainJob's JobSet has its name
        yield "jobset.x-k8s.io", "JobSet", labels[JOB_SET_LABEL]
        yield "trainer.kubeflow.org", "TrainJob", labels[JOB_SET_LABEL]


def _has_ended(obj: Object) -> bool:
    """Of pods and jobs, whoever's they are: they hold no room, and no pod is made of them any more."""
    status, kind = _part(obj, "status"), (_group(obj), obj["kind"])
    if (obj["apiVersion"], obj["kind"]) == ("v1", "Pod"):
        return status.get("phase") in ("Succeeded", "Failed")
    if kind == ("batch.volcano.sh", "Job"):
        return _part(status, "state").get("phase") in VOLCANO_ENDS
    if kind == ("batch", "Job"):
        return _says(status, (*ENDS, *DECIDED))
    return kind in MAKES and _says(status, ENDS)


def _says(status: Object, ends: tuple[str, ...]) -> bool:
    told = status.get("conditions")
    conditions = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return any(one.get("type") in ends and one.get("status") == "True" for one in conditions)


def _part(obj: Object, field: str) -> Object:
    """Empty for what is no object: a controller's own status is checked by nobody here."""
    value = obj.get(field)
    return value if isinstance(value, dict) else {}


def _files(named: Path | str) -> list[Path]:
    if named == "":  # a shell's variable that is not set; as a path it is the current directory
        raise ManifestError("'': expected the path of a file or directory, found nothing")
    path = Path(named)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise ManifestError(f"{path}: expected a file of it to be called *{', *'.join(SUFFIXES)}")
    return found


def named_file(path: Path) -> str:
    """As errors name it."""
    return "stdin" if path == STDIN else str(path)


def _load_file(path: Path) -> Iterator[Object | ManifestError]:
    name = named_file(path)
    try:
        text = taken(sys.stdin.buffer, name) if path == STDIN else read(path)
    except Unreadable as error:
        raise ManifestError(str(error)) from error
    for number, document in enumerate(load_each(text), 1):
        where = f"{name}, document {number}"
        if isinstance(document, NotYaml):
            yield ManifestError(f"{where}: not YAML: {document}")
        elif document is not None:
            yield from _objects(document, where)


def _objects(document: Any, where: str) -> Iterator[Object | ManifestError]:
    """Those of a document, or what is wrong with them: of a list each for itself."""
    try:
        kind = _kind(document, where)
        if is_configuration(document):
            yield document | {"metadata": {}}
        elif kind.endswith("List") and ("items" in document or kind == "List"):
            for index, item in enumerate(_items(document, f"{where}, {kind}")):
                yield from _objects(_of_list(document, item), f"{where}, items[{index}]")
        else:
            yield _checked(document, f"{where}, {kind}")
    except ManifestError as error:
        yield error


def is_configuration(obj: Object) -> bool:
    """Whether it is the configuration of a program, as the kube-scheduler's: it looks like an object of a cluster."""
    return str(obj["apiVersion"]).partition("/")[0].endswith(".config.k8s.io")


def _items(listed: Object, where: str) -> list[Any]:
    """None where a server says null: that is how it says that there are none."""
    items = listed.get("items")
    if not isinstance(items, list) and not (items is None and "items" in listed):
        raise ManifestError(f"{where}: items: expected a list, found {_told(items)}")
    return items or []


def _of_list(listed: Object, item: Any) -> Any:
    """An API server does not say of each item of a ``NodeList`` that it is a Node of ``v1``; a ``List`` says nothing."""
    kind = listed["kind"].removesuffix("List")
    if not kind or not isinstance(item, dict) or item.get("kind") or item.get("apiVersion"):
        return item
    return {"apiVersion": listed["apiVersion"], "kind": kind, **item}


def _kind(document: Any, where: str) -> str:
    if not isinstance(document, dict):
        raise ManifestError(f"{where}: expected a Kubernetes object, found {_told(document)}")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise ManifestError(f"{where}: {field}: expected a name, found {_told(document.get(field))}")
    return str(document["kind"])


def _checked(obj: Object, where: str) -> Object:
    obj = obj | {"apiVersion": SERVED.get((obj["apiVersion"], obj["kind"]), obj["apiVersion"])}
    built_in = (obj["apiVersion"], obj["kind"]) in FORMS
    if built_in:
        obj = without_nulls(obj)
    metadata = _metadata(obj.get("metadata"), where, named=True)
    where = f"{where} {metadata.get('name') or metadata['generateName']}"
    if obj["kind"] not in CLUSTER_SCOPED:
        metadata.setdefault("namespace", "default")
    elif built_in:  # as the API server does
        metadata.pop("namespace", None)
    obj["metadata"] = metadata
    for field in ("spec", "status"):
        _mapping(obj.get(field), field, where)
    spec = obj.get("spec") or {}
    if obj["kind"] == "Pod" and obj["apiVersion"] == "v1":
        _check_pod_spec(spec, "spec", where)
    elif obj["kind"] in TEMPLATED and obj["apiVersion"] in ("apps/v1", "batch/v1"):
        for field in COUNTS.get(obj["kind"], ()):
            value = spec.get(field)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ManifestError(f"{where}: spec.{field}: expected a count of at least 0, found {_told(value)}")
            if field in PODS and value is not None and value > MOST_PODS:
                raise ManifestError(f"{where}: spec.{field}: expected a count of at most {MOST_PODS}, found {value}")
        template = _mapping(spec.get("template"), "spec.template", where)
        _metadata(template.get("metadata"), f"{where}: spec.template", named=False)
        _check_pod_spec(_mapping(template.get("spec"), "spec.template.spec", where), "spec.template.spec", where)
    if said := misfit(obj["apiVersion"], obj["kind"], obj):
        raise ManifestError(f"{where}: {said}")
    return obj


def _metadata(metadata: Any, where: str, *, named: bool) -> Object:
    checked = dict(_mapping(metadata, "metadata", where))
    checked.pop("resourceVersion", None)
    for field in ("name", "generateName", "namespace"):
        if field in checked and not isinstance(checked[field], str):
            raise ManifestError(f"{where}: metadata.{field}: expected a string, found {_told(checked[field])}")
    if named and not checked.get("name") and not checked.get("generateName"):
        raise ManifestError(f"{where}: metadata.name: expected a name, found nothing")
    if named:
        where = f"{where} {checked.get('name') or checked['generateName']}"
    for field in ("labels", "annotations"):
        for key, value in _mapping(checked.get(field), f"metadata.{field}", where).items():
            if not isinstance(value, str):
                raise ManifestError(f"{where}: metadata.{field}[{key}]: expected a string, found {_told(value)}")
    return checked


def _check_pod_spec(spec: Object, field: str, where: str) -> None:
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise ManifestError(f"{where}: {field}.containers: expected a list of containers, found {_told(containers)}")
    for index, container in enumerate(containers):
        place = f"{field}.containers[{index}]"
        if not isinstance(container, dict) or not isinstance(container.get("name"), str):
            raise ManifestError(f"{where}: {place}: expected a container with a name, found {_told(container)}")
        resources = _mapping(container.get("resources"), f"{place}.resources", where)
        for part in ("requests", "limits"):
            _mapping(resources.get(part), f"{place}.resources.{part}", where)


def _mapping(value: Any, field: str, where: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ManifestError(f"{where}: {field}: expected an object, found {_told(value)}")
    return value


def _told(value: Any) -> str:
    """A value as an error tells it: short."""
    if value is None:
        return "nothing"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"

"""What the API server makes of an object at its creation: checks, defaults, priority.

Only what a scheduler can see is modelled. Quantities are not checked on purpose, because bad ones must be able to reach
Muster; only `muster simulate` has them checked (`check_asks`).
"""

from __future__ import annotations

from typing import Any

from services.simulator import affinity, asks, causes, errors, forms, limit_ranges, names, quantities, selectors, values
from services.simulator.resources import Resource

Object = dict[str, Any]

_JSON_TYPES = {str: "string", float: "number", bool: "boolean", list: "array", dict: "object", type(None): "null"}

POD_SPEC_MUTABLE = {
    *("initContainers", "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"),
    *("schedulingGates", "nodeSelector", "affinity"),
}
"""What an update of a pod's spec may touch beside its images (roughly: gates, and while gated where it may go)."""

NAMED = {("", "namespaces"): names.label, ("apps", "statefulsets"): names.label, ("batch", "jobs"): names.job}
"""By API group and plural: of what kind a name may be. Every other is a subdomain, or a segment of a path."""
PATH_SEGMENTS = {
    *("APIService", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ClusterTrustBundle", "Event"),
    *("IPAddress", "PodDisruptionBudget", "Role", "RoleBinding"),
}
"""Kinds whose names need be no more than that: ``system:basic-user``, ``v1.``."""
WORKLOADS = frozenset({"deployments", "replicasets", "statefulsets", "daemonsets", "jobs"})
MIRROR = "kubernetes.io/config.mirror"
"""A static pod's annotation: its node's kubelet makes it, and names the node."""
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check_metadata(resource: Resource, obj: Object) -> None:
    """Name, labels and annotations. Raises ApiError 400 for wrong types, 422 for wrong values."""
    metadata = obj["metadata"]
    for field in ("labels", "annotations"):
        pairs = metadata.get(field)
        if pairs is None:
            continue
        if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
            why = f"json: cannot unmarshal into metadata.{field}: expected an object of strings"
            raise errors.undecodable(resource.kind, resource.version, why)
    name = metadata.get("name") or ""
    if not name:
        message = "Required value: name or generateName is required"
        raise errors.invalid(resource, "", [("metadata.name", "FieldValueRequired", message)])
    other = names.path_segment if resource.kind in PATH_SEGMENTS else names.subdomain
    rule = NAMED.get((resource.group, resource.plural), other)
    _refuse(resource, obj, [*causes.spelt(rule, name, "metadata.name"), *values.of_metadata(metadata, "metadata")])


def check_types(resource: Resource, obj: Object) -> None:
    """That spec, status and metadata are objects, and what is read of them fits its type. Raises ApiError 400."""
    wrong = [field for field in ("metadata", "spec", "status") if not isinstance(obj.get(field) or {}, dict)]
    if not wrong and not resource.custom:
        conditions = (obj.get("status") or {}).get("conditions") or []
        if not isinstance(conditions, list) or not all(
            isinstance(told, dict) and "type" in told for told in conditions
        ):
            wrong = ["status.conditions"]
    said = f"{wrong[0]}: of another type" if wrong else forms.misfit(resource.api_version, resource.kind, obj)
    if said:
        raise errors.undecodable(resource.kind, resource.version, f"json: cannot unmarshal {said}")


def prepare(resource: Resource, obj: Object) -> None:
    """Checks and defaults of a kind, in place, on an object that is not stored yet. Raises ApiError."""
    if resource.status and resource.plural != "nodes":
        obj.pop("status", None)
    if resource.custom:
        if resource.plural == "podgroups":
            _check_integers(resource, obj, ("minMember", "scheduleTimeoutSeconds"))
        return
    match resource.plural:
        case "pods":
            _prepare_pod(resource, obj)
        case "nodes":
            obj["spec"] = obj.get("spec") or {}
            _refuse(resource, obj, [*values.of_node(obj["spec"])])
            obj["status"] = _node_status(obj.get("status") or {})
        case "namespaces":
            name_label = {"kubernetes.io/metadata.name": obj["metadata"]["name"]}
            obj["metadata"]["labels"] = (obj["metadata"].get("labels") or {}) | name_label
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}
        case "limitranges":
            _prepare_limit_range(resource, obj)
        case "runtimeclasses":
            _refuse(resource, obj, [*values.of_runtime_class(obj)])
        case "priorityclasses":
            _refuse(resource, obj, [*values.of_priority_class(obj, SYSTEM_PRIORITIES)])
            obj["value"] = obj.get("value") or 0
            obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        case "deployments" | "replicasets" | "statefulsets" | "daemonsets":
            _prepare_replicated(resource, obj)
        case "jobs":
            _prepare_job(resource, obj)
        case "podgroups":
            _check_policy(resource, obj)


def check_asks(resource: Resource, obj: Object) -> None:
    """What is asked for and offered, of an object that `prepare` has seen. Raises ApiError 422."""
    if resource.custom:
        return
    if resource.plural == "pods":
        _refuse(resource, obj, [*asks.of_pod(obj["spec"], "spec")])
    elif resource.plural in WORKLOADS:
        _refuse(resource, obj, [*asks.of_pod(obj["spec"]["template"]["spec"], "spec.template.spec")])
    elif resource.plural == "nodes":
        _refuse(resource, obj, [*asks.of_node(obj["status"])])
    elif resource.plural == "runtimeclasses":
        overhead = (obj.get("overhead") or {}).get("podFixed") or {}
        _refuse(resource, obj, [*asks.of_container({"limits": overhead}, "overhead")])


def _refuse(resource: Resource, obj: Object, found: list[causes.Cause]) -> None:
    if found:
        raise errors.invalid(resource, obj["metadata"]["name"], found)


def _prepare_limit_range(resource: Resource, obj: Object) -> None:
    spec = obj.get("spec") or {}
    limit_ranges.complete(spec)
    _refuse(resource, obj, [*limit_ranges.of_limit_range(spec)])


def _node_status(status: Object) -> Object:
    """A node without allocatable offers its capacity, as the API server defaults it."""
    if "capacity" in status and "allocatable" not in status:
        return status | {"allocatable": status["capacity"]}
    return status


def _check_integers(resource: Resource, obj: Object, fields: tuple[str, ...]) -> None:
    """Of a custom resource: nulls are dropped, everything else is an int32."""
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    for field in fields:
        if spec.get(field, 0) is None:
            del spec[field]
        value = spec.get(field, 0)
        if not isinstance(value, int) or isinstance(value, bool):
            told = _JSON_TYPES[type(value)]
            message = f'Invalid value: "{told}": spec.{field} in body must be of type integer: "{told}"'
            raise errors.invalid(resource, name, [(f"spec.{field}", "FieldValueTypeInvalid", message)])
        if not -(1 << 31) <= value < 1 << 31:
            message = f'Invalid value: "": Checked value must be of type integer with format int32 in spec.{field}'
            raise errors.invalid(resource, name, [(f"spec.{field}", "FieldValueInvalid", message)])


def _check_policy(resource: Resource, obj: Object) -> None:
    """Of Kubernetes' own PodGroup: one policy, and a gang's minimum is positive."""
    policy = (obj.get("spec") or {}).get("schedulingPolicy") or {}
    name, field = obj["metadata"]["name"], "spec.schedulingPolicy"
    if len(policy.keys() & {"gang", "basic"}) != 1:
        message = "Invalid value: must specify one of: `basic`, `gang`"
        raise errors.invalid(resource, name, [(field, "FieldValueInvalid", message)])
    count = (policy.get("gang") or {"minCount": 1}).get("minCount", 0)
    if count < 1:
        message = f"Invalid value: {count}: must be greater than or equal to 1"
        raise errors.invalid(resource, name, [(f"{field}.gang.minCount", "FieldValueInvalid", message)])


def default_pod_spec(spec: Object) -> None:
    """The defaults of a pod's spec that a scheduler sees, in place; also of the pods of a template."""
    spec["restartPolicy"] = spec.get("restartPolicy") or "Always"
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        resources = container["resources"] = container.get("resources") or {}
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
        if limits := resources.get("limits"):
            resources["requests"] = limits | (resources.get("requests") or {})
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port["hostPort"] = port.get("hostPort") or port.get("containerPort")


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if tag not in ("", "latest") else "Always"


def _prepare_pod(resource: Resource, pod: Object) -> None:
    name = pod["metadata"]["name"]
    spec = pod.get("spec") or {}
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise errors.invalid(resource, name, [("spec.containers", "FieldValueRequired", "Required value")])
    for index, container in enumerate(containers):
        if not isinstance(container, dict) or not container.get("name"):
            field = f"spec.containers[{index}].name"
            raise errors.invalid(resource, name, [(field, "FieldValueRequired", "Required value")])
    pod["spec"] = spec
    if MIRROR in (pod["metadata"].get("annotations") or {}) and not spec.get("nodeName"):
        message = "must set spec.nodeName if mirror pod annotation is set"
        raise errors.invalid(resource, name, [(f"metadata.annotations[{MIRROR}]", "FieldValueInvalid", message)])
    _refuse(resource, pod, [*values.of_pod(spec, "spec")])
    default_pod_spec(spec)
    _default_pod_requests(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec["tolerations"] = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def begin(pod: Object) -> None:
    """The status of a new pod, in place; its spec says by now all that is added at its creation."""
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        told = {"lastTransitionTime": pod["metadata"]["creationTimestamp"], "lastProbeTime": None, "message": message}
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", **told}
        pod["status"]["conditions"] = [condition]


def _default_pod_requests(spec: Object) -> None:
    """Of a pod with limits of its own: what its containers ask for together, else the limit."""
    resources = spec.get("resources") or {}
    _default_pages(spec, resources)
    limits = resources.get("limits")
    if not limits:
        return
    requests = resources["requests"] = dict(resources.get("requests") or {})
    for name, amount in quantities.aggregated(spec, "requests").items():
        if name in asks.OF_A_POD:
            requests.setdefault(name, quantities.told(amount, binary=name == "memory"))
    for name, limit in limits.items():
        if name in asks.OF_A_POD or name.startswith(asks.PAGES):
            requests.setdefault(name, limit)


def _default_pages(spec: Object, resources: Object) -> None:
    """A pod with resources of its own may have as many huge pages as its containers together."""
    limits, requests = (resources.get(part) or {} for part in ("limits", "requests"))
    if limits or requests:
        together = quantities.aggregated(spec, "limits")
        pages = [name for name in together if name.startswith(asks.PAGES) and name not in requests]
        added = {name: quantities.told(together[name], binary=True) for name in pages}
        resources["limits"] = added | limits


def _qos_class(spec: Object) -> str:
    requests = [c["resources"].get("requests") or {} for c in spec["containers"]]
    limits = [c["resources"].get("limits") or {} for c in spec["containers"]]
    if not any(r.keys() & {"cpu", "memory"} for r in requests + limits):
        return "BestEffort"
    if all(r == at and {"cpu", "memory"} <= r.keys() for r, at in zip(requests, limits, strict=True)):
        return "Guaranteed"
    return "Burstable"


def check_update(resource: Resource, name: str, old: Object, new: Object) -> None:
    """That an update touches only what it may, and leaves what must be there. Raises ApiError 422."""
    if resource.plural == "pods":
        check_pod_update(resource, name, old["spec"], new.get("spec") or {})
    elif resource.plural == "limitranges":
        _prepare_limit_range(resource, new)
    elif resource.plural == "nodes":
        _refuse(resource, new, [*values.of_node(new.get("spec") or {})])
    elif resource.plural in WORKLOADS and not resource.custom:
        _template(resource, new)


def check_pod_update(resource: Resource, name: str, old: Object, new: Object) -> None:
    """That an update of a pod's spec touches only what it may. Raises ApiError 422."""
    changed = {field for field in new.keys() | old.keys() if new.get(field) != old.get(field)}
    if "containers" in changed and _but_images(new.get("containers")) == _but_images(old["containers"]):
        changed.discard("containers")
    if forbidden := sorted(changed - POD_SPEC_MUTABLE):
        message = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            f"existing tolerations),`spec.terminationGracePeriodSeconds`: {', '.join(forbidden)}"
        )
        raise errors.invalid(resource, name, [("spec", "FieldValueForbidden", message)])


def _but_images(containers: Any) -> Any:
    if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
        return containers
    return [{field: value for field, value in container.items() if field != "image"} for container in containers]


def global_default(classes: dict[str, Object]) -> str:
    """The name of the PriorityClass of pods that name none; empty: there is none. Of several it is the smallest."""
    defaults = (c for c in classes.values() if c.get("globalDefault"))
    default = min(defaults, key=lambda c: c.get("value") or 0, default=None)
    return default["metadata"]["name"] if default else ""


def set_priority(resource: Resource, pod: Object, classes: dict[str, Object], default: str) -> None:
    """spec.priority from priorityClassName or the global default, as Priority admission does. Raises ApiError 403."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    chosen = spec.get("priorityClassName") or default
    if chosen and chosen not in classes:
        raise errors.forbidden(resource, name, f"no PriorityClass with name {chosen} was found")
    value = (classes[chosen].get("value") or 0) if chosen else 0
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise errors.forbidden(resource, name, why)
    policy = (classes[chosen].get("preemptionPolicy") if chosen else None) or "PreemptLowerPriority"
    if (asked := spec.get("preemptionPolicy")) is not None and asked != policy:
        why = (
            f"the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise errors.forbidden(resource, name, why)
    spec["priority"], spec["preemptionPolicy"] = value, policy
    if chosen:
        spec["priorityClassName"] = chosen


def _template(resource: Resource, obj: Object) -> Object:
    """The checked spec of an object with a pod template."""
    name = obj["metadata"]["name"]
    spec: Object = obj.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict) or not (template.get("spec") or {}).get("containers"):
        field = "spec.template.spec.containers"
        raise errors.invalid(resource, name, [(field, "FieldValueRequired", "Required value")])
    metadata = [*values.of_metadata(template.get("metadata") or {}, "spec.template.metadata")]
    _refuse(resource, obj, [*metadata, *values.of_pod(template["spec"], "spec.template.spec")])
    default_pod_spec(template["spec"])
    return spec


def _prepare_replicated(resource: Resource, obj: Object) -> None:
    spec = _template(resource, obj)
    if resource.plural != "daemonsets":
        spec.setdefault("replicas", 1)
    always, policy = "spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"]
    _refuse(resource, obj, [*causes.one_of(("Always",), policy, always)])
    managing = spec.get("podManagementPolicy") or "OrderedReady"
    if resource.plural == "statefulsets" and managing not in values.MANAGING:
        why = "must be 'OrderedReady' or 'Parallel'"
        _refuse(resource, obj, [causes.invalid("spec.podManagementPolicy", managing, why)])
    if not spec.get("selector"):
        _refuse(resource, obj, [causes.required("spec.selector")])
    if not any(spec["selector"].get(part) for part in ("matchLabels", "matchExpressions")):
        _refuse(
            resource, obj, [causes.invalid("spec.selector", "{}", f"empty selector is invalid for {resource.kind}")]
        )
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    _refuse(resource, obj, [*affinity.of_selector(spec["selector"], "spec.selector")])
    if not selectors.selects(spec["selector"], labels):
        message = f"Invalid value: {labels}: `selector` does not match template `labels`"
        _refuse(resource, obj, [("spec.template.metadata.labels", "FieldValueInvalid", message)])


def _prepare_job(resource: Resource, job: Object) -> None:
    spec = _template(resource, job)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    _refuse(resource, job, [*causes.one_of(values.COMPLETING, spec["completionMode"], "spec.completionMode")])
    if spec["completionMode"] == "Indexed":
        _refuse(resource, job, [*values.of_indexed(job)])
    if spec["template"]["spec"]["restartPolicy"] == "Always":
        why = 'valid values: "OnFailure", "Never"'
        _refuse(resource, job, [causes.required("spec.template.spec.restartPolicy", why)])

"""The verbs of the simulated API on its store: what each does, and how it is refused. No transport.

Facts about a real kube-apiserver that this keeps to: a patch that changes nothing raises no resourceVersion; Binding
honours metadata.uid and metadata.resourceVersion as preconditions, answers 409 to a second binding and 201 to a node
that doesn't exist; a bound pod is deleted gracefully (first a deletionTimestamp, gone when the kubelet is done), an
unbound one at once.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from services import misfits
from services.simulator import admission, errors, limit_ranges, patches, runtime_classes
from services.simulator.resources import BUILT_IN, Resource, from_crd
from services.simulator.store import Collection, Entry, Store, decode, encode
from services.simulator.workloads import LETTERS, LONGEST_BASE

Object = dict[str, Any]

PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    "application/json-patch+json": patches.json_patch,
    "application/merge-patch+json": patches.merge,
    "application/strategic-merge-patch+json": patches.strategic,
}


def timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def whole(collection: Collection, entry: Entry) -> Object:
    """A copy of the object, with its kind and apiVersion."""
    resource = collection.resource
    return {"kind": resource.kind, "apiVersion": resource.api_version, **decode(b"{" + entry.tail)}


def _group_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


class Api:
    """Every verb, synchronous and atomic: whoever calls it owns the event loop meanwhile."""

    def __init__(
        self,
        store: Store,
        seed: int | None = None,
        clock: Callable[[], datetime] | None = None,
        *,
        checks_asks: bool = False,
    ) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.clock = clock or (lambda: datetime.now(UTC))
        self.checks_asks = checks_asks
        self.by_path: dict[tuple[str, str, str], Collection] = {}
        self._gated: list[Resource] = []
        self._defined: dict[str, list[Resource]] = {}
        """By the name of a definition: what it said when it was made."""
        self._classes: tuple[int, dict[str, Object], str] | None = None
        """PriorityClasses as of so many changes of theirs."""
        self._ranges: tuple[int, dict[str, list[Object]]] | None = None
        """LimitRanges by namespace, as of so many changes of theirs."""
        for resource in BUILT_IN:
            self._serve(resource)
        self.pods = self.by_path["", "v1", "pods"]
        self.nodes = self.by_path["", "v1", "nodes"]
        self._namespaces = self.by_path["", "v1", "namespaces"]
        self._definitions = self.by_path["apiextensions.k8s.io", "v1", "customresourcedefinitions"]
        self._limit_ranges = self.by_path["", "v1", "limitranges"]
        self._runtime_classes = self.by_path["node.k8s.io", "v1", "runtimeclasses"]
        self._priorities = self.by_path["scheduling.k8s.io", "v1", "priorityclasses"]
        # Both groups serve the same events; `services.simulator.event_forms` turns one form into the other.
        self.store.withdraw(self.by_path["events.k8s.io", "v1", "events"].resource)
        self.by_path["events.k8s.io", "v1", "events"] = self.by_path["", "v1", "events"]
        for name in admission.SYSTEM_NAMESPACES:
            self.create(self._namespaces, "", {"metadata": {"name": name}})
        for name, value in admission.SYSTEM_PRIORITIES.items():
            self.create(self._priorities, "", {"metadata": {"name": name}, "value": value})

    # ------------------------------------------------------------------------------------------------------ resources

    def _serve(self, resource: Resource) -> None:
        self.by_path[resource.group, resource.version, resource.plural] = self.store.serve(resource)

    def resources(self) -> list[Resource]:
        custom = [collection.resource for collection in self.by_path.values() if collection.resource.custom]
        return [*BUILT_IN, *self._gated, *custom]

    def open_gates(self, gated: Iterable[Resource]) -> None:
        """Serve what a cluster serves only with its gates on."""
        for resource in gated:
            self._gated.append(resource)
            self._serve(resource)

    def serves(self, group: str, version: str) -> bool:
        """Whether anything is served under this group and version."""
        return any((r.group, r.version) == (group, version) for r in self.resources())

    def _knows(self, api_version: str, kind: str) -> bool:
        return any((r.api_version, r.kind) == (api_version, kind) for r in self.resources())

    def collection(self, api_version: str, kind: str) -> Collection:
        """By what an object says of itself. Raises ApiError 404."""
        for resource in self.resources():
            if (resource.api_version, resource.kind) == (api_version, kind):
                return self.by_path[resource.group, resource.version, resource.plural]
        message = f'no matches for kind "{kind}" in version "{api_version}"'
        raise errors.ApiError(404, "NotFound", message)

    def _crd_created(self, crd: Object) -> None:
        try:
            served = list(from_crd(crd))
        except msgspec.ValidationError as error:
            name, (path, said) = crd["metadata"]["name"], misfits.told(error)
            raise errors.bad_request(f"CustomResourceDefinition {name}: {path}: {said}") from error
        for resource in served:
            self._serve(resource)
        self._defined[crd["metadata"]["name"]] = served
        names = crd["spec"]["names"]
        conditions = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
        stored = [version["name"] for version in crd["spec"]["versions"]]
        crd["status"] = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}

    def _crd_deleted(self, crd: Object) -> None:
        for resource in self._defined.pop(crd["metadata"]["name"]):
            del self.by_path[resource.group, resource.version, resource.plural]
            self.store.withdraw(resource)

    # ----------------------------------------------------------------------------------------------------------- read

    def get(self, collection: Collection, namespace: str, name: str) -> Entry:
        """Raises ApiError 404."""
        entry = collection.entries.get((namespace, name))
        if entry is None:
            raise errors.not_found(collection.resource, name)
        return entry

    # ---------------------------------------------------------------------------------------------------------- create

    def create(self, collection: Collection, namespace: str, obj: Object, *, admitted: bool = False) -> Entry:
        """Store a new object. `obj` becomes the store's own. Raises ApiError 400, 403, 404, 409, 422.

        `admitted`: another server has made of it what one makes at its creation.
        """
        resource = collection.resource
        admission.check_types(resource, obj)
        metadata = self._new_metadata(resource, namespace, obj)
        admission.check_metadata(resource, obj)
        key = (namespace, metadata["name"])
        self._check_namespace(resource, namespace, metadata["name"])
        if not admitted:
            self._admit(collection, obj)
        if key in collection.entries:
            raise errors.already_exists(resource, metadata["name"])
        if collection is self._definitions:
            self._crd_created(obj)
        return self.store.put(collection, key, obj)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """That it is there, and not going: also before a subresource is made of an object. Raises ApiError 403, 404."""
        if not namespace:
            return
        entry = self.get(self._namespaces, "", namespace)
        if "deletionTimestamp" in entry.object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource, name, why)

    def _admit(self, collection: Collection, obj: Object) -> None:
        resource = collection.resource
        try:
            admission.prepare(resource, obj)
            if collection is self.pods:
                self._add_to_pod(obj)
            if self.checks_asks:
                admission.check_asks(resource, obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise errors.undecodable(resource.kind, resource.version, error) from error
        if collection is self.pods:
            limit_ranges.check(resource, obj, self._ranges_of(obj))

    def _add_to_pod(self, pod: Object) -> None:
        """What other objects of the cluster say of it."""
        limit_ranges.add(pod["spec"], self._ranges_of(pod))
        admission.set_priority(self.pods.resource, pod, *self._priority_classes())
        known = self._runtime_classes.entries.get(("", pod["spec"].get("runtimeClassName") or ""))
        runtime_classes.add(self.pods.resource, pod, known.object if known is not None else None)
        admission.begin(pod)

    def _ranges_of(self, pod: Object) -> list[Object]:
        """The LimitRanges of its namespace, by name; gone through anew only when one changed."""
        if self._ranges is None or self._ranges[0] != self._limit_ranges.end:
            by_namespace: dict[str, list[Object]] = {}
            for entry in self._limit_ranges.in_order(""):
                by_namespace.setdefault(entry.key[0], []).append(entry.object)
            self._ranges = self._limit_ranges.end, by_namespace
        return self._ranges[1].get(pod["metadata"]["namespace"], [])

    def _priority_classes(self) -> tuple[dict[str, Object], str]:
        """By name, and the name of the global default; gone through anew only when one changed."""
        if self._classes is None or self._classes[0] != self._priorities.end:
            by_name = {entry.key[1]: entry.object for entry in self._priorities.entries.values()}
            self._classes = self._priorities.end, by_name, admission.global_default(by_name)
        return self._classes[1:]

    def _new_metadata(self, resource: Resource, namespace: str, obj: Object) -> Object:
        for field in ("kind", "apiVersion"):
            obj.pop(field, None)
        asked = obj.get("metadata") or {}
        if namespace and asked.get("namespace", namespace) not in ("", namespace):
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(message)
        if asked.get("resourceVersion"):
            raise errors.internal("resourceVersion should not be set on objects to be created")
        name = asked.get("name") or ""
        if not name and asked.get("generateName"):
            name = asked["generateName"][:LONGEST_BASE] + "".join(self.random.choices(LETTERS, k=5))
        metadata = {**asked, "name": name, "uid": self.new_uid(), "creationTimestamp": timestamp(self.clock())}
        if namespace:
            metadata["namespace"] = namespace
        else:  # it has none, whatever it says
            metadata.pop("namespace", None)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"):
            metadata.pop(field, None)
        if resource.generation:
            metadata["generation"] = 1
        # metadata first, as Kubernetes writes it
        rest = {field: value for field, value in obj.items() if field != "metadata"}
        obj.clear()
        obj["metadata"] = metadata
        obj.update(rest)
        return metadata

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def apply_new(self, obj: Object, *, define: bool = True, admitted: bool = False) -> Object:
        """Create a copy of `obj` where its kind and namespace say; answers with the whole object.

        `define`: whether namespaces and kinds that are not there yet are defined on the way. `admitted`: as `create`
        takes it. Raises ApiError.
        """
        own: Object = decode(encode(obj))
        api_version, kind = str(own.get("apiVersion", "")), str(own.get("kind", ""))
        if define and kind and api_version and not self._knows(api_version, kind):
            self._serve(Resource(*_group_version(api_version), f"{kind.lower()}s", kind, status=True, custom=True))
        collection = self.collection(api_version, kind)
        namespace = ""
        if collection.resource.namespaced:
            namespace = (own.get("metadata") or {}).get("namespace") or "default"
            if define and ("", namespace) not in self._namespaces.entries:
                self.create(self._namespaces, "", {"metadata": {"name": namespace}})
        return whole(collection, self.create(collection, namespace, own, admitted=admitted))

    # ---------------------------------------------------------------------------------------------------------- update

    def replace(self, collection: Collection, namespace: str, name: str, obj: Object, subresource: str = "") -> Entry:
        """PUT: the whole object, or its status. Raises ApiError 400, 404, 409, 422."""
        resource = collection.resource
        entry = self.get(collection, namespace, name)
        admission.check_types(resource, obj)
        metadata = obj.get("metadata") or {}
        if metadata.get("name") != name:
            message = f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
            raise errors.bad_request(message)
        self._check_preconditions(resource, entry, metadata.get("uid"), None)
        if not metadata.get("resourceVersion") and resource.custom:
            message = "Invalid value: 0: must be specified for an update"
            raise errors.invalid(resource, name, [("metadata.resourceVersion", "FieldValueInvalid", message)])
        return self._update(collection, entry, obj, subresource)

    def patch(
        self, collection: Collection, namespace: str, name: str, patch: Any, media_type: str, subresource: str = ""
    ) -> Entry:
        """One of `PATCHES`. Raises ApiError 400, 404, 409, 415, 422."""
        resource = collection.resource
        apply = PATCHES.get(media_type)
        if apply is None or (resource.custom and apply is patches.strategic):
            accepted = [known for known, how in PATCHES.items() if not (resource.custom and how is patches.strategic)]
            raise errors.unsupported_media(media_type, accepted)
        entry = self.get(collection, namespace, name)
        try:
            obj = apply(entry.object, patch)
        except patches.PatchError as error:
            raise errors.failed_json_patch() from error
        except RecursionError as error:  # Python decodes more levels than it can call functions, from 3.12 on
            raise errors.bad_request(f"the patch of {resource.kind} {name} is nested too deep") from error
        if not isinstance(obj, dict):
            raise errors.bad_request(f"the patch makes {resource.kind} {name} something that is not an object")
        admission.check_types(resource, obj)
        return self._update(collection, entry, obj, subresource)

    @staticmethod
    def _check_preconditions(resource: Resource, entry: Entry, uid: str | None, revision: str | None) -> None:
        """Those of Binding and PUT. Raises ApiError 409."""
        own = entry.object["metadata"]["uid"]
        if uid and uid != own:
            raise errors.precondition(resource, entry.key, "UID", uid, own)
        if revision and revision != str(entry.revision):
            raise errors.precondition(resource, entry.key, "ResourceVersion", revision, str(entry.revision))

    def _update(self, collection: Collection, entry: Entry, obj: Object, subresource: str) -> Entry:
        """Store what an update of `entry` to `obj` amounts to; the same entry when that changes nothing."""
        resource, old = collection.resource, entry.object
        asked = obj.get("metadata") or {}
        if asked.get("resourceVersion") and asked["resourceVersion"] != str(entry.revision):
            raise errors.modified(resource, entry.key[1])
        # A patch with another UID is invalid; only a custom resource's status takes no notice of it.
        own = old["metadata"]["uid"]
        if asked.get("uid", own) != own and not (resource.custom and subresource == "status"):
            message = f'Invalid value: "{asked["uid"]}": field is immutable'
            raise errors.invalid(resource, entry.key[1], [("metadata.uid", "FieldValueInvalid", message)])
        if subresource == "status":
            new = old | {"status": obj.get("status") or {}}
        elif subresource == "resize":
            new = old | {"spec": old["spec"] | {"containers": (obj.get("spec") or {}).get("containers")}}
        else:
            new = {field: value for field, value in obj.items() if field not in ("kind", "apiVersion")}
            new["metadata"] = self._kept_metadata(asked, old["metadata"])
            if resource.status:
                new.pop("status", None)
                if "status" in old:
                    new["status"] = old["status"]
            admission.check_update(resource, entry.key[1], old, new)
            admission.check_metadata(resource, new)
        if new == old:
            return entry
        new["metadata"] = dict(new["metadata"])
        if resource.generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if new["metadata"].get("deletionTimestamp") and self._may_go(new["metadata"]):
            self._remove(collection, entry)
            return Entry(entry.key, new, entry.revision)
        return self.store.put(collection, entry.key, new)

    @staticmethod
    def _may_go(metadata: Object) -> bool:
        return not metadata.get("finalizers") and not metadata.get("deletionGracePeriodSeconds")

    @staticmethod
    def _kept_metadata(asked: Object, old: Object) -> Object:
        """The metadata of an update: what identifies the object stays."""
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "generateName")
        fixed = (*kept, "deletionTimestamp", "deletionGracePeriodSeconds")
        metadata = {field: asked[field] for field in asked if field not in (*fixed, "managedFields")}
        return {field: old[field] for field in fixed if field in old} | metadata

    # ---------------------------------------------------------------------------------------------------------- delete

    def delete(
        self, collection: Collection, namespace: str, name: str, options: Object | None = None
    ) -> Object | Entry:
        """Delete, gracefully where Kubernetes does. Answers with a pod, or with a Status. Raises ApiError 404, 409."""
        resource, options = collection.resource, options or {}
        entry = self.get(collection, namespace, name)
        metadata = entry.object["metadata"]
        self._check_deletion(resource, entry, options.get("preconditions") or {})
        if collection is not self.pods and not metadata.get("finalizers"):
            self._remove(collection, entry)
            return errors.success(resource, name, metadata["uid"])
        grace = self._grace_seconds(entry.object, options) if collection is self.pods else 0
        if "deletionTimestamp" not in metadata or grace < metadata["deletionGracePeriodSeconds"]:
            # Even a pod that goes at once is seen with its deletionTimestamp before it is gone.
            gone_by = timestamp(self.clock() + timedelta(seconds=grace))
            doomed = metadata | {"deletionTimestamp": gone_by, "deletionGracePeriodSeconds": grace}
            if resource.generation and "deletionTimestamp" not in metadata:
                doomed["generation"] = metadata["generation"] + 1
            going = {"status": {"phase": "Terminating"}} if collection is self._namespaces else {}
            entry = self.store.put(collection, entry.key, entry.object | going | {"metadata": doomed})
        if self._may_go(entry.object["metadata"]):
            return self._remove(collection, entry)
        return entry

    @staticmethod
    def _check_deletion(resource: Resource, entry: Entry, preconditions: Object) -> None:
        own, name = entry.object["metadata"]["uid"], entry.key[1]
        uid, revision = preconditions.get("uid"), preconditions.get("resourceVersion")
        if uid and uid != own:
            raise errors.deletion_precondition(resource, name, "UID", uid, own)
        if revision and revision != str(entry.revision):
            raise errors.deletion_precondition(resource, name, "ResourceVersion", revision, str(entry.revision))

    @staticmethod
    def _grace_seconds(pod: Object, options: Object) -> int:
        """A pod that no kubelet runs goes at once."""
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return 0
        asked = options.get("gracePeriodSeconds")
        return int(pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    def _remove(self, collection: Collection, entry: Entry) -> Entry:
        if collection is self._definitions:
            self._crd_deleted(entry.object)
        if collection is self._namespaces:
            for other in list(self.by_path.values()):
                for key in [key for key in other.entries if key[0] == entry.key[1]]:
                    self.store.remove(other, key)
        return self.store.remove(collection, entry.key)

    # --------------------------------------------------------------------------------------------------- bind and evict

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """The Binding subresource. The node need not exist. Raises ApiError 400, 404, 409, 422."""
        resource = self.pods.resource
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        if metadata.get("name", name) not in ("", name):
            message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise errors.bad_request(message)
        if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
            raise errors.internal("target.name: Required value")
        self._check_namespace(resource, namespace, name)
        entry = self.get(self.pods, namespace, name)
        self._check_preconditions(resource, entry, metadata.get("uid"), metadata.get("resourceVersion"))
        pod = entry.object
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise errors.conflict(resource, name, why, "binding")
        if node := pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{node}"'
            raise errors.conflict(resource, name, why, "binding")
        if pod["spec"].get("schedulingGates"):
            raise errors.conflict(resource, name, f"pod {name} has non-empty .spec.schedulingGates", "binding")
        bound = {
            "metadata": self._bound_metadata(pod["metadata"], metadata),
            "spec": pod["spec"] | {"nodeName": target["name"]},
            "status": pod["status"] | {"conditions": self._scheduled(pod["status"].get("conditions") or [])},
        }
        try:
            self.store.put(self.pods, entry.key, pod | bound)
        except errors.ApiError as error:  # whatever it meets there is a conflict
            raise errors.conflict(resource, name, error.message, "binding") from error

    @staticmethod
    def _bound_metadata(metadata: Object, binding: Object) -> Object:
        merged = dict(metadata)
        for field in ("annotations", "labels"):
            if binding.get(field):
                merged[field] = (metadata.get(field) or {}) | binding[field]
        return merged

    def _scheduled(self, conditions: list[Object]) -> list[Object]:
        now = timestamp(self.clock())
        true = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        return [condition for condition in conditions if condition.get("type") != "PodScheduled"] + [true]

    def evict(self, namespace: str, name: str, eviction: Object) -> None:
        """The Eviction subresource; there are no disruption budgets here. Raises ApiError 404, 409."""
        options = eviction.get("deleteOptions") or {}
        self._check_namespace(self.pods.resource, namespace, name)
        entry = self.get(self.pods, namespace, name)
        self._check_deletion(self.pods.resource, entry, options.get("preconditions") or {})
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": timestamp(self.clock()),
        }
        status = patches.strategic(entry.object["status"], {"conditions": [condition]})
        self.store.put(
            self.pods, entry.key, entry.object | {"metadata": dict(entry.object["metadata"]), "status": status}
        )
        self.delete(self.pods, namespace, name, {**options, "preconditions": {}})

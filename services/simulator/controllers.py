"""The controllers of a simulated cluster: Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs get their pods,
and keep them.

One task over the store: it notes which owners a change concerns, and after a short pause brings each of them once to
what its spec asks. `services.simulator.workloads` says what a pod looks like. Dependents of a deleted owner are deleted,
of whatever kind, also those that come later; what names an owner that was never there is left alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from services.simulator import daemons
from services.simulator.api import Api, timestamp, whole
from services.simulator.errors import ApiError
from services.simulator.store import Collection, Entry, Key
from services.simulator.workloads import COMPLETION_INDEX, count, daemon, job_pod, member, replica, replica_set_of

Object = dict[str, Any]

PAUSE_S = 0.005
"""Between two rounds: many changes of one owner cost one look at it."""
REMEMBERED = 10_000


class Controllers:
    """All workload controllers of one cluster."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._sets = api.collection("apps/v1", "ReplicaSet")
        kinds = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
        self._owners = {kind: api.collection("apps/v1", kind) for kind in kinds}
        self._owners["Job"] = api.collection("batch/v1", "Job")
        self._dependents: dict[str, dict[tuple[str, Key], None]] = defaultdict(dict)
        """By the owner's UID: kind and key of what named it as an owner; `_owned` is what does so now."""
        self._next: dict[str, int] = defaultdict(int)
        """By the owner's UID: the number of its next pod."""
        self._concerned: dict[tuple[str, Key], None] = {}
        self._bereaved: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        """UIDs of the last `REMEMBERED` owners that were deleted: what names one afterwards goes as well."""
        self._read: dict[str, tuple[Collection, int]] = {}
        """By kind: up to which of its changes."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.api.store.grown.clear()
            for kind, collection in self._followed().items():
                self._follow(kind, collection)
            concerned, self._concerned = self._concerned, {}
            for kind, key in concerned:
                self._settle(kind, key)
            self._collect_garbage()
            if any(collection.end > end for collection, end in self._read.values()):
                await asyncio.sleep(PAUSE_S)
            else:
                await self.api.store.grown.wait()

    # ------------------------------------------------------------------------------------------------------ bookkeeping

    def _followed(self) -> dict[str, Collection]:
        """Owners, and what may belong to one: also of the kinds that somebody defined."""
        custom = (one for one in self.api.by_path.values() if one.resource.custom)
        defined = {f"{one.resource.plural}.{one.resource.group}/{one.resource.version}": one for one in custom}
        return {"Pod": self.api.pods, "Node": self.api.nodes, **self._owners, **defined}

    def _follow(self, kind: str, collection: Collection) -> None:
        before, cursor = self._read.get(kind, (None, 0))
        changes = collection.after(cursor) if before is collection else None
        self._read[kind] = (collection, collection.end)
        if changes is None:  # it is new here, or the history was dropped before it was read
            for entry in collection.entries.values():
                self._note(kind, entry, gone=False)
        for change in changes or ():
            self._note(kind, change.new, gone=change.type == "DELETED")

    def _note(self, kind: str, entry: Entry, *, gone: bool) -> None:
        metadata, key = entry.object["metadata"], entry.key
        for reference in metadata.get("ownerReferences") or ():
            owned = self._dependents[reference["uid"]]
            if not gone:
                owned[kind, key] = None
                if reference["uid"] in self._gone:
                    self._bereaved[reference["uid"]] = None
            else:
                owned.pop((kind, key), None)
                if not owned:
                    del self._dependents[reference["uid"]]
            if reference.get("controller") and reference["kind"] in self._owners:
                self._concerned[reference["kind"], (key[0], reference["name"])] = None
        if kind == "Node":
            for each in self._owners["DaemonSet"].entries:
                self._concerned["DaemonSet", each] = None
        if gone and (kind in self._owners or metadata["uid"] in self._dependents):
            self._bereaved[metadata["uid"]] = None
        elif kind in self._owners:
            self._concerned[kind, key] = None

    def _collect_garbage(self) -> None:
        bereaved, self._bereaved = self._bereaved, {}
        self._gone |= bereaved
        for uid in bereaved:
            for kind in dict.fromkeys(kind for kind, _ in self._dependents.get(uid, ())):
                for entry in self._owned(uid, kind):
                    self._bereave(self._read[kind][0], entry)
            self._dependents.pop(uid, None)
            self._next.pop(uid, None)
        while len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def _bereave(self, collection: Collection, entry: Entry) -> None:
        """It goes, unless another owner is left, which it names alone from then on."""
        left = [one for one in entry.object["metadata"]["ownerReferences"] if one["uid"] not in self._gone]
        if left:
            self._write(collection, entry.key, {"metadata": {"ownerReferences": left}}, subresource="")
        else:
            self._delete(collection, entry.key)

    def _owned(self, uid: str, kind: str) -> list[Entry]:
        """Objects of a kind that name this owner; whoever takes the reference away keeps the object."""
        entries, owned = self._read[kind][0].entries, self._dependents.get(uid, {})
        found = [entries[key] for other, key in owned if other == kind and key in entries]
        return [entry for entry in found if _is_owned(entry.object, uid)]

    def _pods(self, owner: Object) -> list[Entry]:
        return self._owned(owner["metadata"]["uid"], "Pod")

    # --------------------------------------------------------------------------------------------------- reconciliation

    def _settle(self, kind: str, key: Key) -> None:
        collection = self._owners[kind]
        entry = collection.entries.get(key)
        if entry is None or "deletionTimestamp" in entry.object["metadata"]:
            return
        owner = whole(collection, entry)
        settle = {
            "Deployment": self._deployment,
            "ReplicaSet": self._replica_set,
            "StatefulSet": self._stateful_set,
            "DaemonSet": self._daemon_set,
            "Job": self._job,
        }[kind]
        try:
            self._write(collection, key, {"status": settle(owner)})
        except ApiError as error:
            self._tell(owner, error)

    def _deployment(self, deployment: Object) -> Object:
        wanted = replica_set_of(deployment)
        key = (deployment["metadata"]["namespace"], wanted["metadata"]["name"])
        if key not in self._sets.entries:
            if deployment["spec"].get("paused"):  # nothing is rolled out before it is resumed
                return {"observedGeneration": deployment["metadata"]["generation"]}
            self.api.apply_new(wanted)
        for entry in self._owned(deployment["metadata"]["uid"], "ReplicaSet"):
            replicas = wanted["spec"]["replicas"] if entry.key == key else 0
            self._write(self._sets, entry.key, {"spec": {"replicas": replicas}}, subresource="")
        current = self._sets.entries[key].object.get("status") or {}
        return {"observedGeneration": deployment["metadata"]["generation"], **current}

    def _replica_set(self, replica_set: Object) -> Object:
        pods = [entry for entry in self._pods(replica_set) if _active(entry.object)]
        replicas = count(replica_set["spec"], "replicas")
        for _ in range(replicas - len(pods)):
            self.api.apply_new(replica(replica_set, self._number(replica_set)))
        self._delete_pods(_surplus(pods, replicas))
        return {"replicas": replicas, "readyReplicas": sum(_ready(entry.object) for entry in pods)}

    def _stateful_set(self, stateful_set: Object) -> Object:
        namespace, spec = stateful_set["metadata"]["namespace"], stateful_set["spec"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        wanted = [member(stateful_set, number) for number in range(start, start + count(spec, "replicas"))]
        names = {pod["metadata"]["name"] for pod in wanted}
        for entry in self._pods(stateful_set):
            if entry.key[1] not in names or not (
                _active(entry.object) or "deletionTimestamp" in entry.object["metadata"]
            ):
                self._delete(self.api.pods, entry.key)
        for pod in wanted:
            there = self.api.pods.entries.get((namespace, pod["metadata"]["name"]))
            if there is None:
                self.api.apply_new(pod)
            if spec.get("podManagementPolicy") != "Parallel" and not (there and _ready(there.object)):
                break  # OrderedReady: the next one when this one is ready
        pods = [entry.object for entry in self._pods(stateful_set) if _active(entry.object)]
        return {"replicas": len(pods), "readyReplicas": sum(map(_ready, pods))}

    def _daemon_set(self, daemon_set: Object) -> Object:
        """One pod for each node that takes it; one that has ended, or may not stay, goes before there is another."""
        nodes = {key[1]: entry.object for key, entry in self.api.nodes.entries.items()}
        there: dict[str, Object] = {}
        for entry in self._pods(daemon_set):
            pod, name = entry.object, daemons.target(entry.object)
            stays = name in nodes and name not in there and daemons.keeps(daemon_set, nodes[name])
            if not (stays and _active(pod)) and "deletionTimestamp" not in pod["metadata"]:
                self._delete(self.api.pods, entry.key)
            if entry.key in self.api.pods.entries:
                there.setdefault(name, pod)
        wanted = [name for name, node in nodes.items() if daemons.takes(daemon_set, node)]
        for name in wanted:
            if name not in there:
                self.api.apply_new(daemon(daemon_set, self._number(daemon_set), name))
        ready = sum(map(_ready, there.values()))
        return {"desiredNumberScheduled": len(wanted), "currentNumberScheduled": len(there), "numberReady": ready}

    def _job(self, job: Object) -> Object:
        status, spec = job.get("status") or {}, job["spec"]
        entries = self._pods(job)
        active, pods = [entry for entry in entries if _active(entry.object)], [entry.object for entry in entries]
        succeeded = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
        told = {"active": len(active), "succeeded": len(succeeded), "failed": failed}
        done = {condition["type"] for condition in status.get("conditions") or ()}
        if done & {"Complete", "Failed"}:
            return told
        if failed > count(spec, "backoffLimit", 6):
            return told | self._ended("Failed", "BackoffLimitExceeded", active)
        completions = spec.get("completions")
        if (len(succeeded) >= completions) if completions is not None else (succeeded and not active):
            return told | self._ended("Complete", "CompletionsReached", active)
        if spec.get("suspend"):
            return told | self._suspended(active)
        told["active"] += self._start_pods(job, active, succeeded)
        return told | ({"conditions": []} if "Suspended" in done else {})

    def _suspended(self, active: list[Entry]) -> Object:
        """Its pods go, and it stays."""
        self._delete_pods(active)
        return {"active": 0, "conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}

    def _start_pods(self, job: Object, active: list[Entry], succeeded: list[Object]) -> int:
        """What is missing of a Job's parallelism, and what is there beyond it goes; returns how many more there are."""
        spec = job["spec"]
        parallelism, completions = count(spec, "parallelism"), spec.get("completions")
        if completions is None:
            missing = 0 if succeeded else parallelism - len(active)
        else:
            missing = min(parallelism, completions - len(succeeded)) - len(active)
        if missing < 0:
            self._delete_pods(_surplus(active, len(active) + missing))
            return missing
        indices: Sequence[int | None] = [None] * missing
        if spec.get("completionMode") == "Indexed":
            taken = {_index(pod) for pod in (*(entry.object for entry in active), *succeeded)}
            indices = [index for index in range(completions or 0) if index not in taken][:missing]
        for index in indices:
            self.api.apply_new(job_pod(job, self._number(job), index))
        return len(indices)

    def _ended(self, condition: str, reason: str, active: list[Entry]) -> Object:
        self._delete_pods(active)
        now = timestamp(self.api.clock())
        told = {"conditions": [{"type": condition, "status": "True", "reason": reason, "lastTransitionTime": now}]}
        return told | {"completionTime": now} if condition == "Complete" else told

    def _delete_pods(self, pods: Sequence[Entry]) -> None:
        for entry in pods:
            self._delete(self.api.pods, entry.key)

    # --------------------------------------------------------------------------------------------------------- effects

    def _number(self, owner: Object) -> int:
        uid = owner["metadata"]["uid"]
        self._next[uid] += 1
        return self._next[uid] - 1

    def _write(self, collection: Collection, key: Key, patch: Object, subresource: str = "status") -> None:
        self.api.patch(collection, *key, patch, "application/merge-patch+json", subresource)

    def _tell(self, owner: Object, error: ApiError) -> None:
        """A Kubernetes event: the owner's pods cannot be made as it asks. Tried again when the owner changes."""
        metadata = owner["metadata"]
        about = {field: metadata[field] for field in ("name", "namespace", "uid")}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **about},
            "reason": "FailedCreate",
            "message": f"Error creating: {error.message}",
            "type": "Warning",
        }
        self.api.apply_new(event)

    def _delete(self, collection: Collection, key: Key) -> None:
        try:
            self.api.delete(collection, *key)
        except ApiError:
            return  # gone already, which is what was wanted


def _is_owned(obj: Object, uid: str) -> bool:
    return any(reference["uid"] == uid for reference in obj["metadata"].get("ownerReferences") or ())


def _surplus(pods: Sequence[Entry], wanted: int) -> Sequence[Entry]:
    """Those that go: unbound ones first, then the youngest. `pods` are as they came."""
    bound: list[Entry] = []
    unbound: list[Entry] = []
    for entry in reversed(pods):
        (bound if entry.object["spec"].get("nodeName") else unbound).append(entry)
    return [*unbound, *bound][: max(0, len(pods) - wanted)]


def _active(pod: Object) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _index(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][COMPLETION_INDEX])

"""Every node's kubelet: brings bound pods to life, ends them after their duration, finishes graceful deletion.

    bound → admitted → Running and Ready → Succeeded after the duration that the pod's annotation names
          → Failed, OutOfcpu, when the node's allocatable is exceeded

A pod says by annotation how long it runs: `muster.dev/duration-ms`; without it, or with what is no number, for ever.
`muster.dev/exit-code` other than 0 makes it fail at its end. A pod on a node that doesn't exist stays Pending until the
node appears.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from services.simulator.api import Api, timestamp
from services.simulator.errors import ApiError
from services.simulator.quantities import add, amounts, pod_requests
from services.simulator.store import Entry, Key

Object = dict[str, Any]

DURATION = "muster.dev/duration-ms"
EXIT_CODE = "muster.dev/exit-code"
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
KILLED = 143
"""What a container that was stopped by SIGTERM exits with."""
SLICE = 200
"""Changes handled before others get the event loop."""


class Kubelet:
    """The kubelets of all nodes, as one task over the store."""

    def __init__(self, api: Api, *, startup_ms: int = 0, termination_ms: int = 0) -> None:
        self.api = api
        self._startup_s, self._termination_s = startup_ms / 1000, termination_ms / 1000
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._admitted: dict[str, tuple[str, dict[str, int]]] = {}
        """By pod UID: its node and what it takes there."""
        self._homeless: dict[str, dict[Key, None]] = defaultdict(dict)
        """By the name of a node that doesn't exist: the pods bound to it."""
        self._ending: set[str] = set()
        self._timers: list[tuple[float, int, str, Key, str]] = []
        self._count = 0

    async def run(self) -> None:
        """Until cancelled."""
        pods, nodes, grown = self.api.pods, self.api.nodes, self.api.store.grown
        pod_cursor, node_cursor = pods.end, nodes.end
        self._see_all()
        while True:
            grown.clear()
            changes, changed = pods.after(pod_cursor, SLICE), nodes.after(node_cursor)
            if changes is None or changed is None:
                pod_cursor, node_cursor, changes, changed = pods.end, nodes.end, [], []
                self._see_all()
            pod_cursor += len(changes)
            for change in changes:
                if change.type == "DELETED":
                    self._release(change.new.object["metadata"]["uid"])
                else:
                    self._see(change.new)
            for change in changed:
                node_cursor += 1
                self._settle(change.new.key[1])
            self._fire()
            if pods.end > pod_cursor or nodes.end > node_cursor:
                await asyncio.sleep(0)
                continue
            await self._wait(grown)

    async def _wait(self, grown: asyncio.Event) -> None:
        pause_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        try:
            async with asyncio.timeout(pause_s):
                await grown.wait()
        except TimeoutError:
            return

    # ---------------------------------------------------------------------------------------------------- what it sees

    def _see_all(self) -> None:
        """At the start, and when the history was dropped before it was read."""
        pods = {entry.object["metadata"]["uid"]: entry for entry in self.api.pods.entries.values()}
        for uid in [uid for uid in (*self._admitted, *self._ending) if uid not in pods]:
            self._release(uid)
        for _, node in list(self.api.nodes.entries):
            self._settle(node)
        for entry in pods.values():
            self._see(entry)

    def _see(self, entry: Entry) -> None:
        pod = entry.object
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node:
            return
        finished = _is_finished(pod)
        if finished:  # it holds nothing, though a finalizer may keep its object
            self._free(uid)
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._ending:
                self._ending.add(uid)
                self._later(self._termination_s, "end", entry)
        elif not finished and uid not in self._admitted:
            if ("", node) in self.api.nodes.entries:
                self._admit(entry, node)
            else:
                self._homeless[node][entry.key] = None

    def _settle(self, node: str) -> None:
        """The node is there or changed: pods that waited for it are admitted."""
        if ("", node) in self.api.nodes.entries:
            for key in self._homeless.pop(node, {}):
                if entry := self.api.pods.entries.get(key):
                    self._see(entry)

    def _admit(self, entry: Entry, node: str) -> None:
        asked = pod_requests(entry.object["spec"])
        status = self.api.nodes.entries["", node].object.get("status") or {}
        offered = {"pods": 110_000} | amounts(status.get("allocatable"))
        used = self._used[node]
        for name in sorted(asked, key=lambda name: name != "pods"):
            if asked[name] and asked[name] + used.get(name, 0) > offered.get(name, 0):
                self._reject(entry, name, asked[name], used.get(name, 0), offered.get(name, 0))
                return
        add(used, asked)
        self._admitted[entry.object["metadata"]["uid"]] = (node, asked)
        self._later(self._startup_s, "start", entry)

    def _release(self, uid: str) -> None:
        self._ending.discard(uid)
        self._free(uid)

    def _free(self, uid: str) -> None:
        if taken := self._admitted.pop(uid, None):
            node, asked = taken
            add(self._used[node], asked, -1)

    # ---------------------------------------------------------------------------------------------------- what it does

    def _later(self, delay_s: float, action: str, entry: Entry) -> None:
        self._count += 1
        due = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due, self._count, action, entry.key, entry.object["metadata"]["uid"]))

    def _due(self) -> Iterator[tuple[str, Key, str]]:
        now = time.monotonic()
        for _ in range(SLICE):
            if not self._timers or self._timers[0][0] > now:
                return
            _, _, action, key, uid = heapq.heappop(self._timers)
            yield action, key, uid

    def _fire(self) -> None:
        for action, key, uid in self._due():
            entry = self.api.pods.entries.get(key)
            if entry is None or entry.object["metadata"]["uid"] != uid:
                continue
            if action == "end":
                self._end(entry)
            elif "deletionTimestamp" not in entry.object["metadata"] and not _is_finished(entry.object):
                if action == "start":
                    self._start(entry)
                else:
                    self._finish(entry)

    def _start(self, entry: Entry) -> None:
        pod, now = entry.object, timestamp(self.api.clock())
        containers = [
            {"name": c["name"], "ready": True, "restartCount": 0, "state": {"running": {"startedAt": now}}}
            for c in pod["spec"]["containers"]
        ]
        conditions = [_condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
        status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}
        self._write(entry, status)
        runs_ms = annotated_number(pod["metadata"].get("annotations"), DURATION)
        if runs_ms is not None:
            self._later(runs_ms / 1000, "finish", entry)

    def _finish(self, entry: Entry) -> None:
        annotations = entry.object["metadata"].get("annotations") or {}
        code = annotated_number(annotations, EXIT_CODE) if EXIT_CODE in annotations else 0
        self._stop(entry, 1 if code is None else code)

    def _stop(self, entry: Entry, code: int) -> None:
        pod, now = entry.object, timestamp(self.api.clock())
        started = pod["status"].get("startTime", now)
        reason = "Error" if code else "Completed"
        terminated = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
        containers = [
            {"name": c["name"], "ready": False, "restartCount": 0, "state": {"terminated": terminated}}
            for c in pod["spec"]["containers"]
        ]
        reason = "PodFailed" if code else "PodCompleted"
        conditions = [_condition(kind, "False", now, reason) for kind in ("ContainersReady", "Ready")]
        phase = "Failed" if code else "Succeeded"
        self._write(entry, {"phase": phase, "conditions": conditions, "containerStatuses": containers})

    def _reject(self, entry: Entry, name: str, asked: int, used: int, capacity: int) -> None:
        scale = 1 if name == "cpu" else 1000
        message = (
            f"Pod was rejected: Node didn't have enough resource: {name}, requested: {asked // scale}, "
            f"used: {used // scale}, capacity: {capacity // scale}"
        )
        self._write(entry, {"phase": "Failed", "reason": f"OutOf{name}", "message": message})

    def _end(self, entry: Entry) -> None:
        """As a kubelet does: the containers' end is written first, and then the pod goes, if no finalizer keeps it."""
        if entry.object["status"]["phase"] == "Running":
            self._stop(entry, KILLED)
        preconditions = {"uid": entry.object["metadata"]["uid"]}
        self.api.delete(self.api.pods, *entry.key, {"gracePeriodSeconds": 0, "preconditions": preconditions})

    def _write(self, entry: Entry, status: Object) -> None:
        patch, media_type = {"status": status}, "application/strategic-merge-patch+json"
        try:
            self.api.patch(self.api.pods, *entry.key, patch, media_type, "status")
        except ApiError as error:  # nothing that a kubelet could do about it
            raise AssertionError(f"kubelet: pod {entry.key}: {error}") from error


def annotated_number(annotations: dict[str, str] | None, key: str) -> int | None:
    """The number that an annotation says; None: it says none, or one with more digits than any that is meant."""
    return int(found) if _NUMBER.fullmatch(found := (annotations or {}).get(key, "")) else None


def _is_finished(pod: Object) -> bool:
    """For good: somebody else may have said so, and the kubelet does not bring it back to life."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _condition(kind: str, status: str, now: str, reason: str = "") -> Object:
    condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    return condition | {"reason": reason} if reason else condition

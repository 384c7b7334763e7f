"""What the API server says of each pod, noted the whole time, and what must never be seen there.

The witness has a watch of its own, goes on from the last resourceVersion that it saw, and lists again where that is too
old. What it misses between is found by the list: a pod's node and phase only ever move forward.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

from deploy.e2e.api import Api, ApiError, Object
from deploy.e2e.workload import GANG_LABEL, SCHEDULER

PODS = "/api/v1/namespaces/default/pods"
DONE = ("Succeeded", "Failed")
EXPIRED = 410
PAUSE_S = 0.3


class Seen(msgspec.Struct):
    """A pod as the API server last showed it."""

    uid: str
    name: str
    gang: str
    node: str
    phase: str
    terminating: bool

    @property
    def live(self) -> bool:
        return self.phase not in DONE


class Witness:
    """`pods` by UID: those that are there. `bound` is kept for ever."""

    def __init__(self) -> None:
        self.pods: dict[str, Seen] = {}
        self.bound: dict[str, str] = {}
        """UID → the node on which it was first seen."""
        self.counted: Counter[str] = Counter()
        """created, bound, gangs bound, finished, deleted; and how often the watch began, and the list."""
        self.violations: list[str] = []
        self._version = ""
        self._gangs: set[str] = set()

    # --------------------------------------------------------------------------------------------------------- noting

    def note(self, pod: Object) -> None:
        """A pod that is there. Pods of other schedulers are not looked at."""
        spec, status, meta = pod["spec"], pod.get("status", {}), pod["metadata"]
        if spec.get("schedulerName") != SCHEDULER:
            return
        uid, node = meta["uid"], spec.get("nodeName", "")
        seen = Seen(
            uid=uid,
            name=meta["name"],
            gang=meta.get("labels", {}).get(GANG_LABEL, ""),
            node=node,
            phase=status.get("phase", "Pending"),
            terminating="deletionTimestamp" in meta,
        )
        before = self.pods.get(uid)
        self.counted["pods created"] += before is None
        self.counted["pods finished"] += not seen.live and (before is None or before.live)
        self.pods[uid] = seen
        first = self.bound.get(uid, "")
        if node and not first:
            self.bound[uid] = node
            self.counted["pods bound"] += 1
            if seen.gang and seen.gang not in self._gangs:
                self._gangs.add(seen.gang)
                self.counted["gangs bound"] += 1
        elif node != first:
            self.violations.append(f"pod {seen.name} ({uid}) was bound to {first} and is on {node or 'no node'} (7.1)")

    def gone(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.counted["pods deleted"] += 1

    def listed(self, pods: list[Object]) -> None:
        """All that are there: what is not among them is gone."""
        for pod in pods:
            self.note(pod)
        for uid in self.pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self.gone(uid)

    # ------------------------------------------------------------------------------------------------------- following

    async def follow(self, api: Api) -> None:
        """For ever, through whatever happens to the API server."""
        while True:
            with suppress(ApiError, aiohttp.ClientError, OSError, TimeoutError, ValueError):
                if not self._version:
                    answer = await api.get(PODS)
                    self.counted["lists"] += 1
                    self.listed(answer["items"])
                    self._version = answer["metadata"]["resourceVersion"]
                await self._watch(api)
            await asyncio.sleep(PAUSE_S)

    async def _watch(self, api: Api) -> None:
        self.counted["watches"] += 1
        query = {"watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=45)
        async with api.session.get(api.url + PODS, params=query, timeout=timeout) as response:
            if response.status == EXPIRED:
                self._version = ""
            if response.status >= 300:
                return
            async for line in response.content:
                if not self._take_in(json.loads(line)):
                    return

    def _take_in(self, event: dict[str, Any]) -> bool:
        """Whether the watch goes on."""
        thing = event["object"]
        if event["type"] == "ERROR":
            self._version = "" if thing.get("code") == EXPIRED else self._version
            return False
        self._version = thing["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            self.gone(thing["metadata"]["uid"])
        elif event["type"] != "BOOKMARK":
            self.note(thing)
        return True

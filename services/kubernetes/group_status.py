"""The status of PodGroups of every API group: where it is written, and how a write is kept from the wrong object.

- Some definitions have no status subresource (Koordinator's, Volcano's). There the status is a field like any other, and
  the object itself is patched. Discovery tells. It is asked again for a kind that it did not have, and when a write
  changed nothing: a definition installed or replaced later may have its status elsewhere. Then a patch of the object
  succeeds, and leaves the status as it was. Where a server does not tell (before 1.27), the object is patched once its
  status is not there.
- The patch of a custom resource's status overlooks the UID. So each carries a resourceVersion: that of the fact, or of
  the write before. When somebody else wrote meanwhile, the object is read, and its UID compared. It is written when the
  caller asks again: a binder that was replaced meanwhile knows by then, and does not overwrite its successor's status.
- What is written may depend on the current phase: then the object is read first.
- Kubernetes' own PodGroups have conditions. The time of a condition's last change stays, unless it changes now.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from events.objects import version
from services.kubernetes.client import Client, second_time
from services.kubernetes.discovery import Served
from services.kubernetes.errors import ApiError, Conflict, NotFound
from services.kubernetes.objects import Group
from services.kubernetes.resources import Resource


class GroupStatusWriter:
    """Writes the status of PodGroups, one object at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: Served | None = None
        self._versions: dict[str, str] = {}
        """UID → the resourceVersion of our last write."""
        self._conditions: dict[str, dict[str, dict[str, Any]]] = {}
        """UID → the conditions that stand there, by type."""

    def __len__(self) -> int:
        """PodGroups that something is known of."""
        return max(len(self._versions), len(self._conditions))

    def keep(self, uids: Container[str]) -> None:
        """Forget all other PodGroups, which are gone. Those that are there are all kept: a write that was refused is
        repeated with what was seen then."""
        self._versions = {uid: at for uid, at in self._versions.items() if uid in uids}
        self._conditions = {uid: standing for uid, standing in self._conditions.items() if uid in uids}

    async def write(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        known: str,
        status: Mapping[str, Any],
        *,
        where: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> tuple[int, Mapping[str, Any]]:
        """Write it if the PodGroup is still this one; `known` is the resourceVersion of the fact.

        `where`: phase that stands there → what is written then instead. Requests that it took, and what was written.
        Raises NotFound, Conflict (somebody else wrote it: ask again in a while), ApiError, also for a webhook's conflict.
        """
        requests = 0
        if self._served is None or not self._served.has(resource):
            self._served = await self._client.discover()
            requests += 1
        at = max(self._versions.get(uid, ""), known, key=version)
        if where or ("conditions" in status and uid not in self._conditions):
            seen = await self._look(resource, namespace, name, uid)
            requests += 1
            if seen is None:
                return requests, status
            if seen.metadata.resource_version != at:
                self._versions[uid] = seen.metadata.resource_version
                raise Conflict(f"get {resource.name} {namespace}/{name}", 409, "Conflict", "somebody else wrote it")
            if isinstance(seen.status.phase, str):
                status = where.get(seen.status.phase, status)
        try:
            requests += await self._put(resource, namespace, name, uid, at, status)
        except Conflict as error:
            seen = await self._look(resource, namespace, name, uid)
            if seen is not None:
                if seen.metadata.resource_version == at:  # nobody wrote it: a webhook says so
                    raise ApiError(error.request, error.code, error.reason, error.message) from error
                self._versions[uid] = seen.metadata.resource_version
                raise
            requests += 2
        return requests, status

    async def _look(self, resource: Resource, namespace: str, name: str, uid: str) -> Group | None:
        """The object as it is, if it is still this one."""
        seen = await self._client.get_pod_group(resource, namespace, name)
        if seen is None or seen.metadata.uid != uid:
            return None
        conditions = seen.status.conditions or ()
        self._conditions[uid] = {one["type"]: one for one in conditions if isinstance(one.get("type"), str)}
        return seen

    async def _put(
        self, resource: Resource, namespace: str, name: str, uid: str, at: str, status: Mapping[str, Any]
    ) -> int:
        """Write it where it is; requests that it took."""
        about, missing = (resource, namespace, name, uid, at, status), None
        by_subresource = self._has_subresource(resource)
        try:
            if await self._patch(*about, by_subresource):
                return 1
        except NotFound as error:
            missing = error
        self._served = await self._client.discover()
        elsewhere = self._has_subresource(resource) != by_subresource and self._served.has(resource)
        if elsewhere or (missing is not None and not self._served.tells(resource)):
            await self._patch(*about, not by_subresource)
            return 3
        if missing is not None:
            raise missing
        return 2

    def _has_subresource(self, resource: Resource) -> bool:
        """So it is taken for a kind that is there and not named: discovery lags behind a definition that is new."""
        served = self._served
        return served is None or served.has(resource, "status") or not served.has(resource)

    async def _patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        at: str,
        status: Mapping[str, Any],
        by_subresource: bool,
    ) -> bool:
        """Whether it is written. It is not where the object took the patch, and neither changed nor says so already."""
        said = dict(status)
        if "conditions" in said:
            standing = self._conditions.get(uid, {})
            said["conditions"] = [_dated(one, standing.get(one["type"])) for one in said["conditions"]]
        written = await self._client.patch_pod_group_status(
            resource, namespace, name, uid, said, resource_version=at, subresource=by_subresource
        )
        self._versions[uid] = written.metadata.resource_version
        if "conditions" in said:
            self._conditions[uid] = {one["type"]: one for one in said["conditions"]}
        return by_subresource or written.metadata.resource_version != at or _says(written.status, said)


def _says(standing: object, said: Mapping[str, Any]) -> bool:
    return isinstance(standing, dict) and all(standing.get(field) == value for field, value in said.items())


def _dated(condition: Mapping[str, Any], standing: Mapping[str, Any] | None) -> dict[str, Any]:
    """With the time at which its status changed last."""
    if standing is not None and standing.get("status") == condition["status"] and standing.get("lastTransitionTime"):
        return {**condition, "lastTransitionTime": standing["lastTransitionTime"]}
    return {**condition, "lastTransitionTime": second_time(time.time_ns())}

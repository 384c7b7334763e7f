"""A small Kubernetes client for tests and benchmarks: objects are plain dicts, errors carry what the server said.

It is not Muster's own client, so that a mistake in that one is not made twice.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

Object = dict[str, Any]

NAMESPACED = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PodGroup": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
CLUSTER_WIDE = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """The server refused: `status` is the HTTP status, the text is the server's."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"{method} {path}: {status}: {body[:2000]}")


class Api:
    """A session with one API server as one user."""

    def __init__(self, url: str, token: str, certificate: Path, in_flight: int = 64) -> None:
        self.url, self.token, self.certificate = url, token, certificate
        self.in_flight = asyncio.Semaphore(in_flight)

    async def __aenter__(self) -> Api:
        context = ssl.create_default_context(cafile=self.certificate)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=aiohttp.ClientTimeout(total=60),
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.session.close()

    async def call(
        self, method: str, path: str, body: object = None, content: str = JSON, *, accept: str = JSON
    ) -> Object:
        """One request. Raises ApiError unless the answer is a success."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, "Accept": accept}
        async with (
            self.in_flight,
            self.session.request(method, self.url + path, data=data, headers=headers) as response,
        ):
            text = await response.text()
            if response.status >= 300:
                raise ApiError(method, path, response.status, text)
            answer: Object = json.loads(text)
            return answer

    async def get(self, path: str) -> Object:
        return await self.call("GET", path)

    async def items(self, path: str) -> list[Object]:
        """The items of a list."""
        found: list[Object] = (await self.get(path))["items"]
        return found

    async def names(self, path: str) -> list[str]:
        """The names of a list's items, which costs the server much less than the items themselves."""
        table = await self.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        return [str(row["cells"][0]) for row in table["rows"]]

    async def create(self, thing: Object) -> Object:
        return await self.call("POST", collection(thing), thing)

    async def create_all(self, things: Iterable[Object]) -> list[Object]:
        """Creates many at once; their order on the server is not that of `things`."""
        return list(await asyncio.gather(*(self.create(thing) for thing in things)))

    async def load(self, requests: Iterable[tuple[str, bytes]], workers: int = 32) -> None:
        """POSTs many encoded objects (path, body), in order and as fast as one process can: answers are not decoded."""
        queue = iter(requests)
        headers = {"Content-Type": JSON}

        async def work() -> None:
            for path, body in queue:
                async with self.session.post(self.url + path, data=body, headers=headers) as response:
                    answer = await response.read()
                    if response.status >= 300:
                        raise ApiError("POST", path, response.status, answer.decode())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(work())

    async def apply(self, thing: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply; a dry run is validated and admitted, and not stored."""
        query = "?fieldManager=e2e&force=true" + ("&dryRun=All&fieldValidation=Strict" if dry_run else "")
        return await self.call("PATCH", path_of(thing) + query, thing, APPLY)

    async def bind(self, pod: Object, node: str) -> Object:
        """Binds as any scheduler does."""
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        return await self.call("POST", path_of(pod) + "/binding", body)

    async def delete(self, path: str, grace_s: int = 0) -> None:
        """Deletes one object, or all of a collection; what is not there is deleted already."""
        try:
            options = {"gracePeriodSeconds": grace_s, "propagationPolicy": "Background"}
            await self.call("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:
                raise

    async def token_for(self, namespace: str, account: str) -> str:
        """A token of a service account, valid for some hours, as the kubelet would mount it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        token: str = (await self.call("POST", path, request))["status"]["token"]
        return token


def collection(thing: Object) -> str:
    """The path of the list that holds it. KeyError for a kind that is not in the tables above."""
    kind = thing["kind"]
    if kind in CLUSTER_WIDE:
        return CLUSTER_WIDE[kind]
    return NAMESPACED[kind].format(thing["metadata"].get("namespace", "default"))


def path_of(thing: Object) -> str:
    return f"{collection(thing)}/{thing['metadata']['name']}"

"""A simulated cluster: the API over HTTP on a loopback port, kubelets on its nodes, controllers for its workloads.

From start to stop, in the process of its user:

    async with SimulatedCluster() as cluster:
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, …})
        …                                       # others speak to cluster.url
        cluster.get("Pod", "p1")["spec"]["nodeName"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from services.simulator import errors, resources
from services.simulator.api import Api, whole
from services.simulator.controllers import Controllers
from services.simulator.errors import ApiError
from services.simulator.faults import Faults
from services.simulator.kubelet import Kubelet
from services.simulator.server import MOST_BYTES, Server
from services.simulator.store import Collection, Store, encode

Object = dict[str, Any]


class SimulatedCluster:
    """A small Kubernetes API with what makes pods run.

    `podgroups`: whether the PodGroup CRD is there from the start. `native_gangs`: whether Kubernetes' own gangs are.
    `token`: a bearer token that requests must carry.
    `kubelet`: whether bound pods come to life.
    `history`: changes kept for each resource, for watches that resume. `watch_buffer`: changes that a watch may be
    behind its client before it is ended. `seed`: makes UIDs and generated names repeatable.
    `startup_ms`, `termination_ms`: how long the kubelet takes to start and to end a pod.
    """

    def __init__(
        self,
        *,
        podgroups: bool = True,
        native_gangs: bool = False,
        token: str = "",
        kubelet: bool = True,
        history: int = 20_000,
        watch_buffer: int = 10_000,
        bookmark_every_s: float = 60.0,
        seed: int | None = None,
        startup_ms: int = 0,
        termination_ms: int = 0,
    ) -> None:
        self.token = token
        self.faults = Faults()
        self.api = Api(Store(history), seed)
        self.server = Server(
            self.api, self.faults, token=token, watch_buffer=watch_buffer, bookmark_every_s=bookmark_every_s
        )
        self.kubelet = Kubelet(self.api, startup_ms=startup_ms, termination_ms=termination_ms) if kubelet else None
        self.controllers = Controllers(self.api)
        self.url = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: Any = None
        if podgroups:
            self.install()
        if native_gangs:
            self.api.open_gates(resources.NATIVE_GANGS)

    # ------------------------------------------------------------------------------------------------------ lifetime

    async def start(self, port: int = 0) -> None:
        """Serve on 127.0.0.1; port 0 takes a free one. `url` says where."""
        from aiohttp import web

        requests = partial(web.BaseRequest, loop=asyncio.get_running_loop(), client_max_size=MOST_BYTES)
        server = web.Server(self.server.handle, request_factory=requests, access_log=None, keepalive_timeout=3600.0)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        movers = [mover for mover in (self.kubelet, self.controllers) if mover is not None]
        self._tasks = [asyncio.create_task(mover.run()) for mover in movers]

    async def stop(self) -> None:
        """End every watch, close the port, stop kubelets and controllers. The objects stay readable.

        Raises what had ended a kubelet or a controller before: a bug.
        """
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.server.cut("", None)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def serve(self, until: asyncio.Event) -> None:
        """Wait for `until`. Raises what ended a kubelet or a controller before."""
        waiting = asyncio.create_task(until.wait())
        await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for task in self._tasks:
            if task.done():
                task.result()

    async def __aenter__(self) -> SimulatedCluster:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------------------------------- objects

    def create(self, obj: Object) -> Object:
        """Create `obj` as a POST would; namespaced objects without a namespace go to ``default``. Raises ApiError."""
        return self.api.apply_new(obj, define=False)

    def load(self, objects: Iterable[Object]) -> int:
        """Create many, and the namespaces and kinds that they need; returns how many.

        A Namespace that is there already is passed over. Raises ApiError at the first bad object.
        """
        count = 0
        for obj in objects:
            if obj.get("kind") == "Namespace" and self.exists("Namespace", obj["metadata"]["name"]):
                continue
            self.api.apply_new(obj)
            count += 1
        return count

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """A copy of the object. Raises ApiError 404."""
        collection = self._by_kind(kind)
        return whole(collection, self.api.get(collection, self._namespace(collection, namespace), name))

    def exists(self, kind: str, name: str, namespace: str = "") -> bool:
        collection = self._by_kind(kind)
        return (self._namespace(collection, namespace), name) in collection.entries

    def list(self, kind: str, namespace: str = "") -> Iterator[Object]:
        """Copies of all objects of a kind, by key; of one namespace unless that is empty."""
        collection = self._by_kind(kind)
        for entry in list(collection.in_order(namespace)):
            yield whole(collection, entry)

    def delete(self, kind: str, name: str, namespace: str = "", **options: Any) -> None:
        """Delete as the API does; `options` are DeleteOptions, e.g. gracePeriodSeconds=0. Raises ApiError."""
        collection = self._by_kind(kind)
        self.api.delete(collection, self._namespace(collection, namespace), name, options)

    def patch(self, kind: str, name: str, patch: Object, namespace: str = "", *, subresource: str = "") -> Object:
        """A JSON merge patch. Raises ApiError."""
        collection = self._by_kind(kind)
        namespace = self._namespace(collection, namespace)
        media_type = "application/merge-patch+json"
        return whole(collection, self.api.patch(collection, namespace, name, patch, media_type, subresource))

    def bind(self, name: str, node: str, namespace: str = "default") -> None:
        """Bind a pod as a foreign scheduler would. Raises ApiError."""
        self.api.bind(namespace, name, {"target": {"kind": "Node", "name": node}})

    # -------------------------------------------------------------------------------------------------- installation

    def install(self, crd: Object = resources.PODGROUPS_CRD) -> None:
        """Install a CustomResourceDefinition: by default that of PodGroup."""
        self.create(crd)

    def uninstall(self, crd_name: str = "podgroups.scheduling.x-k8s.io") -> None:
        """Remove the definition and all its objects; its path answers 404 again."""
        self.delete("CustomResourceDefinition", crd_name)

    # --------------------------------------------------------------------------------------------------------- faults

    def cut_watches(self, resource: str = "") -> int:
        """Close the watches of a plural (empty: all) as a slow client's are closed; returns how many."""
        return self.server.cut(resource, None)

    def expire_watches(self, resource: str = "") -> int:
        """End the watches with an ERROR event 410; returns how many."""
        return self.server.cut(resource, errors.expired("The resourceVersion for the provided watch is too old."))

    def drop_history(self, resource: str = "") -> None:
        """Forget the changes up to now: resuming from before gets 410, and so do continued lists."""
        self.server.lists.drop()
        self.api.store.revision += 1
        for collection in self.api.store.collections.values():
            if resource in ("", collection.resource.plural):
                collection.drop_history(self.api.store.revision)

    # --------------------------------------------------------------------------------------------------------- access

    def write_kubeconfig(self, path: Path) -> None:
        """A kubeconfig for this cluster: its URL and, where it asks for one, the token."""
        user = {"token": self.token} if self.token else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulated", "cluster": {"server": self.url}}],
            "users": [{"name": "simulated", "user": user}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
            "current-context": "simulated",
        }
        path.write_bytes(encode(config) + b"\n")  # JSON is YAML

    def _by_kind(self, kind: str) -> Collection:
        """``Pod``; where several API groups have one of the name, the first, or that of ``PodGroup.<API group>``."""
        name, _, group = kind.partition(".")
        for collection in self.api.store.collections.values():
            if collection.resource.kind == name and group in ("", collection.resource.group):
                return collection
        raise ApiError(404, "NotFound", f'the server doesn\'t have a resource of kind "{kind}"')

    @staticmethod
    def _namespace(collection: Collection, namespace: str) -> str:
        return (namespace or "default") if collection.resource.namespaced else ""

"""How the contract tests speak to an API server: raw requests, no client library's opinion in between."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from services.kubernetes.access import Access

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PATIENCE_S = 30.0

ABSENT_NODE = "no-such-node"
OTHER_UID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Endpoint:
    """What the fixture `api` gives: where the API is and how one is let in."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    ssl: ssl.SSLContext | bool = True


@dataclass(frozen=True)
class Accounts:
    """What the fixture `accounts` gives: the same API for Muster's own client."""

    admin: Access
    stranger: Access
    """Who may do nothing."""


Forget = Callable[[], Awaitable[None]]
"""What the fixture `forget` gives: has the server forget what changed until now, and what lists said."""
Guard = Callable[[str], Awaitable[None]]
"""What the fixture `guard` gives: evictions from a namespace are answered with 429, and that they may come again in ten
seconds."""


@dataclass(frozen=True)
class Answer:
    """A decoded answer; `body` is the text where that is no JSON object."""

    code: int
    body: Any
    media_type: str = ""

    def ok(self, code: int = 200) -> Object:
        """The body of a success."""
        assert self.code == code, f"expected {code}, got {self.code}: {self.body}"
        body: Object = self.body
        return body

    def refused(self, code: int, reason: str) -> Object:
        """The Status of a refusal, in Kubernetes' form."""
        assert self.code == code, f"expected {code} {reason}, got {self.code}: {self.body}"
        status: Object = self.body
        assert status["kind"] == "Status"
        assert status["apiVersion"] == "v1"
        assert status["status"] == "Failure"
        assert (status["code"], status["reason"]) == (code, reason)
        assert isinstance(status["message"], str)
        return status


class Client:
    """Requests of one test, with a namespace of its own."""

    def __init__(self, endpoint: Endpoint, session: aiohttp.ClientSession) -> None:
        self.endpoint, self._session = endpoint, session
        self.namespace = f"contract-{secrets.token_hex(4)}"

    @property
    def core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def pods(self) -> str:
        return f"{self.core}/pods"

    @property
    def podgroups(self) -> str:
        return f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{self.namespace}/podgroups"

    def unique(self, prefix: str) -> str:
        """A name for something that has no namespace."""
        return f"{prefix}-{self.namespace}"

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        media_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept, **({"Content-Type": media_type} if data is not None else {})}
        async with self._session.request(
            method, self.endpoint.url + path, data=data, headers=headers, params=query, ssl=self.endpoint.ssl
        ) as response:
            text, given = await response.text(), response.headers.get("Content-Type", "")
        try:
            return Answer(response.status, json.loads(text), given)
        except ValueError:
            return Answer(response.status, text, given)

    async def get(self, path: str, **query: str) -> Answer:
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Object) -> Answer:
        return await self.request("POST", path, body)

    async def put(self, path: str, body: Object) -> Answer:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: Any, media_type: str = MERGE) -> Answer:
        return await self.request("PATCH", path, body, media_type)

    async def delete(self, path: str, options: Object | None = None) -> Answer:
        return await self.request("DELETE", path, options)

    async def pod(self, name: str, **more: Any) -> Object:
        """Create a pod in this test's namespace."""
        return (await self.post(self.pods, pod(name, **more))).ok(201)

    async def bind(self, name: str, node: str, **metadata: str) -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.post(f"{self.pods}/{name}/binding", body)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE_S)
        params = {"watch": "1", **query}
        async with self._session.get(
            self.endpoint.url + path, params=params, ssl=self.endpoint.ssl, timeout=timeout
        ) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)


class Watch:
    """An open watch, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, Object]:
        """The next event: its type and its object."""
        line = await asyncio.wait_for(self._response.content.readline(), PATIENCE_S)
        assert line, "the watch ended, expected an event"
        event = json.loads(line)
        return event["type"], event["object"]

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name)."""
        events = [await self.next() for _ in range(count)]
        return [(kind, obj["metadata"]["name"]) for kind, obj in events]

    async def rest(self) -> list[tuple[str, Object]]:
        """Everything until the server ends the watch."""
        events = []
        while line := await asyncio.wait_for(self._response.content.readline(), PATIENCE_S):
            event = json.loads(line)
            events.append((event["type"], event["object"]))
        return events


async def eventually(attempt: Callable[[], Awaitable[Answer]], wanted: Callable[[Answer], bool]) -> Answer:
    """Ask until the answer is as wanted: for what a server knows only after a while."""
    async with asyncio.timeout(PATIENCE_S):
        while not wanted(answer := await attempt()):  # noqa: ASYNC110  a server cannot be waited on
            await asyncio.sleep(0.05)
        return answer


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod that runs nowhere: its scheduler is nobody."""
    metadata: Object = {"name": name} | ({"labels": labels} if labels else {})
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def podgroup(name: str, min_member: Any = 3) -> Object:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": min_member},
    }


def condition(kind: str, status: str, reason: str = "") -> Object:
    told = {"type": kind, "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z"}
    return told | {"reason": reason} if reason else told

"""One watch on all pods, cheap enough not to disturb what is measured: the stopwatch and the bare loop both use it.

As a process it notes when each pod was first seen, and when first seen with a node, and prints that as one JSON line
once `count` pods have a node:

    python -m benchmarks.peers_watch URL CERTIFICATE COUNT PREFIX    (the token stands in $TOKEN)
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import uvloop


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec = Spec()


class Change(msgspec.Struct):
    type: str
    object: Pod


class Pods(msgspec.Struct):
    metadata: Metadata
    items: list[Pod]


PATH = "/api/v1/namespaces/default/pods"
decode_list = msgspec.json.Decoder(Pods).decode
decode_change = msgspec.json.Decoder(Change).decode


def session(certificate: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate), limit=0),
        headers={"Authorization": f"Bearer {os.environ['TOKEN']}"},
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def pods(client: aiohttp.ClientSession, url: str) -> AsyncIterator[list[Pod]]:
    """What there is, then what changes; never listed anew: a watch that the server ends goes on where it ended."""
    async with client.get(url + PATH) as response:
        listed = decode_list(await response.read())
    version = listed.metadata.resource_version
    yield listed.items
    while True:
        query = f"{url}{PATH}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        try:
            async with client.get(query) as response:
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    changes = [decode_change(line) for line in lines]
                    if any(change.type == "ERROR" for change in changes):
                        raise RuntimeError(f"the watch ended with an error: {lines}")
                    if changes:
                        version = changes[-1].object.metadata.resource_version
                        yield [change.object for change in changes if change.type in ("ADDED", "MODIFIED")]
        except aiohttp.ClientConnectorError:  # nobody listens any more: the bench has ended
            raise
        except aiohttp.ClientError:
            continue


async def stopwatch(url: str, certificate: str, count: int, prefix: str) -> dict[str, tuple[float, float]]:
    """Pod name → (seen, seen with a node), in seconds of the monotonic clock, for pods whose name begins so."""
    seen: dict[str, float] = {}
    bound: dict[str, tuple[float, float]] = {}
    async with session(certificate) as client:
        changes = pods(client, url)
        batch = await anext(changes)
        print("watching", flush=True)
        while len(bound) < count:
            now = time.monotonic()
            for pod in batch:
                name = pod.metadata.name
                if name.startswith(prefix):
                    seen.setdefault(name, now)
                    if pod.spec.node_name and name not in bound:
                        bound[name] = (seen[name], now)
            batch = await anext(changes) if len(bound) < count else []
    return bound


if __name__ == "__main__":
    _, server, authority, wanted, start = sys.argv
    print(json.dumps(uvloop.run(stopwatch(server, authority, int(wanted), start))), flush=True)

"""The bare loop that Muster is measured against: waits for whole gangs and POSTs their bindings, nothing else.

No filter, no score, no state beyond a count of room; no log, no status, no events; the next node in a circle. What it
reaches is what this apiserver and a Python client can bind at most.

    python -m benchmarks.peers_loop URL CERTIFICATE SIZE    (the token stands in $TOKEN; SIZE pods make a gang)
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import defaultdict

import msgspec
import uvloop

from benchmarks.peers_watch import PATH, Pod, pods, session
from deploy.e2e.workload import GANG_LABEL

IN_FLIGHT = 64
GPUS = 8
JSON = {"Content-Type": "application/json"}


async def main(url: str, certificate: str, size: int) -> None:
    waiting: dict[str, list[Pod]] = defaultdict(list)
    queue: asyncio.Queue[tuple[Pod, str]] = asyncio.Queue()
    known: set[str] = set()
    async with session(certificate) as client:
        async with client.get(url + "/api/v1/nodes") as response:
            nodes = [node["metadata"]["name"] for node in (await response.json())["items"]]
        slots = itertools.chain.from_iterable(itertools.repeat(nodes, GPUS))

        async def bind() -> None:
            while True:
                pod, node = await queue.get()
                target = {"kind": "Node", "name": node}
                body = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": pod.metadata.name},
                    "target": target,
                }
                path = f"{url}{PATH}/{pod.metadata.name}/binding"
                async with client.post(path, data=msgspec.json.encode(body), headers=JSON) as response:
                    if response.status >= 300:
                        sys.exit(f"binding {pod.metadata.name}: {response.status}: {await response.text()}")
                    await response.read()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(bind())
            async for batch in pods(client, url):
                for pod in batch:
                    if pod.metadata.uid in known or pod.spec.node_name:
                        continue
                    known.add(pod.metadata.uid)
                    gang = pod.metadata.labels.get(GANG_LABEL)
                    members = waiting[gang or pod.metadata.name]
                    members.append(pod)
                    if gang is None or len(members) == size:
                        for member in members:
                            queue.put_nowait((member, next(slots)))


if __name__ == "__main__":
    _, server, authority, gang_size = sys.argv
    uvloop.run(main(server, authority, int(gang_size)))

"""What the log and the API server pay for a pod: ``python -m benchmarks.growth``.

Two runs of the real services, as processes, over the embedded NATS server and the simulated cluster.

*life*: gangs are created, run for half a second and are deleted with their pods; the log's bytes and events are divided
by the pods. *waiting*: pods that fit nowhere are created and left alone; once each was refused, the events in the log and
the writes at the API server (the growth of the simulator's resourceVersion, which every write raises by one) are counted
over a window in which nothing changes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.arguments import any_number, seconds, some
from events import envelope
from events.homes import open_log
from events.log import EventLog
from events.server import EmbeddedServer

MUSTER = Path(sys.executable).with_name("muster")
LIMIT_S = 180.0


def node(i: int) -> dict[str, Any]:
    offered = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{i}"}, "status": status}


def pod(name: str, gpus: int, labels: dict[str, str], duration_ms: int = 0) -> dict[str, Any]:
    asked = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    notes = {"muster.dev/duration-ms": str(duration_ms)} if duration_ms else {}
    container = {"name": "main", "image": "train", "resources": {"requests": asked, "limits": asked}}
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
    meta = {"name": name, "namespace": "default", "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def gang(name: str, size: int) -> Iterator[dict[str, Any]]:
    spec = {"minMember": size}
    meta = {"name": name, "namespace": "default"}
    yield {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": spec}
    for i in range(size):
        yield pod(f"{name}-{i}", 1, {"scheduling.x-k8s.io/pod-group": name}, 500)


@contextmanager
def services(directory: Path, objects: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The simulated cluster with these objects, and the three services: (API's URL, NATS' URL)."""
    manifest, kubeconfig = directory / "objects.yaml", directory / "kubeconfig"
    manifest.write_text(yaml.dump_all(objects, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    with EmbeddedServer(directory / "nats") as nats:
        simulator = [
            sys.executable,
            "-m",
            "services.simulator",
            "--nodes",
            str(manifest),
            "--kubeconfig",
            str(kubeconfig),
        ]
        running = [subprocess.Popen(simulator, stdout=subprocess.PIPE)]
        try:
            assert running[0].stdout is not None
            url = json.loads(running[0].stdout.readline())["url"]
            for role in ("ingest", "planner", "binder"):
                flags = [] if role == "planner" else ["--kubeconfig", str(kubeconfig)]
                command = [str(MUSTER), role, "--nats", nats.url, "--cluster", "growth", *flags]
                running.append(subprocess.Popen(command, stderr=(directory / f"{role}.log").open("wb")))
            yield url, nats.url
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(20)


def version(url: str) -> int:
    """The simulator's resourceVersion: every write raises it by one."""
    with urllib.request.urlopen(f"{url}/api/v1/namespaces?limit=1") as answer:
        return int(json.load(answer)["metadata"]["resourceVersion"])


def delete(url: str, pods: list[str]) -> None:
    for name in pods:
        path = f"{url}/api/v1/namespaces/default/pods/{name}"
        urllib.request.urlopen(urllib.request.Request(path, method="DELETE")).close()


async def count(log: EventLog) -> tuple[Counter[str], int]:
    """(events by type, bytes of headers and payloads)."""
    events: Counter[str] = Counter()
    size = 0
    async for batch in log.read():
        for stored in batch:
            size += len(stored.header) + len(stored.payload)
            events.update(type(event).__name__ for event in envelope.decode(stored).events)
    return events, size


async def until(log: EventLog, done: Callable[[Counter[str]], bool]) -> Counter[str]:
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        events, _ = await count(log)
        if done(events):
            return events
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not there after {LIMIT_S} s: {dict(events)}")
        await asyncio.sleep(0.5)


async def life(gangs: int, size: int) -> dict[str, object]:
    pods = gangs * size
    objects = [node(i) for i in range(max(4, pods // 8))]
    for i in range(gangs):
        objects += gang(f"gang-{i}", size)
    with tempfile.TemporaryDirectory(prefix="muster-growth-") as directory, services(Path(directory), objects) as urls:
        log = await open_log(urls[1], "growth", create=True)
        await until(log, lambda events: events["PodFinished"] == pods)
        await asyncio.to_thread(delete, urls[0], [f"gang-{i}-{j}" for i in range(gangs) for j in range(size)])
        events = await until(log, lambda events: events["PodDeleted"] == pods)
        _, size_bytes = await count(log)
        await log.close()
    of_pods = {kind: events[kind] for kind in sorted(events) if kind.startswith("Pod") or kind.startswith("Gang")}
    return {
        "run": "life",
        "pods": pods,
        "log_bytes_per_pod": round(size_bytes / pods),
        "events_per_pod": round(sum(events.values()) / pods, 2),
        "facts_per_pod": round(sum(events[k] for k in events if k.startswith("Pod") and k not in NOT_FACTS) / pods, 2),
        "events": of_pods,
    }


NOT_FACTS = {"PodBound", "PodGroupObserved", "PodEvicted"}


async def waiting(pods: int, window_s: float) -> dict[str, object]:
    objects = [node(i) for i in range(100)] + [pod(f"wide-{i}", 9, {}) for i in range(pods)]
    with tempfile.TemporaryDirectory(prefix="muster-growth-") as directory, services(Path(directory), objects) as urls:
        log = await open_log(urls[1], "growth", create=True)
        before = await until(log, lambda events: events["GroupsRefused"] > 0 and events["PodObserved"] == pods)
        writes, began_s = version(urls[0]), time.monotonic()
        await asyncio.sleep(window_s)
        elapsed_s = time.monotonic() - began_s
        after, _ = await count(log)
        writes = version(urls[0]) - writes
        await log.close()
    return {
        "run": "waiting",
        "pods": pods,
        "window_s": round(elapsed_s, 1),
        "events_per_s": round((sum(after.values()) - sum(before.values())) / elapsed_s, 2),
        "api_writes_per_s": round(writes / elapsed_s, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What the log and the API server pay for a pod.")
    parser.add_argument("--gangs", type=some, default=50)
    parser.add_argument("--size", type=some, default=20)
    parser.add_argument("--waiting", type=any_number, default=10_000)
    parser.add_argument("--window-s", type=seconds, default=30.0)
    asked = parser.parse_args()
    print(json.dumps(asyncio.run(life(asked.gangs, asked.size))), flush=True)
    if asked.waiting:
        print(json.dumps(asyncio.run(waiting(asked.waiting, asked.window_s))), flush=True)


if __name__ == "__main__":
    main()

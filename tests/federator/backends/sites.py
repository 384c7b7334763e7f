"""Clusters for the contract of backends: each serves real HTTP, and a test says what happens on it.

A `Site` is one cluster from both sides: `open` gives a backend as the federator has it, everything else is what the
cluster, its other users and the network do.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from services.federator.backends import MARKER, Backend, Owner, Submission
from services.federator.backends.credentials import Secret
from services.federator.backends.gangs import DIALECTS, MANAGED, MANAGER, NAME, kubernetes_name
from services.federator.backends.kubernetes import Kubernetes
from services.federator.backends.openpai import OpenPai
from services.federator.specialize import to_yaml
from services.kubernetes.access import direct
from services.simulator.cluster import SimulatedCluster
from services.simulator.faults import Fault, Faults
from services.simulator.openpai.jobs import Job, Life, lived
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import Served
from tests.manifests import node

OWNER = Owner(federation="fed", job="uid-1", cluster="v100")
ROLES = 1
PAGE = 1_000
START = 1_700_000_000_000


def job(name: str, owner: Owner | None = OWNER, instances: int = 2, roles: int = 1) -> dict[str, Any]:
    """A specialised job, as the federator makes them."""
    return {
        "protocolVersion": "2",
        "name": name,
        "type": "job",
        "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "openpai/standard"}],
        "taskRoles": {
            role: {
                "instances": instances,
                "dockerImage": "image",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 512, "gpu": 0},
                "commands": ["run"],
            }
            for role in ("worker", "ps", "chief")[:roles]
        },
        "extras": {} if owner is None else {MARKER: msgspec.to_builtins(owner)},
    }


def submission(name: str, owner: Owner = OWNER, roles: int = 0) -> Submission:
    """Of as many task roles as the suite runs with, by default."""
    return Submission(name=name, body=to_yaml(job(name, owner, roles=roles or ROLES)).encode())


class Site(ABC):
    """One cluster. Verbs are submit, stop, list and describe."""

    @abstractmethod
    def open(self, **options: Any) -> Backend:
        """A backend as a process has it that starts now."""

    @abstractmethod
    def put(self, name: str, owner: Owner | None) -> None:
        """A job that somebody else made."""

    @abstractmethod
    def put_many(self, count: int) -> None: ...

    @abstractmethod
    def start(self, name: str) -> None:
        """The job gets its room."""

    @abstractmethod
    def finish(self, name: str, code: int) -> None:
        """The running job ends by itself."""

    @abstractmethod
    def elapse(self) -> None:
        """Time passes: what the cluster has begun comes to its end."""

    @abstractmethod
    def plan(self, verb: str, **fault: Any) -> Fault:
        """As `Faults.plan`, by the port's verbs."""

    @property
    @abstractmethod
    def faults(self) -> Faults: ...

    @abstractmethod
    def alive(self, name: str) -> bool:
        """Whether anything of it runs."""

    @abstractmethod
    def there(self, name: str) -> bool: ...

    @abstractmethod
    def requests(self) -> int:
        """Lists that were asked of it so far."""


class Clock:
    def __init__(self) -> None:
        self.now_ms = START

    def __call__(self) -> int:
        return self.now_ms


class OpenPaiSite(Site):
    """One OpenPAI cluster, by a clock that the test moves."""

    WAITING_MS, NOTICE_MS, DYING_MS = 60_000, 30_000, 5_000
    LIFE = Life(waiting_ms=WAITING_MS, notice_ms=NOTICE_MS, dying_ms=DYING_MS)
    VERBS: ClassVar = {"submit": "submit", "stop": "stop", "list": "list", "describe": "get"}

    def __init__(self, served: Served, clock: Clock, directory: Path) -> None:
        self.served, self.clock = served, clock
        self.token_file = directory / "token"
        self.token_file.write_text("secret\n")

    def open(self, **options: Any) -> Backend:
        return OpenPai(self.served.url, "alice", Secret(file=str(self.token_file)), **{"page": PAGE, **options})

    def put(self, name: str, owner: Owner | None) -> None:
        self.served.submit("alice", to_yaml(job(name, owner)))

    def put_many(self, count: int) -> None:
        for number in range(count):
            made = job(f"many-{number}")
            steps = lived(self.LIFE, START, 0)
            self.served.jobs["alice", made["name"]] = Job(
                "alice", json.dumps(made), made, self.LIFE, START, steps, steps
            )

    def start(self, name: str) -> None:
        self.clock.now_ms += self.WAITING_MS

    def finish(self, name: str, code: int) -> None:
        found, life = self.served.jobs["alice", name], self.LIFE
        ran_ms = self.clock.now_ms - found.submitted_ms - life.waiting_ms
        ended = replace(life, running_ms=ran_ms, exit_codes=(code,))
        found.steps = found.uncut = lived(ended, found.submitted_ms, 0)

    @property
    def faults(self) -> Faults:
        return self.served.faults

    def elapse(self) -> None:
        self.clock.now_ms += self.NOTICE_MS + self.DYING_MS

    def plan(self, verb: str, **fault: Any) -> Fault:
        return self.served.faults.plan(verb=self.VERBS[verb], **fault)

    def alive(self, name: str) -> bool:
        return any(one.name == name for one in self.served.running())

    def there(self, name: str) -> bool:
        return ("alice", name) in self.served.jobs

    def requests(self) -> int:
        return self.served.counts["list"]


class KubernetesSite(Site):
    """One namespace of a simulated Kubernetes cluster; the test is its scheduler."""

    VERBS: ClassVar = {
        "submit": ("create", "jobs"),
        "stop": ("patch", "jobs"),
        "list": ("list", "jobs"),
        "describe": ("get", "jobs"),
    }

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.lists = cluster.faults.plan(verb="list", resource="jobs", times=0)
        """A fault that does no harm: it counts."""
        cluster.create(node("n1", cpu="1000", memory="1000Gi", pods="1000"))

    def open(self, **options: Any) -> Backend:
        return Kubernetes(direct(self.cluster.url), "default", **options)

    def put(self, name: str, owner: Owner | None) -> None:
        annotations = {} if owner is None else {NAME: name, MARKER: json.dumps(msgspec.to_builtins(owner))}
        template = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        made = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": kubernetes_name(name), "annotations": annotations, "labels": {MANAGED: MANAGER}},
            "spec": {"template": template},
        }
        self.cluster.create(made)

    def put_many(self, count: int) -> None:
        for number in range(count):
            self.put(f"many-{number}", OWNER)

    def start(self, name: str) -> None:
        for pod in self.pods(name):
            self.cluster.bind(pod["metadata"]["name"], "n1")

    def finish(self, name: str, code: int) -> None:
        for pod in self.pods(name):
            status = {"status": {"phase": "Failed" if code else "Succeeded"}}
            self.cluster.patch("Pod", pod["metadata"]["name"], status, subresource="status")

    @property
    def faults(self) -> Faults:
        return self.cluster.faults

    def elapse(self) -> None:
        """Its kubelets and controllers need nobody to move the clock."""

    def plan(self, verb: str, **fault: Any) -> Fault:
        asked, resource = self.VERBS[verb]
        planned = Fault(verb=asked, resource=resource, **fault)
        self.cluster.faults.planned.insert(0, planned)
        return planned

    def alive(self, name: str) -> bool:
        return any(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in self.pods(name))

    def there(self, name: str) -> bool:
        return self.cluster.exists("Job", kubernetes_name(name))

    def requests(self) -> int:
        return self.lists.hits

    def pods(self, name: str) -> list[dict[str, Any]]:
        own = kubernetes_name(name)
        return [pod for pod in self.cluster.list("Pod") if own in _run_names(pod["metadata"]["labels"])]


def _run_names(labels: dict[str, str]) -> tuple[str, str]:
    """A pod's Job, and what stands before the digest in its PodGroup's name."""
    group = labels.get(DIALECTS["coscheduling"].key, "")
    return labels.get("batch.kubernetes.io/job-name", ""), group.rpartition("-")[0]


UNLIMITED = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)

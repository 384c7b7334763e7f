"""A hand-driven cluster that is given Kubernetes objects: ingest's core reads them, the other cores decide.

`Cluster` is a `World` (a log in memory, every service played by hand) with ingest's real reading in front: what a dialect
writes on a pod reaches the log the way it does in a cluster.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import events as ev
from events import envelope
from events.policy import DEFAULT_POLICY, Policy
from services.ingest.decoding import KINDS
from services.ingest.differ import Ingest
from tests.dialects.declare import Asked, Dialect
from tests.manifests import Object, node
from tests.world import SECOND_NS, World

SCHEDULERS = ("muster", "koord-scheduler")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
START_S = 1_000
"""When it is now, after `EPOCH`: what was created in the meantime is there already."""


class Cluster(World):
    """`dialect` is how its gangs are written."""

    def __init__(self, dialect: Dialect, policy: Policy = DEFAULT_POLICY) -> None:
        self.dialect = dialect
        self.ingest = Ingest(SCHEDULERS)
        super().__init__(policy)
        self.now_ns = int(EPOCH.timestamp()) * SECOND_NS + START_S * SECOND_NS

    def facts(self, *events: ev.Event) -> None:
        """Ingest's own core knows them, too."""
        for event in events:
            self.ingest.fold(event)
        super().facts(*events)

    # --------------------------------------------------------------------------------------------------------- objects

    def apply(self, *objects: Object) -> None:
        """Observe objects as the API server would show them."""
        for obj in objects:
            shown = {**obj, "metadata": {"resourceVersion": self.version(), **obj["metadata"]}}
            shown["metadata"].setdefault("uid", f"{obj['kind']}-{obj['metadata']['name']}")
            shown["metadata"].setdefault("creationTimestamp", EPOCH.isoformat())
            [kind] = [kind for kind in KINDS if _is_of(kind, shown)]
            for seen in kind.page(msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": [shown]}))[1]:
                found = self.ingest.observe(seen)
                if found:
                    self.append("ingest", found)

    def nodes(self, *names: str, cpu: int = 1) -> None:
        """Nodes with room for `cpu` pods of a gang each."""
        self.apply(*(node(name, cpu=str(cpu)) for name in names))

    def declare(self, asked: Asked, created_s: int = 0) -> None:
        """What declares the gang beside its pods, if its dialect takes that."""
        obj = self.dialect.declared_by(asked)
        if obj is not None:
            self.apply({**obj, "metadata": {**obj["metadata"], "creationTimestamp": _moment(created_s)}})

    def member(self, asked: Asked, name: str, created_s: int = 0, *, priority: int = 0, cpu: int = 1) -> str:
        """A pod of the gang; its UID is its name."""
        marks = self.dialect.on_pods(asked)
        spec: dict[str, Any] = {"schedulerName": "muster", "priority": priority, **marks.get("spec", {})}
        spec["containers"] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}]
        metadata: Object = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": _moment(created_s)}
        metadata |= {key: marks[key] for key in ("labels", "annotations") if key in marks}
        if "owner" in marks:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": marks["owner"], "uid": marks["owner"]}
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
        return name

    def members(self, asked: Asked, count: int, created_s: int = 0, **of: Any) -> list[str]:
        """The first `count` pods of the gang."""
        return [self.member(asked, f"{asked.name}-{number}", created_s, **of) for number in range(count)]

    def gang(self, asked: Asked, count: int = 3, **of: Any) -> list[str]:  # type: ignore[override]
        """The gang with so many pods."""
        self.declare(asked)
        return self.members(asked, count, **of)

    def stranger(self, name: str, **of: Any) -> str:
        """A pod without a gang."""
        spec = {"schedulerName": "muster", "priority": of.pop("priority", 0)}
        spec["containers"] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        metadata = {"name": name, "namespace": "default", "uid": name}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
        return name

    # ---------------------------------------------------------------------------------------------------------- things

    def rest(self, seconds: float = 0) -> None:
        """Everybody decides until nobody has anything to say, at once and in each of the next `seconds`."""
        self.settle()
        for _ in range(int(seconds)):
            self.pass_s(1)
            self.settle()

    def fail_binding(self, uid: str) -> None:
        """The API server says no to this binding, for good."""
        claim = self.state.claims[uid]
        failed = ev.BindingFailed(
            uid=uid,
            namespace="default",
            name=uid,
            node=claim.node,
            reason="Rejected",
            message="admission said no",
            assigned_node="",
        )
        self.append("binder", [failed], cause="outcome")

    def said(self, kind: type[ev.Event]) -> list[Any]:
        """All events of a kind that the log has, oldest first."""
        found: list[Any] = []
        for stored in self.log.commits:
            found += [event for event in envelope.decode_events(stored) if type(event) is kind]
        return found


def _is_of(kind: Any, obj: Object) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (kind.resource.api_version, kind.name.partition(".")[0])


def _moment(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()

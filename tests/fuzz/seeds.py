"""Samples of what the decoders of `tests.fuzz.targets` decode, made by the repository's own encoders."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

import events as ev
from events import envelope, object_store
from events.envelope import Header, Stored
from services.feed import core as feed
from services.state import snapshot
from services.state.fold import State
from tests.events import samples, stored
from tests.fuzz.generate import SCALARS, TEXTS, encoded
from tests.manifests import load_yaml

ROOT = Path(__file__).parents[2]


def commit_of(writer: str, data: bytes, sequence: int = 1) -> Stored:
    made = envelope.encode_header(Header(writer=writer, epoch=0, basis=0, time_ns=1, cause="facts"))
    return Stored(sequence=sequence, subject=f"muster.c.{writer}", message_id="", header=made, payload=data)


def events_stored() -> list[bytes]:
    switch = ev.VersionsSwitched(rules=1, state=State().state_version + 1)
    made = [envelope.encode_events([event]) for event in (*samples.samples(), switch)]
    return stored.STORED.read_bytes().splitlines() + made


def pages() -> list[bytes]:
    return [encoded({"metadata": {"resourceVersion": "1"}, "items": [obj]}) for obj in kubernetes_objects()]


def lines() -> list[bytes]:
    found = [encoded({"type": "ADDED", "object": obj}) for obj in kubernetes_objects()]
    return [*found, encoded({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})]


@cache
def kubernetes_objects() -> list[dict[str, Any]]:
    """What the simulated API server makes of the repository's own manifests."""
    from services.simulator.offline import served

    documents = load_yaml(sorted((ROOT / "examples" / "simulate").glob("*.yaml")))
    return served(documents)[:40]


def yamls() -> list[bytes]:
    paths = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "deploy" / "manifests").glob("*.yaml")]
    return [path.read_bytes() for path in sorted(paths)] + [
        b"apiVersion: v1\nkind: Pod\nmetadata: &a {name: p, labels: {a: b}}\nspec:\n  containers:\n  - name: c\n",
        b"- &x [1, 0x1f, 0b1, 1_0, 0o7, 1:30, .inf, .nan, ~, yes, 2026-01-02, !!binary aGk=]\n- *x\n",
    ]


def csvs() -> list[bytes]:
    from tests.simulator.test_traces import DLRM, NODES, PODS

    return [text.encode() for text in (NODES, PODS, DLRM)]


def kubeconfigs() -> list[bytes]:
    from tests.kubernetes.test_access import CLUSTERS, USERS

    documents = [
        {
            "current-context": "there",
            "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        for cluster in CLUSTERS.values()
        for user in USERS.values()
    ]
    return [encoded(document) for document in documents] + [yaml.dump(documents[0]).encode()]


def credential_files() -> list[bytes]:
    from tests.events.test_credentials import account, creds, user

    return [creds(account.jwt(user.public, "user"), user.seed).encode(), creds("a.b.c", account.seed).encode()]


def snapshots() -> list[bytes]:
    from tests.state.test_snapshot import busy

    return [snapshot.encode(State()), snapshot.encode(busy().state)]


def packs() -> list[bytes]:
    return [snapshot.FORM.pack(State())[0]]


def texts() -> list[bytes]:
    said = ["a=b,c!=d", "app in (x, y),!z", "a notin (b)", "metadata.name=x,spec.nodeName!=", "GangPermitted.default.*"]
    said += [
        ">",
        "*.a.>",
        "NodeObserved.-.n%2Ea",
        "100",
        "2026-11-21T19:05:00Z",
        "7.1.2",
        "1Gi",
        "100m",
        "1.5e3",
        ".5E-2",
    ]
    return [text.encode() for text in (*said, *TEXTS)] + [str(scalar).encode() for scalar in SCALARS]


def feed_messages() -> list[bytes]:
    commits = [commit_of("binder", data) for data in events_stored()]
    return [message.body for commit in commits for message in feed.messages(commit, "c")]


def metas() -> list[bytes]:
    found = object_store.Object(name=f"{7:020}", bucket="b", nuid="n", size=3, chunks=1, digest="SHA-256=x")
    found.headers = {object_store.DIGEST: ["d"], object_store.STATE: ["1"], object_store.PLACE: ["i"]}
    return [msgspec.json.encode(found)]

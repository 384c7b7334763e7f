"""What a service's process gives its service, and closes behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from events.homes import open_log
from events.log import Unavailable
from services import settings
from services.binder.service import Rates
from services.console import launch, roles
from services.federator.bodies import Cipher
from services.kubernetes.access import Access, direct
from services.kubernetes.client import Client

CHOSEN = {
    "cluster": "prod",
    "holder": "me",
    "scheduler_names": "muster,other",
    "kubeconfig": "its.yaml",
    "bind_concurrency": 7,
    "condition_patches_per_second": 1,
    "kubernetes_events_per_second": 2,
    "group_patches_per_second": 3,
    "snapshot_after_bytes": 9,
    "clock_offset_ms": 5,
}


@pytest.mark.parametrize(
    ("role", "given"),
    [
        ("planner", {"shard": "4", "turn": 1, "stop": 2, "clock_offset_ms": 5}),
        ("ingest", {"scheduler_names": ("muster", "other"), "connections": 16, "clock_offset_ms": 5}),
        (
            "binder",
            {
                "connections": 7 + 1 + 7 + 4 * 100,
                "turn": 1,
                "leases": 3,
                "concurrency": 7,
                "rates": Rates(1.0, 2.0, 3.0),
                "snapshots": "prod",
                "clock_offset_ms": 5,
            },
        ),
    ],
)
async def test_what_a_service_is_given(role: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its settings and its seat, and a client that is closed behind it."""
    clients: list[Client] = []
    told: dict[str, Any] = {}

    async def run(log: object, *client: Client, **options: Any) -> None:
        clients.extend(client)
        told.update(options)
        for each in client:
            assert each._session.connector is not None
            told["connections"] = each._session.connector.limit
        raise Unavailable("the log is gone")

    def load(kubeconfig: str) -> Access:
        assert kubeconfig == "its.yaml"
        return direct("http://h")

    monkeypatch.setattr(f"services.{role}.service.run", run)
    monkeypatch.setattr("services.kubernetes.access.load", load)
    chosen = settings.read(CHOSEN, {})
    seat: Any = roles.Seat("planner.4", stop=2, turn=1, leases=3)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="the log is gone"):
        await roles.run(role, chosen, None, seat)
    if (taking := told.get("snapshots")) is not None:
        assert taking.after_bytes == 9
        told["snapshots"] = taking.environment["MUSTER_CLUSTER"]
    assert told == {"holder": chosen.holder, **given}
    assert [client._session.closed for client in clients] == [True] * len(clients)
    assert roles._taking(settings.read({"snapshot_after_bytes": 0}, {})) is None


WITH_LOG = """
clusters:
  a: {uri: http://h, user: u, token: {env: T}}
  b: {kind: kubernetes, uri: http://k, user: u, kubeconfig: kubeconfig, log: {domain: d, cluster: c}}
"""
KUBECONFIG = """
current-context: k
contexts: [{name: k, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


class Federating:
    """A federator that ends, before or behind where it is ready."""

    given: dict[str, Any]
    readied: bool
    answers: bool

    def __init__(self, log: object, reaches: object, bodies: object, **given: Any) -> None:
        type(self).given, type(self).answers = {"reaches": reaches, **given}, False
        self.ready, self.asked = asyncio.Event(), asyncio.Event()

    def handlers(self) -> dict[str, Any]:
        self.asked.set()
        type(self).answers = True
        return {}

    async def run(self) -> None:
        if self.readied:
            self.ready.set()
            await self.asked.wait()
        raise Unavailable("the log is gone")


@pytest.mark.parametrize("readied", [True, False])
async def test_what_a_federator_is_given(
    readied: bool, nats: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its clusters' connections are closed behind it. Who is not ready answers nobody."""
    (tmp_path / "clusters.yaml").write_text(WITH_LOG)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "keys").write_text(Cipher.new_key())
    files = {"clusters_file": str(tmp_path / "clusters.yaml"), "body_keys_file": str(tmp_path / "keys")}
    chosen = settings.read(CHOSEN | {"kubeconfig": "", "nats_url": nats, **files}, {})
    monkeypatch.setattr("services.federator.service.Federator", Federating)
    monkeypatch.setattr(Federating, "readied", readied, raising=False)
    log = await open_log(nats, "prod", create=True)
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(60):
            await roles.run("federator", chosen, log, roles.Seat("federator", asyncio.Event()))
    assert launch._exit_code(launch._first(ended.value)) == launch.UNREACHABLE
    await log.close()
    assert Federating.answers is readied
    given = Federating.given
    reaches = {account: given["reaches"][account] for account in ("u@http://h", "u@http://k")}
    assert (given["holder"], given["clock_offset_ms"], given["snapshots"].after_bytes) == (chosen.holder, 5, 9)
    assert [reach.log is None for reach in reaches.values()] == [True, False]
    pai, kubernetes = (reach.backend for reach in reaches.values())
    assert (pai._session.closed, kubernetes._jobs._session.closed) == (True, True)

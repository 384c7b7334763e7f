"""What a service's process gives its service, and closes behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner

from events.homes import open_log
from events.log import Unavailable
from services import settings
from services.binder.service import Rates
from services.cli.muster import app
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


async def test_a_feed_is_given_all_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    serve, log, chosen = AsyncMock(), object(), settings.read(CHOSEN, {})
    monkeypatch.setattr("services.feed.service.serve", serve)
    await roles.run("feed", chosen, log, roles.Seat("feed", asyncio.Event()))
    serve.assert_awaited_once_with(log, chosen)


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


ASKED: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("verify L", "commands.verify", ("L", None), {"strict": 0, "as_json": False}),
    ("verify L --cluster c --strict 7 --json", "commands.verify", ("L", "c"), {"strict": 7, "as_json": True}),
    ("replay L", "commands.replay", ("L", None), {"at": None, "as_json": False}),
    ("replay L --at 4 --json", "commands.replay", ("L", None), {"at": "4", "as_json": True}),
    ("explain L a/b", "commands.explain", ("L", None, "a/b"), {"at": None, "as_json": False}),
    ("explain L a/b --at 4 --json", "commands.explain", ("L", None, "a/b"), {"at": "4", "as_json": True}),
    ("snapshot", "commands.take_snapshot", (None, None), {"as_json": False}),
    ("export L F --cluster c", "commands.copy_log", ("L", "F", "c"), {"as_json": False}),
    ("import F U --json", "commands.copy_log", ("F", "U", None), {"into_nats": True, "as_json": True}),
    (
        "retention L",
        "commands.retain",
        ("L", None),
        {"archive": None, "no_archive": False, "days": None, "as_json": False},
    ),
    (
        "retention L --archive A --no-archive --days 3 --json",
        "commands.retain",
        ("L", None),
        {"archive": "A", "no_archive": True, "days": 3, "as_json": True},
    ),
    (
        "subscribe P",
        "commands.subscribe",
        ("P",),
        {"nats": None, "cluster": None, "durable": None, "history": True, "as_json": False},
    ),
    (
        "subscribe P --nats U --cluster c --durable d --new --json",
        "commands.subscribe",
        ("P",),
        {"nats": "U", "cluster": "c", "durable": "d", "history": False, "as_json": True},
    ),
    ("status", "commands.status", (None, None), {"watch": False, "as_json": False}),
    ("status L --watch --json", "commands.status", ("L", None), {"watch": True, "as_json": True}),
    ("status --nats U --cluster c", "commands.status", ("U", "c"), {"watch": False, "as_json": False}),
    ("versions switch L", "commands.switch_versions", ("L", None, None, None), {"as_json": False}),
    ("versions switch L --rules 2 --state 3", "commands.switch_versions", ("L", None, 2, 3), {"as_json": False}),
    ("job specialize F --cluster a", "jobs.show_special", (Path("F"), "a"), {"as_json": False}),
    ("job specialize F --cluster a --json", "jobs.show_special", (Path("F"), "a"), {"as_json": True}),
    ("job explain n --at 4 --json", "jobs.explain", ("n", None, "federation"), {"at": "4", "as_json": True}),
    ("job explain n --nats nats://h/f", "jobs.explain", ("n", "nats://h/f", "f"), {"at": None, "as_json": False}),
]
"""What is typed; which function it ends in, and what that is given."""


@pytest.mark.parametrize(("typed", "function", "positional", "named"), ASKED, ids=[typed for typed, *_ in ASKED])
def test_what_a_command_is_given(
    typed: str, function: str, positional: tuple[Any, ...], named: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its exit code is that of the function."""
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(f"services.console.{function}", lambda *args, **kwargs: given.append((args, kwargs)) or 7)
    done = CliRunner().invoke(app, typed.split())
    assert (done.exit_code, given) == (7, [(positional, named)])

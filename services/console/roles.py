"""Each role's service: how it is run once it is this process's turn, and what it needs that can be checked before.

Services are imported where they run: none needs the others, and start-up time is part of a service's latency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from events.jetstream import JetStreamLog
from events.lease import Watch
from events.subjects import shard_of
from services.console.http_imports import ASK_KUBERNETES
from services.settings import PREFIX, InvalidSetting, Settings

FEDERATOR = "federator"
NATS_FILES = ("nats_credentials_file", "nats_ca_file", "nats_certificate_file", "nats_key_file")
ACCESS_WITHIN_S = 60.0
"""How long a kubeconfig's plugin may take at a start."""


class Seat(NamedTuple):
    """A process's place in its role."""

    writer: str
    """As in the log's subjects: ingest, planner.<shard>, binder, feed."""
    stop: asyncio.Event
    """Set when the process is told to end."""
    turn: Callable[[], Awaitable[None]] | None = None
    """Waits until the role is this process's; None: it is already."""
    leases: Watch | None = None
    """The planners'."""

    @property
    def shard(self) -> str:
        return shard_of(self.writer)


async def run(role: str, settings: Settings, log: Any, seat: Seat) -> None:
    match role:
        case "planner":
            from services.planner import service as planner

            await planner.run(
                log,
                shard=seat.shard,
                holder=settings.holder,
                turn=seat.turn,
                stop=seat.stop,
                clock_offset_ms=settings.clock_offset_ms,
            )
        case "ingest":
            from services.ingest import service as ingest

            async with await _client(settings) as client:
                await ingest.run(
                    log,
                    client,
                    holder=settings.holder,
                    scheduler_names=settings.scheduler_names,
                    clock_offset_ms=settings.clock_offset_ms,
                )
        case "binder":
            from services.binder import service as binder

            async with await _client(settings, binder.connections(settings.bind_concurrency)) as client:
                await binder.run(
                    log,
                    client,
                    holder=settings.holder,
                    turn=seat.turn,
                    leases=seat.leases,
                    concurrency=settings.bind_concurrency,
                    rates=binder.Rates(
                        settings.condition_patches_per_second,
                        settings.kubernetes_events_per_second,
                        settings.group_patches_per_second,
                    ),
                    snapshots=_taking(settings),
                    clock_offset_ms=settings.clock_offset_ms,
                )
        case "feed":
            from services.feed import service as feed

            await feed.serve(log, settings)
        case "federator":
            await _run_federator(settings, log)


def _taking(settings: Settings) -> Any:
    from services.snapshots import Taking

    chosen = settings.snapshot_after_bytes
    return Taking(chosen, settings.environment()) if chosen else None


async def _run_federator(settings: Settings, log: JetStreamLog) -> None:
    from importlib.metadata import version

    from events import micro
    from events.object_store import Bucket, bodies_bucket
    from events.subjects import FEDERATOR_SERVICE, jobs
    from services.federator import bodies, service
    from services.federator.backends import opening

    clusters, cipher = _federation(settings)
    bucket = Bucket(log.connection, bodies_bucket(settings.cluster), settings.log_replicas)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        reaches = opening.reaches(clusters, Path(settings.clusters_file).parent, log.connection)
        for reach in reaches.values():
            stack.push_async_callback(reach.backend.close)
        federator = service.Federator(
            log,
            reaches,
            bodies.Bodies(bodies.BucketBlobs(bucket), cipher),
            holder=settings.holder,
            clock_offset_ms=settings.clock_offset_ms,
            snapshots=_taking(settings),
        )
        running = tasks.create_task(federator.run())
        await asyncio.wait({running, tasks.create_task(federator.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        handlers, muster, prefix = federator.handlers(), version("muster"), jobs(settings.cluster)
        described = f"Multi-cluster jobs: {', '.join(handlers)}"
        async with micro.served(log.connection, FEDERATOR_SERVICE, muster, described, prefix, handlers):
            await running


async def check_files(role: str, settings: Settings) -> None:
    """Read the files that the settings name before the process is ready: a standby that could not take over is none.

    They are read again when its turn comes, as they may change until then. Raises AccessError, InvalidSetting.
    """
    for name in NATS_FILES:
        if file := getattr(settings, name):
            _check_readable(f"{PREFIX}{name.upper()}", Path(file))
    if settings.nats_key_file and not settings.nats_certificate_file:
        raise InvalidSetting(f"{PREFIX}NATS_KEY_FILE: expected {PREFIX}NATS_CERTIFICATE_FILE beside it")
    if role in ASK_KUBERNETES:
        await _access(settings)
    elif role == FEDERATOR:
        _federation(settings)


def _federation(settings: Settings) -> tuple[Any, Any]:
    """What the federator's files say: its clusters, and the cipher of its bodies. Raises InvalidSetting, or AccessError
    where it is kubeconfigs alone; with all that is wrong."""
    from services.federator.backends import opening
    from services.federator.bodies import Cipher, InvalidKey
    from services.federator.clusters import InvalidClusters
    from services.kubernetes.access import AccessError

    files = (("--clusters", settings.clusters_file), ("--keys", settings.body_keys_file))
    if missing := [f"{flag}: missing; expected a file (docs/federation.md)" for flag, file in files if not file]:
        raise InvalidSetting("; ".join(missing))
    wrong: list[Exception] = []
    try:
        clusters = opening.usable(Path(settings.clusters_file))
    except (InvalidClusters, AccessError) as error:
        wrong.append(error)
    try:
        cipher = Cipher(opening.read_keys(Path(settings.body_keys_file)))
    except InvalidClusters as error:
        wrong.append(error)
    except InvalidKey as error:
        wrong.append(InvalidSetting(f"{settings.body_keys_file}: {error}"))
    if wrong:
        unreachable = all(isinstance(error, AccessError) for error in wrong)
        raise (AccessError if unreachable else InvalidSetting)("; ".join(map(str, wrong)))
    return clusters, cipher


def _check_readable(variable: str, file: Path) -> None:
    """Raises InvalidSetting. A pipe may have nobody at its other end, and these are read again later."""
    try:
        if not file.is_file():
            raise InvalidSetting(f"{variable}: expected a file, {'not' if file.exists() else 'found no'} {file}")
        with file.open("rb"):
            pass
    except OSError as error:
        raise InvalidSetting(f"{variable}: {file}: {error.strerror}") from error


async def _client(settings: Settings, connections: int = 16) -> Any:
    from services.kubernetes.client import Client

    return Client(await _access(settings), connections=connections)


async def _access(settings: Settings) -> Any:
    """In a thread: a kubeconfig may name a plugin that takes its time, and the lease is renewed meanwhile."""
    from services.background_call import BackgroundCall
    from services.kubernetes import access

    try:
        return await BackgroundCall(lambda: access.load(settings.kubeconfig))(ACCESS_WITHIN_S)
    except TimeoutError as error:
        silent = "it, or a plugin that it names, said nothing"
        named = settings.kubeconfig or "the kubeconfig"
        raise access.AccessError(f"{named}: {silent} within {ACCESS_WITHIN_S:g} s") from error

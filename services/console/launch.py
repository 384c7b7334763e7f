"""A service as a process: settings in, the log and the lease opened, the service run until it is told to end.

The lease only decides who tries (`events.lease`): a second process of a role waits for it as a standby; planner and
binder follow the log meanwhile, so that they can decide at once. ``--shard auto`` takes the first planner shard that is
free and never waits while one is. SIGTERM and SIGINT end the service cleanly and hand the lease over at once. A service
that was replaced, or that lost what it needs, ends with an exit code of its own; whoever runs it starts it again, and it
becomes a standby, once NATS is there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from events.envelope import MalformedCommit
from events.homes import SUFFIX, is_server, open_log, split
from events.jetstream import JetStreamLog
from events.lease import Lease, Watch, acquire_first
from events.log import EventLog, LogError, Unavailable
from events.subjects import FEDERATION, shard_of, subject
from services.health import Health
from services.settings import PREFIX, InvalidSetting, Settings
from services.writer import SteppedDown

logger = logging.getLogger("muster")
AUTO = "auto"
AUTO_SHARDS = 64
"""The shards that ``--shard auto`` takes: as many as there are partitions."""
FEDERATOR, OF_CLUSTERS = "federator", ("ingest", "binder")
"""The one writer of a federation's log; writers that every cluster's log has."""
ASK_KUBERNETES = ("ingest", "binder")
FOLLOWS_AS_STANDBY = ("planner", "binder")
NATS_FILES = ("nats_credentials_file", "nats_ca_file", "nats_certificate_file", "nats_key_file")
NEED_NATS = ("feed", "federator")
"""Services that keep more there than a log; the others could do with a file."""
AGAIN_S = 1.0
"""Where NATS does not answer at a start, behind an attempt that took its own time."""
ACCESS_WITHIN_S = 60.0
"""How long a kubeconfig's plugin may take at a start."""
LEAVE_WITHIN_S = 10.0
"""How long a planner that is told to end may take to say that it leaves: a third of what Kubernetes grants a pod."""
BUG, USAGE, STEPPED_DOWN, UNREACHABLE, UNKNOWN_COMMIT = 1, 2, 3, 4, 5
"""Exit codes: a bug; a setting is wrong; another process took over; the log was lost, or it or the cluster refuses what
was asked; the log holds a commit of a known writer that this version cannot read."""


def serve(role: str, settings: Settings) -> int:
    """Run the role until a signal; the exit code."""
    from services import telemetry

    try:
        telemetry.configure(
            role,
            cluster=settings.cluster,
            log_level=settings.log_level,
            log_format=settings.log_format,
            mode=settings.telemetry,
        )
    except ValueError as error:
        logger.error("%s", error)
        return USAGE
    try:
        if wrong := _no_log(role, settings.nats_url):
            logger.error("%s", wrong)
            return USAGE
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(_serve(role, settings))
    finally:
        telemetry.shutdown()


def _no_log(role: str, location: str) -> str:
    """What is wrong with where the log should be."""
    try:
        if role in NEED_NATS or not location.endswith(SUFFIX):
            split(location)
    except LogError as error:
        return f"--nats, MUSTER_NATS_URL: {error}"
    return ""


def _federation(settings: Settings) -> tuple[Any, Any]:
    """What the federator's files say: its clusters, and the cipher of its bodies. Raises InvalidSetting, AccessError."""
    from services.federator.backends import opening
    from services.federator.bodies import Cipher, InvalidKey
    from services.federator.clusters import InvalidClusters

    for flag, file in (("--clusters", settings.clusters_file), ("--keys", settings.body_keys_file)):
        if not file:
            raise InvalidSetting(f"{flag}: missing; expected a file (docs/federation.md)")
    try:
        return opening.usable(Path(settings.clusters_file)), Cipher(opening.read_keys(Path(settings.body_keys_file)))
    except InvalidClusters as error:
        raise InvalidSetting(str(error)) from error
    except InvalidKey as error:
        raise InvalidSetting(f"{settings.body_keys_file}: {error}") from error


def _collect_seldom() -> None:
    """What is imported stays. Records and events make no cycles (`gc=False`); what does is seldom, failed requests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(role: str, settings: Settings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        health = Health()
        await _until(stop, _hold_and_run(role, settings, stop, health), lambda: _grace_s(role, health))
    except Exception as error:
        return _exit_code(_first(error))
    return 0


def _grace_s(role: str, health: Health) -> float:
    """How long `role` may take to end: a planner that has opened the log says in it that it leaves."""
    return LEAVE_WITHIN_S if role == "planner" and health.ready else 0.0


def _exit_code(error: BaseException) -> int:
    """Log why the service ended, a bug with its traceback, and return the exit code for it."""
    from services.kubernetes.access import AccessError
    from services.kubernetes.errors import ApiError
    from services.state.form import UnknownCommit, UnknownVersion

    if isinstance(error, UnknownVersion):
        logger.error("this version is too old, or too new, for the log: %s", error)
        return UNKNOWN_COMMIT
    if isinstance(error, (UnknownCommit, MalformedCommit)):
        logger.error("this version cannot read the log: %s", error)
        return UNKNOWN_COMMIT
    if isinstance(error, InvalidSetting):
        logger.error("%s", error)
        return USAGE
    if isinstance(error, SteppedDown):
        logger.warning("stepped down: %s", error)
        return STEPPED_DOWN
    if isinstance(error, (LogError, ApiError, AccessError, OSError)):
        logger.error("%s", error)
        return UNREACHABLE
    logger.critical("a bug: %s: %s", type(error).__name__, error, exc_info=error)
    return BUG


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None], grace_s: Callable[[], float]) -> None:
    """Run `work` until it ends, or until `grace_s` after `stop`: then it is cancelled. It has cleaned up when this
    returns."""
    running = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        await asyncio.wait({running}, timeout=grace_s())
    if not running.done():
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    running.result()


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


async def _hold_and_run(role: str, settings: Settings, stop: asyncio.Event, health: Health) -> None:
    """Open the log, take a seat, run the service; end when the lease is lost."""
    import_module(f"services.{role}.service")  # before the seat: who gets it is at work at once
    _collect_seldom()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(health.serve(settings.health_host, settings.health_port))
        await _check_files(role, settings)
        log = await _opened(settings)
        stack.push_async_callback(log.close)
        await _check_kind(role, log)
        health.ready = True
        if not isinstance(log, JetStreamLog):
            await _run(role, settings, log, Seat(_writers(role, settings)[0], stop))
            return
        seat, lease = await _take_seat(role, settings, log, stop)
        stack.push_async_callback(lease.release)
        if role == "binder":
            leases = Watch(log.connection, settings.cluster, "planner.*", settings.lease_s)
            seat = seat._replace(leases=await stack.enter_async_context(leases))
        async with asyncio.TaskGroup() as tasks:
            service = tasks.create_task(_run(role, settings, log, seat))
            lost = tasks.create_task(lease.lost.wait())
            await asyncio.wait({service, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done() and not service.done():
                service.cancel()
                raise SteppedDown(f"the lease of {seat.writer} is lost: {lease.why}")
            lost.cancel()


async def _opened(settings: Settings) -> EventLog:
    """The log, however long NATS is away: a process that ended instead would be restarted ever later, at last five
    minutes after NATS is back. Raises LogError where it answers otherwise, or the log is a file."""
    where, options = settings.nats_url, settings.nats_options()
    while True:
        try:
            return await open_log(where, settings.cluster, create=True, replicas=settings.log_replicas, **options)
        except Unavailable as error:
            if not is_server(where):
                raise
            logger.warning("%s; tried again, until the log can be had", error)
        await asyncio.sleep(AGAIN_S)


async def _check_kind(role: str, log: EventLog) -> None:
    """Clusters' and federations' logs are named alike; one that both wrote into is neither. Raises InvalidSetting."""
    kind, others = ("cluster", OF_CLUSTERS) if role == FEDERATOR else ("federation", (FEDERATOR,))
    theirs = log.cluster == FEDERATION and role != FEDERATOR
    for other in others:
        theirs = theirs or await log.last(subject(log.cluster, other)) is not None
    if theirs:
        raise InvalidSetting(f"--cluster {log.cluster}: expected another name: this is the log of a {kind}")


def _writers(role: str, settings: Settings) -> list[str]:
    """Those of which this process would become one."""
    if role != "planner":
        return [role]
    shards = map(str, range(AUTO_SHARDS)) if settings.shard == AUTO else [settings.shard]
    return [f"planner.{shard}" for shard in shards]


async def _take_seat(role: str, settings: Settings, log: JetStreamLog, stop: asyncio.Event) -> tuple[Seat, Lease]:
    """The seat and its lease, which is held unless the seat has a turn to wait for."""
    leases = [
        Lease(
            log.connection, settings.cluster, writer, settings.holder, settings.lease_s, replicas=settings.log_replicas
        )
        for writer in _writers(role, settings)
    ]
    lease = leases[0] if len(leases) == 1 else await acquire_first(leases)

    async def turn() -> None:
        if len(leases) == 1:
            await lease.acquire()
        logger.info("active", extra={"writer": lease.role, "holder": settings.holder})

    if role in FOLLOWS_AS_STANDBY:
        return Seat(lease.role, stop, turn), lease
    await turn()
    return Seat(lease.role, stop), lease


async def _run(role: str, settings: Settings, log: Any, seat: Seat) -> None:
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

            async with await _client(settings, settings.bind_concurrency) as client:
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
        described = "Multi-cluster jobs: submit, status, list, cancel, give-up"
        prefix = jobs(settings.cluster)
        handlers, muster = federator.handlers(), version("muster")
        async with micro.served(log.connection, FEDERATOR_SERVICE, muster, described, prefix, handlers):
            await running


async def _check_files(role: str, settings: Settings) -> None:
    """They are read again when it is this process's turn, as they may change until then; but a standby that could not
    take over says so now. Raises AccessError, InvalidSetting."""
    if is_server(settings.nats_url):
        for name in NATS_FILES:
            if file := getattr(settings, name):
                _check_readable(f"{PREFIX}{name.upper()}", Path(file))
        if settings.nats_key_file and not settings.nats_certificate_file:
            raise InvalidSetting(f"{PREFIX}NATS_KEY_FILE: expected {PREFIX}NATS_CERTIFICATE_FILE beside it")
    if role in ASK_KUBERNETES:
        await _access(settings)
    elif role == FEDERATOR:
        _federation(settings)


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
        return await BackgroundCall(lambda: access.load(settings.kubeconfig or None))(ACCESS_WITHIN_S)
    except TimeoutError as error:
        silent = "it, or a plugin that it names, said nothing"
        raise access.AccessError(f"{settings.kubeconfig}: {silent} within {ACCESS_WITHIN_S:g} s") from error

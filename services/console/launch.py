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
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from typing import Any

from events.answers import ONE_SERVER, Refused
from events.envelope import MalformedCommit
from events.homes import split
from events.jetstream import JetStreamLog
from events.lease import Lease, Watch, acquire_first
from events.log import MAX_COMMIT_BYTES, EventLog, LogError, Unavailable, first_role
from events.subjects import FEDERATION
from services.console import roles
from services.console.roles import FEDERATOR, Seat
from services.health import Health
from services.settings import PREFIX, InvalidSetting, Settings
from services.writer import SteppedDown

logger = logging.getLogger("muster")
ENDING = {signal.SIGTERM, signal.SIGINT}
"""What tells a service to end."""
AUTO = "auto"
AUTO_SHARDS = 64
"""The shards that ``--shard auto`` takes: as many as there are partitions."""
FOLLOWS_AS_STANDBY = ("planner", "binder")
AGAIN_S = 1.0
"""The pause between two attempts to open the log at a start, while NATS does not answer."""
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
        if wrong := no_log(settings.nats_url):
            logger.error("%s", wrong)
            return USAGE
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(_serve(role, settings))
    finally:
        telemetry.shutdown()


def no_log(location: str) -> str:
    """What is wrong with where the log should be. A file has no leases, and may be somebody's copy of a log."""
    try:
        split(location)
    except LogError as error:
        return f"--nats, MUSTER_NATS_URL: {error}"
    return ""


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
    loop.set_exception_handler(_nobody_heard)
    return loop


def _nobody_heard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Of an error that nobody waited for. Where names are looked up slowly, a connection's lookup goes on in uvloop when
    the connection has long been given up, and told of: no bug, and no line."""
    if not isinstance(context.get("exception"), socket.gaierror):
        loop.default_exception_handler(context)


async def _serve(role: str, settings: Settings) -> int:
    stop = asyncio.Event()
    for number in ENDING:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # as `muster run` has them wait until here
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


async def _hold_and_run(role: str, settings: Settings, stop: asyncio.Event, health: Health) -> None:
    """Open the log, take a seat, run the service; end when the lease is lost."""
    import_module(f"services.{role}.service")  # before the seat: who gets it is at work at once
    _collect_seldom()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(health.serve(settings.health_host, settings.health_port))
        await roles.check_files(role, settings)
        if role != FEDERATOR and settings.cluster == FEDERATION:
            raise _of_another_kind(FEDERATION, "federation")  # to open it would make it
        log = await _opened(settings)
        stack.push_async_callback(log.close)
        await _check_kind(role, log)
        health.ready = True
        seat, lease = await _take_seat(role, settings, log, stop)
        stack.push_async_callback(lease.release)
        if role == "binder":
            leases = Watch(log.connection, settings.cluster, "planner.*", settings.lease_s)
            seat = seat._replace(leases=await stack.enter_async_context(leases))
        await while_held(lease, roles.run(role, settings, log, seat))


async def while_held(lease: Lease, service: Coroutine[Any, Any, None]) -> None:
    """Run the service until it ends. Raises SteppedDown when the lease is lost, and what the service raises."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(service)
        lost = tasks.create_task(lease.lost.wait())
        await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
        if lost.done() and not running.done():
            running.cancel()
            raise SteppedDown(f"the lease of {lease.role} is lost: {lease.why}")
        lost.cancel()


async def _opened(settings: Settings) -> JetStreamLog:
    """The log, however long NATS is away: a process that ended instead would be restarted ever later, at last five
    minutes after NATS is back. Raises LogError where it answers otherwise, InvalidSetting where it is a single server."""
    (servers, _), replicas, options = split(settings.nats_url), settings.log_replicas, settings.nats_options()
    while True:
        try:
            log = await JetStreamLog.open(servers, settings.cluster, create=True, replicas=replicas, **options)
        except Unavailable as error:
            logger.warning("%s; tried again, until the log can be had", error)
            await asyncio.sleep(AGAIN_S)
        except Refused as error:
            if error.number != ONE_SERVER:
                raise
            expected = "expected 1, as this NATS server is none of several servers"
            raise InvalidSetting(f"{PREFIX}LOG_REPLICAS={replicas}: {expected}: {error}") from error
        else:
            _tell_of_small_messages(log)
            return log


def _tell_of_small_messages(log: JetStreamLog) -> None:
    """With NATS' default all is well until one decision is larger: then its service ends, at every start."""
    if (limit := log.connection.client.max_payload) < MAX_COMMIT_BYTES:
        told = "%s: the NATS server takes no messages of more than %d bytes, and a decision may have %d: %s"
        logger.warning(told, log.connection.url, limit, MAX_COMMIT_BYTES, "expected max_payload: 8MB")


async def _check_kind(role: str, log: EventLog) -> None:
    """Clusters' and federations' logs are named alike; one with decisions of both would be neither. Raises
    InvalidSetting."""
    first = await first_role(log)
    if role == FEDERATOR:
        kind, theirs = "cluster", first not in ("", FEDERATOR)
    else:
        kind, theirs = "federation", first == FEDERATOR
    if theirs:
        raise _of_another_kind(log.cluster, kind)


def _of_another_kind(cluster: str, kind: str) -> InvalidSetting:
    return InvalidSetting(
        f"{cluster}: this is the log of a {kind}; expected another name (--cluster, or behind the URL)"
    )


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

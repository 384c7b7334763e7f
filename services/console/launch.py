"""A service as a process: settings in, the log and the lease opened, the service run until it is told to end.

The lease only decides who tries (`events.lease`): a second process of a role waits for it as a standby. SIGTERM and
SIGINT end the service cleanly and hand the lease over at once. A service that was replaced, or that cannot reach what it
needs, ends with an exit code of its own; whoever runs it starts it again, and it becomes a standby.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from typing import Any

from events.envelope import MalformedCommit
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.log import LogError
from services.health import Health
from services.settings import Settings
from services.writer import SteppedDown

logger = logging.getLogger("muster")
LEASE_S = 3
STEPPED_DOWN, UNREACHABLE, UNKNOWN_COMMIT = 3, 4, 5
"""Exit codes: another process took over; the log or the cluster cannot be reached or refuses us; the log holds a commit
of a known writer that this version cannot read."""


def serve(role: str, settings: Settings) -> int:
    """Run the role until a signal; the exit code."""
    from services import telemetry

    telemetry.configure(
        role,
        cluster=settings.cluster,
        log_level=settings.log_level,
        log_format=settings.log_format,
        mode=settings.telemetry,
    )
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(_serve(role, settings))
    finally:
        telemetry.shutdown()


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
        await _until(stop, _hold_and_run(role, settings))
    except Exception as error:
        return _exit_code(_first(error))
    return 0


def _exit_code(error: BaseException) -> int:
    """Say why the service ended, and how whoever runs it can tell; what is a bug keeps its traceback."""
    from services.kubernetes.access import AccessError
    from services.kubernetes.errors import ApiError
    from services.state.fold import UnknownCommit

    if isinstance(error, (UnknownCommit, MalformedCommit)):
        logger.error("this version cannot read the log: %s", error)
        return UNKNOWN_COMMIT
    if isinstance(error, SteppedDown):
        logger.warning("stepped down: %s", error)
        return STEPPED_DOWN
    if isinstance(error, (LogError, ApiError, AccessError, OSError)):
        logger.error("%s", error)
        return UNREACHABLE
    raise error


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or `stop` is set; then it is cancelled and has cleaned up when this returns."""
    running = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    running.result()


async def _hold_and_run(role: str, settings: Settings) -> None:
    """Open the log, wait for the lease, run the service; end when the lease is lost."""
    import_module(f"services.{role}.service")  # before the lease: a standby takes over at once
    _collect_seldom()
    writer = f"planner.{settings.shard}" if role == "planner" else role
    health = Health()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(health.serve(settings.health_host, settings.health_port))
        log = await open_log(
            settings.nats_url, settings.cluster, create=True, replicas=settings.log_replicas, **settings.nats_options()
        )
        stack.push_async_callback(log.close)
        health.ready = True
        if isinstance(log, JetStreamLog):
            lease = Lease(log.connection, settings.cluster, writer, settings.holder, LEASE_S)
            await stack.enter_async_context(lease)
            logger.info("active", extra={"writer": writer, "holder": settings.holder})
            async with asyncio.TaskGroup() as tasks:
                service = tasks.create_task(_run(role, settings, log))
                lost = tasks.create_task(lease.lost.wait())
                await asyncio.wait({service, lost}, return_when=asyncio.FIRST_COMPLETED)
                if lost.done() and not service.done():
                    service.cancel()
                    raise SteppedDown(f"the lease of {writer} is lost")
                lost.cancel()
        else:
            await _run(role, settings, log)


async def _run(role: str, settings: Settings, log: Any) -> None:
    match role:
        case "planner":
            from services.planner import service as planner

            await planner.run(
                log, shard=settings.shard, holder=settings.holder, clock_offset_ms=settings.clock_offset_ms
            )
        case "ingest":
            from services.ingest import service as ingest

            async with _client(settings) as client:
                await ingest.run(log, client, holder=settings.holder, scheduler_names=settings.scheduler_names)
        case "binder":
            from services.binder import service as binder

            async with _client(settings, settings.bind_concurrency) as client:
                await binder.run(
                    log,
                    client,
                    holder=settings.holder,
                    concurrency=settings.bind_concurrency,
                    rates=binder.Rates(
                        settings.condition_patches_per_second,
                        settings.kubernetes_events_per_second,
                        settings.group_patches_per_second,
                    ),
                    clock_offset_ms=settings.clock_offset_ms,
                )
        case "feed":
            await _run_feed(settings, log)


async def _run_feed(settings: Settings, log: Any) -> None:
    from events.feed import Feed
    from services.feed import service as feed

    out = await Feed.open(
        settings.nats_url,
        settings.cluster,
        max_age_s=settings.feed_max_age_s,
        max_bytes=settings.feed_max_bytes,
        replicas=settings.log_replicas,
        **settings.nats_options(),
    )
    try:
        await feed.run(log, out, max_age_s=settings.feed_max_age_s)
    finally:
        await out.close()


def _client(settings: Settings, connections: int = 16) -> Any:
    from services.kubernetes import access
    from services.kubernetes.client import Client

    return Client(access.load(settings.kubeconfig or None), connections=connections)

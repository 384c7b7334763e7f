"""A service as a process: settings in, the log and the lease opened, the service run until it is told to end.

The lease only decides who tries (`events.lease`): a second process of a role waits for it as a standby. SIGTERM and SIGINT
end the service cleanly and hand the lease over at once. A service that was replaced, or that cannot reach what it needs,
ends with an exit code of its own; whoever runs it starts it again, and it becomes a standby.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

from events.homes import open_log
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.log import LogError
from services.settings import Settings
from services.writer import SteppedDown

logger = logging.getLogger("muster")
LEASE_S = 3
STEPPED_DOWN, UNREACHABLE = 3, 4
"""Exit codes: another process took over; the log or the cluster cannot be reached or refuses us."""


def serve(role: str, settings: Settings) -> int:
    """Run the role until a signal; the exit code."""
    from services import telemetry

    telemetry.configure_logging(role, settings)
    try:
        import uvloop

        loop_factory = uvloop.new_event_loop
    except ImportError:
        loop_factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_serve(role, settings))


async def _serve(role: str, settings: Settings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await _until(stop, _hold_and_run(role, settings))
    except* SteppedDown as group:
        logger.warning("stepped down: %s", _first(group))
        return STEPPED_DOWN
    except* (LogError, OSError) as group:
        logger.error("%s", _first(group))
        return UNREACHABLE
    return 0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


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
    writer = f"planner.{settings.shard}" if role == "planner" else role
    async with AsyncExitStack() as stack:
        log = await open_log(
            settings.nats_url, settings.cluster, create=True, replicas=settings.log_replicas, **settings.nats_options()
        )
        stack.push_async_callback(log.close)
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

            async with _client(settings) as client:
                await binder.run(
                    log,
                    client,
                    holder=settings.holder,
                    concurrency=settings.bind_concurrency,
                    waiting_writes_per_s=settings.condition_patches_per_second,
                    event_writes_per_s=settings.kubernetes_events_per_second,
                    clock_offset_ms=settings.clock_offset_ms,
                )
        case "feed":
            from services.feed import service as feed

            await feed.run(log, settings)


def _client(settings: Settings) -> Any:
    from services.kubernetes import access
    from services.kubernetes.client import Client

    return Client(access.load(settings.kubeconfig or None))

"""A NATS micro service: requests and answers beside the log, found by ``nats micro ls`` and by any client's discovery.

An answer is JSON. A request that is refused is answered with the protocol's own headers (``Nats-Service-Error-Code`` and
``Nats-Service-Error``), so that every client knows it for what it is.

Who asks names the subject of the answer, and the server has it published with the service's own permissions. So nothing
is answered, or done, where that subject is the server's or Muster's: an answer would purge a bucket, or stand in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.micro.request import Request, ServiceError
from nats.micro.service import Service, ServiceConfig

from events.answers import NobodyThere, Unanswered
from events.connection import CLOSE_WITHIN_S, Connection
from events.log import LogError, Unavailable
from events.wire import UNDECODABLE

Handler = Callable[[bytes], Awaitable[Any]]
"""What a request asks for → what is answered, as JSON. Raises `Unfit`, LogError."""
WITHIN_S = 30.0
MOST_SAID = 1 << 16
"""Characters of why a request is refused: what is told may quote it, and an answer must fit into a message."""
MEANINGFUL = ("$", "muster")
"""How those subjects begin onto which a message does something: JetStream's, and Muster's own."""
_logger = logging.getLogger(__name__)


class Unfit(Exception):
    """A request that is refused: a code, as HTTP has them, and why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@asynccontextmanager
async def served(
    connection: Connection, name: str, version: str, description: str, prefix: str, handlers: Mapping[str, Handler]
) -> AsyncIterator[None]:
    """Answers ``<prefix>.<verb>`` with the handler of each verb, until it is left. Raises Unavailable."""
    hearing = cast(Client, _Hearing(connection.client))
    service = Service(hearing, ServiceConfig(name=name, version=version, description=description))
    try:
        try:
            await service.start()
            for verb, handler in handlers.items():
                await service.add_endpoint(name=verb, subject=f"{prefix}.{verb}", handler=_answering(handler))
            await connection.client.flush()
        except nats.errors.Error as error:
            raise Unavailable(f"{prefix}: {connection.url}: {error}") from error
        yield
    finally:
        with suppress(nats.errors.Error, TimeoutError):  # a server that hangs hears no goodbye; why it is said counts
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await service.stop()


async def ask(connection: Connection, prefix: str, verb: str, request: Any, within_s: float = WITHIN_S) -> Any:
    """The answer. Raises Unfit, Unavailable when nobody serves it, Unanswered."""
    subject = f"{prefix}.{verb}"
    try:
        message = await connection.request(subject, msgspec.json.encode(request), within_s=within_s)
    except NobodyThere as error:
        raise Unavailable(
            f"{subject}: nobody at {connection.url} answers it: is `muster federator` running?"
        ) from error
    headers = message.headers or {}
    if code := headers.get("Nats-Service-Error-Code"):
        raise Unfit(int(code) if code.isdecimal() else 500, headers.get("Nats-Service-Error", ""))
    try:
        return msgspec.json.decode(message.data)
    except UNDECODABLE as error:
        raise Unanswered(f"{subject}: expected JSON: {error}") from error


class _Hearing:
    """The client as a service uses it, deaf to whoever would have the answer put where it means something."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def subscribe(self, subject: str, queue: str = "", *, cb: Callable[[Msg], Awaitable[None]]) -> Subscription:
        async def heard(message: Msg) -> None:
            if not message.reply.startswith(MEANINGFUL):
                await cb(message)

        return await self._client.subscribe(subject, queue=queue, cb=heard)


def _answering(handler: Handler) -> Callable[[Request], Awaitable[None]]:
    async def answer(request: Request) -> None:
        await asyncio.sleep(0)  # nats-py hands over one behind the other, and to read one may take a moment
        try:
            answered = await handler(request.data)
        except Unfit as error:
            raise ServiceError(str(error.code), _line(error.message)) from error
        except LogError as error:
            raise ServiceError("503", _line(str(error))) from error
        except Exception:
            _logger.exception("a bug: a request to %s was not answered", request.subject)
            raise ServiceError("500", "a bug: the service's own log says more") from None
        await request.respond(msgspec.json.encode(answered))

    return answer


def _line(text: str) -> str:
    """As a header can hold it."""
    return " ".join(text[:MOST_SAID].split())

"""Answers over HTTP, of servers that are not to be trusted with the memory of whoever asks; and why there is none."""

from __future__ import annotations

import aiohttp


async def whole(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The body, as it is when unpacked. Raises ClientPayloadError where it is longer."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > most_bytes:
            raise aiohttp.ClientPayloadError(f"HTTP {answer.status} with more than {most_bytes} bytes")
    return bytes(body)


def why_none(error: BaseException) -> str:
    """In words that are the same each time, as a log keeps them: aiohttp's have an SSL context's address in memory, and
    nothing of a connection that breaks in its handshake. Empty where there are none."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error)
    cause: Exception = error.os_error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    return f"cannot connect to {error.host}:{error.port}: {str(cause) or type(cause).__name__}"

"""Answers over HTTP, of servers that are not to be trusted with the memory of whoever asks."""

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

"""What stands in the object store's place."""

from __future__ import annotations

from services.federator.bodies import Lying


class MemoryBlobs:
    """`services.federator.bodies.Blobs` in memory."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def put(self, name: str, data: bytes) -> None:
        self.data[name] = data

    async def get(self, name: str) -> bytes | None:
        return self.data.get(name)

    async def delete(self, name: str) -> None:
        self.data.pop(name, None)

    async def lying(self) -> Lying:
        return Lying(list(self.data), [])

    async def sweep(self, lying: Lying) -> None:
        """Each is one part."""

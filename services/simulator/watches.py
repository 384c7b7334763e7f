"""Lists and watches as bytes.

A watch is a cursor into its collection's history. It sends what is behind the cursor in one write, at once when it was
idle and at most every few milliseconds under load; while its client doesn't read, the history grows away from it, and
a watch that finds itself further behind than its bound after a write is ended, as the API server ends slow watches.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.simulator import errors
from services.simulator.errors import ApiError
from services.simulator.resources import Resource
from services.simulator.selectors import Predicate
from services.simulator.store import Change, Collection, Entry

Convert = Callable[[dict[str, Any]], dict[str, Any]]
"""From the stored form of an object to that of another group."""

COALESCE_S = 0.004
"""Under load a watch writes at most this often: many events share one packet and one wake-up of the client."""
SNAPSHOTS = 64
"""Lists that are kept for their continuation; the oldest one goes and its continue token with it."""


@dataclass(slots=True, frozen=True)
class View:
    """How one request sees a collection: which objects, in which group's form."""

    collection: Collection
    resource: Resource
    namespace: str = ""
    matches: Predicate | None = None
    convert: Convert | None = None

    @property
    def head(self) -> bytes:
        return f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'.encode()

    def tail(self, entry: Entry) -> bytes:
        return msgspec.json.encode(self.convert(entry.object))[1:] if self.convert else entry.tail

    def whole(self, entry: Entry) -> bytes:
        """The object as one GET answers it."""
        return self.head + self.tail(entry)

    def sees(self, entry: Entry) -> bool:
        if self.namespace and entry.key[0] != self.namespace:
            return False
        return self.matches is None or self.matches(entry.object)


class Lists:
    """Lists with paging: a first page fixes what its continuations will show."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[str, tuple[int, list[Entry]]] = OrderedDict()
        self._count = 0

    def drop(self) -> None:
        """Continuations that are under way get 410."""
        self._snapshots.clear()

    def page(self, view: View, revision: int, limit: int, token: str) -> bytes:
        """One page as bytes; `limit` 0: everything. Raises ApiError 400, 410."""
        if token:
            revision, entries, start = self._resume(token)
        else:
            entries, start = [entry for entry in view.collection.in_order(view.namespace) if view.sees(entry)], 0
        stop = start + limit if limit else len(entries)
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if stop < len(entries):
            metadata["continue"] = self._token(token, revision, entries, stop)
            if view.matches is None:
                metadata["remainingItemCount"] = len(entries) - stop
        elif view.resource.custom:
            metadata["continue"] = ""
        # Items of built-in lists carry neither kind nor apiVersion, those of custom resources do.
        opening = view.head if view.resource.custom else b"{"
        items = b",".join([opening + view.tail(entry) for entry in entries[start:stop]])
        kind = f'{{"kind":"{view.resource.kind}List","apiVersion":"{view.resource.api_version}","metadata":'.encode()
        return kind + msgspec.json.encode(metadata) + b',"items":[' + items + b"]}"

    def _token(self, token: str, revision: int, entries: list[Entry], offset: int) -> str:
        if token:
            snapshot = _decode_token(token)[0]
        else:
            self._count += 1
            snapshot = str(self._count)
            self._snapshots[snapshot] = (revision, entries)
            if len(self._snapshots) > SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return base64.urlsafe_b64encode(f"{snapshot}:{offset}".encode()).decode()

    def _resume(self, token: str) -> tuple[int, list[Entry], int]:
        """The list's revision, its entries, and where to go on."""
        snapshot, offset = _decode_token(token)
        if snapshot not in self._snapshots:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter."
            )
        return *self._snapshots[snapshot], offset


def _decode_token(token: str) -> tuple[str, int]:
    try:
        snapshot, _, offset = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        return snapshot, int(offset)
    except ValueError as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {token}") from error


def _line(kind: bytes, view: View, entry: Entry) -> bytes:
    return b'{"type":"' + kind + b'","object":' + view.head + view.tail(entry) + b"}\n"


def _told(view: View, change: Change) -> bytes:
    """The line for one change: an object that begins to match is added for this watch; one that ends to is deleted, and
    told as it was."""
    if view.namespace and change.new.key[0] != view.namespace:
        return b""
    if view.matches is None:
        return _line(change.type.encode(), view, change.new)
    old = change.old if change.old is not None and view.matches(change.old.object) else None
    if change.type != "DELETED" and view.matches(change.new.object):
        return _line(b"MODIFIED" if old else b"ADDED", view, change.new)
    return _line(b"DELETED", view, old.under(change.revision)) if old else b""


def error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":' + error.body + b"}\n"


@dataclass(slots=True, eq=False)
class Watch:
    """One client's watch."""

    view: View
    current: Callable[[], int]
    """The store's revision now."""
    bookmarks: bool
    deadline_s: float
    """On the monotonic clock."""
    buffer: int
    """Changes that it may be behind after a write."""
    bookmark_every_s: float
    cursor: int = 0
    after: int = 0
    """Of a revision that is yet to come nothing is said until it has: neither changes nor bookmarks."""
    opening: bytes = b""
    """What is sent before any change."""
    ended: ApiError | None = None
    closed: bool = False
    _next_bookmark_s: float = field(default=0.0)

    def end(self, error: ApiError | None) -> None:
        """End it from outside: with an ERROR event, or as if the connection were closed."""
        self.ended, self.closed = error, True
        self.view.collection.grown.set()

    def begin_with_everything(self, *, marked: bool) -> None:
        """Every object as ADDED first; `marked`: then a bookmark that says so."""
        collection = self.view.collection
        entries = [entry for entry in collection.in_order(self.view.namespace) if self.view.sees(entry)]
        self.opening = b"".join([_line(b"ADDED", self.view, entry) for entry in entries])
        if marked and self.bookmarks:
            self.opening += self.bookmark(initial_end=True)
        self.cursor = collection.end

    def begin_after(self, revision: int) -> bool:
        """Changes after `revision`; False when the history doesn't reach back so far."""
        cursor = self.view.collection.cursor(revision)
        self.after = revision
        self.cursor = cursor or 0
        return cursor is not None

    def bookmark(self, *, initial_end: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self.current()), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = msgspec.json.encode({"metadata": metadata})[1:]
        return b'{"type":"BOOKMARK","object":' + self.view.head + body + b"}\n"

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Send until the deadline, an end from outside, or being too slow."""
        collection = self.view.collection
        self._plan_bookmark()
        if self.opening and not await self._keeps_up(write, self.opening):
            return
        while not self.closed:
            changes = collection.after(self.cursor)
            if changes is None or collection.withdrawn:  # the history went on without this watch
                return
            if changes:
                self.cursor += len(changes)
                data = b"".join([_told(self.view, change) for change in changes if change.revision > self.after])
                if data and not await self._keeps_up(write, data):
                    return
                continue
            now = time.monotonic()
            if now >= self.deadline_s:
                return
            if self.bookmarks and now >= self._next_bookmark_s:
                if self.current() >= self.after:
                    await write(self.bookmark())
                self._plan_bookmark()
            await self._wait(collection)
        if self.ended:
            await write(error_line(self.ended))

    async def _keeps_up(self, write: Callable[[bytes], Awaitable[None]], data: bytes) -> bool:
        """Send; False when the history went too far meanwhile, because the client didn't read."""
        await write(data)
        if self.view.collection.end - self.cursor > self.buffer:
            return False
        await asyncio.sleep(COALESCE_S)
        return True

    def _plan_bookmark(self) -> None:
        """Regularly, and shortly before the deadline so that the client resumes from a fresh place."""
        now = time.monotonic()
        last = self.deadline_s - min(2.0, self.bookmark_every_s)
        regular = now + self.bookmark_every_s
        self._next_bookmark_s = last if now < last < regular else regular

    async def _wait(self, collection: Collection) -> None:
        collection.grown.clear()
        until = min(self.deadline_s, self._next_bookmark_s) if self.bookmarks else self.deadline_s
        if collection.end > self.cursor or self.closed:
            return
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await collection.grown.wait()
        except TimeoutError:
            return


def cut(watches: Iterable[Watch], resource: str, error: ApiError | None) -> int:
    """End the watches of `resource` (empty: all); returns how many."""
    chosen = [watch for watch in watches if resource in ("", watch.view.resource.plural)]
    for watch in chosen:
        watch.end(error)
    return len(chosen)

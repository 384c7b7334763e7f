"""The API server in virtual time: the simulator's own verbs and store, without HTTP, and the network before them.

What a request does stands in `services.simulator.api`; here are paths, latency, and watches as cursors into the store's
history. Who asks is in `wire`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Protocol
from urllib.parse import parse_qsl

from services.ingest.requests import MINOR
from services.kubernetes import discovery
from services.kubernetes.errors import Unreachable
from services.kubernetes.share import TURNED_AWAY
from services.kubernetes.transport import Answer
from services.simulator import errors, event_forms, resources
from services.simulator.api import Api
from services.simulator.errors import ApiError
from services.simulator.kubelet import Kubelet
from services.simulator.selectors import predicate
from services.simulator.server import VERSION
from services.simulator.store import Change, Collection, Entry, Store, decode, encode
from services.simulator.watches import Lists, View, _told, error_line
from tests.simulation.answers import OF_A_PROXY, REASONS
from tests.simulation.clock import EPOCH_NS
from tests.simulation.faults import Faults
from tests.simulation.loop import START_S, VirtualLoop
from tests.simulation.processes import Process
from tests.simulation.upgrades import Servers

TIMEOUT_S = 30.0
"""After this long without an answer Muster's client gives up a request."""
WATCH_LIFE_S = (40.0, 120.0)
BOOKMARKED, BOOKMARK_EVERY_S = 0.5, 4.0
"""How many watches have bookmarks, and how often."""
EVENTS = resources.Resource("events.k8s.io", "v1", "events", "Event", generation=False)


class _Store(Store):
    """Tells each change at once."""

    def __init__(self, history: int, changed: Callable[[Collection, Change], None]) -> None:
        super().__init__(history)
        self._changed = changed

    def _record(self, collection: Collection, change: Change) -> None:
        super()._record(collection, change)
        self._changed(collection, change)


class _Kubelet(Kubelet):
    def begin_anew(self) -> None:
        """What it knows of its pods is of another time."""
        for kept in (self._admitted, self._ending, self._used, self._homeless, self._timers):
            kept.clear()


class Watch:
    """One watch: lines of changes, some latency after they happened, in order."""

    def __init__(self, server: ApiServer, process: Process, collection: Collection, cursor: int) -> None:
        self.server, self.process, self.collection, self.cursor = server, process, collection, cursor
        self.view = View(collection, collection.resource)
        self.open = True
        self.lag_s = 0.0
        self.told: deque[bytes] = deque(maxlen=20)
        """The last lines, for those that come again."""
        self.again = 0
        """How many of them come again, whenever there is something new."""
        self.ahead = 0
        """The version from which it is asked for, where that is yet to come: up to it nothing is told."""
        self._chunks: deque[bytes | Exception | None] = deque()
        self._arrived = asyncio.Event()
        self._due = False
        self._here_s = 0.0

    @property
    def has_told_all(self) -> bool:
        return self.open and self.cursor == self.collection.end

    def grow(self) -> None:
        if not self._due and self.open:
            self._due = True
            self.server.loop.after(self.server.latency_s(self.process) + self.lag_s, self._flush)

    def _flush(self) -> None:
        self._due = False
        if not self.open:
            return
        changes = self.collection.after(self.cursor)
        if changes is None:
            self.end(errors.expired("too old resource version"))
            return
        self.cursor += len(changes)
        lines = [_told(self.view, change) for change in changes if change.revision > self.ahead]
        again, self.again = self.again, 0
        for _ in range(again if self.told else 0):
            lines.insert(self.server.source.randrange(len(lines) + 1), self.server.source.choice(self.told))
        self.told.extend(lines)
        if lines:
            self.send(b"".join(lines))

    def bookmark(self) -> None:
        """Now and then: everything up to here was told, be it about whatever kind."""
        if self.open:
            if self.has_told_all and not self._due and self.server.api.store.revision >= self.ahead:
                at = encode({"metadata": {"resourceVersion": str(self.server.api.store.revision)}})[1:]
                self.send(b'{"type":"BOOKMARK","object":' + self.view.head + at + b"}\n")
            self.server.loop.after(BOOKMARK_EVERY_S, self.bookmark)

    def send(self, chunk: bytes | Exception | None) -> None:
        loop = self.server.loop
        loop.call_soon(self._arrive, chunk, context=self.process.context)

    def end(self, error: ApiError | Exception | None = None) -> None:
        """With an ERROR line, a broken connection, or as servers end watches now and then."""
        if self.open:
            self.open = False
            self.server.watches.remove(self)
            if isinstance(error, ApiError):
                self.send(error_line(error))
                error = None
            self.send(error)

    def _arrive(self, chunk: bytes | Exception | None) -> None:
        self._chunks.append(chunk)
        self._arrived.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                while self._chunks:
                    chunk = self._chunks.popleft()
                    if chunk is None:
                        return
                    if isinstance(chunk, Exception):
                        raise chunk
                    yield chunk
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self.end()


class Observer(Protocol):
    """Sees every effect on a pod that takes hold, and whose it was; None: of nobody in these processes."""

    def bound(self, uid: str, node: str, process: Process | None) -> None: ...

    def evicted(self, uid: str, process: Process) -> None: ...


class ApiServer:
    """The server."""

    ahead_s = 0.0
    """What its clock is ahead."""

    def __init__(
        self,
        loop: VirtualLoop,
        faults: Faults,
        source: random.Random,
        observer: Observer,
    ) -> None:
        self.loop, self.faults, self.source, self._observer = loop, faults, source, observer
        self.watches: list[Watch] = []
        self.acting: Process | None = None
        """Whose request takes effect; None: nobody's of these processes."""
        self.wrote_last: dict[str, Process] = {}
        """UID → which of our processes changed the object last, whatever somebody else did since: he writes no status."""
        self._pods: Collection | None = None
        self.api = Api(_Store(5_000, self._changed), source.getrandbits(32), self._now)
        self._pods = self.api.pods
        self.api.apply_new(resources.PODGROUPS_CRD)
        self.api.apply_new(resources.pod_groups_crd("scheduling.volcano.sh/v1beta1", status=False))
        self.kubelet = _Kubelet(self.api, startup_ms=200, termination_ms=500)
        self.lists = Lists()
        self._asked: list[Asked] = []
        self.asked = Counter[str]()
        """Requests by what is asked, as faults name it."""
        self.bookmarks: random.Random | None = None
        """Which watches have them; None: none."""
        self.created = 200
        """What it answers to a POST. An API server says 201: after any other answer a binding is in doubt, and asked for
        once more, as in all histories before `NEWEST_FROM`."""
        self.dated = False
        """Whether answers bear its clock, as HTTP has it."""
        self.servers: Servers | None = None
        """As which it answers; None: as 1.36, whatever else fails."""
        self.turns_away = False
        """Whether a 429 is of its own words, of whoever asks for more than his share; else a webhook's."""
        self.up = True
        self.incarnation = 0
        """How often etcd was restored."""
        self.silent_until_s = 0.0
        """Until then a watch that begins says nothing, and ends so."""
        self.refused: dict[tuple[str, str], float] = {}
        """What a webhook refuses (bind, evict, patch) of which pod, and until when."""
        self.kept: dict[str, float] = {}
        """The status of which pods a webhook puts back as it was, and until when."""
        self.unwelcome: dict[tuple[str, str], tuple[int, float]] = {}
        """(whose, what; empty: all) → how it is refused, and until when: his token or a permission is taken away."""

    def _now(self) -> datetime:
        return datetime.fromtimestamp(EPOCH_NS / 1e9 + self.loop.now_s - START_S + self.ahead_s, UTC)

    @property
    def minor(self) -> int:
        """The y of its version 1.y."""
        return MINOR if self.servers is None else self.servers.minor

    def _changed(self, collection: Collection, change: Change) -> None:
        node, before = change.new.object.get("spec", {}).get("nodeName"), change.old
        if collection is self._pods and node and not (before and before.object["spec"].get("nodeName")):
            self._observer.bound(change.new.object["metadata"]["uid"], node, self.acting)
        if self.acting is not None:
            self.wrote_last[change.new.object["metadata"]["uid"]] = self.acting
        for watch in self.watches:
            if watch.collection is collection:
                watch.grow()

    def latency_s(self, process: Process) -> float:
        chance = process.source.random()
        return 0.0005 + 0.002 * chance if chance < 0.95 else 2.0 * (chance - 0.95) + 0.003

    # -------------------------------------------------------------------------------------------------------- requests

    def restart(self, for_s: float) -> None:
        """Gone for some time: watches break, and who asks is refused."""
        self.up = False
        for watch in list(self.watches):
            watch.end(Unreachable("watch", "ServerDisconnectedError", "simulated", sent=True))
        self.loop.after(for_s, self._start)

    def _start(self) -> None:
        self.up = True

    def set_back(self) -> None:
        """Etcd was restored: whatever was under way to this server is lost, and kubelets begin anew."""
        self.incarnation += 1
        self.lists.drop()
        self.wrote_last.clear()
        self.kubelet.begin_anew()

    def turn_away(self, slot: str, what: str, code: int, for_s: float) -> None:
        """Whoever has the slot is refused all, or what he asks of one kind."""
        self.unwelcome[slot, what] = (code, self.loop.now_s + for_s)

    def withdraw(self, collection: Collection) -> None:
        """It is served no more: its watches end."""
        for watch in [watch for watch in self.watches if watch.collection is collection]:
            watch.end()

    def drop_history(self) -> None:
        """Watches that resume from before get 410, and so do continued lists."""
        self.lists.drop()
        self.api.store.revision += 1
        for collection in self.api.store.collections.values():
            collection.drop_history(self.api.store.revision)

    async def request(self, process: Process, on: str, name: str, execute: Callable[[], Answer]) -> Answer:
        """`on`, `name`: what is asked, of which object, for the faults. Raises Unreachable."""
        self.asked[on] += 1
        asked = Asked(self, process, on, name, execute)
        self._asked = [one for one in self._asked if not one.answer.done()]
        self._asked.append(asked)
        if not self.up:
            asked.fail(0.001, sent=False)
        elif self.refused.get((on, name), 0.0) > self.loop.now_s:
            asked.refuse(403)
        elif code := self._unwelcome(process, on):
            asked.refuse(code)
        else:
            self.faults.send(on, asked)
        return await asked.answer

    def _unwelcome(self, process: Process, on: str) -> int:
        found = [self.unwelcome.get((process.slot, what), (0, 0.0)) for what in ("", on)]
        return next((code for code, until_s in found if until_s > self.loop.now_s), 0)

    def awaited_by(self, processes: list[Process]) -> bool:
        """Whether one of these waits for an answer: what he does next depends on it."""
        return any(not one.answer.done() and one.process in processes for one in self._asked)

    def execute(self, process: Process, verb: str, path: str, body: bytes, content_type: str) -> Answer:
        """A request takes effect; that its sender is dead or stopped by now is unknown here."""
        self.acting = process
        try:
            if path == discovery.VERSION:
                return Answer(200, encode(VERSION if self.servers is None else self.servers.tell()))
            if path.partition("?")[0] == discovery.PATH:
                return Answer(200, encode(resources.group_discovery(self.api.resources())))
            code = self.created if verb == "POST" else 200
            date = format_datetime(self._now(), usegmt=True) if self.dated else ""
            return Answer(code, self._execute(process, verb, path, body, content_type), date=date)
        except ApiError as error:
            return refusal(error)
        finally:
            self.acting = None

    def _execute(self, process: Process, verb: str, path: str, body: bytes, content_type: str) -> bytes:
        path, _, query = path.partition("?")
        view, namespace, name, subresource = self._target(path)
        api, collection = self.api, view.collection
        match verb, subresource:
            case "GET", "":
                if name:
                    return view.whole(api.get(collection, namespace, name))
                return self._list(view, namespace, dict(parse_qsl(query)))
            case "POST", "binding":
                api.bind(namespace, name, decode(body))
                return b"{}"
            case "POST", "eviction":
                metadata = api.get(collection, namespace, name).object["metadata"]
                api.evict(namespace, name, decode(body))
                if "deletionTimestamp" not in metadata:  # a second one changes nothing
                    self._observer.evicted(metadata["uid"], process)
                return b"{}"
            case "DELETE", "":
                gone = api.delete(collection, namespace, name, decode(body))
                return encode(gone) if isinstance(gone, dict) else view.whole(gone)
        return view.whole(self._put(verb, collection, namespace, name, decode(body), content_type, subresource))

    def _put(
        self, verb: str, collection: Collection, namespace: str, name: str, body: Any, content_type: str, sub: str
    ) -> Entry:
        if collection is self._pods and sub == "status" and self.kept.get(name, 0.0) > self.loop.now_s:
            body = {"metadata": body.get("metadata", {})}  # its preconditions count
        if verb == "PATCH":
            return self.api.patch(collection, namespace, name, body, content_type, sub)
        if (verb, sub) == ("POST", ""):
            return self.api.create(collection, namespace, event_forms.to_core(body))
        raise NotImplementedError(f"{verb} {collection.resource.plural} {sub}")

    def _list(self, view: View, namespace: str, asked: dict[str, str]) -> bytes:
        if selector := asked.get("labelSelector", ""):
            view = replace(view, namespace=namespace, matches=predicate(view.resource, selector, ""))
        return self.lists.page(view, self.api.store.revision, int(asked["limit"]), asked.get("continue", ""))

    def whole_list(self, path: str) -> bytes:
        """All of a kind, as one page. Raises ApiError 404."""
        return Lists().page(self._target(path)[0], self.api.store.revision, 0, "")

    def serves(self, path: str) -> bool:
        try:
            self._target(path)
        except ApiError:
            return False
        return True

    def _target(self, path: str) -> tuple[View, str, str, str]:
        parts = path.split("/")[1:]
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        namespace = ""
        if rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        collection = self.api.by_path.get((group, version, rest[0]))
        if collection is None:
            raise errors.no_such_resource()
        name, subresource = (*rest[1:], "", "")[:2]
        events = group == "events.k8s.io"
        convert = event_forms.from_core if events else None
        view = View(collection, EVENTS if events else collection.resource, convert=convert)
        return view, namespace, name, subresource

    def watch(self, process: Process, path: str) -> Watch:
        """Raises ApiError 404, 410."""
        path, _, query = path.partition("?")
        collection = self._target(path)[0].collection
        revision = int(dict(parse_qsl(query))["resourceVersion"])
        cursor = collection.cursor(revision)
        if cursor is None:
            raise errors.expired(f"too old resource version: {revision}")
        watch = Watch(self, process, collection, cursor)
        watch.ahead = revision if revision > self.api.store.revision else 0
        self.watches.append(watch)
        self.loop.after(self.source.uniform(*WATCH_LIFE_S), watch.end)
        if self.bookmarks is not None and self.bookmarks.random() < BOOKMARKED:
            self.loop.after(self.bookmarks.uniform(0.0, BOOKMARK_EVERY_S), watch.bookmark)
        if (silent_s := self.silent_until_s - self.loop.now_s) > 0.0:
            watch.lag_s = 2 * silent_s
            self.loop.after(silent_s, watch.end)
        watch.grow()
        return watch


class Asked:
    """A request that leaves its process."""

    def __init__(self, server: ApiServer, process: Process, on: str, name: str, execute: Callable[[], Answer]) -> None:
        self.server, self.process, self.name = server, process, name
        self.answer: asyncio.Future[Answer] = server.loop.create_future()
        self._on, self._execute, self._incarnation = on, execute, server.incarnation

    def arrive(self, after_s: float = 0.0, *, answer: bool = True, answer_after_s: float = 0.0) -> None:
        after_s += self.server.latency_s(self.process)
        self.server.loop.after(after_s, self._run, answer, answer_after_s)

    def _run(self, answer: bool, answer_after_s: float) -> None:
        if not self.server.up or self._incarnation != self.server.incarnation:
            self.fail(0.001)
            return
        found = self._execute()
        if answer:
            self._reply(found, answer_after_s)

    def refuse(self, code: int) -> None:
        if code in OF_A_PROXY:
            self._reply(OF_A_PROXY[code], 0.0)
            return
        reason, message = REASONS[code]
        code %= 1_000
        after = 1.0 if code == 429 else None
        own = code == 429 and self.server.turns_away and self._on != "evict"
        self._reply(Answer(code, TURNED_AWAY if own else ApiError(code, reason, message).body, after), 0.0)

    def fail(self, after_s: float, *, sent: bool = True) -> None:
        why = "ServerDisconnectedError" if sent else "ClientConnectorError"
        self._settle_after(min(after_s, TIMEOUT_S), Unreachable(self._on, why, "simulated", sent=sent))

    def _reply(self, found: Answer, after_s: float) -> None:
        self._settle_after(self.server.latency_s(self.process) + after_s, found)

    def _settle_after(self, after_s: float, found: Answer | Exception) -> None:
        loop = self.server.loop
        loop.call_at(loop.now_s + after_s, self._settle, found, context=self.process.context)

    def _settle(self, found: Answer | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(found, Exception):
            self.answer.set_exception(found)
        else:
            self.answer.set_result(found)


def refusal(error: ApiError) -> Answer:
    return Answer(error.code, error.body, float(error.retry_after_s) or None)

"""Lists and watches that go wrong, over a client of the test's own: what a reader takes of them, and what comes next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.json import encode
from tenacity import wait_none

import events as ev
from events import PodObserved, envelope
from events.dialects import POD_GROUPS
from events.memory import MemoryLog
from services.ingest import service
from services.ingest.decoding import NODE, OFFERED, POD, WORKLOAD, Unreadable
from services.ingest.differ import Ingest
from services.ingest.service import TRIES
from services.kubernetes.discovery import Served
from services.kubernetes.errors import ApiError, Expired, Forbidden, NotFound, Unauthorized, Unreachable
from services.writer import Gather, Writer
from tests import facts
from tests.ingest import objects
from tests.manifests import node, pod
from tests.second import second
from tests.waiting import until


class Server:
    """Of a version."""

    async def minor(self) -> int:
        return 36


def reading(client: Any) -> service.Reader:
    """A reader that has seen pods up to version 1."""
    reader = service.Reader(Ingest(["muster"]), client, Gather(Writer(MemoryLog("test"), "ingest")), 15.0)
    reader._versions[POD.name] = "1"
    return reader


async def test_a_watch_of_which_nothing_can_be_read_is_not_asked_for_again_at_once() -> None:
    """Something between answers in its own words: as with no answer, the next attempt waits."""

    class Proxied(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [b"<html>try again later</html>"]

    with pytest.raises(Unreadable, match=r"^watch pods: expected a watch event: "):
        await reading(Proxied())._watch(POD)


async def test_a_watch_that_breaks_before_it_said_anything_is_told_once() -> None:
    """As it was: `watch pods: no answer Unreachable: watch pods: no answer ServerDisconnected: …`."""

    class Broken(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            raise Unreachable("watch pods", "ServerDisconnected", "gone", sent=True)
            yield []

    with pytest.raises(Unreachable) as raised:
        await reading(Broken())._watch(POD)
    assert str(raised.value) == "watch pods: no answer ServerDisconnected: gone"


@pytest.mark.parametrize("cut", [False, True])
async def test_a_watch_that_says_nothing_for_its_whole_time_costs_a_list(
    monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Of etcd that was restored from a backup a server waits without a word for versions that it had before. As it was:
    behind a load balancer that cuts silent connections the kind was watched from there again and again."""
    monkeypatch.setattr(service, "SILENT_S", 0.0)

    class Silent(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            await asyncio.sleep(0)
            if cut:
                raise Unreachable("watch pods", "ClientPayloadError", "cut", sent=True)
            return
            yield []

    with pytest.raises(Expired, match="not even a bookmark"):
        await reading(Silent())._watch(POD)


async def test_a_list_that_takes_back_what_the_log_says_is_told(caplog: pytest.LogCaptureFixture) -> None:
    made = node("n1")
    made["metadata"].update(uid="n1", resourceVersion="5")

    class Restored:
        async def pages(self, *_: object) -> AsyncIterator[bytes]:
            yield encode({"metadata": {"resourceVersion": "6"}, "items": [made]})

    reader = reading(Restored())
    reader.core.observe(objects.node("n1", version=9, uid="n1"))
    await reader._list(NODE)
    assert "list nodes: the log was ahead of 1 objects: etcd was restored from a backup" in caplog.text
    await reader._list(NODE)
    assert caplog.text.count("the log was ahead") == 1


async def test_what_comes_with_the_end_of_a_watch_is_written() -> None:
    """The core has taken it in, and a list would find no difference."""
    made = pod("a")
    made["metadata"].update(uid="a", resourceVersion="2")
    status = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "too old"}

    class Ending(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [encode({"type": "ADDED", "object": made}), encode({"type": "ERROR", "object": status})]

    client: Any = Ending()
    log = MemoryLog("test")
    gather = Gather(Writer(log, "ingest"))
    reader = service.Reader(Ingest(["muster"]), client, gather, 15.0)
    reader._versions[POD.name] = "1"
    with pytest.raises(Expired):
        await reader._watch(POD)
    sending = asyncio.create_task(gather.run())
    await gather.flush()
    sending.cancel()
    written = [event for stored in log.commits for event in envelope.decode(stored).events]
    assert [event.name for event in written if isinstance(event, PodObserved)] == ["a"]


class Ending(Server):
    """Every watch ends in an error of the server's; a list is empty."""

    async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
        status = {"kind": "Status", "metadata": {}, "code": 500, "reason": "InternalError", "message": "etcd"}
        yield [encode({"type": "ERROR", "object": status})]

    async def pages(self, *_: object) -> AsyncIterator[bytes]:
        yield encode({"metadata": {"resourceVersion": "6"}, "items": []})


async def test_a_list_is_a_new_beginning_also_for_watches_that_end_in_errors() -> None:
    """As at first, some may end so before the next list."""
    reader = reading(Ending())
    for _ in range(2):
        for _ in range(service.ERRORS):
            with pytest.raises(ApiError) as raised:
                await reader._watch(POD)
            assert raised.type is ApiError, "and no Expired yet"
        with pytest.raises(Expired):
            await reader._watch(POD)
        await reader._list(POD)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}',
        b'{"type":"ERROR","object":{"kind":"Status","code":"410"}}',
        b'{"type":"ERROR","object":null}',
        b'{"type":"MODIFIED","object":{"metadata":',
        b"<html>502</html>",
    ],
)
async def test_a_kind_whose_watches_begin_with_what_cannot_be_read_is_listed(line: bytes) -> None:
    """As it was: it was watched from there on for ever."""

    class Unreadably(Ending):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [line]

    reader = reading(Unreadably())
    for _ in range(2):
        for _ in range(service.ERRORS):
            with pytest.raises(Unreadable):
                await reader._watch(POD)
        with pytest.raises(Expired):
            await reader._watch(POD)
        await reader._list(POD)


async def test_a_watch_that_said_something_before_it_ended_in_an_error_is_a_new_beginning_too() -> None:
    made = pod("a")
    made["metadata"].update(uid="a", resourceVersion="2")

    class Speaking(Ending):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [encode({"type": "ADDED", "object": made})]
            async for lines in super().watch():
                yield lines

    reader = reading(Speaking())
    for _ in range(2 * service.ERRORS):
        with pytest.raises(ApiError) as raised:
            await reader._watch(POD)
        assert raised.type is ApiError, "and no Expired"


@pytest.mark.parametrize("listed", [False, True])
async def test_no_more_is_read_while_the_log_is_behind(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BEHIND", 1)
    made = [pod(name) for name in "abcde"]
    for version, one in enumerate(made, 2):
        one["metadata"].update(uid=one["metadata"]["name"], resourceVersion=str(version))
    waiting = list[int]()

    class Many(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [encode({"type": "ADDED", "object": one}) for one in made]
            waiting.append(reader.gather.pending)

        async def pages(self, *_: object) -> AsyncIterator[bytes]:
            yield encode({"metadata": {"resourceVersion": "9"}, "items": made})
            waiting.append(reader.gather.pending)

    reader = reading(Many())
    goes_on = asyncio.create_task(reader._list(POD) if listed else reader._watch(POD))
    await until(lambda: reader.gather.pending >= len(made), "what there was")
    sending = asyncio.create_task(reader.gather.run())
    await goes_on
    sending.cancel()
    assert waiting[0] <= 1


async def test_a_watch_that_breaks_behind_what_it_said_is_resumed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Without a pause: the connection was good."""
    caplog.set_level(logging.INFO, "muster.ingest")
    made = pod("a")
    made["metadata"].update(uid="a", resourceVersion="2")

    class Cut(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [encode({"type": "ADDED", "object": made})]
            raise Unreachable("watch pods", "ClientPayloadError", "cut", sent=True)

    reader = reading(Cut())
    await reader._watch(POD)
    assert reader._versions[POD.name] == "2"
    (told,) = [vars(record) for record in caplog.records]
    assert (told["msg"], told["kind"]) == ("watch resumed", POD.name)
    assert told["because"].endswith("cut")


@pytest.mark.parametrize(
    ("error", "running", "ends"), [(Forbidden, False, False), (Unauthorized, False, True), (Unauthorized, True, False)]
)
async def test_at_the_start_only_what_people_must_grant_is_done_without(
    error: type[ApiError], running: bool, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of who runs all was granted before, and is asked for again."""

    class Refusing:
        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            raise error(f"list {resource.name}", 403, "No", "not you")
            yield b""

    reader = reading(Refusing())
    versions = OFFERED[0]
    reader._served = Served({kind.resource.api_version: frozenset({kind.resource.plural}) for kind in versions})
    if ends:
        with pytest.raises(error):
            await reader._list_offered(versions, 0 if running else 1)
    else:
        assert await reader._list_offered(versions, 0 if running else 1) is None
        assert "gangs declared there wait until it is granted" in caplog.text


@pytest.mark.parametrize(
    "error", [ApiError("list podgroups", 500, "StorageReadError", "corrupt object"), Unreadable("list podgroups: b'x'")]
)
async def test_at_the_start_a_kind_that_the_server_fails_at_is_done_without(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at once, and never one that is not answered: then the server is away."""
    monkeypatch.setattr(service, "_growing", wait_none())
    always_away = False
    away, asked = Unreachable("list podgroups", "TimeoutError", "30 s", sent=True), 0

    class Failing:
        async def pages(self, *_: object) -> AsyncIterator[bytes]:
            nonlocal asked
            asked += 1
            raise away if asked == TRIES or always_away else error
            yield b""

    reader = reading(Failing())
    versions = OFFERED[0]
    reader._served = Served({kind.resource.api_version: frozenset({kind.resource.plural}) for kind in versions})
    assert await reader._list_offered(versions, TRIES) is None
    assert asked == 2 * TRIES
    assert f"{error}: gangs declared there wait until it is answered" in caplog.text
    always_away = True
    listing = asyncio.create_task(reader._list_offered(versions, TRIES))
    await until(lambda: asked > 5 * TRIES, "another try")
    assert not listing.done()
    listing.cancel()


async def test_a_list_whose_continuation_got_too_old_is_asked_for_anew() -> None:
    class Slow:
        lists = 0

        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            self.lists += 1
            yield encode({"metadata": {"resourceVersion": "6"}, "items": []})
            if self.lists == 1:
                raise Expired(f"list {resource.name}", 410, "Expired", "the continue parameter is too old")

    client = Slow()
    await reading(client)._list(POD)
    assert client.lists == 2


async def test_a_line_without_a_version_says_nothing_of_how_far_the_watch_came() -> None:
    class Odd(Server):
        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            yield [encode({"type": "BOOKMARK", "object": {"metadata": {}}})]

    reader = reading(Odd())
    await reader._watch(POD)
    assert reader._versions[POD.name] == "1"


async def test_what_came_between_the_pages_of_a_list_is_watched_for() -> None:
    """From the version of the first page: a later page's skips what was said of the first one's objects in between."""

    class InPages:
        async def pages(self, *_: object) -> AsyncIterator[bytes]:
            for version in ("6", "9"):
                yield encode({"metadata": {"resourceVersion": version}, "items": []})

    reader = reading(InPages())
    await reader._list(POD)
    assert reader._versions[POD.name] == "6"


@pytest.mark.parametrize("refused", range(3))
async def test_a_kind_is_read_in_the_best_version_that_there_is(refused: int) -> None:
    """The server names some that it does not serve any more: a list says so."""
    versions = max(OFFERED, key=len)
    asked = list[str]()

    class Leaving:
        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            asked.append(resource.api_version)
            if len(asked) <= refused:
                raise NotFound(f"list {resource.name}", 404, "NotFound", "")
            yield encode({"metadata": {"resourceVersion": "6"}, "items": []})

        async def discover(self) -> Served:
            return Served({})

    reader = reading(Leaving())
    named = [kind.resource for kind in versions]
    reader._served = Served({one.api_version: frozenset({one.plural}) for one in named})
    found = await reader._list_offered(versions)
    assert len(versions) > 1
    assert found is (versions[refused] if refused < len(versions) else None)
    assert asked == [one.api_version for one in named[: refused + 1]]


@pytest.mark.parametrize("followed", [False, True])
async def test_a_gateway_that_answers_for_the_api_server_deletes_no_pod_groups(followed: bool) -> None:
    """One written in Go has the API server's words for a path that it does not know, and for all paths. As it was: all
    PodGroups were gone until the API server was there again, and with them what their gangs held."""

    class Gateway(Server):
        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            raise NotFound(f"list {resource.name}", 404, "", "404 page not found")
            yield b""

        async def watch(self, resource: Any, *_: object) -> AsyncIterator[list[bytes]]:
            raise NotFound(f"watch {resource.name}", 404, "", "404 page not found")
            yield []

        async def discover(self) -> Served:
            raise NotFound("get /apis", 404, "", "404 page not found")

    reader = reading(Gateway())
    versions = next(of for of in OFFERED if of[0].resource.api_version == POD_GROUPS["coscheduling/v1alpha1"])
    reader.core.fold(facts.pod_group("train", "1", 2))
    reader._versions[versions[0].name] = "1"
    with pytest.raises(NotFound, match="get /apis"):
        async with asyncio.timeout(60):
            await (reader._follow_offered(versions, versions[0]) if followed else reader._list_offered(versions))
    assert not reader.gather.pending
    assert reader.core.knows(versions[0].name)


@pytest.mark.parametrize("named", [True, False])
async def test_a_kind_that_is_named_is_not_gone_though_one_answer_says_so(named: bool) -> None:
    """One of several API servers behind a gateway does not know it yet, and was asked; another says what there is. As it
    was: all PodGroups were gone until they were listed again."""
    versions = next(of for of in OFFERED if of[0].resource.api_version == POD_GROUPS["coscheduling/v1alpha1"])
    resource = versions[0].resource

    class Several:
        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            raise NotFound(f"list {resource.name}", 404, "", "404 page not found")
            yield b""

        async def discover(self) -> Served:
            return Served({resource.api_version: frozenset({resource.plural} if named else {"elasticquotas"})})

    reader = reading(Several())
    reader.core.fold(facts.pod_group("train", "1", 2))
    assert await reader._list_offered(versions) is None
    assert reader.core.knows(versions[0].name) == named


async def test_an_api_server_that_starts_anew_is_asked_again_whether_a_kind_is_gone() -> None:
    """It refuses everybody until it has read its roles; all of it was granted before."""

    class Starting:
        refusals = 1

        async def pages(self, resource: Any, *_: object) -> AsyncIterator[bytes]:
            raise NotFound(f"list {resource.name}", 404, "", "404 page not found")
            yield b""

        async def discover(self) -> Served:
            if self.refusals:
                self.refusals -= 1
                raise Forbidden("get /apis", 403, "Forbidden", "no roles yet")
            return Served({})

    reader = reading(Starting())
    versions = next(of for of in OFFERED if of[0].resource.api_version == POD_GROUPS["coscheduling/v1alpha1"])
    reader.core.fold(facts.pod_group("train", "1", 2))
    assert await reader._list_offered(versions) is None
    assert not reader.core.knows(versions[0].name)


async def test_of_workloads_in_later_versions_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """There PodGroups declare what starts together, and those are read."""
    reader = reading(None)
    reader._served = Served({"scheduling.k8s.io/v1beta1": frozenset({"workloads", "podgroups"})})
    assert await reader._list_offered([WORKLOAD]) is None
    assert not caplog.records


@pytest.mark.parametrize("versions", [(1, 1), (2, 2)])
async def test_what_it_writes_names_the_versions_in_force(versions: tuple[int, int]) -> None:
    """Those of the log at its start (design, 3)."""
    rules, state = versions
    log = MemoryLog("test")
    announced = ev.VersionsAnnounced(rules=(1, rules), state=(1, state))

    class Empty(Server):
        async def discover(self) -> Served:
            return Served({})

        async def pages(self, *_: object) -> AsyncIterator[bytes]:
            yield encode({"metadata": {"resourceVersion": "6"}, "items": []})

        async def watch(self, *_: object) -> AsyncIterator[list[bytes]]:
            await asyncio.Event().wait()
            yield []

    client: Any = Empty()
    with second():
        before = Writer(log, "binder")
        await before.take(ev.BinderTaken(holder="test"), announced)
        switch = Writer(log, "admin")
        await switch.append([ev.VersionsSwitched(rules=rules, state=state)], basis=before.last, cause="admin")
        running = asyncio.create_task(service.run(log, client, holder="test"))
        await until(lambda: b"ClusterSynced" in log.commits[-1].payload, "everything to be listed")
        running.cancel()
    synced = envelope.decode(log.commits[-1]).header
    assert (synced.rules, synced.state) == versions

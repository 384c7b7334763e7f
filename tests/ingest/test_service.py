"""The ingest process against the simulated cluster: whatever happens, the log ends up saying what the cluster says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tenacity import AsyncRetrying, RetryCallState

from events import (
    ClusterSynced,
    DeclarationRejected,
    Event,
    IngestTaken,
    NodeDeleted,
    NodeObserved,
    PodAssigned,
    PodDeleted,
    PodGroupObserved,
    PodObserved,
    Renewed,
    SchedulingClassObserved,
    VersionsAnnounced,
    envelope,
)
from events.envelope import Header, Stored
from events.log import EventLog
from events.memory import MemoryLog
from services import writer as writing
from services.ingest import service
from services.ingest.decoding import POD, Kind
from services.ingest.differ import Ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.discovery import Served
from services.kubernetes.errors import ApiError, Forbidden, Unreachable
from services.kubernetes.transport import UNREADABLE, Answer
from services.simulator import errors, server
from services.simulator.cluster import SimulatedCluster
from services.writer import GATHERED_BYTES, Gather, SteppedDown, Writer
from tests import facts
from tests.ingest.running import Running, ingesting
from tests.manifests import node, pod, pod_group
from tests.waiting import until


async def test_a_start_takes_over_lists_everything_and_closes_with_cluster_synced(
    cluster: SimulatedCluster, log: EventLog
) -> None:
    cluster.create(pod_group("g", 2))
    async with ingesting(log, cluster) as running:
        assert isinstance(running.events[0], IngestTaken)
        assert running.seen(ClusterSynced) == [ClusterSynced(nodes=2, pods=2)]
        assert isinstance(running.events[-1], ClusterSynced)
        assert running.agrees_with(cluster)
        assert [group.declaration.min_member for group in running.seen(PodGroupObserved)] == [2]


async def test_what_happens_is_followed(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as running:
        cluster.create(pod("c"))
        cluster.bind("a", "n1")
        cluster.delete("Pod", "b", "default")
        cluster.create(node("n3"))
        cluster.delete("Node", "n2")
        await running.says(lambda: running.agrees_with(cluster))
        cluster.patch("Pod", "c", {"metadata": {"annotations": {"x": "y"}}}, "default")
        cluster.bind("c", "n3")
        await running.says(lambda: running.agrees_with(cluster))
        assert len(running.seen(PodObserved)) == 3, "a change that decides nothing is not written"


async def test_a_watch_that_is_cut_resumes_without_a_list(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as running:
        listing = cluster.faults.plan(verb="list", times=0)
        for number in range(5):
            cluster.create(pod(f"more-{number}"))
            await until(cluster.cut_watches, "watches to cut")
            cluster.create(pod(f"and-{number}"))
        await running.says(lambda: running.agrees_with(cluster))
        assert listing.hits == 0
        assert len(running.seen(PodObserved)) == 12


async def test_bookmarks_keep_the_place_of_a_watch_fresh_in_which_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes are quiet for hours while pods come and go; by then the history does not reach back to the last node."""
    marked = {"Node": 0}
    line = Kind.line

    def noted(kind: Kind[Any], raw: bytes) -> tuple[str, Any]:
        happened, seen = line(kind, raw)
        if happened == "BOOKMARK":
            marked[kind.name] = int(seen.metadata.resource_version)
        return happened, seen

    monkeypatch.setattr(Kind, "line", noted)
    async with (
        SimulatedCluster(kubelet=False, bookmark_every_s=0.02) as cluster,
        ingesting(MemoryLog("test"), cluster) as running,
    ):
        await until(lambda: marked["Node"], "the nodes to be watched")
        listing = cluster.faults.plan(verb="list", resource="nodes", times=0)
        cluster.create(pod("c"))
        cluster.drop_history()
        begins = cluster.api.store.revision
        await until(lambda: marked["Node"] >= begins, "a bookmark behind the beginning of the history")
        assert cluster.cut_watches("nodes") == 1
        cluster.create(node("n3"))
        await running.says(lambda: running.agrees_with(cluster))
        assert listing.hits == 0


def counts(running: Running, name: str) -> list[int]:
    """Thousandths of CPUs that the pod requests, each time that it was written."""
    classes = {each.digest: each.requests for each in running.seen(SchedulingClassObserved)}
    return [classes[each.scheduling_class]["cpu_milli"] for each in running.seen(PodObserved) if each.name == name]


async def test_a_cluster_that_is_upgraded_has_its_pods_counted_as_its_new_version_counts(
    cluster: SimulatedCluster, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watches end, as servers are replaced; an older one that still answers changes nothing any more."""
    cluster.create(pod("resized", cpu="1"))
    allocated = {"name": "c", "allocatedResources": {"cpu": "2"}}
    cluster.patch("Pod", "resized", {"status": {"containerStatuses": [allocated]}}, "default", subresource="status")

    async with ingesting(log, cluster) as running:
        assert counts(running, "resized") == [1000]
        for minor in ("37", "36"):
            monkeypatch.setitem(server.VERSION, "minor", minor)
            listing = cluster.faults.plan(verb="list", resource="pods", times=0)
            await until(lambda: cluster.cut_watches("pods"), "the pods to be watched")
            await running.says(lambda: counts(running, "resized") == [1000, 2000], "the pod, counted otherwise")
        await until(lambda: cluster.cut_watches("pods"), "the pods to be watched again")
        cluster.patch("Pod", "resized", {"metadata": {"labels": {"seen": "again"}}}, "default")
        cluster.create(pod("c"))
        await running.says(lambda: running.agrees_with(cluster))
        assert (listing.hits, counts(running, "resized")) == (0, [1000, 2000])


async def test_who_starts_counts_as_the_servers_version_from_its_first_list_on(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though that has to be asked for twice: else others would decide by what is listed, and counted as before."""
    cluster.create(pod("resized", cpu="1"))
    allocated = {"name": "c", "allocatedResources": {"cpu": "2"}}
    cluster.patch("Pod", "resized", {"status": {"containerStatuses": [allocated]}}, "default", subresource="status")
    monkeypatch.setitem(server.VERSION, "minor", "37")
    asked, send = 0, Client._send

    async def busy_once(client: Client, request: str, *of: Any) -> Answer:
        nonlocal asked
        asked += request == "get /version"
        if request == "get /version" and asked == 1:
            return Answer(503, b"")
        return await send(client, request, *of)

    monkeypatch.setattr(Client, "_send", busy_once)
    async with ingesting(MemoryLog("test"), cluster) as running:
        assert counts(running, "resized") == [2000]
        assert asked >= 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Forbidden("get /version", 403, "Forbidden", "not for you"), "403 Forbidden: not for you"),
        (Unreachable("get /version", UNREADABLE, "expected an object: <html>", sent=True), "expected an object"),
        (None, "get /version: no answer within 0.01 s"),
    ],
)
async def test_a_server_that_does_not_tell_its_version_is_followed_all_the_same(
    cluster: SimulatedCluster, error: ApiError | None, told: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """And that is told once."""

    async def refused(_: Client) -> int:
        if error is None:
            await asyncio.Event().wait()
        raise error or AssertionError

    monkeypatch.setattr(Client, "minor", refused)
    for name in ("VERSION_S", "VERSION_AGAIN_S"):
        monkeypatch.setattr(service, name, 0.01)
    async with ingesting(MemoryLog("test"), cluster) as running:
        for name in ("c", "d"):
            await until(lambda: cluster.cut_watches("pods"), "the pods to be watched")
            cluster.create(pod(name))
            await running.says(lambda: running.agrees_with(cluster))
    [said] = [one.getMessage() for one in caplog.records if "what pods request" in one.getMessage()]
    assert told in said
    assert said.endswith("is counted as by Kubernetes 1.36")


async def test_a_watch_too_far_behind_lists_again(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as running:
        refusing = cluster.faults.plan(verb="watch", resource="pods", status=503, times=0)
        await until(lambda: cluster.cut_watches("pods"), "the pods to be watched")
        await until(lambda: refusing.hits, "a watch that is refused")
        cluster.delete("Pod", "a", "default")
        cluster.create(pod("c"))
        cluster.drop_history("pods")
        cluster.faults.lift()
        await running.says(lambda: running.agrees_with(cluster))
        await running.synced(2)
        assert [event.name for event in running.seen(PodDeleted)] == ["a"]
        listing = cluster.faults.plan(verb="list", times=0)
        cluster.create(pod("d"))
        await running.says(lambda: running.agrees_with(cluster))
        assert listing.hits == 0, "it is watched from that list on"


async def test_an_expiry_told_within_the_watch(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as running:
        await until(lambda: cluster.expire_watches("pods"))
        await running.synced(2)
        cluster.create(pod("c"))
        await running.says(lambda: running.agrees_with(cluster))
        assert len(running.seen(PodObserved)) == 3


async def test_a_restart_finds_what_was_missed(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as before:
        cluster.create(pod("c"))
        await before.says(lambda: before.agrees_with(cluster))
        await before.end()
        cluster.delete("Pod", "a", "default")
        cluster.delete("Node", "n2")
        cluster.bind("b", "n1")
        cluster.create(pod("d"))
        already = len(before.events)
        after = Running(log, cluster.url)
        try:
            await after.synced(2)
            assert after.agrees_with(cluster)
            news = after.events[already:]
            assert isinstance(news[0], IngestTaken)
            assert isinstance(news[1], VersionsAnnounced)
            assert isinstance(news[-1], ClusterSynced)
            told = sorted(type(event).__name__ for event in news[2:-1])
            assert told == ["NodeDeleted", "PodAssigned", "PodDeleted", "PodObserved"]
        finally:
            await after.end()


class OneWordMore(MemoryLog):
    """Whoever was ingest before says it as somebody looks who wrote last."""

    word: Event | None = NodeObserved(
        name="gone", uid="gone", resource_version="1", labels={}, taints=(), unschedulable=False, allocatable={}
    )

    async def last(self, subject: str) -> Stored | None:
        if self.word is not None:
            header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
            self.append_now(subject, header, envelope.encode_events([self.word]), 0)
            self.word = None
        return await super().last(subject)


async def test_what_the_one_before_said_to_the_last_is_compared_with_the_lists(cluster: SimulatedCluster) -> None:
    """A node that is gone, and of which nobody would say so any more: pods would be placed there for ever."""
    async with ingesting(OneWordMore("test"), cluster) as running:
        assert running.agrees_with(cluster)
        assert [event.name for event in running.seen(NodeDeleted)] == ["gone"]


async def test_an_ingest_that_is_replaced_writes_no_more(cluster: SimulatedCluster, log: EventLog) -> None:
    async with ingesting(log, cluster) as first:
        second = Running(log, cluster.url)
        try:
            await second.synced(2)
            cluster.create(pod("c"))
            with pytest.raises(SteppedDown):
                await first.task
            await second.says(lambda: second.agrees_with(cluster))
            assert len(second.seen(PodObserved)) == 3
        finally:
            await second.end()


async def test_an_ingest_that_has_nothing_to_write_renews_its_subject(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a purge of the log would take its last commit, behind which it writes, and one that was replaced while
    nothing happens in its cluster would never hear of it."""
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.01)
    async with ingesting(MemoryLog("test"), cluster) as running:
        await running.says(lambda: len(running.seen(Renewed)) >= 2, "renewals")


async def test_bad_input_costs_its_own_object_only(cluster: SimulatedCluster, log: EventLog) -> None:
    cluster.create(node("none", memory="lots"))
    cluster.create(pod("bad", labels={"pod-group/name": "g", "pod-group/min-available": "abc"}))
    async with ingesting(log, cluster) as running:
        cluster.create(node("huge", memory="5E"))
        cluster.create(pod("late", labels={"pod-group/name": "g", "pod-group/min-available": "0"}))
        cluster.create(pod("fine", labels={"pod-group/name": "g", "pod-group/min-available": "1"}))
        await running.says(lambda: "fine" in {each.name for each in running.state.pods.values()})
        rejected = {(event.kind, event.name): event.field for event in running.seen(DeclarationRejected)}
        assert rejected == {
            ("Node", "none"): "status.allocatable.memory",
            ("Node", "huge"): "status.allocatable.memory",
            ("Pod", "bad"): "metadata.labels[pod-group/min-available]",
            ("Pod", "late"): "metadata.labels[pod-group/min-available]",
        }
        assert {each.name for each in running.seen(NodeObserved)} == {"n1", "n2"}
        assert {each.name for each in running.seen(PodObserved)} == {"a", "b", "fine"}


async def test_an_api_server_that_is_away_for_a_while(log: EventLog) -> None:
    cluster = SimulatedCluster(kubelet=False)
    cluster.load([node("n1"), pod("a")])
    await cluster.start()
    port = int(cluster.url.rpartition(":")[2])
    async with ingesting(log, cluster) as running:
        await cluster.stop()
        cluster.create(pod("b"))
        await asyncio.sleep(0)
        await cluster.start(port)
        await running.says(lambda: running.agrees_with(cluster))
        cluster.bind("a", "n1")
        await running.says(lambda: running.seen(PodAssigned))
    await cluster.stop()


async def test_a_watch_that_the_server_ends_with_an_error_again_and_again_costs_a_list(
    cluster: SimulatedCluster,
) -> None:
    """Where it cannot go on from there a list always helps. As it was: it was asked for from the same place for ever."""
    async with ingesting(MemoryLog("test"), cluster) as running:
        broken = errors.internal("etcd event received with PrevKv=nil")

        async def break_them() -> None:
            while True:
                cluster.server.cut("pods", broken)
                await asyncio.sleep(0.01)

        breaking = asyncio.create_task(break_them())
        await running.synced(2)
        breaking.cancel()
        cluster.create(pod("c"))
        await running.says(lambda: running.agrees_with(cluster))


async def test_what_is_forbidden_is_named(cluster: SimulatedCluster) -> None:
    cluster.faults.plan(verb="list", resource="priorityclasses", status=403, times=0)
    async with Client(direct(cluster.url)) as client:
        with pytest.raises(Forbidden) as error:
            await service.run(MemoryLog("test"), client, holder="test")
    assert "list priorityclasses: 403" in str(error.value)


async def test_a_watch_that_comes_to_nothing_again_and_again_is_asked_for_ever_more_slowly(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a list takes longer than the server's history each makes another. As it was: two thousand a second."""
    attempts: list[int] = []
    pause_s = service._pause_s
    assert max(pause_s(1_000_000) for _ in range(100)) > 5 * max(pause_s(5) for _ in range(100))
    monkeypatch.setattr(service, "SHORT_S", float("inf"))
    monkeypatch.setattr(service, "_pause_s", lambda attempt: attempts.append(attempt) or 0.0)
    async with ingesting(MemoryLog("test"), cluster) as running:
        cluster.faults.plan(verb="watch", resource="pods", status=410, times=0)
        await until(lambda: cluster.cut_watches("pods"), "the pods to be watched")
        await until(lambda: len(attempts) >= 5, "it to be asked for again and again")
        assert attempts[:5] == [2, 3, 4, 5, 6]
        cluster.faults.lift()
        cluster.create(pod("c"))
        await running.says(lambda: running.agrees_with(cluster))


@pytest.mark.parametrize("status", [302, 400, 401, 403, 407, 421, 520])
async def test_who_is_refused_a_list_that_was_granted_before_asks_again(cluster: SimulatedCluster, status: int) -> None:
    """An API server that restarts refuses everybody until it has read its roles, and may have lost the history, too; a
    gateway before one that is away says whatever it likes."""
    async with ingesting(MemoryLog("test"), cluster) as running:
        refusing = cluster.faults.plan(verb="list", resource="pods", status=status, times=0)
        await until(lambda: cluster.expire_watches("pods"))
        await until(lambda: refusing.hits > 2, "another try")
        cluster.create(node("n3"))
        await running.says(lambda: len(running.seen(NodeObserved)) == 3, "what else is watched")
        cluster.create(pod("c"))
        cluster.faults.lift()
        await running.synced(2)
        await running.says(lambda: running.agrees_with(cluster))


async def test_who_may_not_ask_for_the_kinds_any_more_goes_on(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ingesting(MemoryLog("test"), cluster) as running:
        asked, discover = 0, Client.discover

        async def refused(client: Client) -> Served:
            nonlocal asked
            asked += 1
            if asked < 4:
                raise Forbidden("get /apis", 403, "Forbidden", "not yet")
            return await discover(client)

        monkeypatch.setattr(Client, "discover", refused)
        await until(lambda: asked > 4, "another try")
        cluster.create(pod("c"))
        await running.says(lambda: running.agrees_with(cluster))


async def test_a_busy_api_server_only_delays_the_start(cluster: SimulatedCluster) -> None:
    cluster.faults.plan(verb="list", status=429, times=3)
    async with ingesting(MemoryLog("test"), cluster) as running:
        assert running.agrees_with(cluster)


@pytest.mark.parametrize(
    ("asked_s", "least_s", "most_s"), [(20.0, 20.0, 20.0), (3_600.0, 30.0, 30.0), (None, 0.0, 10.0)]
)
def test_a_watch_that_is_to_come_again_later_does(asked_s: float | None, least_s: float, most_s: float) -> None:
    """A watch that was answered 429, Retry-After: 30, was asked for 16 times in 40 seconds."""
    state = RetryCallState(AsyncRetrying(), None, (), {})
    busy = ApiError("watch pods", 429, "TooManyRequests", "", asked_s)
    state.set_exception((ApiError, busy, None))
    assert least_s <= service._patiently("watch pods").wait(state) <= most_s


async def test_many_objects_in_many_pages_with_a_stormy_watch(cluster: SimulatedCluster) -> None:
    cluster.load(pod(f"p{number}") for number in range(2_500))
    async with ingesting(MemoryLog("test"), cluster) as running:
        assert running.agrees_with(cluster)
        for number in range(500):
            cluster.bind(f"p{number}", "n1")
            if number % 50 == 0:
                cluster.cut_watches()
                await asyncio.sleep(0)
        await running.says(lambda: running.agrees_with(cluster))
        assert len(running.seen(PodAssigned)) == 500


async def test_a_relist_that_finds_everything_gone_costs_many_commits() -> None:
    """One observation, and a fact for each pod: however many these are, a commit stays small."""
    log, core = MemoryLog("test"), Ingest(["muster"])
    writer = Writer(log, "ingest")
    await writer.take(IngestTaken(holder="test"))
    for number in range(3_000):
        uid, name = f"{number:08}-0000-0000-0000-000000000000", f"{number:05}" + "n" * 248
        core.fold(facts.pod(name, "c", uid=uid, namespace="s" * 63))
    gather = Gather(writer)
    gone = core.missing(POD.name, set())
    gather.add(gone)
    sending = asyncio.create_task(gather.run())
    await gather.flush()
    sending.cancel()
    written = [envelope.decode(stored).events for stored in log.commits[1:]]
    assert [event for events in written for event in events] == gone
    assert len(gone) == 3_000
    assert max(len(stored.payload) for stored in log.commits) <= GATHERED_BYTES
    assert len(written) > 1

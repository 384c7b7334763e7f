"""Clusters' own Muster logs over leaf nodes, on real nats-servers: with a healthy leaf nobody polls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

import events as ev
from events import envelope, permissions, subjects
from events.answers import Denied, Unanswered
from events.connection import Connection
from events.jetstream import JetStreamLog
from events.log import LogError
from services.federator.backends import GONE, RUNNING, SUCCEEDED, WAITING, Backend, Listing, Reach, Silent, Watched
from services.federator.backends.kubernetes import Kubernetes
from services.federator.backends.leaf import Leaf
from services.federator.records import PLACED, RACING, SETTLED, account_of
from services.federator.specialize import to_yaml
from services.kubernetes.access import direct
from services.simulator.controllers import Controllers
from services.simulator.faults import Fault
from services.writer import Writer
from tests.federator.jobs import document, plugin
from tests.federator.leaves import Hub, LeafCluster
from tests.federator.processes import Processes
from tests.manifests import node
from tests.waiting import until

NAMES = ("prod", "lab")
POLL_S = 0.05


class Asked(Leaf):
    """Counts how often in a row it vouched for the last list, without another."""

    in_a_row = 0

    async def vouches(self, watched: Watched) -> bool:
        vouched = await super().vouches(watched)
        self.in_a_row = self.in_a_row + 1 if vouched else 0
        return vouched

    async def listed(self, backend: Backend) -> Listing | Silent:
        self.in_a_row = 0
        return await super().listed(backend)


class Field(Processes):
    """A federator over two clusters, each with a log of its own. It polls twenty times a second, where it polls."""

    def __init__(self, hub: Hub, clusters: dict[str, LeafCluster]) -> None:
        super().__init__()
        self.hub, self.clusters = hub, clusters
        self.lists: dict[str, Fault] = {
            name: cluster.kubernetes.faults.plan(verb="list", resource="jobs", times=0)
            for name, cluster in clusters.items()
        }
        """Faults that do no harm: they count."""
        self.leaves: dict[str, Asked] = {}
        self._connection: Connection

    async def start(self) -> None:
        self._connection = await self.hub.connect()
        reaches = {}
        for name, cluster in self.clusters.items():
            backend = Kubernetes(direct(cluster.kubernetes.url), "default", timeout_s=5.0)
            self.leaves[name] = Asked(self._connection, cluster.domain, name, "default")
            reaches[account_of("ml", f"https://{name}.example")] = Reach(backend, POLL_S, self.leaves[name])
        await self.begin(reaches)

    async def kill(self) -> None:
        await super().kill()
        await self._connection.close()

    async def submit(self, name: str, *, guard_s: float = 0.0, **priorities: int) -> None:
        made = document()
        del made["secrets"]
        made["name"] = name
        clusters = {
            alias: {"uri": f"https://{alias}.example", "user": "ml", "priority": priority}
            for alias, priority in priorities.items()
        }
        plugin(made).update(
            guardTimeRunning=round(guard_s / 60, 3),
            timeScale=1,
            clusters=clusters,
            params={"gpuNum": dict.fromkeys(priorities, 1)},
        )
        made["taskRoles"]["main"]["resourcePerInstance"]["gpu"] = 0
        made["extra"]["com.microsoft.pai.runtimeplugin"] = made["extra"]["com.microsoft.pai.runtimeplugin"][-1:]
        await self.federator.federate(to_yaml(made))

    def sees(self, name: str, cluster: str, *states: str) -> Callable[[], bool]:
        return lambda: self.job(name).places[cluster].run in states

    async def vouched(self, *clusters: str) -> None:
        """Until these clusters' logs have vouched for them twenty times in a row."""
        leaves = [self.leaves[name] for name in clusters]
        for leaf in leaves:
            leaf.in_a_row = 0
        await until(lambda: all(leaf.in_a_row >= 20 for leaf in leaves), f"{clusters} to be vouched for")

    def hold_time(self) -> Callable[[float], None]:
        """From here on so many seconds pass for the federator as what this gives is told."""
        clock = self.federator._clock
        now_ns = [clock.now_ns()]
        clock.now_ns = lambda: now_ns[-1]  # type: ignore[method-assign]
        return lambda seconds: now_ns.append(now_ns[-1] + int(seconds * 1e9))

    async def pods_made(self, name: str, *clusters: str) -> None:
        await until(lambda: all(self.clusters[c].pods(f"{name}-{c}") for c in clusters), "the Jobs' pods")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path, list(NAMES)) as running:
        yield running


@pytest.fixture
async def clusters(tmp_path: Path, hub: Hub) -> AsyncIterator[dict[str, LeafCluster]]:
    made = {name: LeafCluster(tmp_path, name, hub) for name in NAMES}
    async with contextlib.AsyncExitStack() as stack:
        for cluster in made.values():
            await stack.enter_async_context(cluster)
        yield made


@pytest.fixture
def nobody_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer that is late costs a list, and may."""
    monkeypatch.setattr("services.federator.backends.leaf.ANSWER_S", 60.0)


@pytest.fixture
async def field(hub: Hub, clusters: dict[str, LeafCluster]) -> AsyncIterator[Field]:
    made = Field(hub, clusters)
    await made.start()
    yield made
    await made.kill()


async def test_a_job_whose_clusters_are_heard_costs_a_few_lists(field: Field) -> None:
    await field.submit("train", prod=0, lab=0, guard_s=25.0)
    await field.pods_made("train", *NAMES)
    await field.until(field.sees("train", "prod", WAITING), "prod to be seen waiting")
    await field.until(field.sees("train", "lab", WAITING), "lab to be seen waiting")
    await field.vouched(*NAMES)
    field.clusters["lab"].bind("train-lab")
    await field.until(field.sees("train", "lab", RUNNING), "lab to be seen running")
    pass_s = field.hold_time()
    before = field.lists["prod"].hits
    assert field.job("train").phase == RACING
    pass_s(26.0)
    await field.until(lambda: field.job("train").phase == SETTLED, "the end of the guard time, and the loser's")
    assert field.job("train").winner == "lab"
    assert field.lists["prod"].hits > before, "the loser's end is seen, not believed"
    await field.vouched("lab")  # nobody asks for the loser any more
    field.clusters["lab"].end("train-lab", "Succeeded")
    await field.until(field.sees("train", "lab", SUCCEEDED), "how it ended")


@pytest.mark.usefixtures("nobody_late")
async def test_guard_time_is_earned_without_lists_and_ends_with_one(field: Field) -> None:
    await field.submit("train", prod=0, guard_s=25.0)
    await field.pods_made("train", "prod")
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "prod to be seen running")
    pass_s = field.hold_time()
    await field.vouched("prod")
    assert field.job("train").phase == RACING
    before = field.lists["prod"].hits
    pass_s(26.0)
    await field.until(lambda: field.job("train").phase in (PLACED, SETTLED), "the decision")
    assert field.lists["prod"].hits == before + 1


async def test_what_happened_while_the_leaf_was_cut_is_seen(field: Field) -> None:
    """Polling is what is left; and once the leaf is back, nobody polls."""
    await field.submit("train", prod=0, lab=0, guard_s=600.0)
    await field.pods_made("train", *NAMES)
    await field.vouched(*NAMES)
    await field.clusters["prod"].stop_ingest()
    field.clusters["prod"].cut()
    await field.clusters["prod"].start_ingest()
    before = field.lists["prod"].hits
    await until(lambda: field.lists["prod"].hits > before + 3, "lists in the leaf's place")
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "a run that began while the leaf was cut")
    assert not field.federator.state.clusters[account_of("ml", "https://prod.example")].silent
    await field.clusters["prod"].stop_ingest()
    field.clusters["prod"].join()
    await field.clusters["prod"].start_ingest()
    await field.vouched(*NAMES)
    field.clusters["prod"].end("train-prod", "Failed")
    await field.until(lambda: field.job("train").places["prod"].run == "failed", "its end")


async def test_a_clusters_server_restarts(field: Field) -> None:
    await field.submit("train", prod=0, lab=0, guard_s=600.0)
    await field.pods_made("train", *NAMES)
    await field.vouched(*NAMES)
    field.clusters["prod"].server.kill()
    field.clusters["prod"].server.start()
    await field.vouched(*NAMES)
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "prod to be seen running")
    await field.vouched(*NAMES)


async def test_without_ingest_the_log_vouches_for_nothing(field: Field) -> None:
    """The leaf is there, the log is read to its end, and says nothing, since nobody looks."""
    await field.submit("train", prod=0, guard_s=600.0)
    await field.pods_made("train", "prod")
    await field.vouched("prod")
    await field.clusters["prod"].stop_ingest()
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "the run that no event tells of")
    await field.clusters["prod"].start_ingest()
    await field.vouched("prod")


async def test_the_hub_restarts(field: Field) -> None:
    await field.submit("train", prod=0, guard_s=600.0)
    await field.pods_made("train", "prod")
    await field.vouched("prod")
    field.hub.server.kill()
    field.hub.server.start()
    await field.vouched("prod")
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "prod to be seen running")


async def test_a_federator_that_takes_over_lists_once_and_is_quiet(field: Field) -> None:
    await field.submit("train", prod=0, guard_s=600.0)
    await field.pods_made("train", "prod")
    field.clusters["prod"].bind("train-prod")
    await field.until(field.sees("train", "prod", RUNNING), "prod to be seen running")
    await field.vouched("prod")
    await field.kill()
    await field.start()
    await field.vouched("prod")
    assert field.job("train").places["prod"].run == RUNNING


async def test_an_event_asks_for_a_list_at_once(
    hub: Hub, clusters: dict[str, LeafCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "POLL_S", 3_600.0)
    field = Field(hub, clusters)
    await field.start()
    prod, leaf = field.lists["prod"], field.leaves["prod"]
    await field.until(lambda: prod.hits and leaf._place >= 0, "its start")
    before = prod.hits
    await field.submit("train", prod=0, guard_s=600.0)
    await field.pods_made("train", "prod")
    field.clusters["prod"].bind("train-prod")
    await field.until(lambda: prod.hits > before, "a list")
    await field.kill()


@pytest.mark.usefixtures("nobody_late")
async def test_strangers_in_the_namespace_cost_no_list(field: Field) -> None:
    await field.submit("train", prod=0, guard_s=600.0)
    await field.pods_made("train", "prod")
    await field.vouched("prod")
    before = field.lists["prod"].hits
    end = await field.leaves["prod"]._log.end()
    for number in range(5):
        name = f"other-{number}-abcde"
        container = {"name": "c", "image": "i"}
        field.clusters["prod"].kubernetes.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        )
        field.clusters["prod"].kubernetes.bind(name, "n1")
    await until(lambda: field.leaves["prod"]._place >= end + 1, "the strangers' facts")
    await field.vouched("prod")
    assert field.lists["prod"].hits == before


async def test_what_the_log_vouched_for_is_decided_again_from_the_log(field: Field) -> None:
    await field.submit("train", prod=0, lab=0, guard_s=1.0)
    await field.pods_made("train", *NAMES)
    await field.vouched(*NAMES)
    field.clusters["prod"].bind("train-prod")
    await field.until(lambda: field.job("train").phase == SETTLED, "the end")
    again = field.folded()
    assert again.jobs == field.federator.state.jobs
    assert again.clusters == field.federator.state.clusters
    assert any(isinstance(event, ev.JobPlaced) for event in field.said())


# ---------------------------------------------------------------------------------------------------------- permissions


async def test_over_the_leaf_the_log_is_read_and_nothing_else(hub: Hub, clusters: dict[str, LeafCluster]) -> None:
    """Even as somebody who may do everything in the federation's account."""
    connection = await hub.connect(permissions.FEDERATION_OPERATOR)
    api = f"$JS.{clusters['prod'].domain}.API"
    try:
        leased = await _answered(connection, f"{api}.STREAM.INFO.muster-prod")
        assert json.loads(leased)["config"]["name"] == "muster-prod"
        for forbidden in (
            "STREAM.NAMES",
            "STREAM.LIST",
            "INFO",
            "STREAM.MSG.GET.muster-prod",
            "STREAM.PURGE.muster-prod",
            "STREAM.DELETE.muster-prod",
            "STREAM.UPDATE.muster-prod",
            "STREAM.MSG.DELETE.muster-prod",
            "STREAM.CREATE.spare",
            "STREAM.INFO.muster-leases-prod",
            "STREAM.INFO.OBJ_muster-snapshots-prod",
            "CONSUMER.CREATE.muster-leases-prod.c",
            "CONSUMER.LIST.muster-prod",
            "CONSUMER.DURABLE.CREATE.muster-prod.c",
        ):
            with pytest.raises(Unanswered, match="nothing at"):
                await connection.request(f"{api}.{forbidden}", b"{}", within_s=2.0)
        for written in (
            subjects.subject("prod", "ingest"),
            subjects.subject("prod", "binder"),
            "muster-leases.prod.binder",
        ):
            with pytest.raises(Unanswered, match="nothing at"):
                await connection.request(written, b"[]", within_s=2.0)
    finally:
        await connection.close()


async def test_the_federators_own_user_may_ask_no_more_than_reading_takes(
    hub: Hub, clusters: dict[str, LeafCluster]
) -> None:
    connection = await hub.connect()
    api = f"$JS.{clusters['prod'].domain}.API"
    try:
        await _answered(connection, f"{api}.STREAM.INFO.muster-prod")
        for forbidden in ("STREAM.PURGE.muster-prod", "STREAM.MSG.GET.muster-prod", "STREAM.INFO.other"):
            with pytest.raises(Denied):
                await connection.request(f"{api}.{forbidden}", b"{}", within_s=2.0)
    finally:
        await connection.close()


async def test_a_leafs_password_lets_no_client_in(hub: Hub, clusters: dict[str, LeafCluster]) -> None:
    """It stands in every cluster that the federation reads, and could hear what the federator asks that cluster."""
    user = permissions.leaf_user("prod")
    with pytest.raises(Denied, match="refused the credentials"):
        await Connection(hub.server.url).connect(user=user, password=hub.passwords[user])


async def test_a_clusters_server_can_neither_ask_the_federator_nor_read_its_log(
    hub: Hub, clusters: dict[str, LeafCluster], tmp_path: Path
) -> None:
    """A cluster whose administrator binds the leaf node to an account with users of his own."""
    own = clusters["lab"]
    account = permissions.leaf_account_name("lab")
    evil = own.accounts.replace(f"  {account} {{\n", f"  {account} {{\n    users: [ {{ user: eve, password: eve }} ]\n")
    await own.stop_ingest()
    own._restart(own.joined + evil)
    federation = await hub.federation_log()
    eve = await Connection(own.server.url).connect(user="eve", password="eve")
    heard: list[tuple[str, bytes]] = []

    async def hear(message: Msg) -> None:
        heard.append((message.subject, message.data))

    try:
        await eve.client.subscribe("muster.federation.>", cb=hear)
        await eve.client.subscribe("muster-jobs.>", cb=hear)
        await eve.client.subscribe("_INBOX_federator.>", cb=hear)
        await eve.client.subscribe(f"$JS.{clusters['prod'].domain}.API.>", cb=hear)
        await eve.client.flush()
        await _answered(federation.connection, f"$JS.{own.domain}.API.STREAM.INFO.muster-lab")
        await Writer(federation, "federator").take(ev.FederatorTaken(holder="test"))
        for subject in ("muster.federation.federator", f"{subjects.jobs('federation')}.cancel"):
            await eve.client.publish(subject, b"hers")
        await eve.client.flush()
        await _answered(federation.connection, f"$JS.{clusters['prod'].domain}.API.STREAM.INFO.muster-prod")
        assert await federation.end() == 1
        assert [(subject, data) for subject, data in heard if b"muster-lab" not in data and data != b"hers"] == []
    finally:
        await eve.close()
        await federation.close()
        await own.start_ingest()


async def _answered(connection: Connection, subject: str) -> bytes:
    """Until the leaf node is there."""
    deadline = asyncio.get_running_loop().time() + 60.0
    while True:
        try:
            return await connection.ask(subject)
        except Unanswered:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)


async def test_a_log_is_read_by_its_domain(hub: Hub, clusters: dict[str, LeafCluster]) -> None:
    connection = await hub.connect()
    log = JetStreamLog(connection, "prod", domain=clusters["prod"].domain)
    try:
        await _answered(connection, f"$JS.{clusters['prod'].domain}.API.STREAM.INFO.muster-prod")
        found: list[ev.Event] = []
        async for batch in log.follow():
            found += [event for stored in batch for event in envelope.decode_events(stored)]
            if any(isinstance(event, ev.ClusterSynced) for event in found):
                break
        assert isinstance(found[0], ev.IngestTaken)
    finally:
        await connection.close()


async def test_a_log_that_is_set_back_behind_a_leaf_is_another(
    hub: Hub, clusters: dict[str, LeafCluster], tmp_path: Path
) -> None:
    """Its server lost what it had acknowledged, and ingest has said other things since: over a leaf node nobody may ask
    for a single commit, so the last one is read again."""
    cluster, connection = clusters["prod"], await hub.connect()
    store, synced = cluster.server.store, tmp_path / "synced"
    info = f"$JS.{cluster.domain}.API.STREAM.INFO.muster-prod"
    log = JetStreamLog(connection, "prod", domain=cluster.domain)
    await _answered(connection, info)
    cluster.server.kill()
    shutil.copytree(store, synced)
    cluster.server.start()
    await _answered(connection, info)
    async with contextlib.aclosing(log.follow(await log.end())) as batches:
        cluster.kubernetes.create(node("n2", cpu="1", memory="1Gi", pods="1"))
        assert await anext(batches)
        await cluster.stop_ingest()
        cluster.server.kill()
        shutil.rmtree(store)
        shutil.copytree(synced, store)
        cluster.server.start()
        await cluster.start_ingest()
        with pytest.raises(LogError, match="is another than was there: the log has lost what it acknowledged"):
            async for _ in batches:  # what ingest had said before it was stopped may yet come
                pass
    await connection.close()


async def test_a_run_without_pods_that_somebody_deletes_is_seen_gone(
    field: Field, nobody_late: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its quota of pods is used up, say: no event tells of it. As it was: the last list was vouched for for ever, and an
    operator could not give it up."""
    monkeypatch.setattr(Controllers, "_start_pods", lambda *_: 0)
    await field.submit("train", prod=0, guard_s=600.0)
    await field.until(field.sees("train", "prod", WAITING), "prod to be seen waiting")
    await field.vouched("prod")
    field.clusters["prod"].kubernetes.delete("Job", "train-prod")
    await field.vouched("prod")
    assert field.job("train").places["prod"].run == WAITING
    monkeypatch.setattr("services.federator.backends.leaf.LIST_S", 0.5)
    await field.until(lambda: field.job("train").phase == SETTLED, "its end")
    assert field.job("train").places["prod"].run == GONE

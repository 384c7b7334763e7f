"""What looks on during a run can tell what is wrong: the plan, the witness, the ledger, the proxies, and rest."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from deploy.e2e.workload import gang, pod
from events.memory import MemoryLog
from events.micro import Unfit
from services.federator.records import SETTLED, Job, Place
from services.federator.state import State as FederationState
from services.state.fold import State
from services.state.validate import validate_state
from tests.chaos import audit, federation, feeding, field, plan, rest
from tests.chaos.hurting import Hurting
from tests.chaos.kept_log import Command, KeptLog
from tests.chaos.ledger import Acknowledged, Ledger, acknowledgements
from tests.chaos.network import Proxies
from tests.chaos.plan import DEEDS
from tests.chaos.witness import Seen, Witness
from tests.waiting import until
from tests.world import World

# ---------------------------------------------------------------------------------------------------------------- plan


def test_one_seed_decides_everything() -> None:
    first, again, other = (list(islice(plan.plan(seed), 500)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_way_to_hurt_comes_and_can_be_carried_out() -> None:
    hurting = Hurting(None, plan.plan(1), print)  # type: ignore[arg-type]
    assert hurting._ways.keys() == DEEDS.keys() == {hurt.deed for hurt in islice(plan.plan(1), 2_000)}


async def test_a_command_whose_time_is_over_as_it_ends_is_said_to_be_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in one turn of a loop that was held up. As it was: ProcessLookupError ended the run."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nsleep 0.3\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    asyncio.get_running_loop().call_later(0.1, time.sleep, 0.6)
    running = SimpleNamespace(environment=lambda role: {})
    with pytest.raises(TimeoutError):
        await field.Field.muster(running, "retention", role="keeper", within_s=0.2)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- witness


def shown(name: str, uid: str, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    thing = pod(name)
    thing["metadata"]["uid"] = uid
    thing["spec"] |= {"nodeName": node} if node else {}
    return thing | {"status": {"phase": phase}}


@pytest.mark.parametrize("then", ["two", ""])
def test_a_pod_that_changes_its_node_was_bound_twice(then: str) -> None:
    witness = Witness()
    witness.note(shown("p", "1"))
    witness.note(shown("p", "1", "one"))
    assert not witness.violations
    witness.note(shown("p", "1", then))
    assert "7.1" in witness.violations[0]


def test_what_the_watch_missed_the_list_finds() -> None:
    witness = Witness()
    witness.note(shown("old", "1", "one"))
    witness.note(shown("stays", "2", "one"))
    witness.listed([shown("stays", "2", "two"), shown("new", "3")])
    assert set(witness.pods) == {"2", "3"}
    assert witness.counted["pods deleted"] == 1
    assert len(witness.violations) == 1


def test_a_pod_made_anew_under_its_name_is_another() -> None:
    witness = Witness()
    witness.note(shown("p", "1", "one"))
    witness.gone("1")
    witness.note(shown("p", "2", "two"))
    assert not witness.violations
    assert witness.counted["pods bound"] == 2


# -------------------------------------------------------------------------------------------------------------- ledger


def a_log() -> MemoryLog:
    world = World()
    world.node("one")
    world.pod("p")
    world.settle()
    return world.log


def a_ledger() -> Ledger[State]:
    return Ledger(State(), validate_state)


def told(log: MemoryLog) -> list[Acknowledged]:
    return [Acknowledged("binder-a", stored.sequence, stored.message_id) for stored in log.commits]


def test_every_acknowledged_commit_is_there() -> None:
    log, ledger = a_log(), a_ledger()
    ledger.read(log.commits)
    assert ledger.compare(log.commits, told(log)) == len(log.commits)
    assert not ledger.violations


def test_a_commit_that_vanished_was_acknowledged() -> None:
    log, ledger = a_log(), a_ledger()
    ledger.read(log.commits)
    acknowledged = told(log)
    log.commits.pop()
    assert ledger.compare(log.commits, acknowledged) == len(log.commits)
    assert len(ledger.violations) == 2, "once as the log is shorter, once as somebody was told"


def test_an_acknowledged_commit_that_is_another() -> None:
    log, ledger = a_log(), a_ledger()
    ledger.compare(log.commits, [told(log)[0]._replace(message_id="another")])
    assert "was told another at 1" in ledger.violations[0]


def test_a_commit_that_changes_after_it_was_read() -> None:
    log, ledger = a_log(), a_ledger()
    ledger.read(log.commits)
    ledger.read([msgspec.structs.replace(log.commits[3], payload=b"[]")])
    assert "another than it was" in ledger.violations[0]


def test_a_gap_in_the_sequences_is_a_violation() -> None:
    log, ledger = a_log(), a_ledger()
    ledger.read([log.commits[0], log.commits[2]])
    assert "a gap" in ledger.violations[0]


@pytest.mark.parametrize(("offset_ms", "known"), [(700, True), (-600_000, True), (600_000, False)])
def test_what_a_writer_s_clock_is_off_is_taken_from_its_decisions(offset_ms: int, known: bool) -> None:
    """As it was: 700 ms ahead, and each binding seemed to come before its permit; ten minutes behind, and none could."""
    log, ledger = a_log(), a_ledger()
    ledger.read(log.commits)
    ((where, (_, time_ns)),) = ledger.permitted.items()
    found = ledger.permitted_ns(told(log) if known else [], {"binder-a": offset_ms, "binder-b": -600_000})
    assert found == {where: time_ns - offset_ms * 1_000_000}


def test_acknowledgements_are_read_from_what_services_print(tmp_path: Path) -> None:
    file = tmp_path / "binder-a.log"
    file.write_text(
        '{"level":"info","message":"taken","sequence":3}\n'
        '{"level":"debug","message":"acknowledged","sequence":7,"id":"abc"}\n'
        "Traceback\n"
        '{"level":"debug","message":"acknowledged","sequ'
    )
    found = list(acknowledgements({"binder-a": file, "binder-b": tmp_path / "never-started.log"}))
    assert found == [Acknowledged("binder-a", 7, "abc")]


# --------------------------------------------------------------------------------------------------------------- audit


def line(uid: str, node: str, code: int, second: int = 5) -> str:
    return json.dumps(
        {
            "user": {"username": "system:serviceaccount:muster-system:binder"},
            "requestObject": {"metadata": {"uid": uid}, "target": {"name": node}},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": f"1970-01-01T00:00:0{second}.000000Z",
        }
    )


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([line("u", "one", 409), line("u", "one", 201), line("u", "one", 409)], ""),
        ([line("u", "one", 201), line("u", "one", 201)], "7.1"),
        ([line("u", "two", 409)], "never permitted"),
        ([line("u", "one", 201, second=1)], "before that was in the log"),
    ],
)
def test_bindings_that_the_api_server_recorded(tmp_path: Path, lines: list[str], complaint: str) -> None:
    file = audit.path(tmp_path)
    file.write_text("\n".join([*lines, '{"cut": "of']))
    found = audit.violations(audit.read(file), {("u", "one"): 3_000_000_000})
    assert bool(found) == bool(complaint)
    assert complaint in "".join(found)


# ---------------------------------------------------------------------------------------------------------------- feed


def test_a_feed_that_repeats_leaves_out_or_adds() -> None:
    wanted = feeding.expected(a_log().commits, "test")
    assert feeding.violations(wanted, wanted) == feeding.violations(wanted[:-1], wanted) == []
    for wrong in (wanted[:2] + wanted[1:], wanted[:1] + wanted[2:], [*wanted, wanted[0]]):
        assert feeding.violations(wrong, wanted)


def test_a_subscriber_gets_each_in_its_turn_and_the_one_in_its_hand_again() -> None:
    wanted = feeding.expected(a_log().commits, "test")
    again = [one for message in wanted for one in (message, message)]
    for right in ([], wanted, again, wanted[:2]):
        assert feeding.delivery_violations(right, wanted) == []
    for wrong in (wanted[1:], wanted[:1] + wanted[2:], [*wanted, wanted[0]], wanted[:3] + wanted[1:]):
        assert feeding.delivery_violations(wrong, wanted)


def test_what_a_subscriber_printed(tmp_path: Path) -> None:
    file, wanted = tmp_path / "subscriber.log", feeding.expected(a_log().commits, "test")
    lines = [body for _, body in wanted]
    file.write_bytes(b"\n".join([b'{"level":"warning"}', *lines, lines[0][:50]]))
    assert feeding.printed(file) == wanted
    assert feeding.printed(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [(">", {"PodBound", "PodObserved"}), ("PodBound", {"PodBound"}), ("*.default.>", {"PodBound", "PodObserved"})],
)
def test_what_of_the_feed_is_of_a_pattern(pattern: str, wanted: set[str]) -> None:
    found = {body for _, body in feeding.expected(a_log().commits, "test", pattern)}
    named = {json.loads(body)["type"].rpartition(".")[2] for body in found}
    assert named >= wanted
    assert ("NodeObserved" in named) == (pattern == ">")
    assert all(json.loads(body).get("subject", "").startswith("default/") for body in found) == (pattern != ">")


# ----------------------------------------------------------------------------------------------------------- retention


def kept_log(muster: Command, directory: Path) -> KeptLog:
    names = {"reader": "reader", "login": {}, "keeper": "keeper"}
    return KeptLog(muster, "nats://…", "c", directory / "archive.db", **names, furthest_ms=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "err", "complaint"),
    [(0, "", ""), (2, "error: nats://…: no answer", ""), (1, "no", "exit 1, no"), (2, "Traceback …", "Traceback …")],
)
async def test_a_retention_may_fail_for_want_of_servers_alone(
    tmp_path: Path, code: int, err: str, complaint: str
) -> None:
    async def muster(
        *words: str, role: str, within_s: float, clock_offset_ms: int, cluster: str
    ) -> tuple[int, str, str]:
        assert (words[0], role, cluster) == ("retention", "keeper", "c")
        assert clock_offset_ms > 3_600_000
        return code, "", err

    retention = kept_log(muster, tmp_path)
    assert not await retention.purge(1.0)
    assert len(retention.violations) == bool(complaint)
    assert complaint in "".join(retention.violations)


async def test_a_retention_that_takes_longer_is_killed(tmp_path: Path) -> None:
    async def muster(
        *words: str, role: str, within_s: float, clock_offset_ms: int, cluster: str
    ) -> tuple[int, str, str]:
        raise TimeoutError

    retention = kept_log(muster, tmp_path)
    assert await retention.purge(1.0)
    assert not retention.violations


# ---------------------------------------------------------------------------------------------------------------- rest


def members(name: str, bound: int, waiting: int) -> dict[str, Seen]:
    nodes = ["one"] * bound + [""] * waiting
    names = [thing["metadata"]["name"] for thing in gang(name, len(nodes))]
    return {
        member: Seen(uid=member, name=member, gang=name, node=node, phase="Pending", terminating=False)
        for member, node in zip(names, nodes, strict=True)
    }


@pytest.mark.parametrize(("bound", "half"), [(0, False), (1, True), (2, True), (3, False), (4, False)])
def test_a_gang_of_four_that_needs_three(bound: int, half: bool) -> None:
    pods = members("g", bound, 4 - bound)
    assert bool(rest.half_bound_in_cluster(pods, {"g": 3})) == half


def test_a_settled_world_is_at_rest_and_an_unsettled_one_says_why() -> None:
    world = World()
    world.node("one")
    world.pod("p")
    pods = {"p": Seen(uid="p", name="p", gang="", node="", phase="Pending", terminating=False)}
    assert any("groups ready" in why for why in rest.unrest(world.state, pods))
    world.settle()
    assert any("differ" in why for why in rest.unrest(world.state, pods))
    pods["p"].node = "one"
    assert rest.unrest(world.state, pods) == []
    assert rest.violations(world.state, pods, {}, set(), {"p": "one"}) == []
    assert "7.11" in rest.violations(world.state, pods, {}, set(), {"p": "two"})[0]


# ---------------------------------------------------------------------------------------------------------- federation


class Site(federation.Members):
    """Of whose clusters a test says what runs there."""

    def __init__(self, alive: dict[str, list[str]], succeeded: tuple[str, ...] = ()) -> None:
        super().__init__(1)
        self._alive, self._succeeded = alive, succeeded

    def alive(self) -> dict[str, list[str]]:
        return dict(self._alive)

    def succeeded(self, alias: str, run: str) -> bool:
        return alias in self._succeeded


def a_federation(*, phase: str = SETTLED, winner: str = "v100", cancelled: bool = False) -> FederationState:
    state = FederationState()
    places = {
        alias: Place(cluster=alias, account=f"alice@{alias}", gpu_type="", priority_milli=0, name=f"f1-{alias}")
        for alias in plan.MEMBERS
    }
    state.jobs["1"] = Job("1", "f1", "", 0, 0, places, phase=phase, winner=winner, cancelled=cancelled)
    state.names["f1"] = "1"
    return state


def some_users(site: Site, *submitted: str, cancelled: tuple[str, ...] = ()) -> federation.Users:
    users = federation.Users(site, None, 1)  # type: ignore[arg-type]
    users.submitted += submitted
    users.cancelled.update(cancelled)
    return users


def test_a_federation_at_rest() -> None:
    for state, site in (
        (a_federation(), Site({"f1": ["v100"]})),
        (a_federation(), Site({}, ("v100",))),
        (a_federation(winner=""), Site({})),
        (a_federation(cancelled=True), Site({})),
    ):
        assert federation.unrest(state, site, some_users(site, "f1")) == []


@pytest.mark.parametrize(
    ("state", "site", "why"),
    [
        (a_federation(phase="racing"), Site({"f1": ["v100"]}), "f1 is racing"),
        (a_federation(), Site({"f1": ["v100", "p40"]}), "on v100, p40, and kept on v100"),
        (a_federation(), Site({"f1": ["p40"]}), "on p40, and kept on v100"),
        (a_federation(), Site({}, ("p40",)), "on no cluster, and kept on v100"),
        (a_federation(cancelled=True), Site({"f1": ["v100"]}), "on v100, and kept on none"),
        (a_federation(), Site({"f1": ["v100"], "f2": ["p40"]}), "f2 is not in the log and runs on ['p40']"),
    ],
)
def test_what_keeps_a_federation_from_rest(state: FederationState, site: Site, why: str) -> None:
    found = federation.unrest(state, site, some_users(site, "f1"))
    assert len(found) == 1
    assert why in found[0]


def test_what_a_federations_users_were_told_is_in_its_log() -> None:
    site = Site({"f1": ["v100"]})
    users = some_users(site, "f1", "f2", cancelled=("f1",))
    found = federation.unrest(a_federation(), site, users)
    assert found == ["f2 was accepted and is not in the log (7.7)", "f1 goes on, and was cancelled"]


async def test_a_job_that_was_accepted_and_that_nobody_knows_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise Unfit(404, "there is no job 'f1'")

    monkeypatch.setattr(federation, "ask", refuse)
    users = some_users(Site({}), "f1")
    await users.cancel("f1")
    assert users.violations == ["f1 was accepted, and cannot be cancelled: there is no job 'f1' (7.7)"]
    assert not users.cancelled


# ------------------------------------------------------------------------------------------------------------- proxies


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(100):
        writer.write(chunk)
    writer.close()


async def test_a_proxy_resets_both_ends() -> None:
    ended = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await echo(reader, writer)
        except ConnectionResetError as error:
            ended.set_result(error)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = Proxies(seed=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", await network.way("binder-a", port))
    network.lose("binder-a", [port], "resets")

    async def talk() -> None:
        while True:
            writer.write(b"one")
            assert await reader.read(100)

    with pytest.raises(ConnectionResetError):
        await talk()
    assert isinstance(await ended, ConnectionResetError)
    network.close()
    server.close()


@pytest.mark.parametrize("loss", ["all", "answers", "some"])
async def test_a_proxy_keeps_back_what_is_lost_and_forwards_it_once_healed(loss: Any) -> None:
    received: list[bytes] = []

    async def read(reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(100):
            received.append(chunk)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = Proxies(seed=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", await network.way("binder-a", port))
    reading = asyncio.create_task(read(reader))
    writer.write(b"one")
    await until(lambda: received == [b"one"])
    hurt = network.lose("binder-a", [port], loss)
    writer.write(b"two")
    if loss != "some":
        await asyncio.sleep(0.2)
        assert received == [b"one"]
    network.heal(hurt)
    await until(lambda: received == [b"one", b"two"])
    writer.close()
    await reading
    network.close()
    server.close()

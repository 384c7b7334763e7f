"""Snapshots: the fold from the start and from any snapshot is the same state, and decides the same."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Header, Stored
from events.objects import ClassRoom, NodeAssignment
from services.state import snapshot, tallies
from services.state.fold import State
from services.state.form import PORTION, Damaged, UnknownCommit, at_once
from tests.walk.checks import refold
from tests.walk.walk import Walk
from tests.world import World


def busy() -> World:
    """A log with something of everything: bound, held, proposed, refused, nominated, ticked."""
    world = World()
    for i in range(3):
        world.node(f"n{i}", cpu=4, labels={"zone": "ab"[i % 2]})
    world.gang("train", 3, 3)
    world.pod("alone", cpu=2)
    world.settle()
    world.gang("huge", 9, 9)
    world.pod("picky", selector={"zone": "c"})
    world.plan()
    held = world.gang("held", 3, 3)
    world.propose("default/held", {held[0]: "n2"})
    world.judge()
    world.finished("train-0", succeeded=False, reason="OutOfcpu")
    world.judge()
    world.pass_s(3)
    world.pod("early", node="n9")
    world.pod("late")
    world.plan()
    return world


DERIVED = {"kept_classes", "named", "tallies", "kept_for", "highest"}
"""Tables that are built of the records; the nodes' (`table`) is one more."""


def test_every_record_is_in_the_snapshot() -> None:
    others = DERIVED | {"table", "index", "writer", "basis", "commit_epoch", "regrouped", "moved"}
    assert {one.name for one in fields(State)} - others | {"resources"} == set(snapshot.FORM.recorded)


def test_the_log_has_something_of_everything() -> None:
    state = busy().state
    assert {claim.stage for claim in state.claims.values()} == {"proposed", "held", "bound", "nominated"}
    assert state.cohorts
    assert state.clocks["binder"].armed


def with_all_tables() -> World:
    """Something stands in each table of the state; what no scenario leaves standing together is said by hand."""
    world = busy()
    world.gang("touched", 90, 90)
    world.settle()
    world.pass_s(2)
    world.pod("touched-90", "touched", minimum=90)
    world.node("n8")
    for name, placed in (("waits", 1), ("more", 2)):
        uids = world.gang(name, 2, 2)
        world.propose(f"default/{name}", dict.fromkeys(uids[:placed], "n8"))
    world.judge()
    world.facts(
        ev.DeclarationRejected(
            kind="Pod",
            namespace="default",
            name="bad",
            uid="b",
            resource_version="1",
            field="f",
            value="v",
            expected="e",
        ),
        ev.PriorityClassObserved(name="high", uid="c", resource_version="1", value=9, preempts=True),
    )
    timed_out = world.koordinator("default/late-gang", 9, 9)
    world.pod_group("declared", 2)
    world.gang("asks", 8, 8)
    world.gang("kept", 8, 8)
    room = (ClassRoom(world.scheduling_class(), {"n0": 1}),)
    world.append("planner.a", [ev.RoomRequested(group=f"default/{name}", room=room) for name in ("kept", "asks")])
    world.append("planner.a", [ev.RoomRequested(group="default/nobody", room=room)])
    binders: list[ev.Event] = [
        ev.VersionsAnnounced(rules=(1,), state=(1,)),
        ev.EvictionIntended(uid="alone", namespace="default", name="alone", resource_version="1", reason="r"),
        ev.GangTimedOut(group="default/late-gang", pods=((timed_out[0], "1"),)),
        ev.RoomReserved(group="default/kept", priority=0, room=room, waiting_ms=9_000),
        ev.GroupNominated(group="default/huge", assignments=(NodeAssignment("n0", ("huge-0",)),), waiting_ms=9_000),
        ev.SnapshotTaken(sequence=1, digest="d", bytes=1, state=1),
    ]
    world.append("binder", binders, cause="by hand")
    world.deleted("train-1")
    world.koordinator("default/frozen", 2, 2)
    world.propose("default/frozen", {"frozen-0": "n2"})
    world.koordinator("default/frozen", 2, 2, {"groups": ("default/frozen", "default/late-gang")})
    return world


def test_each_table_of_the_state_outlives_a_start_from_a_snapshot() -> None:
    """An open eviction, a mark that is to be written, a request without an answer …"""
    state = with_all_tables().state
    again = snapshot.decode(snapshot.encode(state))
    for name in snapshot.FORM.recorded:
        found = getattr(state, name)
        assert found or not isinstance(found, dict), name
        assert getattr(again, name) == found, name
    for name in DERIVED:
        assert getattr(again, name) == getattr(state, name) != {}, name


def test_from_any_snapshot_the_same_digest_and_the_same_decisions() -> None:
    world = busy()
    world.settle()
    digest = snapshot.digest(world.state)
    state = State()
    for stored in world.log.commits:
        state.apply_stored(stored)
        data = snapshot.encode(state)
        assert snapshot.digest(refold(world, snapshot.decode(data))) == digest


@pytest.mark.parametrize("seed", range(6))
def test_from_any_snapshot_of_a_random_walk(seed: int) -> None:
    walk = Walk(seed)
    snapshots = []
    for _ in range(8):
        walk.walk(40)
        snapshots.append(snapshot.encode(walk.state))
    walk.settle()
    digest = snapshot.digest(walk.state)
    for data in snapshots:
        assert snapshot.digest(refold(walk.world, snapshot.decode(data))) == digest


def test_a_snapshot_of_a_snapshot_is_the_same_bytes() -> None:
    data = snapshot.encode(busy().state)
    assert snapshot.encode(snapshot.decode(data)) == data


def test_the_digest_tells_states_apart() -> None:
    world = busy()
    before = snapshot.digest(world.state)
    world.pod("one-more")
    assert snapshot.digest(world.state) != before


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        (b"epoch 1\n", b'epoch "first"\n', "epoch: Expected `int`"),
        (b"epoch 1\n", b"", "without epoch"),
        (b"epoch 1\n", b"era 1\n", "'era', which this version does not record"),
        (b"epoch 1\n", b"\xe5poch 1\n", "poch', which this version does not record"),
        (b'"stage":"held"', b'"stage":7', r"claims: Expected `str`, got `int` - at `\$\[\.\.\.\].stage`"),
        (b"epoch 1\n", b"epoch 1", "epoch: JSON is malformed"),
    ],
)
def test_a_damaged_snapshot_names_what_does_not_fit(was: bytes, becomes: bytes, told: str) -> None:
    data = snapshot.encode(busy().state)
    assert was in data
    with pytest.raises(Damaged, match=told):
        snapshot.decode(data.replace(was, becomes))


# --------------------------------------------------------------------------------------------------------- as it is kept


def unpacked(packed: bytes, digest: str) -> State:
    return at_once(snapshot.FORM.unpack(packed, digest))


def test_what_is_derived_is_built_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard holds its lease while it restores a snapshot."""
    state = busy().state
    whole = snapshot.encode(state)
    few = sum(1 for _ in snapshot.FORM.restore(whole.splitlines()))
    monkeypatch.setattr(snapshot, "SLICE_RECORDS", 1)
    more = sum(1 for _ in snapshot.FORM.restore(whole.splitlines()))
    assert more - few == len(state.nodes) + len(state.claims) > 5
    monkeypatch.setattr(tallies, "SLICE_MEMBERS", 1)
    counting = sum(1 for _ in snapshot.FORM.restore(whole.splitlines()))
    assert counting - more == sum(len(gang.members) for gang in state.gangs.values()) > 5
    assert snapshot.encode(snapshot.decode(whole)) == whole


def test_what_is_packed_comes_back_and_equal_states_are_equal_bytes() -> None:
    state = busy().state
    packed, digest = snapshot.FORM.pack(state)
    assert digest == snapshot.digest(state)
    assert packed[4:8] == bytes(4), "gzip's head says no time"
    again = unpacked(packed, digest)
    assert snapshot.FORM.pack(again) == (packed, digest)
    assert len(packed) < len(snapshot.encode(state)) / 3


def test_a_large_table_comes_in_portions_and_in_slices() -> None:
    state = State()
    many = PORTION * 2 + 1
    state.holders.update((f"planner.{i}", "somebody") for i in range(many))
    lines = [line for line in snapshot.FORM.lines(state) if line.startswith(b"holders ")]
    assert [line.count(b"somebody") for line in lines] == [1_000, 1_000, 1]  # not by `PORTION`: digests are in logs
    packed, digest = snapshot.FORM.pack(state)
    assert unpacked(packed, digest).holders == state.holders
    assert sum(1 for _ in snapshot.FORM.unpack(packed, digest)) >= 3


@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_were_torn_or_turned_are_damaged(seed: int) -> None:
    source = random.Random(seed)
    packed, digest = snapshot.FORM.pack(busy().state)
    torn = packed[: source.randrange(len(packed))]
    place = source.randrange(10, len(packed))  # behind gzip's head, of which some bits mean nothing
    turned = packed[:place] + bytes([packed[place] ^ 1 << source.randrange(8)]) + packed[place + 1 :]
    for broken in (torn, turned):
        with pytest.raises(Damaged):
            unpacked(broken, digest)


def test_another_state_under_this_digest_is_damaged() -> None:
    packed, _ = snapshot.FORM.pack(busy().state)
    with pytest.raises(Damaged, match="its digest is"):
        unpacked(packed, snapshot.digest(State()))


# -------------------------------------------------------------------------------------------- what the fold sets aside


def records(state: State) -> dict[bytes, bytes]:
    """Attribute → its one line."""
    return {line.partition(b" ")[0]: line for line in snapshot.FORM.lines(state)}


def stored(world: World, subject: str, header: bytes, payload: bytes) -> Stored:
    return Stored(sequence=world.state.sequence + 1, subject=subject, message_id="x", header=header, payload=payload)


def header(writer: str) -> bytes:
    return envelope.encode_header(Header(writer=writer, epoch=0, basis=0, time_ns=0, cause="facts"))


@pytest.mark.parametrize(
    ("subject", "head"),
    [
        ("muster.test.ingest", b"not json"),
        ("muster.test.ingest", header("binder")),
        ("muster.test.stranger", header("stranger")),
        ("elsewhere", header("ingest")),
    ],
)
def test_what_is_nobodys_commit_is_set_aside_and_counted(subject: str, head: bytes) -> None:
    world = busy()
    before = world.state.sequence
    assert world.state.apply_stored(stored(world, subject, head, b"[]")) is None
    assert (world.state.set_aside, world.state.sequence) == (1, before + 1)


@pytest.mark.parametrize("payload", [b"not json", b'[{"type":"Unheard"}]', b'[{"type":"PodDeleted"}]'])
def test_a_known_writers_commit_that_cannot_be_folded_stops_the_service(payload: bytes) -> None:
    world = busy()
    with pytest.raises(UnknownCommit, match=r"muster\.test\.ingest"):
        world.state.apply_stored(stored(world, "muster.test.ingest", header("ingest"), payload))


@pytest.mark.parametrize(
    ("writer", "event"),
    [
        ("ingest", ev.PodBound(uid="late", namespace="default", name="late", node="n0")),
        ("planner.a", ev.PodDeleted(uid="late", namespace="default", name="late")),
        ("binder", ev.PodDeleted(uid="late", namespace="default", name="late")),
        ("admin", ev.Ticked(time_ns=1, jumped_ns=0)),
    ],
)
def test_an_event_of_somebody_elses_is_ignored_and_counted(writer: str, event: ev.Event) -> None:
    world = busy()
    before = records(world.state)
    world.append(writer, [event])
    assert world.state.ignored == {type(event).__name__: 1}
    after = records(world.state)
    assert {name for name in after if after[name] != before.get(name)} == {b"sequence", b"ignored"}


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_snapshot_of_what_is_not_folded_yet_is_ignored_and_counted(ahead: int) -> None:
    """Its own commit is not, either: who took it had not read that."""
    world = busy()
    taken = ev.SnapshotTaken(sequence=world.state.sequence + ahead, digest="d", bytes=1, state=1)
    world.append("binder", [taken], cause="by hand")
    assert (world.state.snapshots, world.state.ignored) == ({}, {"SnapshotTaken": 1})


def test_every_event_has_its_transition() -> None:
    from services.state.fold import APPLY

    assert set(APPLY) == set().union(*subjects.WRITES.values())

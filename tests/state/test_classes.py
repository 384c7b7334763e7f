"""Scheduling classes go with whatever names them last, and so does all that grows with what was there once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import ClassRoom, SelectorRequirement, SelectorTerm, Taint
from events.policy import DEFAULT_POLICY
from services.planner.placement import Room
from services.state import masks, snapshot
from services.state.nodes import LABELS_KEPT, SPARE, NodeTable
from services.state.resources import BASE_RESOURCES
from services.state.validate import validate_state
from tests import facts
from tests.facts import scheduling_class
from tests.world import World

POLICY = msgspec.structs.replace(
    DEFAULT_POLICY, replacement_hold_ms=30_000, nominate_after_refusals=1, nomination_hold_ms=30_000
)


def names(world: World) -> list[str]:
    return sorted(known.fact.digest for known in world.state.classes.values())


def test_a_class_goes_with_its_last_pod() -> None:
    world = World()
    of = world.scheduling_class(cpu=2)
    world.pod("a", of=of)
    world.pod("b", of=of)
    world.finished("a")
    world.deleted("a")
    assert names(world) == [of]
    world.deleted("b")
    assert names(world) == []
    world.pod("c", of=of)
    assert [known.pods for known in world.state.classes.values()] == [1]


def test_a_pod_that_is_of_another_class_leaves_its_own() -> None:
    world = World()
    world.node("n0")
    world.pod("a", node="n0", cpu=2)
    world.pod("a", node="n0", cpu=3)
    assert names(world) == [world.scheduling_class(cpu=3)]
    assert world.state.claims["a"].scheduling_class == world.scheduling_class(cpu=3)


def test_a_class_may_come_a_commit_before_its_first_pod() -> None:
    """It may have just gone with its last one; an ingest that ends in between leaves it to the next."""
    world = World()
    of = world.scheduling_class()
    world.pod("a", of=of)
    world.facts(ev.PodDeleted(uid="a", namespace="default", name="a"), world.classes[of])
    assert names(world) == [of]
    world.facts(ev.IngestTaken(holder="next"))
    assert names(world) == []


def test_the_ingest_that_follows_takes_nothing_from_pods() -> None:
    world = World()
    world.pod("a")
    before = names(world)
    world.facts(ev.IngestTaken(holder="next"))
    assert names(world) == before


# ------------------------------------------------------------------------------------------------ room that names them


def _lost() -> tuple[World, Callable[[], object]]:
    """The room of a failed member is kept, and all of its kind are gone."""
    world = World(POLICY)
    world.node("n0")
    world.pod_group("train", 2)
    world.pod("train-0", "train", cpu=2)
    world.pod("train-1", "train")
    world.settle()
    world.deleted("train-0")
    assert world.state.lost
    return world, lambda: (world.judge(), world.pass_s(40), world.settle())


def _nominated() -> tuple[World, Callable[[], object]]:
    world, end = _lost()
    world.judge()
    assert world.state.nominations
    return world, end


def _of_a_group() -> tuple[World, Callable[[], object]]:
    """A gang lost to another shard's; the member whose room is kept went."""
    world = World(POLICY)
    for name in ("n0", "n1"):
        world.node(name, cpu=2)
    world.pod("train-0", "train", minimum=2, cpu=2)
    world.pod("train-1", "train", cpu=1)
    world.propose("default/train", {"train-0": "n0", "train-1": "n1"})
    world.pod("stranger", node="n1", candidate=False, cpu=1.5)
    world.judge()
    assert world.state.group_nominations
    world.deleted("train-0")
    return world, lambda: (world.pass_s(40), world.settle())


def _asked() -> tuple[World, Callable[[], object]]:
    world = World()
    world.node("n0", cpu=2)
    world.pod("holder", node="n0", candidate=False)
    world.pod_group("train", 2)
    world.pod("train-0", "train", cpu=2)
    world.pod("train-1", "train", cpu=1.5)
    world.plan()
    room = (ClassRoom(world.scheduling_class(cpu=2), {"n0": 1}),)
    world.append("planner.a", [ev.RoomRequested(group="default/train", room=room)])
    world.deleted("train-0")
    return world, world.judge


def _reserved() -> tuple[World, Callable[[], object]]:
    world, _ = _asked()
    (request,) = world.state.room_requests.values()
    reserved = ev.RoomReserved(group=request.group, priority=0, room=request.room, waiting_ms=1_000)
    world.append("binder", [reserved], cause="by hand")
    assert world.state.reservations
    return world, lambda: (world.pass_s(2), world.settle())


@pytest.mark.parametrize("kept", [_lost, _nominated, _of_a_group, _asked, _reserved])
def test_it_stays_while_room_is_kept_for_it_and_goes_with_that(
    kept: Callable[[], tuple[World, Callable[[], object]]],
) -> None:
    world, end = kept()
    of = world.scheduling_class(cpu=2)
    assert world.state.classes[of].pods == 0
    again = snapshot.decode(snapshot.encode(world.state))
    validate_state(again)
    assert again.kept_classes == world.state.kept_classes != {}
    world.facts(ev.IngestTaken(holder="next"), ev.ClusterSynced(nodes=2, pods=1))
    assert of in names(world)
    end()
    assert of not in names(world)
    assert not world.state.kept_classes


def test_room_for_a_class_that_went_meanwhile_is_neither_asked_for_nor_reserved() -> None:
    """Planner and binder decided at a place where it was there."""
    world, _ = _asked()
    (request,) = world.state.room_requests.values()
    other = (ClassRoom(world.scheduling_class(cpu=1.5), {"n0": 1}),)
    asked = [ev.RoomRequested(group=request.group, room=room) for room in (other, request.room)]
    reserved = ev.RoomReserved(group=request.group, priority=0, room=request.room, waiting_ms=1_000)
    world.append("planner.a", asked[:1])
    assert world.scheduling_class(cpu=2) not in (known.scheduling_class for known in other)
    assert list(world.state.kept_classes) == [world.scheduling_class(cpu=1.5)]
    world.facts(ev.IngestTaken(holder="next"), ev.ClusterSynced(nodes=1, pods=2))
    world.append("binder", [reserved], cause="by hand")
    world.append("planner.a", asked[1:])
    assert world.state.room_requests[request.group].room == other
    assert not world.state.reservations
    assert world.state.ignored == {"RoomReserved": 1, "RoomRequested": 1}


def test_room_for_two_classes_of_which_one_went_is_not_asked_for_either() -> None:
    world, _ = _asked()
    (request,) = world.state.room_requests.values()
    gone = ClassRoom("gone", {"n0": 1})
    world.append("planner.a", [ev.RoomRequested(group=request.group, room=(*request.room, gone))])
    assert world.state.room_requests[request.group].room == request.room
    assert world.state.ignored == {"RoomRequested": 1}


# ----------------------------------------------------------------------------------------------- what is derived of them


def node(number: int, cpu: int, resource: str, amount: int, zone: str) -> ev.NodeObserved:
    offered = {"cpu_milli": cpu, "memory_bytes": 1 << 30, "pods": 20, resource: amount}
    return facts.node(f"n{number}", offered, uid="u", labels={"zone": zone})


def of(number: int, cpu: int, resource: str, amount: int, zone: str) -> ev.SchedulingClassObserved:
    asked = {"cpu_milli": cpu, "pods": 1, resource: amount}
    return scheduling_class(f"c{number}", asked, node_selector={"zone": zone} if zone else None)


NUMBERS = st.integers(0, 2)
RESOURCES = st.sampled_from(["gpu", "fpga", "nic"])
ZONES = st.sampled_from("ab")
STEPS = st.lists(
    st.one_of(
        st.builds(node, NUMBERS, st.sampled_from([2_000, 8_000]), RESOURCES, st.sampled_from([0, 2, 8]), ZONES),
        st.builds(of, NUMBERS, st.sampled_from([200, 1_900]), RESOURCES, st.sampled_from([0, 1]), ZONES),
        st.builds(of, NUMBERS, st.sampled_from([200, 1_900]), RESOURCES, st.just(0), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("gone"), st.sampled_from(["n0", "n1", "n2"])),
        st.tuples(st.just("dropped"), st.sampled_from(["c0", "c1", "c2"])),
        st.tuples(st.just("dropped"), st.sampled_from(["c0", "c1", "c2"])),
    ),
    max_size=30,
)


class Rows:
    """A table, and which claims are on which node, there or not."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.claims: list[tuple[str, str]] = []

    def step(self, step: Any) -> None:
        table = self.table
        match step:
            case ev.NodeObserved():
                new = step.name not in table.rows
                table.put(step)
                self.count([claim for claim in self.claims if new and claim[0] == step.name], 1)
            case ev.SchedulingClassObserved() if step.digest not in table.classes:
                table.add_class(step)
            case ("gone", name) if name in table.rows:
                table.remove(name)
            case ("dropped", digest) if digest in table.classes:
                self.count([claim for claim in self.claims if claim[1] == digest], -1)
                self.claims = [claim for claim in self.claims if claim[1] != digest]
                table.drop_class(digest)

    def count(self, claims: list[tuple[str, str]], sign: int) -> None:
        for name, digest in claims:
            if name in self.table.rows:
                self.table.claim(self.table.rows[name], self.table.classes[digest], sign, False)

    def afresh(self) -> Rows:
        """The same from what is there alone."""
        fresh = Rows()
        for fact in self.facts():
            fresh.table.put(fact)
        for info in self.table.classes.values():
            fresh.table.add_class(info.fact)
        fresh.count(self.claims, 1)
        return fresh

    def facts(self) -> list[ev.NodeObserved]:
        return [fact for fact in self.table.facts if fact is not None]

    def resources(self) -> set[str]:
        """What somebody offers or asks for."""
        amounts = [fact.allocatable for fact in self.facts()] + [i.fact.requests for i in self.table.classes.values()]
        return {name for each in amounts for name, amount in each.items() if amount}


@given(STEPS, st.sampled_from(["least-allocated", "binpack"]))
@settings(deadline=None, max_examples=300)
def test_a_table_that_forgot_places_as_one_that_never_knew(steps: list[Any], score: str) -> None:
    """Masks, shares, counts and columns of what is gone meet nobody who comes after it."""
    rows = Rows()
    for step in steps:
        rows.step(step)
        tables = rows.table, rows.afresh().table
        rooms = [Room(table, score) for table in tables]
        for digest in list(rows.table.classes):
            kept, fresh = (
                [(table.names[row], pods) for row, pods in room.place(table.classes[digest], 3, 7)]
                for table, room in zip(tables, rooms, strict=True)
            )
            assert kept == fresh
            rows.claims += (claims := [(name, digest) for name, _ in kept[:1]])
            rows.count(claims, 1)
        assert set(rows.table.resources.places) == rows.resources() | set(BASE_RESOURCES)
        assert rows.table.resources.columns.keys() <= rows.table.resources.places.keys()


def test_a_class_in_anothers_place_has_neither_its_masks_nor_what_it_takes() -> None:
    """No node changes in between, so that nothing else makes anybody forget."""
    world = World()
    world.node("n0", cpu=4, labels={"zone": "a"})
    world.node("n1", cpu=8, labels={"zone": "b"})
    table = world.state.table
    for zone, cpu, node in (("a", 1, "n0"), ("b", 1, "n1"), (None, 3, "n1"), ("a", 2, "n0"), ("b", 6, "n1")):
        world.pod("one", selector={"zone": zone} if zone else None, cpu=cpu)
        world.settle()
        assert world.where("one") == [node]
        assert [info.number for info in table.classes.values()] == [1]
        world.deleted("one")
        assert not table.constraints
        assert not len(table.filtered)
        assert not len(table.preferences)


def test_a_class_in_anothers_place_takes_what_it_asks_for_itself() -> None:
    """A pod of one cpu leaves most on the small node, one of three on the large one."""
    world = World()
    world.node("n0", cpu=4)
    world.node("n1", cpu=8)
    world.pod("holder", node="n1", candidate=False, cpu=2)
    numbers = set()
    for cpu, node in ((1, "n0"), (3, "n1"), (1, "n0")):
        world.pod("one", cpu=cpu)
        world.settle()
        assert world.where("one") == [node]
        numbers.add(world.state.table.classes[world.scheduling_class(cpu)].number)
        world.deleted("one")
    assert len(numbers) == 1


@pytest.mark.parametrize("offered", ["gpu", "nic"])
def test_claims_that_are_not_counted_yet_are_of_the_class_that_was(offered: str) -> None:
    table = NodeTable()
    row = table.put(node(0, 8_000, offered, 8, "a"))
    for number, amount in enumerate((3, 0, 2, 0)):
        table.add_class(of(number, 500 + number, "gpu", amount, ""))
        info = table.classes[f"c{number}"]
        assert info.number == 1
        table.claim(row, info, 1, False)
        by_column = {column: taken for column, taken in enumerate(table.held[row].tolist()) if taken}
        assert by_column == info.amounts
        table.claim(row, info, -1, False)
        table.drop_class(f"c{number}")
    assert not table.held.any()
    assert table.resources.names[4:] == [offered, None][: 1 + (offered == "nic")]
    assert not table.unoffered


def test_a_class_beside_another_has_masks_of_its_own() -> None:
    world = World()
    world.node("n0", labels={"zone": "a"})
    world.node("n1", labels={"zone": "b"})
    for name, zone in (("first", "a"), ("stays", "b")):
        world.pod(name, selector={"zone": zone})
    world.settle()
    world.deleted("first")
    world.pod("after", selector={"zone": "a"})
    world.settle()
    assert world.where("stays", "after") == ["n1", "n0"]


def test_masks_are_kept_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cycle may plan thousands of pods whose constraint is their own, over tens of thousands of nodes."""
    monkeypatch.setattr(masks, "MASKED_BYTES", 3 * 64)
    world = World()
    hosts = [f"n{number}" for number in range(8)]
    for host in hosts:
        world.node(host, labels={"host": host})
        world.pod(f"on-{host}", selector={"host": host})
    world.settle()
    assert world.where(*(f"on-{host}" for host in hosts)) == hosts
    table = world.state.table
    assert len(table.constraints) == 8
    assert len(table.present) == 64
    assert len(table.filtered) == 3


def job(world: World, number: int) -> None:
    """A gang that asks for a label and a resource of its own, on a node of its own: all of it comes and goes."""
    name, own = f"job-{number}", f"example.com/r{number}"
    key = SelectorRequirement(key=own, operator="In", values=(name,))
    term = SelectorTerm(match_expressions=(key,), match_fields=())
    fact = scheduling_class(name, {"cpu_milli": 1_000, "pods": 1, own: 1}, required_affinity=(term,))
    world.facts(
        fact,
        facts.node(
            name,
            {"cpu_milli": 4_000, "memory_bytes": 1 << 32, "pods": 10, own: 2},
            version=world.version(),
            labels={own: name, "host": name},
            taints=(Taint(key="left", value=name, effect="PreferNoSchedule"),),
        ),
    )
    world.gang(name, 2, 2, of=name)
    world.pod(f"{name}-waits", of=name)
    world.pod(f"{name}-by-host", selector={"host": name})
    world.settle()
    assert world.where(f"{name}-0", f"{name}-1", f"{name}-by-host") == [name] * 3


def end(world: World, number: int) -> None:
    name = f"job-{number}"
    for pod in ("0", "1", "waits", "by-host"):
        world.deleted(f"{name}-{pod}")
    world.facts(ev.NodeDeleted(name=name, uid=name))


def test_a_year_of_jobs_of_their_own_kind_leaves_nothing() -> None:
    world = World()
    job(world, 0)
    end(world, 0)
    world.settle()
    empty = {
        name: len(getattr(world.state, name))
        for name in snapshot.FORM.recorded
        if name not in ("owners", "clocks", "resources") and isinstance(getattr(world.state, name), (dict, list))
    }
    for number in range(1, LABELS_KEPT + 20):
        job(world, number)
        if number > 3:
            end(world, number - 3)
    data = snapshot.encode(world.state)
    at = world.state.sequence
    for number in range(LABELS_KEPT + 17, LABELS_KEPT + 20):
        end(world, number)
    end(world, 1)
    world.settle()
    state, table = world.state, world.state.table
    assert {name: len(getattr(state, name)) for name in empty} == empty
    assert len(table.requests) <= 16
    assert len(table.resources.names) <= 12
    assert table.allocatable.shape[1] <= 12
    assert len(table.constraints) == len(table.filtered) == len(table.preferences) == 0
    assert len(table._labels) <= LABELS_KEPT
    assert len(table.taint_sets) <= SPARE + 8
    assert all(len(codes) <= SPARE + 8 for codes, _ in table._labels.values())
    again = snapshot.decode(data)
    for stored in world.log.commits[at:]:
        again.apply_stored(stored)
    assert snapshot.digest(again) == snapshot.digest(state)


def test_columns_of_a_snapshot_have_their_holes() -> None:
    world = World()
    world.node("n0")
    for name in ("a", "b", "c"):
        world.facts(scheduling_class(name, {"pods": 1, f"example.com/{name}": 1}))
        world.pod(name, of=name)
    world.deleted("b")
    assert world.state.resources[4:] == ["example.com/a", None, "example.com/c"]
    again = snapshot.decode(snapshot.encode(world.state))
    assert again.resources == world.state.resources
    world.deleted("c")
    world.facts(scheduling_class("d", {"pods": 1, "example.com/d": 1}))
    again.apply_stored(world.log.commits[-2])
    again.apply_stored(world.log.commits[-1])
    assert again.resources == world.state.resources
    assert world.state.resources[4:] == ["example.com/a", "example.com/d", None]

"""Host ports within one cycle: what is free after some were opened and closed, and that nobody looks at others' ports."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import services.planner.ports
from events.objects import HostPort
from services.binder import core as binder
from services.binder import pace
from services.planner import core as planner
from services.planner.ports import Ports
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.nodes import NodeTable
from tests.facts import node, scheduling_class
from tests.state.test_open_ports import HOST_PORTS
from tests.world import World

ROWS = 3
CLASSES = st.lists(st.lists(HOST_PORTS, min_size=1, max_size=3), min_size=1, max_size=4)
KINDS = ["open", "open", "close", "look", "held", "given back", "lend", "keep again", "gone", "there", "cycle"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, ROWS - 1)), max_size=40)


class Compared:
    """The same, each pod compared with each other one."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.opened: list[tuple[ClassInfo, int]] = []
        self.lent: list[tuple[ClassInfo, int]] = []

    def free(self, info: ClassInfo) -> list[bool]:
        return [not self.taken(info, row) for row in range(self.table.size)]

    def taken(self, info: ClassInfo, row: int) -> bool:
        held = Counter(self.table.ports.get(row, {}))
        held -= Counter(port for other, at in self.lent for port in other.fact.host_ports if at == row)
        held.update(port for other, at in self.opened for port in other.fact.host_ports if at == row)
        return any(collide(port, other) for port in held for other in info.fact.host_ports)


def collide(one: HostPort, other: HostPort) -> bool:
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (one.host_ip == other.host_ip or "0.0.0.0" in (one.host_ip, other.host_ip))


@pytest.mark.parametrize("remembered", [0, 64])
@given(CLASSES, STEPS)
def test_a_port_is_free_where_no_pod_has_one_that_collides(
    remembered: int, classes: list[list[HostPort]], steps: list[tuple[str, int, int]]
) -> None:
    """Of this cycle, or of those that the state counts, but for what is lent; cycle after cycle, while nodes come and
    go."""
    table = NodeTable()
    for row in range(ROWS):
        table.put(node(f"n{row}", {"pods": 10}))
    for number, asked in enumerate(classes):
        table.add_class(scheduling_class(f"c{number}", {"pods": 1}, host_ports=tuple(asked)))
    infos, held = list(table.classes.values()), list[tuple[ClassInfo, int]]()
    ports, compared = Ports(table), Compared(table)
    with mock.patch.object(services.planner.ports, "REMEMBERED", remembered):
        for what, number, row in steps:
            info, at = infos[number % len(infos)], np.array([row])
            if what in ("held", "given back", "gone", "there", "cycle"):  # what the log says is folded between cycles
                _fold(table, held, what, info, row)
                ports, compared = Ports(table), Compared(table)
            elif what == "open":
                ports.open(info, at)
                compared.opened.append((info, row))
            elif what == "close" and (info, row) in compared.opened:
                ports.close(info, at)
                compared.opened.remove((info, row))
            elif what == "lend" and (info, row) in held and not compared.lent:
                ports.lend({info: [(row, 1)]})
                compared.lent.append((info, row))
            elif what == "keep again":
                ports.keep_again()
                compared.lent.clear()
            for one in infos if number else [info]:
                assert ports.free(one)[: table.size].tolist() == compared.free(one)


def _fold(table: NodeTable, held: list[tuple[ClassInfo, int]], what: str, info: ClassInfo, row: int) -> None:
    name = f"n{row}"
    if what == "gone" and name in table.rows:
        at = table.rows[name]
        held[:] = [one for one in held if one[1] != at]
        table.remove(name)
    elif what == "there":
        table.put(node(name, {"pods": 10}))
    elif what == "held" and table.present[row]:
        table.claim(row, info, 1, proposed=False)
        held.append((info, row))
    elif what == "given back" and (info, row) in held:
        table.claim(row, info, -1, proposed=False)
        held.remove((info, row))


def test_pods_that_ask_for_a_port_of_their_own_each_look_at_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one cycle, and in the next, when the nodes hold what the first one opened."""
    world, compared = World(), []
    meet = fits._meet
    monkeypatch.setattr(fits, "_meet", lambda *both: compared.append(both) or meet(*both))
    world.node("n0", cpu=100, memory_gi=100)
    for wave in (0, 1):
        for i in range(50):
            own = HostPort(host_ip="0.0.0.0", protocol="TCP", port=8_000 + 50 * wave + i)
            world.pod(f"p{wave}-{i}", ports=(own,))
        compared.clear()
        assert len(world.plan()) == 50
        assert len(compared) < 200
        world.settle()
    assert len(world.bound()) == 100


def test_pods_of_very_many_ports_cost_what_their_ports_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods on one node, with the same thousand ports at an address of their own each: ports are not compared with
    other ports."""
    compared = []
    meet = fits._meet
    monkeypatch.setattr(fits, "_meet", lambda *both: compared.append(both) or meet(*both))
    world, ports = World(), 1_000
    world.node("n0")
    for pod in ("p1", "p2"):
        address = f"10.0.0.{pod[1]}"
        world.pod(pod, ports=tuple(HostPort(host_ip=address, protocol="TCP", port=1 + at) for at in range(ports)))
    world.settle()
    assert world.where("p1", "p2") == ["n0", "n0"]
    assert len(compared) < 20 * ports


def test_pods_of_very_many_ports_are_planned_and_judged_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "SLICE_ROWS", 1_000)
    monkeypatch.setattr(pace, "SLICE_PODS", 100)
    world, pods = World(), 20
    world.node("n0")
    for pod in range(pods):
        address = f"10.0.0.{pod}"
        ports = tuple(HostPort(host_ip=address, protocol="TCP", port=1 + at) for at in range(100))
        world.pod(f"p{pod}", cpu=0.01, ports=ports)
    assert sum(1 for _ in planner.decide(world.state, "a")) >= pods
    world.plan()
    assert sum(1 for _ in binder.decide(world.state)) >= pods
    world.settle()
    assert len(world.bound()) == pods

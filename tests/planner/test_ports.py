"""Host ports within one cycle: what is free after some were opened and closed, and that nobody looks at others' ports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.objects import HostPort
from services.planner.ports import Ports
from services.state import fits
from services.state.nodes import NodeTable
from tests.facts import node, scheduling_class
from tests.world import World

ROWS = 3
PORTS = st.builds(
    HostPort,
    protocol=st.sampled_from(["TCP", "UDP"]),
    port=st.sampled_from([80, 81]),
    host_ip=st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),
)
CLASSES = st.lists(st.lists(PORTS, min_size=1, max_size=3), min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "close", "look"]), st.integers(0, 3), st.integers(0, ROWS - 1)), max_size=30
)


@given(CLASSES, STEPS)
def test_a_port_is_free_where_no_pod_of_this_cycle_has_one_that_collides(
    classes: list[list[HostPort]], steps: list[tuple[str, int, int]]
) -> None:
    table = NodeTable()
    for row in range(ROWS):
        table.put(node(f"n{row}", {"pods": 10}))
    for number, asked in enumerate(classes):
        table.add_class(scheduling_class(f"c{number}", {"pods": 1}, host_ports=tuple(asked)))
    infos = list(table.classes.values())
    ports, opened = Ports(table), [(0, 0)][:0]
    for what, number, row in steps:
        one = number % len(infos)
        if what == "open":
            ports.open(infos[one], np.array([row]))
            opened.append((one, row))
        elif what == "close" and (one, row) in opened:
            ports.close(infos[one], np.array([row]))
            opened.remove((one, row))
        else:
            taken = {at for other, at in opened if fits.classes_collide(infos[one], infos[other])}
            assert ports.free(infos[one])[:ROWS].tolist() == [row not in taken for row in range(ROWS)]


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

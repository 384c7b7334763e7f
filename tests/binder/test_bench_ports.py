"""Host ports on the bench: a verdict takes all of its ports or none, as if each pod were compared with each other one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from events.objects import HostPort
from services.binder.bench import Bench
from services.binder.pace import Pace
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import NodeTable
from services.state.records import Nomination
from services.state.slices import at_once
from tests.facts import node, scheduling_class
from tests.state.test_open_ports import HOST_PORTS

ROWS = 3
CLASSES = st.lists(st.lists(HOST_PORTS, max_size=3), min_size=1, max_size=4)
CLAIMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, ROWS - 1)), max_size=6)
WANTED = st.dictionaries(
    st.integers(0, 3),
    st.dictionaries(st.integers(0, ROWS - 1), st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=ROWS),
    min_size=1,
    max_size=3,
)
STEPS = st.lists(st.tuples(st.sampled_from(["take", "take", "give back", "crowded"]), WANTED), max_size=12)


class Compared:
    """The ports of a bench, each compared with each other one."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.opened: dict[int, list[HostPort]] = {}
        self.spare: dict[int, Counter[HostPort]] = {}

    def held(self, row: int) -> Counter[HostPort]:
        return Counter(self.table.ports.get(row, {})) - self.spare.get(row, Counter())

    def take(self, wanted: dict[str, dict[int, int]]) -> str:
        """The node where a port is taken."""
        pods: dict[int, list[ClassInfo]] = {}
        for digest, rows in wanted.items():
            info = self.table.classes[digest]
            for row, count in rows.items() if info.ports else ():
                pods.setdefault(row, []).extend([info] * count)
        taken: dict[int, list[HostPort]] = {}
        for row, infos in pods.items():
            there = [*self.held(row), *self.opened.get(row, ())]
            for info in infos:
                if any(collide(port, other) for port in there for other in info.fact.host_ports):
                    return self.table.names[row]
                there += info.fact.host_ports
                taken.setdefault(row, []).extend(info.fact.host_ports)
        for row, ports in taken.items():
            self.opened.setdefault(row, []).extend(ports)
        return ""

    def crowded(self, row: int, info: ClassInfo) -> bool:
        others = self.held(row) - Counter(info.fact.host_ports)
        return any(collide(port, other) for port in others for other in info.fact.host_ports)


def collide(one: HostPort, other: HostPort) -> bool:
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (one.host_ip == other.host_ip or "0.0.0.0" in (one.host_ip, other.host_ip))


@given(CLASSES, CLAIMS, STEPS)
def test_ports_are_taken_as_if_each_were_compared_with_each(
    classes: list[list[HostPort]], claims: list[tuple[int, int]], steps: list[tuple[str, dict[int, dict[int, int]]]]
) -> None:
    state = State()
    table = state.table
    for row in range(ROWS):
        table.put(node(f"n{row}", {"pods": 10}))
    for number, asked in enumerate(classes):
        table.add_class(scheduling_class(f"c{number}", {}, host_ports=tuple(asked)))
    infos = list(table.classes.values())
    held = [(infos[number % len(infos)], row) for number, row in claims]
    for info, row in held:
        table.claim(row, info, 1, proposed=False)
    bench, compared = Bench(state), Compared(table)
    for what, asked_for in steps:
        wanted = {infos[number % len(infos)].fact.digest: rows for number, rows in asked_for.items()}
        if what == "take":
            fault = at_once(bench.take(wanted, Pace()))
            assert ("" if fault is None else fault.node) == compared.take(wanted)
        elif what == "give back" and held:
            info, row = held.pop(len(wanted) % len(held))
            bench.give_back(Nomination("uid", "gang", table.names[row], info.fact.digest))
            compared.spare.setdefault(row, Counter()).update(info.fact.host_ports)
        for info, row in held:
            assert bench.crowded(table.names[row], info) == compared.crowded(row, info)

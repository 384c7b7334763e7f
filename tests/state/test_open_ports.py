"""Where host ports are open, as rows by port, says what comparing each pod with each other one says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from events.objects import HostPort
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.nodes import NodeTable
from services.state.open_ports import OpenPorts, bits_of, mask_of, rows_of
from tests.facts import node, scheduling_class

ROWS = 4
HOST_PORTS = st.builds(
    HostPort,
    protocol=st.sampled_from(["TCP", "UDP"]),
    port=st.sampled_from([80, 81]),
    host_ip=st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]),
)
CLASSES = st.lists(st.lists(HOST_PORTS, min_size=1, max_size=4), min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "close", "copy", "look"]),
        st.integers(0, 3),
        st.sets(st.integers(0, ROWS - 1), min_size=1),
    ),
    max_size=30,
)
CLAIMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, ROWS - 1)), max_size=10)


def table_of(classes: list[list[HostPort]]) -> tuple[NodeTable, list[ClassInfo]]:
    table = NodeTable()
    for row in range(ROWS):
        table.put(node(f"n{row}", {"pods": 10}))
    for number, asked in enumerate(classes):
        table.add_class(scheduling_class(f"c{number}", {"pods": 1}, host_ports=tuple(asked)))
    return table, list(table.classes.values())


@given(st.sets(st.integers(0, 300)))
def test_bits_are_rows(rows: set[int]) -> None:
    bits = bits_of(sorted(rows))
    assert bits == sum(1 << row for row in rows)
    assert rows_of(bits) == sorted(rows)
    assert mask_of(bits, 301).nonzero()[0].tolist() == sorted(rows)


@given(CLASSES, STEPS)
def test_a_port_is_taken_where_a_pod_opened_one_that_collides(
    classes: list[list[HostPort]], steps: list[tuple[str, int, set[int]]]
) -> None:
    """However often it was opened there, and when some of these are closed again."""
    _, infos = table_of(classes)
    ports, opened = OpenPorts(), Counter[tuple[int, int]]()
    for what, number, rows in steps:
        one = number % len(infos)
        if what == "open":
            ports.open(infos[one], bits_of(list(rows)))
            opened.update((one, row) for row in rows)
        elif what == "close" and (there := [row for row in rows if opened[one, row]]):
            ports.close(infos[one], bits_of(there))
            opened.subtract((one, row) for row in there)
        elif what == "copy":
            before, ports = ports, ports.copy()
            before.open(infos[one], bits_of(list(rows)))
        for info in infos:
            taken = {row for (other, row), pods in opened.items() if pods and fits.classes_collide(info, infos[other])}
            assert rows_of(ports.where(info)) == sorted(taken)


@given(CLASSES, CLAIMS, CLAIMS, st.none() | st.sets(st.integers(0, ROWS - 1)))
def test_a_port_is_held_where_somebody_holds_one_that_collides_and_is_not_spared(
    classes: list[list[HostPort]], claims: list[tuple[int, int]], spared: list[tuple[int, int]], rows: set[int] | None
) -> None:
    table, infos = table_of(classes)
    for number, row in claims:
        table.claim(row, infos[number % len(infos)], 1, proposed=False)
    less: dict[int, Counter[HostPort]] = {}
    for number, row in spared:
        less.setdefault(row, Counter()).update(infos[number % len(infos)].fact.host_ports)
    for info in infos:
        expected = set()
        for row in range(ROWS) if rows is None else rows:
            held = Counter(table.ports.get(row, {})) - less.get(row, Counter())
            if any(collides(port, other) for port in held for other in info.fact.host_ports):
                expected.add(row)
        assert fits.where_held(table, info, rows, less) == expected


def collides(one: HostPort, other: HostPort) -> bool:
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (one.host_ip == other.host_ip or "0.0.0.0" in (one.host_ip, other.host_ip))


def test_ports_that_the_same_pods_opened_share_their_rows() -> None:
    """A set of rows is some kilobytes in a large cluster, and a class may ask for thousands of ports."""
    asked = [[HostPort(host_ip=f"10.0.0.{of}", protocol="TCP", port=1 + at) for at in range(500)] for of in range(3)]
    _, infos = table_of(asked)
    ports = OpenPorts()
    for row in (900, 990, 999):
        for info in infos:
            ports.open(info, bits_of([row]))
    ports.close(infos[0], bits_of([900]))
    assert len({id(rows) for rows in ports._rows.values()}) <= len(infos) + 1

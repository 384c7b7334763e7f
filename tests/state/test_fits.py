"""The one answer to 'does this go there': against a naive one, node by node, and Kubernetes' own rules by name."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import DECLARED, HostPort, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.planner.ports import Ports
from services.state import fits
from services.state.masks import EVERY
from services.state.nodes import NodeTable
from services.state.slices import at_once
from services.state.tolerations import Tolerations
from tests.facts import scheduling_class
from tests.state import naive
from tests.world import World

KEYS = st.sampled_from(["zone", "disk", "size", DECLARED + "Some"])
VALUES = st.sampled_from(["a", "b", "3", "10"])
LABELS = st.dictionaries(KEYS, VALUES, min_size=2)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(
    st.one_of(
        st.builds(lambda key, value, effect: Taint(key=key, value=value, effect=effect), KEYS, VALUES, EFFECTS),
        st.just(naive.UNSCHEDULABLE),
    ),
    max_size=2,
)
TOLERATIONS = st.lists(
    st.builds(
        lambda key, operator, value, effect: Toleration(key=key, operator=operator, value=value, effect=effect),
        st.one_of(KEYS, st.sampled_from(["", "node.kubernetes.io/unschedulable"])),
        st.sampled_from(["Exists", "Equal", ""]),
        st.one_of(VALUES, st.just("")),
        st.one_of(EFFECTS, st.just("")),
    ),
    max_size=2,
)
REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: SelectorRequirement(key=key, operator=operator, values=tuple(values)),
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: SelectorRequirement(key=key, operator=operator, values=()),
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: SelectorRequirement(key=key, operator=operator, values=(value,)),
        KEYS,
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["3", "5"]),
    ),
)
FIELDS = st.builds(
    lambda operator, name: SelectorRequirement(key="metadata.name", operator=operator, values=(name,)),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "gone"]),
)
TERMS = st.builds(
    lambda expressions, fields: SelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields)),
    st.lists(REQUIREMENTS, min_size=1, max_size=2),
    st.lists(FIELDS, max_size=1),
)
NOWHERE = [(), (SelectorTerm(match_expressions=(), match_fields=()),)]
PORTS = st.lists(
    st.builds(
        lambda ip, protocol, port: HostPort(host_ip=ip, protocol=protocol, port=port),
        st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from([80, 443]),
    ),
    max_size=2,
)
AMOUNTS = st.fixed_dictionaries(
    {"cpu_milli": st.integers(0, 3), "memory_bytes": st.integers(0, 3), "pods": st.just(1)},
    optional={"nvidia.com/gpu": st.integers(0, 2), "ephemeral_storage_bytes": st.integers(0, 2)},
)
CLASSES = st.builds(
    lambda requests, selector, affinity, tolerations, ports: {
        "requests": requests,
        "node_selector": selector,
        "required_affinity": None if affinity is None else tuple(affinity),
        "tolerations": tuple(tolerations),
        "host_ports": tuple(ports),
    },
    AMOUNTS,
    st.dictionaries(KEYS, VALUES, max_size=1),
    st.one_of(st.none(), st.lists(TERMS, min_size=1, max_size=2), st.sampled_from(NOWHERE)),
    TOLERATIONS,
    PORTS,
)
NODES = st.builds(
    lambda labels, taints, unschedulable, cpu, gpu: {
        "labels": labels,
        "taints": tuple(taints),
        "unschedulable": unschedulable,
        "allocatable": {"cpu_milli": cpu, "memory_bytes": 6, "pods": 4, **({"nvidia.com/gpu": gpu} if gpu else {})},
    },
    LABELS,
    st.one_of(st.just([]), TAINTS),
    st.booleans(),
    st.integers(0, 8),
    st.integers(0, 2),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 4), NODES),
        st.tuples(st.just("gone"), st.integers(0, 4), st.none()),
        st.tuples(st.just("pod"), st.integers(0, 4), st.integers(0, 3)),
        st.tuples(st.just("deleted"), st.integers(0, 12), st.none()),
        st.tuples(st.just("proposed"), st.integers(0, 4), st.integers(0, 3)),
    ),
    min_size=8,
    max_size=25,
)


def observe_class(world: World, digest: str, asked: dict) -> None:
    world.facts(ev.SchedulingClassObserved(digest=digest, preferred_affinity=(), unsupported=(), **asked))


def walk(classes: list[dict], steps: list[tuple]) -> World:
    """Nodes that come, change and go, and pods on them, before and after the nodes' own facts."""
    world = World()
    for number, asked in enumerate(classes):
        observe_class(world, str(number), asked)
    pods = 0
    for what, number, detail in steps:
        name = f"n{number}"
        match what:
            case "node":
                world.facts(ev.NodeObserved(name=name, uid=name, resource_version=world.version(), **detail))
            case "gone":
                world.facts(ev.NodeDeleted(name=name, uid=name))
            case "pod":
                world.pod(f"p{pods}", of=str(detail % len(classes)), node=name, candidate=False)
                pods += 1
            case "proposed":
                world.pod(f"p{pods}", of=str(detail % len(classes)))
                world.propose(f"pod/default/p{pods}", {f"p{pods}": name})
                pods += 1
            case "deleted":
                world.deleted(f"p{number}")
    return world


@given(st.lists(CLASSES, min_size=1, max_size=4), STEPS)
@settings(deadline=None, max_examples=200)
def test_the_table_agrees_with_one_node_and_one_pod_at_a_time(classes: list[dict], steps: list[tuple]) -> None:
    world = walk(classes, steps)
    state, table = world.state, world.state.table
    nodes = {name: node.fact for name, node in state.nodes.items() if node.fact is not None}
    assert set(table.rows) == set(nodes)
    left = table.allocatable - table.held - table.proposed
    for name, node in nodes.items():
        free, of_row = naive.free(state, node), left[table.rows[name]]
        for resource, column in table.resources.columns.items():
            assert of_row[column] == free.get(resource, 0)
    assert table.classes.keys() == state.classes.keys()
    for digest, info in table.classes.items():
        asked = state.classes[digest].fact
        feasible, room, pods = fits.feasible(table, info), fits.has_room(left, info), fits.capacity(left, info)
        ports = Ports(table).free(info) if info.ports else None
        assert not feasible[~table.present].any()
        for name, node in nodes.items():
            at = table.rows[name]
            welcome = naive.untolerated(node, asked) is None and naive.featured(node, asked)
            fitting = welcome and naive.selected(node, asked)
            assert feasible[at] == fitting
            assert room[at] == (not naive.lacking(state, node, asked))
            assert (pods[at] > 0) == room[at]
            assert (ports is None or ports[at]) == naive.ports_free(state, node, asked)
        why = Counter(reason for node in nodes.values() for reason in naive.reasons(state, node, asked))
        assert fits.why_not(table, left, info, ports) == dict(sorted(why.items()))


@given(st.lists(st.integers(-5, 30), min_size=3, max_size=3), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_capacity_is_how_often_has_room_says_yes(left: list[int], asked: list[int]) -> None:
    table = NodeTable()
    requests = dict(zip(("cpu_milli", "memory_bytes", "pods"), asked, strict=True))
    table.add_class(scheduling_class("x", requests))
    info = table.classes["x"]
    free = np.array([[left[0], left[1], 0, left[2], 0]], np.int64)
    if not any(asked):
        assert fits.capacity(free, info)[0] == fits.NO_LIMIT
        return
    taken = 0
    room, of_one_node = free.copy(), free[0].tolist()
    while fits.has_room(room, info)[0]:
        room -= table.requests[info.number]
        taken += 1
        assert fits.take(of_one_node, info, 1)
        assert of_one_node == room[0].tolist()
    assert fits.capacity(free, info)[0] == taken
    assert not fits.take(of_one_node, info, 1)
    fits.take(of_one_node, info, -1 - taken)
    assert of_one_node == free[0].tolist()


# ------------------------------------------------------------------------------------------------- Kubernetes' rules


def toleration(key: str = "", operator: str = "", value: str = "", effect: str = "") -> Toleration:
    return Toleration(key=key, operator=operator, value=value, effect=effect)


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("given_toleration", "expected"),
    [
        (toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (toleration("gpu", "", "yes"), True),
        (toleration("gpu", "Equal", "no"), False),
        (toleration("gpu", "Exists"), True),
        (toleration("", "Exists"), True),
        (toleration("", "Equal", "yes"), False),
        (toleration("gpu", "Exists", effect="NoExecute"), False),
        (toleration("cpu", "Exists"), False),
        (toleration("gpu", "Near", "yes"), False),
        (toleration("gpu", "Gt", "1"), False),
    ],
)
def test_tolerates_as_kubernetes_does(given_toleration: Toleration, expected: bool) -> None:
    assert Tolerations([given_toleration]).cover(TAINT) is expected


@pytest.mark.parametrize(("operator", "value", "expected"), [("Gt", "4", True), ("Gt", "5", False), ("Lt", "6", True)])
def test_numeric_tolerations_compare_the_taints_value(operator: str, value: str, expected: bool) -> None:
    taint = Taint(key="sla", value="5", effect="NoSchedule")
    assert Tolerations([toleration("sla", operator, value)]).cover(taint) is expected


@pytest.mark.parametrize(
    ("operator", "value", "taint", "expected"),
    [
        ("Gt", "-5", "0", True),
        ("Gt", "3", "007", False),
        ("Lt", "07", "5", False),
        ("Lt", "+7", "5", False),
        ("Gt", "-0", "5", False),
        ("Lt", str(1 << 63), "5", False),
        ("Lt", str((1 << 63) - 1), "5", True),
        ("Gt", str(-(1 << 63)), "5", True),
        ("Lt", "9", "x", False),
    ],
)
def test_tolerations_compare_decimal_integers(operator: str, value: str, taint: str, expected: bool) -> None:
    """KEP-5471: values are decimal integers of 64 bits without zeros in front; others tolerate nothing."""
    found = Taint(key="sla", value=taint, effect="NoSchedule")
    assert Tolerations([toleration("sla", operator, value)]).cover(found) is expected


def why_not(world: World, digest: str) -> dict[str, int]:
    table = world.state.table
    return fits.why_not(table, table.allocatable - table.held, table.classes[digest], None)


@pytest.mark.parametrize("order", [("n0", "n1", "n2"), ("n2", "n1", "n0"), ("n1", "n0", "n2")])
def test_an_unschedulable_node_and_one_with_the_taint_are_told_apart(order: tuple[str, ...]) -> None:
    """Whichever came first: a snapshot may bring them back in another order, and the refusal must be the same."""
    world = World()
    for name in order:
        world.node(name, unschedulable=name != "n1", taints=(naive.UNSCHEDULABLE,) if name == "n1" else ())
    assert why_not(world, world.scheduling_class()) == {
        "node(s) had untolerated taint {node.kubernetes.io/unschedulable: }": 1,
        "node(s) were unschedulable": 2,
    }


@pytest.mark.parametrize("backwards", [False, True])
def test_a_refusal_names_the_taints_of_most_nodes_and_counts_the_others_together(backwards: bool) -> None:
    """Each node may have a taint of its own name: what is said of thousands stands on each pod that waits."""
    world = World()
    world.node("off", unschedulable=True)
    taints = [f"{number:02}" for number in range(20)] + ["common", "common"]
    for at, value in sorted(enumerate(taints), reverse=backwards):
        world.node(f"n{at}", taints=(Taint(key="of", value=value, effect="NoSchedule"),))
    named = {f"node(s) had untolerated taint {{of: {number:02}}}": 1 for number in range(15)}
    assert why_not(world, world.scheduling_class()) == {
        **named,
        "node(s) had untolerated taint {of: common}": 2,
        "node(s) had untolerated taint(s)": 5,
        "node(s) were unschedulable": 1,
    }


def test_nodes_that_the_affinity_does_not_name_are_counted_as_such() -> None:
    """As the kube-scheduler: when each term names nodes, it looks at no other node, whatever is wrong with it."""
    world = World()
    for number in range(4):
        world.node(f"n{number}", cpu=1, unschedulable=number > 1)
    named = [
        SelectorTerm(match_expressions=(), match_fields=(field("In", f"n{number}"), field("NotIn", "n3")))
        for number in (0, 2)
    ]
    digest = world.scheduling_class(affinity=tuple(named), cpu=2)
    assert why_not(world, digest) == {
        "Insufficient cpu": 1,
        "node(s) didn't satisfy plugin(s) [NodeAffinity]": 2,
        "node(s) were unschedulable": 1,
    }
    never = SelectorTerm(match_expressions=(), match_fields=(field("In", "n0"), field("In", "n1")))
    assert why_not(world, world.scheduling_class(affinity=(never,))) == {"pod affinity terms conflict": 4}
    open_term = SelectorTerm(match_expressions=(), match_fields=(field("NotIn", "n0"),))
    digest = world.scheduling_class(affinity=(*named, open_term))
    assert why_not(world, digest) == {"node(s) were unschedulable": 2}


def test_a_feature_that_the_pod_needs_is_the_last_that_is_looked_at() -> None:
    world = World()
    feature = DECLARED + "RestartAllContainersOnContainerExits"
    for number, cpu in enumerate((1, 1, 8, 8)):
        world.node(f"n{number}", cpu=cpu, labels={feature: ""} if number % 2 else {})
    digest = world.scheduling_class(selector={feature: ""}, cpu=2)
    table = world.state.table
    assert why_not(world, digest) == {
        "Insufficient cpu": 2,
        "node(s) didn't match Pod's required features": 1,
    }
    assert fits.feasible(table, table.classes[digest])[[table.rows[f"n{number}"] for number in range(4)]].tolist() == [
        *(False, True),
        *(False, True),
    ]


def field(operator: str, name: str) -> SelectorRequirement:
    return SelectorRequirement(key="metadata.name", operator=operator, values=(name,))


def test_prefer_no_schedule_keeps_nobody_off() -> None:
    assert Tolerations(()).untolerated([Taint(key="x", value="", effect="PreferNoSchedule")]) is None


def nodes_for(affinity: tuple[SelectorTerm, ...] | None, **labels: str) -> bool:
    """Whether a node with these labels, named n0, matches."""
    world = World()
    world.node("n0", labels=labels)
    digest = world.scheduling_class(affinity=affinity)
    return bool(fits.feasible(world.state.table, world.state.table.classes[digest])[world.state.table.rows["n0"]])


def term(key: str, operator: str, *values: str) -> SelectorTerm:
    return SelectorTerm(
        match_expressions=(SelectorRequirement(key=key, operator=operator, values=values),), match_fields=()
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (term("zone", "In", "a", "b"), True),
        (term("zone", "In", "b"), False),
        (term("zone", "NotIn", "b"), True),
        (term("rack", "NotIn", "b"), True),
        (term("zone", "Exists"), True),
        (term("rack", "Exists"), False),
        (term("rack", "DoesNotExist"), True),
        (term("zone", "DoesNotExist"), False),
        (term("size", "Gt", "9"), True),
        (term("size", "Gt", "10"), False),
        (term("size", "Lt", "11"), True),
        (term("zone", "Gt", "1"), False),
        (term("size", "Gt", "x"), False),
        (term("rack", "Lt", "5"), False),
        (term("odd", "Gt", "1"), False),
        (term("wide", "Gt", "1"), False),
        (term("padded", "Gt", "6"), True),
        (term("size", "Gt", "-6"), False),
        (term("size", "Gt", "+6"), False),
        (term("zone", "Unheard", "a"), False),
    ],
)
def test_node_affinity_operators(wanted: SelectorTerm, expected: bool) -> None:
    """Numbers are of 64 bits, with any zeros in front; what could not be a label's value matches nothing."""
    labels = {"odd": "1_0", "wide": "9" * 20, "padded": "0" * 25 + "7"}
    assert nodes_for((wanted,), zone="a", size="10", **labels) is expected


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("In", [False, True, False]),
        ("NotIn", [True, False, True]),
        ("Exists", [True, True, True]),
        ("Gt", [False, False, True]),
        ("Lt", [True, False, False]),
    ],
)
def test_values_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch, operator: str, expected: list[bool]
) -> None:
    """A label may have thousands of them, and each class that waits may name others."""
    world = World()
    for number in range(3):
        world.node(f"n{number}", labels={"rack": str(number)})
    looked: list[str | None] = []
    matches = fits._value_matches
    monkeypatch.setattr(fits, "_value_matches", lambda one, value: (looked.append(value), matches(one, value))[1])
    mask = at_once(fits.term_mask(world.state.table, term("rack", operator, "1"), EVERY))
    assert mask[[world.state.table.rows[f"n{number}"] for number in range(3)]].tolist() == expected
    assert looked == [None]
    rows = np.array([world.state.table.rows[f"n{number}"] for number in range(3)])
    assert at_once(fits.term_mask(world.state.table, term("rack", operator, "1"), rows)).tolist() == expected


def test_terms_are_alternatives_and_their_requirements_are_not() -> None:
    both = SelectorTerm(
        match_expressions=(*term("zone", "In", "a").match_expressions, *term("disk", "Exists").match_expressions),
        match_fields=(),
    )
    assert nodes_for((both,), zone="a") is False
    assert nodes_for((both, term("zone", "Exists")), zone="a") is True


def test_no_terms_match_no_node_and_an_empty_term_neither() -> None:
    assert nodes_for(()) is False
    assert nodes_for((SelectorTerm(match_expressions=(), match_fields=()),)) is False
    assert nodes_for(None) is True


@pytest.mark.parametrize(
    ("operator", "name", "expected"), [("In", "n0", True), ("In", "n1", False), ("NotIn", "n1", True)]
)
def test_match_fields_names_the_node(operator: str, name: str, expected: bool) -> None:
    fields = (SelectorRequirement(key="metadata.name", operator=operator, values=(name,)),)
    assert nodes_for((SelectorTerm(match_expressions=(), match_fields=fields),)) is expected


def test_an_unschedulable_node_takes_who_tolerates_it() -> None:
    world = World()
    world.node("n0", unschedulable=True)
    world.pod("plain")
    world.pod("daemon", tolerations=(toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule"),))
    world.settle()
    assert world.where("plain", "daemon") == ["", "n0"]
    refusal = world.state.cohorts[world.state.groups["pod/default/plain"].cohort]
    assert refusal.message == "0/1 nodes are available: 1 node(s) were unschedulable."


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), False),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), False),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_host_ports_collide_by_address_protocol_and_number(
    one: tuple[str, str, int], other: tuple[str, str, int], collide: bool, together: bool
) -> None:
    """With those of pods that are there, and with those of the same cycle."""
    world = World()
    world.node("n0")
    for uid, (address, protocol, number) in (("first", one), ("second", other)):
        world.pod(uid, ports=(HostPort(host_ip=address, protocol=protocol, port=number),))
        if not together:
            world.settle()
    world.settle()
    assert world.where("first", "second") == ["n0", "" if collide else "n0"]


def test_what_is_not_asked_for_may_be_overdrawn() -> None:
    """NodeResourcesFit looks at what the pod requests: an overdrawn resource that it does not ask for is no obstacle."""
    world = World()
    world.node("n0", cpu=4, gpu=1)
    world.pod("holder", node="n0", candidate=False, cpu=1, gpu=1)
    world.node("n0", cpu=4)
    world.pod("alone")
    world.settle()
    assert world.where("alone") == ["n0"]

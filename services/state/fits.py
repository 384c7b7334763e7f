"""The one answer to 'does this go there', for planner and binder alike.

`feasible` is about what a node is (labels, taints, name), `capacity` and `has_room` about what it has left. The filters
and their words are the kube-scheduler's: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit,
NodeDeclaredFeatures. Readiness counts through taints only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from events.objects import DECLARED, HostPort, SelectorRequirement, SelectorTerm, Taint
from services.state.class_info import ClassInfo
from services.state.integers import OF_LABELS, read
from services.state.masks import Rows
from services.state.nodes import FACT_ROWS, Ints, Mask, NodeTable, Taints
from services.state.resources import NOWHERE
from services.state.tolerations import Tolerations

Filters = npt.NDArray[np.int8]
InSlices = Generator[None, None, Mask]
"""A mask, when enough was looked at for it."""
_key_of = attrgetter("key")

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
"""Who tolerates this goes to unschedulable nodes, whether they have the taint or not."""
_WERE_UNSCHEDULABLE = "node(s) were unschedulable"
EVERY_ADDRESS = "0.0.0.0"
_NO_ADDRESS: frozenset[str] = frozenset()
_NAME = "metadata.name"
"""The only field of a node that a selector may name."""
JUDGED = 4_096
"""Taints of nodes, judged between two looks at whether the slice is over."""
NO_LIMIT = 1 << 40
"""Pods of a class that asks for nothing; larger than any gang."""


# ------------------------------------------------------------------------------------------------------ what a node is


def turned_away(tainted: Taints, tolerations: Tolerations) -> str:
    """Why nodes that are tainted like this turn the pod away; empty: they do not."""
    unschedulable, taints = tainted
    if unschedulable and not tolerations.cover(_UNSCHEDULABLE):
        return _WERE_UNSCHEDULABLE
    taint = tolerations.untolerated(taints)
    return "" if taint is None else f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"


def _value_matches(requirement: SelectorRequirement, value: str | None) -> bool:
    """Kubernetes' node selector requirement on one label; `value` None: the label is absent."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and len(requirement.values) == 1 and _compares(requirement, value)
    return False


def _compares(requirement: SelectorRequirement, value: str) -> bool:
    """Whether both are integers, of 64 bits, and compare like this."""
    found, wanted = read(value, OF_LABELS), read(requirement.values[0], OF_LABELS)
    if found is None or wanted is None:
        return False
    return found > wanted if requirement.operator == "Gt" else found < wanted


def _label_mask(table: NodeTable, requirement: SelectorRequirement, rows: Rows) -> Mask:
    if not isinstance(rows, slice):
        table.rows_looked_at += (len(rows) + len(requirement.values) + 1) * FACT_ROWS
        values = [table.label(row, requirement.key) for row in rows.tolist()]
        met = {value: _value_matches(requirement, value) for value in dict.fromkeys(values)}
        return np.array([met[value] for value in values], np.bool_)
    codes, column = table.labels(requirement.key)
    table.rows_looked_at += len(column) + len(requirement.values) * FACT_ROWS
    allowed = np.zeros(len(codes) + 1, np.bool_)
    allowed[0] = _value_matches(requirement, None)
    match requirement.operator:  # without a look at each value that some node has
        case "In" | "NotIn":
            named = requirement.operator == "In"
            allowed[1:] = not named
            allowed[[codes[value] for value in requirement.values if value in codes]] = named
        case "Exists":
            allowed[1:] = True
        case "Gt" | "Lt":
            allowed[1:] = _compared(table, requirement, codes)
    return cast(Mask, allowed[column])


def _compared(table: NodeTable, requirement: SelectorRequirement, codes: dict[str, int]) -> Mask:
    """Which of a label's values, in the order of their codes, compare with the requirement's as it says."""
    wanted = read(requirement.values[0], OF_LABELS) if len(requirement.values) == 1 else None
    if wanted is None or not codes:  # of what somebody thought of, and no node has, nothing is kept
        return np.zeros(len(codes), np.bool_)
    kept = table.cache.get(("numbers", requirement.key))
    if kept is None or kept[0] is not codes:
        numbers = [read(value, OF_LABELS) for value in codes]
        found = np.array([number or 0 for number in numbers], np.int64)
        numeric = np.array([number is not None for number in numbers], np.bool_)
        kept = table.cache["numbers", requirement.key] = codes, found, numeric
    _, found, numeric = kept
    return cast(Mask, numeric & (found > wanted if requirement.operator == "Gt" else found < wanted))


def _field_mask(table: NodeTable, requirement: SelectorRequirement, rows: Rows) -> Mask:
    """Only `_NAME` exists, with In and NotIn (DaemonSets name their node so)."""
    if requirement.key != _NAME:
        return np.zeros_like(table.present[rows])
    table.rows_looked_at += len(requirement.values) * FACT_ROWS
    mask = _names(table, requirement.values, rows)
    return ~mask if requirement.operator == "NotIn" else mask


def _names(table: NodeTable, names: Iterable[str], rows: Rows) -> Mask:
    """Which of the rows are of one of these nodes."""
    mask = np.zeros(len(table.present), np.bool_)
    mask[[table.rows[name] for name in names if name in table.rows]] = True
    return mask[rows]


def term_mask(table: NodeTable, term: SelectorTerm, rows: Rows) -> InSlices:
    """Which of the rows match the term; a term without requirements matches none, as in Kubernetes."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros_like(table.present[rows])
    mask = table.present[rows].copy()
    # Those about one label together: its column may be gone when others had a turn.
    for requirement in sorted(term.match_expressions, key=_key_of):
        mask &= _label_mask(table, requirement, rows)
        if table.slice_over():
            yield
    for requirement in term.match_fields:
        mask &= _field_mask(table, requirement, rows)
        if table.slice_over():
            yield
    return mask


def _selected(table: NodeTable, info: ClassInfo, rows: Rows) -> InSlices:
    mask = yield from _labelled(table, info, rows, declared=False)
    if info.fact.required_affinity is not None:
        either = np.zeros(len(mask), np.bool_)
        for term in info.fact.required_affinity:
            either |= yield from term_mask(table, term, rows)
        mask &= either
    return mask


def _labelled(table: NodeTable, info: ClassInfo, rows: Rows, *, declared: bool) -> InSlices:
    """Which of the rows have what the class's node selector asks for: of the features that nodes declare, or of their
    labels."""
    mask = table.present[rows].copy()
    for key, value in info.fact.node_selector.items():
        if key.startswith(DECLARED) == declared:
            mask &= _label_mask(table, SelectorRequirement(key=key, operator="In", values=(value,)), rows)
            if table.slice_over():
                yield
    return mask


def nodes_named(info: ClassInfo) -> set[str] | None:
    """The nodes that the terms of the required affinity name; None: the class may go to others, too."""
    terms = info.fact.required_affinity
    if not terms:
        return None
    found: set[str] = set()
    for term in terms:
        wanted = [set(each.values) for each in term.match_fields if (each.key, each.operator) == (_NAME, "In")]
        if not wanted:
            return None
        found |= set.intersection(*wanted)
    return found


def of_taints(
    table: NodeTable, rows: Rows, judge: Callable[[Taints], bool | int]
) -> Generator[None, None, npt.NDArray[Any]]:
    """For each of the rows what `judge` says of its taints."""
    several = table.taint_sets if isinstance(rows, slice) else [table.tainted(row) for row in rows.tolist()]
    judged: list[bool | int] = []
    for at in range(0, len(several), JUDGED):
        some = several[at : at + JUDGED]
        judged += map(judge, some)
        table.rows_looked_at += len(some) * FACT_ROWS
        if table.slice_over():
            yield
    return np.array(judged)[table.taint_codes] if isinstance(rows, slice) else np.array(judged)


FITS, FEATURELESS, UNSELECTED, TAINTED, OTHERS, EMPTY = range(6)
"""Which filter turns a row down for a class, whatever room is there: none (0); its node lacks a feature, does not match,
is tainted, is none of those that the class names; there is no node. The kube-scheduler's first filter comes last."""


def filtered(table: NodeTable, info: ClassInfo) -> Filters:
    """For each row the first filter that turns it down for the class. Do not write to it."""
    return table.filtered.of(table, info, _filtered)


def filtered_in_slices(table: NodeTable, info: ClassInfo) -> Generator[None, None, None]:
    """Find that out, unless it is known: whoever asks next need not wait."""
    return table.filtered.in_slices(table, info, _filtered)


def _filtered(table: NodeTable, info: ClassInfo, rows: Rows) -> Generator[None, None, Filters]:
    present, only, tolerations = table.present[rows], nodes_named(info), info.constraint.tolerations
    down = {
        FEATURELESS: ~(yield from _labelled(table, info, rows, declared=True)),
        UNSELECTED: ~(yield from _selected(table, info, rows)),
        TAINTED: (yield from of_taints(table, rows, lambda tainted: bool(turned_away(tainted, tolerations)))),
        EMPTY: ~present,
    }
    if only is not None:
        down[OTHERS] = ~_names(table, only, rows)
    first = np.zeros(len(present), np.int8)
    for which, those in down.items():
        np.maximum(first, those * np.int8(which), out=first)
    return first


def feasible(table: NodeTable, info: ClassInfo) -> Mask:
    """Rows whose node the class may run on, whatever room there is. Do not write to it."""
    last = table.cache.get("feasible")  # thousands of classes may have one constraint
    if last is None or last[0] is not info.constraint:
        last = table.cache["feasible"] = info.constraint, filtered(table, info) == FITS
    return cast(Mask, last[1])


def admits(table: NodeTable, info: ClassInfo, row: int) -> bool:
    """Whether the class may run on the row's node, whatever room there is."""
    return bool(filtered(table, info)[row] == FITS)


# ---------------------------------------------------------------------------------------------------- what a node has


def capacity(free: Ints, info: ClassInfo) -> Ints:
    """How many pods of the class go into each row of `free` (rows × resources), by resources alone; never negative."""
    if not info.columns:
        return np.full(len(free), NO_LIMIT, np.int64)
    column, amount = info.columns[0]
    pods = free[:, column] // amount
    for column, amount in info.columns[1:]:
        np.minimum(pods, free[:, column] // amount if amount > 1 else free[:, column], out=pods)
    return np.maximum(pods, 0, out=pods)


def places(table: NodeTable, free: Ints, info: ClassInfo, pods: int) -> Ints:
    """For each row how many of so many pods of the class go there, given what is `free`; with host ports one."""
    most = 1 if info.ports else pods
    return np.where(feasible(table, info), np.minimum(capacity(free, info), most), 0)


def has_room(free: Ints, info: ClassInfo) -> Mask:
    """Rows of `free` that take one pod of the class, by resources alone."""
    mask: Mask | None = None
    for column, amount in info.columns:
        enough = free[:, column] >= amount
        mask = enough if mask is None else np.logical_and(mask, enough, out=mask)
    return np.ones(len(free), np.bool_) if mask is None else mask


def sizes(table: NodeTable, classes: Sequence[ClassInfo]) -> list[tuple[int, str]]:
    """How large a pod of each class is: the largest share that it takes of the largest node, in 2^-20; ties by digest."""
    largest = table.allocatable.max(axis=0, initial=1)

    def share(info: ClassInfo) -> int:
        shares = [(amount << 20) // max(int(largest[column]), 1) for column, amount in info.columns]
        return max((*shares, *(amount << 20 for amount in info.unoffered.values())), default=0)

    return [(share(info), info.fact.digest) for info in classes]


def takers(table: NodeTable, info: ClassInfo) -> int:
    """Nodes that take a pod of the class when nothing else is there."""
    return int(np.count_nonzero(feasible(table, info) & (capacity(table.allocatable, info) > 0)))


def take(left: list[int], info: ClassInfo, pods: int) -> bool:
    """Take the room of `pods` pods of the class (below 0: give it back) from what one node has `left`, by column.

    Whether it was there: of all that the class asks for. What it doesn't ask for may be overdrawn.
    """
    enough = True
    for column, amount in info.columns:
        rest = left[column] = left[column] - pods * amount
        if rest < 0:
            enough = False
    return enough


def ports_collide(one: ClassInfo, other: ClassInfo, port: tuple[str, int]) -> bool:
    """Two pods cannot open the same protocol and port unless both name different addresses."""
    return _meet(one.ports.get(port, _NO_ADDRESS), other.ports.get(port, _NO_ADDRESS))


def classes_collide(one: ClassInfo, other: ClassInfo) -> bool:
    """Whether a pod of each cannot be on one node, because of a port."""
    few, many = sorted((one, other), key=lambda info: len(info.ports))
    return any(ports_collide(few, many, port) for port in few.ports)


def _meet(some: AbstractSet[str], others: Collection[str]) -> bool:
    """Whether one of some addresses is one of the others; `EVERY_ADDRESS` is each."""
    if not some or not others:
        return False
    return EVERY_ADDRESS in some or EVERY_ADDRESS in others or not some.isdisjoint(others)


def holders(table: NodeTable, port: HostPort) -> list[int]:
    """Rows with a pod that holds the port under an address that collides."""
    rows = table.holders.get((port.protocol, port.port), {})
    if port.host_ip == EVERY_ADDRESS:
        return list(rows)
    return [row for row, held in rows.items() if port.host_ip in held or EVERY_ADDRESS in held]


def where_held(
    table: NodeTable, info: ClassInfo, rows: Collection[int] | None, spared: Mapping[int, Mapping[HostPort, int]]
) -> set[int]:
    """Rows, of these or of all, where pods hold ports that collide with the class's. `spared`: row → pods that do not
    count there, by what they hold."""
    found: set[int] = set()
    for port, addresses in info.ports.items():
        held = table.holders.get(port, {})
        here = held if rows is None else [row for row in rows if row in held] if held else ()
        found.update(row for row in here if _is_held(port, addresses, held[row], spared.get(row)))
    return found


def _is_held(
    port: tuple[str, int], addresses: set[str], held: dict[str, int], spared: Mapping[HostPort, int] | None
) -> bool:
    """Whether one of the addresses meets one at which more pods hold the port than are spared."""
    if not spared:
        return _meet(held.keys(), addresses)
    met = held if EVERY_ADDRESS in addresses else (*addresses, EVERY_ADDRESS)
    return any(held.get(address, 0) > spared.get(HostPort(address, *port), 0) for address in met)


def ports_shared(table: NodeTable, info: ClassInfo, row: int) -> bool:
    """Whether of the ports that one claim of the class holds there some are others', too, of a pod somebody else
    bound."""
    return bool(where_held(table, info, (row,), {row: Counter(info.fact.host_ports)}))


# ------------------------------------------------------------------------------------------------------- and why not


MOST_TAINTS = 16
"""That a refusal names. It stands on each pod that waits, and each node may have a taint of its own name."""
_OTHER_TAINTS = "node(s) had untolerated taint(s)"
"""The kube-scheduler's words for all of them, from v1.35 on."""
RESOURCE_WORDS = {
    "cpu_milli": "Insufficient cpu",
    "memory_bytes": "Insufficient memory",
    "ephemeral_storage_bytes": "Insufficient ephemeral-storage",
    "pods": "Too many pods",
}


def _turned_away(table: NodeTable, rows: Mask, info: ClassInfo) -> Counter[str]:
    """Reason → number of these rows, whose nodes are unschedulable or tainted; of the taints, those of most nodes."""
    nodes = np.bincount(table.taint_codes[np.flatnonzero(rows)], minlength=len(table.taint_sets)).tolist()
    away: Counter[str] = Counter()
    table.rows_looked_at += len(nodes) * FACT_ROWS
    for tainted, here in zip(table.taint_sets, nodes, strict=True):
        if here:
            away[turned_away(tainted, info.constraint.tolerations)] += here
    named = sorted(away.keys() - {_WERE_UNSCHEDULABLE}, key=lambda reason: (-away[reason], reason))
    for reason in named[MOST_TAINTS:]:
        away[_OTHER_TAINTS] += away.pop(reason)
    return away


def why_not(table: NodeTable, free: Ints, info: ClassInfo, ports: Mask | None) -> dict[str, int]:
    """Reason → number of nodes, in the kube-scheduler's words and its order of filters; sorted by reason.

    A node is counted under the first filter that turns it down; lack of room counts under each resource that lacks.
    `free` and `ports` (rows whose ports are free; None when the class asks for none) are as who asks sees them.
    """
    counts: dict[str, int] = {}

    def count(reason: str, rows: Mask) -> None:
        nodes = int(np.count_nonzero(rows))
        if nodes:
            counts[reason] = counts.get(reason, 0) + nodes

    first = filtered(table, info)
    word = "node(s) didn't satisfy plugin(s) [NodeAffinity]" if nodes_named(info) else "pod affinity terms conflict"
    count(word, first == OTHERS)
    counts.update(_turned_away(table, first == TAINTED, info))
    count("node(s) didn't match Pod's node affinity/selector", first == UNSELECTED)
    left = first <= FEATURELESS
    if ports is not None:
        count("node(s) didn't have free ports for the requested pod ports", left & ~ports)
        left &= ports
    names = {column: name for name, column in table.resources.columns.items()}
    roomy = left.copy()
    for column, amount in info.columns:
        short = left & (free[:, column] < amount)
        for name in info.unoffered if column == NOWHERE else (names[column],):
            count(RESOURCE_WORDS.get(name, f"Insufficient {name}"), short)
        roomy &= ~short
    count("node(s) didn't match Pod's required features", roomy & (first == FEATURELESS))
    return dict(sorted(counts.items()))

"""The table of nodes: room as one integer matrix, labels and taints as columns of codes.

`allocatable`, `held` and `proposed` are ``rows × resources`` (int64, units as in `events.objects.Resources`). Everything
here is derived from the records of the state: rows come and go with node facts and their order means nothing. Where an
order is needed, `rank` gives one that depends on the nodes' names alone. Nothing here outlives what it describes: rows,
class numbers and columns are reused when the node, the class, or all that offer or ask for the resource are gone.

A resource gets a column when a node first offers it. Until then all are alike: nobody has any. So a pod that asks for one
takes 1 in the column `NOWHERE` instead, of which each node has 0, whatever it is that the pod asks for there. Otherwise
each resource that some pod invents would be a column of all nodes. What such pods hold nevertheless, for others may have
put them on nodes, is counted in `unoffered`, and comes into the columns with these.

A *label column* holds for each row the code of its value of one key (0: the label is absent), so that a selector is one
look-up table over the distinct values and one gather over the rows. Taints work alike: one code for each distinct set;
and so does what a node offers. Codes are given anew when there are more than twice the number of nodes plus `SPARE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Set
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from events.facts import NodeObserved, SchedulingClassObserved
from events.objects import HostPort, Taint
from services.state.class_info import ClassInfo, Constraint
from services.state.masks import EVERY, Masks, Rows
from services.state.rank import Rank
from services.state.resources import Resources

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Taints = tuple[bool, tuple[Taint, ...]]
"""Whether a node is unschedulable, and its taints."""
UNTAINTED: Taints = (False, ())
Offer = tuple[tuple[str, int], ...]
"""What a node has of each resource, by name."""

HELD, PROPOSED = 0, 1
"""The two kinds of claims that the table counts: by the binder and the planners, and by the planners alone."""
PENDING = 1 << 15
"""Numbers that `NodeTable._pending` may hold, three for each claim: the claim that makes them more has all of them
counted."""
FEW = 3 * 4
"""Up to so many of these numbers are counted in a loop: for so few claims a call of numpy takes longer."""
LABELS_KEPT = 256
"""Labels that have a column; beyond that the oldest goes, and is made anew when somebody asks for it."""
PATCHED = 16, 256
"""If up to so many rows changed, or one in so many of all, masks are evaluated anew for these rows alone. If more did, it
is faster to evaluate them for all rows."""
SPARE = 64
"""Codes that there may be beyond twice the number of nodes."""
RECOUNTED = 1 << 12
"""So many counted rows are remembered for `NodeTable.recounted`. If there were more since it was asked last, it answers
that any row may have changed."""


FACT_ROWS = 32
"""To look at one node's own label, or to judge its taints, takes as long as to look so many rows up in a column."""
SLICE_LOOKED = 200_000
"""Rows looked at between two yields: some milliseconds."""


class NodeTable:
    """Rows for the nodes that have a fact. `size` rows are in use; some of them may be empty (not `present`)."""

    rows_looked_at = 0
    """For requirements on labels, and for taints, ever: measures the work, for slicing."""
    _sliced = 0
    """That it was when a slice was over."""

    def __init__(self) -> None:
        self.resources = Resources()
        self.rows: dict[str, int] = {}
        self.facts: list[NodeObserved | None] = []
        self.names: list[str] = []
        """The node of each row; an empty row keeps its last."""
        self.size = 0
        self.allocatable: Ints = np.zeros((0, self.resources.width), np.int64)
        self.requests: Ints = np.zeros((1, self.resources.width), np.int64)
        """What one pod of each class asks for: classes (by `ClassInfo.number`) × resources."""
        self._claimed: Ints = np.zeros((2, 0, self.resources.width), np.int64)
        """What claims take, as far as it is counted: held and proposed × rows × resources."""
        self._pending: list[int] = []
        """Claims that are not counted yet: `HELD` or `PROPOSED`, row, number of the class (negative: it gives room back);
        and so on. They are counted when somebody looks, many in one step."""
        self.unoffered: dict[int, dict[tuple[int, ClassInfo], int]] = {}
        """row → (`HELD` or `PROPOSED`, class) → claims, of classes that ask for something without a column."""
        self._recounted: list[npt.NDArray[np.int64]] | None = None
        """Rows that were counted anew since `recounted` was asked last; None: too many, or all."""
        self.present: Mask = np.zeros(0, np.bool_)
        self.version = 0
        """Raised when a node comes, goes, or changes its labels, taints or allocatable."""
        self._changed_at: Ints = np.zeros(0, np.int64)
        """For each row the `version` at which it changed last."""
        self.ports: dict[int, dict[HostPort, int]] = {}
        """row → port → pods that hold it."""
        self.holders: dict[tuple[str, int], dict[int, dict[str, int]]] = {}
        """The same by port: (protocol, port) → row → ip → pods that hold it."""
        self.classes: dict[str, ClassInfo] = {}
        self._free_numbers: list[int] = []
        self._dropped: list[int] = []
        """Numbers of classes that are gone, and that claims which are not counted yet may name."""
        self.constraints: dict[tuple[Any, ...], Constraint] = {}
        """By what they say."""
        self.filtered = Masks(1)
        """Which filter turns each row down for classes, a byte each (`services.state.fits`)."""
        self.preferences = Masks(4)
        """How much they prefer it, eight bytes each (`services.planner.placement`)."""
        self.taint_codes: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        """Of empty rows 0: as if they had none."""
        self._taint_sets: dict[Taints, int] = {UNTAINTED: 0}
        self.shape_codes: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        """Rows of equal allocatable have equal codes; empty rows are like nodes that offer nothing."""
        self._shapes: dict[Offer, int] = {(): 0}
        self._free_rows: list[int] = []
        self._labels: dict[str, tuple[dict[str, int], npt.NDArray[np.int32]]] = {}
        self._keys: Counter[str] = Counter()  # label → nodes that have it
        self._rank = Rank()
        self.cache: dict[Any, Any] = {}
        """What is true of all nodes as of this `version`; emptied when it rises."""

    @property
    def held(self) -> Ints:
        """What permitted, bound, nominated and held claims take: rows × resources."""
        return cast(Ints, self._counted()[HELD])

    @property
    def proposed(self) -> Ints:
        """What proposals without a verdict take: rows × resources."""
        return cast(Ints, self._counted()[PROPOSED])

    def _counted(self) -> Ints:
        if self._pending:
            kinds, rows, classes = np.array(self._pending).reshape(-1, 3).T
            if len(self._pending) <= FEW:
                for kind, row, number in zip(kinds.tolist(), rows.tolist(), classes.tolist(), strict=True):
                    if number > 0:
                        self._claimed[kind, row] += self.requests[number]
                    else:
                        self._claimed[kind, row] -= self.requests[-number]
            else:
                np.add.at(self._claimed, (kinds, rows), self.requests[np.abs(classes)] * np.sign(classes)[:, None])
            self._pending.clear()
            if self._recounted is not None:
                self._recounted.append(rows)
                if sum(map(len, self._recounted)) > RECOUNTED:
                    self._recounted = None
        return self._claimed

    def recounted(self) -> Ints | None:
        """Rows whose claims changed since this was asked last, some perhaps more than once; None: any row's may have.

        There can be one asker only, as each answer begins the list anew. It must keep what it knows in `cache`: that is
        emptied by whatever changes rows otherwise.
        """
        self._counted()
        rows, self._recounted = self._recounted, []
        if rows is None:
            return None
        return np.concatenate(rows) if rows else np.zeros(0, np.int64)

    # ----------------------------------------------------------------------------------------------------------- nodes

    def put(self, fact: NodeObserved) -> int:
        """Add or replace a node; returns its row. Claims on a new row are the caller's to add."""
        row = self.rows.get(fact.name)
        if row is None:
            row = self._free_rows.pop() if self._free_rows else self._grow()
            self.rows[fact.name] = row
            self._rank.came(fact.name)
        before, self.facts[row] = self.facts[row], fact
        self.names[row] = fact.name
        self._offer(row, fact.allocatable)
        self.present[row] = True
        self._keys.update(fact.labels.keys())
        if before is not None:
            self._uncount_labels(before)
        self._code(row, fact)
        if before is None or before.allocatable != fact.allocatable:
            self._code_shape(row, fact)
        if before is not None and before.allocatable != fact.allocatable:
            self._vacate(before.allocatable)
        self._changed(row)
        return row

    def remove(self, name: str) -> None:
        """Free the row of a node, with what its claims held there. Raises KeyError."""
        row = self.rows.pop(name)
        before, self.facts[row] = self.facts[row], None
        self.allocatable[row] = 0
        self._counted()[:, row] = 0
        self.unoffered.pop(row, None)
        self.present[row] = False
        self.shape_codes[row] = self.taint_codes[row] = 0  # codes of what is gone mean something else one day
        held = self.ports.pop(row, {})
        for key in dict.fromkeys((port.protocol, port.port) for port in held):  # perhaps at several addresses
            del self.holders[key][row]
            if not self.holders[key]:
                del self.holders[key]
        self._free_rows.append(row)
        self._rank.went(name)
        if before is not None:
            self._vacate(before.allocatable)
            self._uncount_labels(before)
        self._changed(row)

    def _changed(self, row: int) -> None:
        self.version += 1
        self._changed_at[row] = self.version
        self.cache.clear()

    def changed_since(self, version: int) -> Rows:
        """The rows that changed after this `version`; all, if they are many."""
        key = ("changed", version)
        if key not in self.cache:
            rows = np.flatnonzero(self._changed_at > version)
            few, part = PATCHED
            self.cache[key] = rows if len(rows) <= max(few, self.size // part) else EVERY
        return cast(Rows, self.cache[key])

    def _grow(self) -> int:
        if self.size == len(self.present):
            more = max(64, self.size)
            self.allocatable = _padded(self.allocatable, more, 0)
            self._claimed = _padded(self._claimed, 0, more, 0)
            self.present = _padded(self.present, more)
            self.taint_codes = _padded(self.taint_codes, more)
            self.shape_codes = _padded(self.shape_codes, more)
            self._changed_at = _padded(self._changed_at, more)
            self.filtered.clear()
            self.preferences.clear()
            self._labels = {key: (codes, _padded(column, more)) for key, (codes, column) in self._labels.items()}
        self.facts.append(None)
        self.names.append("")
        self.size += 1
        return self.size - 1

    # ------------------------------------------------------------------------------------------------------- resources

    def _offer(self, row: int, allocatable: dict[str, int]) -> None:
        """The row's node has this, and nothing else."""
        offered = {name: amount for name, amount in allocatable.items() if amount}
        self.resources.mention(offered)
        if missing := offered.keys() - self.resources.columns.keys():
            self._make_columns(missing)
        self.allocatable[row] = 0
        for name, amount in offered.items():
            self.allocatable[row, self.resources.columns[name]] = amount

    def _make_columns(self, names: Set[str]) -> None:
        """For resources that have none. The table is copied once."""
        self._counted()  # of classes as they are before
        self.resources.make_columns(sorted(names))
        if more := self.resources.width - self.allocatable.shape[1]:
            self.allocatable = _padded(self.allocatable, 0, more)
            self.requests = _padded(self.requests, 0, more)
            self._claimed = _padded(self._claimed, 0, 0, more)
        if any(map(self.resources.is_asked, names)):
            self._move_into_columns(names)

    def _move_into_columns(self, names: Set[str]) -> None:
        """Classes asked for these resources before they had columns, and claims of theirs may be counted."""
        more: dict[ClassInfo, Ints] = {}
        for info in self.classes.values():
            if not names.isdisjoint(info.unoffered):
                before = self.requests[info.number].copy()
                info.find_columns(self.resources.columns)
                self.requests[info.number] = 0
                self._set_requests(info)
                more[info] = self.requests[info.number] - before
        for row, claims in tuple(self.unoffered.items()):
            for (kind, info), pods in tuple(claims.items()):
                if info in more:
                    self._claimed[kind, row] += pods * more[info]
                    if not info.unoffered:
                        self._count_unoffered(row, kind, info, -pods)

    def _set_requests(self, info: ClassInfo) -> None:
        for column, amount in info.columns:
            self.requests[info.number, column] = amount

    def _vacate(self, names: Iterable[str]) -> None:
        """Free places and columns of those of these resources that nobody offers or asks for any more: they hold
        nothing."""
        for name in filter(self.resources.is_idle, names):
            column = self.resources.columns.get(name)
            if column is None or not self.allocatable[:, column].any():
                self.resources.drop(name)

    def overdrawn(self, row: int) -> dict[str, tuple[int, int]]:
        """Resource → what permitted, bound, nominated and held claims take there, and what the node offers, if that is
        less; in the order of their places."""
        resources = self.resources
        offered = {name: int(self.allocatable[row, column]) for name, column in resources.columns.items()}
        held = Counter({name: int(self.held[row, column]) for name, column in resources.columns.items()})
        for (kind, info), pods in self.unoffered.get(row, {}).items():
            if kind == HELD:
                held.update({name: pods * amount for name, amount in info.unoffered.items()})
        over = sorted((name for name in held if held[name] > offered.get(name, 0)), key=resources.places.__getitem__)
        return {name: (held[name], offered.get(name, 0)) for name in over}

    def add_class(self, fact: SchedulingClassObserved) -> None:
        """Give a class its number and columns; classes that constrain nodes alike share one constraint."""
        said = (
            tuple(sorted(fact.node_selector.items())),
            fact.required_affinity,
            fact.preferred_affinity,
            fact.tolerations,
        )
        constraint = self.constraints.get(said)
        if constraint is None:
            constraint = self.constraints[said] = Constraint(said, fact.tolerations)
        constraint.classes += 1
        if not self._free_numbers:
            self._free_dropped()
        number = self._free_numbers.pop() if self._free_numbers else len(self.classes) + 1
        info = self.classes[fact.digest] = ClassInfo(fact, self.resources.columns, constraint, number)
        if number == len(self.requests):
            self.requests = _padded(self.requests, number, 0)
        self.resources.ask(info.asked)
        self._set_requests(info)

    def drop_class(self, digest: str) -> None:
        """Forget a class of which there is no claim any more, and the masks that no other shares with it."""
        info = self.classes.pop(digest)
        self._dropped.append(info.number)
        self._vacate(self.resources.unask(info.asked))
        constraint = info.constraint
        constraint.classes -= 1
        if not constraint.classes:
            del self.constraints[constraint.said]
            self.filtered.drop(constraint)
            self.preferences.drop(constraint)

    def _free_dropped(self) -> None:
        """Nothing is counted by these numbers any more."""
        if self._dropped:
            self._counted()
            self.requests[self._dropped] = 0
            self._free_numbers += self._dropped
            self._dropped.clear()

    def claim(self, row: int, info: ClassInfo, sign: int, proposed: bool) -> None:
        """Count one more (`sign` 1) or one fewer (-1) pod of the class on the row."""
        kind = PROPOSED if proposed else HELD
        self._pending += (kind, row, sign * info.number)
        if len(self._pending) > PENDING:
            self._counted()
        if info.unoffered:
            self._count_unoffered(row, kind, info, sign)
        if info.fact.host_ports and not proposed:
            self._count_ports(row, info, sign)

    def accept(self, row: int, info: ClassInfo) -> None:
        """Count a proposed claim as held from now on."""
        self._pending += (PROPOSED, row, -info.number, HELD, row, info.number)
        if info.unoffered:
            self._count_unoffered(row, PROPOSED, info, -1)
            self._count_unoffered(row, HELD, info, 1)
        if info.fact.host_ports:
            self._count_ports(row, info, 1)

    def _count_unoffered(self, row: int, kind: int, info: ClassInfo, pods: int) -> None:
        claims = self.unoffered.setdefault(row, {})
        claims[kind, info] = claims.get((kind, info), 0) + pods
        if not claims[kind, info]:
            del claims[kind, info]
        if not claims:
            del self.unoffered[row]

    def _count_ports(self, row: int, info: ClassInfo, sign: int) -> None:
        held = self.ports.setdefault(row, {})
        for port in info.fact.host_ports:
            pods = held[port] = held.get(port, 0) + sign
            if not pods:
                del held[port]
            self._count_holders((port.protocol, port.port), row, port.host_ip, pods)

    def _count_holders(self, port: tuple[str, int], row: int, address: str, pods: int) -> None:
        rows = self.holders.setdefault(port, {})
        rows.setdefault(row, {})[address] = pods
        if not pods:
            del rows[row][address]
            if not rows[row]:
                del rows[row]
            if not rows:
                del self.holders[port]

    # ------------------------------------------------------------------------------------------------- labels and order

    def labels(self, key: str) -> tuple[dict[str, int], npt.NDArray[np.int32]]:
        """The label's distinct values with their codes (from 1), and the column of codes (0: absent)."""
        found = self._labels.get(key)
        if found is None:
            codes: dict[str, int] = {}
            if key not in self._keys:  # somebody may ask for thousands that no node has
                return codes, np.zeros(len(self.present), np.int32)
            column = np.zeros(len(self.present), np.int32)
            self.rows_looked_at += len(self.rows) * FACT_ROWS  # at 50,000 nodes this takes some 20 ms
            for row in self.rows.values():
                fact = self.facts[row]
                if fact is not None:
                    column[row] = self._label_code(codes, fact, key)
            if len(self._labels) == LABELS_KEPT:
                del self._labels[next(iter(self._labels))]
            found = self._labels[key] = (codes, column)
        return found

    def slice_over(self) -> bool:
        """Whether so many rows were looked at that the next slice is to begin; if so, it does."""
        over = self.rows_looked_at - self._sliced > SLICE_LOOKED
        if over:
            self._sliced = self.rows_looked_at
        return over

    def _code(self, row: int, fact: NodeObserved) -> None:
        """Code the row's taints, and its labels where somebody asked for them."""
        sets, most = self._taint_sets, 2 * len(self.rows) + SPARE
        self.taint_codes[row] = sets.setdefault(_taints(fact), len(sets))
        if len(sets) > most:
            self._taint_sets = sets = {UNTAINTED: 0}
            for other in self.rows.values():
                self.taint_codes[other] = sets.setdefault(_taints(self.facts[other]), len(sets))
        for key, (codes, column) in tuple(self._labels.items()):
            column[row] = self._label_code(codes, fact, key)
            if len(codes) > most:
                del self._labels[key]

    def _code_shape(self, row: int, fact: NodeObserved) -> None:
        shapes = self._shapes
        self.shape_codes[row] = shapes.setdefault(_offer(fact), len(shapes))
        if len(shapes) > 2 * len(self.rows) + SPARE:
            self._shapes = shapes = {(): 0}
            for other in self.rows.values():
                self.shape_codes[other] = shapes.setdefault(_offer(self.facts[other]), len(shapes))

    @property
    def shapes(self) -> int:
        """How many codes there are for what nodes offer."""
        return len(self._shapes)

    def _uncount_labels(self, fact: NodeObserved) -> None:
        for key in fact.labels:
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]

    @staticmethod
    def _label_code(codes: dict[str, int], fact: NodeObserved, key: str) -> int:
        value = fact.labels.get(key)
        return 0 if value is None else codes.setdefault(value, len(codes) + 1)

    def tainted(self, row: int) -> Taints:
        """The row's taints, of which its code speaks."""
        return _taints(self.facts[row])

    def label(self, row: int, key: str) -> str | None:
        """The value of the label on the row's node."""
        fact = self.facts[row]
        return None if fact is None else fact.labels.get(key)

    @property
    def taint_sets(self) -> list[Taints]:
        """Distinct sets of taints; a row's `taint_codes` points here."""
        return list(self._taint_sets)

    def rank(self) -> npt.NDArray[np.uint32]:
        """For each row a number that depends on the set of node names alone: 1 … n in order of the names' hash.

        None is 0: whoever multiplies it for an order of its own would find the same node first each time.
        """
        return self._rank.numbers(self.rows, len(self.present))

    def rank_in_slices(self) -> Generator[None, None, None]:
        """Sort the nodes, if nobody asked for their `rank` before: with 50,000 of them that takes longer than a slice."""
        return self._rank.first_in_slices(self.rows, len(self.present))


def _taints(fact: NodeObserved | None) -> Taints:
    return UNTAINTED if fact is None else (fact.unschedulable, fact.taints)


def _offer(fact: NodeObserved | None) -> Offer:
    return () if fact is None else tuple(sorted((name, amount) for name, amount in fact.allocatable.items() if amount))


def _padded(array: Any, *more: int) -> Any:
    """With so many more zeros at the end of each axis; numpy's own `pad` takes ten times as long."""
    grown = np.zeros([size + extra for size, extra in zip(array.shape, more, strict=True)], array.dtype)
    grown[tuple(map(slice, array.shape))] = array
    return grown

"""The table of nodes: room as one integer matrix, labels and taints as columns of codes.

`allocatable`, `held` and `proposed` are ``rows × resources`` (int64, units as in `events.objects.Resources`; a column
for each resource in the order of first mention). Everything here is derived from the records of the state: rows come and
go with node facts and their order means nothing. Where an order is needed, `rank` gives one that depends on the nodes'
names alone.

A *label column* holds for each row the code of its value of one key (0: the label is absent), so that a selector is one
look-up table over the distinct values and one gather over the rows. Taints work alike: one code for each distinct set.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from events.facts import NodeObserved, SchedulingClassObserved
from events.objects import Taint

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BASE_RESOURCES = ("cpu_milli", "memory_bytes", "ephemeral_storage_bytes", "pods")
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")


HELD, PROPOSED = 0, 1
"""The two kinds of claims that the table counts: by the binder and the planners, and by the planners alone."""
PENDING = 1 << 15
"""Three times the claims that wait to be counted before the next one counts them."""
FEW = 3 * 4
"""Up to so many are counted one by one, which numpy takes longer to be told."""
RECOUNTED = 1 << 12
"""Rows that were counted anew and that nobody asked for: with more, whoever asks looks at all of them."""


class ClassInfo:
    """A scheduling class, ready for arithmetic."""

    __slots__ = ("amounts", "columns", "constraint", "fact", "number")

    def __init__(self, fact: SchedulingClassObserved, amounts: dict[int, int], constraint: int, number: int) -> None:
        self.fact = fact
        self.amounts = amounts
        """column → amount of what is asked for, in order of the columns; what is asked for is never 0."""
        self.columns = list(amounts.items())
        self.constraint = constraint
        """Classes with an equal constraint share their masks."""
        self.number = number
        """Its row in the table's `requests`, from 1."""


class NodeTable:
    """Rows for the nodes that have a fact. `size` rows are in use; some of them may be empty (not `present`)."""

    def __init__(self) -> None:
        self.resources: dict[str, int] = {name: column for column, name in enumerate(BASE_RESOURCES)}
        self.rows: dict[str, int] = {}
        self.facts: list[NodeObserved | None] = []
        self.names: list[str] = []
        """The node of each row; an empty row keeps its last."""
        self.size = 0
        self.allocatable: Ints = np.zeros((0, len(BASE_RESOURCES)), np.int64)
        self.requests: Ints = np.zeros((1, len(BASE_RESOURCES)), np.int64)
        """What one pod of each class asks for: classes (by `ClassInfo.number`) × resources."""
        self._claimed: Ints = np.zeros((2, 0, len(BASE_RESOURCES)), np.int64)
        """What claims take, as far as it is counted: held and proposed × rows × resources."""
        self._pending: list[int] = []
        """Claims that are not counted yet: `HELD` or `PROPOSED`, row, number of the class (negative: it gives room back);
        and so on. They are counted when somebody looks, many in one step."""
        self._recounted: list[npt.NDArray[np.int64]] | None = None
        """Rows that were counted anew since `recounted` was asked last; None: too many, or all."""
        self.present: Mask = np.zeros(0, np.bool_)
        self.version = 0
        """Raised when a node comes, goes, or changes its labels, taints or allocatable."""
        self.ports: dict[int, dict[tuple[str, int, str], int]] = {}
        """row → (protocol, port, ip) → pods that hold it."""
        self.classes: dict[str, ClassInfo] = {}
        self._constraints: dict[Any, int] = {}
        self.taint_codes: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._taint_sets: dict[tuple[Taint, ...], int] = {(): 0}
        self._free_rows: list[int] = []
        self._labels: dict[str, tuple[dict[str, int], npt.NDArray[np.int32]]] = {}
        self._rank: npt.NDArray[np.uint32] | None = None
        self.cache: dict[Any, Any] = {}
        """Masks and scores by constraint, valid for this `version`; emptied when it rises."""

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
                for kind, row, number in zip(*[iter(self._pending)] * 3, strict=True):
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
        """Rows, repeated perhaps, whose claims changed since this was asked last; None: any may have. For one asker,
        whose own memory is in `cache`: what empties that changes all rows."""
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
            self._rank = None
        self.facts[row] = fact
        self.names[row] = fact.name
        for name in fact.allocatable:
            self.column(name)
        self.allocatable[row] = self._vector(fact.allocatable)
        self.present[row] = True
        taints = fact.taints + ((UNSCHEDULABLE_TAINT,) if fact.unschedulable else ())
        self.taint_codes[row] = self._taint_sets.setdefault(taints, len(self._taint_sets))
        for key, (codes, column) in self._labels.items():
            column[row] = self._label_code(codes, fact, key)
        self._changed()
        return row

    def remove(self, name: str) -> None:
        row = self.rows.pop(name)
        self.facts[row] = None
        self.allocatable[row] = 0
        self._counted()[:, row] = 0
        self.present[row] = False
        self.ports.pop(row, None)
        self._free_rows.append(row)
        self._rank = None
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.cache.clear()

    def _grow(self) -> int:
        if self.size == len(self.present):
            more = max(64, self.size)
            self.allocatable = _padded(self.allocatable, more, 0)
            self._claimed = _padded(self._claimed, 0, more, 0)
            self.present = _padded(self.present, more)
            self.taint_codes = _padded(self.taint_codes, more)
            self._labels = {key: (codes, _padded(column, more)) for key, (codes, column) in self._labels.items()}
        self.facts.append(None)
        self.names.append("")
        self.size += 1
        return self.size - 1

    # ------------------------------------------------------------------------------------------------------- resources

    def column(self, name: str) -> int:
        """The resource's column, made if it is new."""
        column = self.resources.get(name)
        if column is None:
            column = self.resources[name] = len(self.resources)
            self.allocatable = _padded(self.allocatable, 0, 1)
            self.requests = _padded(self.requests, 0, 1)
            self._claimed = _padded(self._claimed, 0, 0, 1)
            self.cache.clear()
        return column

    def _vector(self, amounts: dict[str, int]) -> Ints:
        vector = np.zeros(len(self.resources), np.int64)
        for name, amount in amounts.items():
            vector[self.resources[name]] = amount
        return vector

    def add_class(self, fact: SchedulingClassObserved) -> None:
        asked = sorted((self.column(name), amount) for name, amount in fact.requests.items() if amount)
        constraint = (
            tuple(sorted(fact.node_selector.items())),
            fact.required_affinity,
            fact.preferred_affinity,
            fact.tolerations,
        )
        constraint_number = self._constraints.setdefault(constraint, len(self._constraints))
        number = len(self.classes) + 1
        self.classes[fact.digest] = ClassInfo(fact, dict(asked), constraint_number, number)
        if number == len(self.requests):
            self.requests = _padded(self.requests, number, 0)
        for column, amount in asked:
            self.requests[number, column] = amount

    def claim(self, row: int, info: ClassInfo, sign: int, proposed: bool) -> None:
        """Count one more (`sign` 1) or one fewer (-1) pod of the class on the row."""
        self._pending += (PROPOSED if proposed else HELD, row, sign * info.number)
        if len(self._pending) > PENDING:
            self._counted()
        if info.fact.host_ports and not proposed:
            self._count_ports(row, info, sign)

    def accept(self, row: int, info: ClassInfo) -> None:
        """Count a proposed claim as held from now on."""
        self._pending += (PROPOSED, row, -info.number, HELD, row, info.number)
        if info.fact.host_ports:
            self._count_ports(row, info, 1)

    def _count_ports(self, row: int, info: ClassInfo, sign: int) -> None:
        held = self.ports.setdefault(row, {})
        for port in info.fact.host_ports:
            key = (port.protocol, port.port, port.host_ip)
            held[key] = held.get(key, 0) + sign
            if not held[key]:
                del held[key]

    # ------------------------------------------------------------------------------------------------- labels and order

    def labels(self, key: str) -> tuple[dict[str, int], npt.NDArray[np.int32]]:
        """The label's distinct values with their codes (from 1), and the column of codes (0: absent)."""
        found = self._labels.get(key)
        if found is None:
            codes: dict[str, int] = {}
            column = np.zeros(len(self.present), np.int32)
            for row in self.rows.values():
                fact = self.facts[row]
                if fact is not None:
                    column[row] = self._label_code(codes, fact, key)
            found = self._labels[key] = (codes, column)
        return found

    @staticmethod
    def _label_code(codes: dict[str, int], fact: NodeObserved, key: str) -> int:
        value = fact.labels.get(key)
        return 0 if value is None else codes.setdefault(value, len(codes) + 1)

    @property
    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """Distinct sets of taints; a row's `taint_codes` points here."""
        return list(self._taint_sets)

    def rank(self) -> npt.NDArray[np.uint32]:
        """For each row a number that depends on the set of node names alone: 1 … n in order of the names' hash.

        None is 0: whoever multiplies it for an order of its own would find the same node first each time.
        """
        if self._rank is None:
            ordered = sorted(self.rows, key=_name_hash)
            self._rank = np.zeros(len(self.present), np.uint32)
            self._rank[[self.rows[name] for name in ordered]] = np.arange(1, len(ordered) + 1, dtype=np.uint32)
        return self._rank


def _name_hash(name: str) -> tuple[bytes, str]:
    return hashlib.blake2b(name.encode(), digest_size=8).digest(), name


def _padded(array: Any, *more: int) -> Any:
    """With so many more zeros at the end of each axis; numpy's own `pad` takes ten times as long."""
    grown = np.zeros([size + extra for size, extra in zip(array.shape, more, strict=True)], array.dtype)
    grown[tuple(map(slice, array.shape))] = array
    return grown

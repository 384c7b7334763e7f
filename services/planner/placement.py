"""The arithmetic of placement: many pods of one scheduling class against all nodes at once.

`Room` is a cycle's working copy of what is free. `Room.place` puts up to `pods` pods where choosing node after node, the
best score first, would put them, without doing it pod by pod: for a score that falls with each pod (spread) the chosen
places are the best of all pairs (node, k-th pod on it), and every node that is used is among the best by its first pod;
for a score that rises (fill) the nodes are filled in order of their first pod.

With several shards a class's nodes are tried in levels: first those that it prefers most (affinity, taints), among them
the shard's own, and only within a level by score. Own nodes outrank a better score and never a preference; a shard whose
own nodes are full takes the others. One shard has no levels: there a preference and the score are summed.

Equal scores are ordered by a bijection of the nodes' `rank` that the caller's `seed` picks, so that the choice depends on
names alone and differs from group to group. All keys are distinct integers; no sort can see them in two orders.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from services.planner.ports import Ports
from services.planner.rules.node_score import SCORES
from services.state import fits, masks
from services.state.class_info import ClassInfo
from services.state.nodes import Ints, Mask, NodeTable, Taints
from services.state.resources import BASE_RESOURCES

CPU, MEMORY, _, PODS = range(len(BASE_RESOURCES))
"""Columns of the table."""
STEP_ROWS = 512
"""Beside its rows a step takes as long as to scan so many: what a gang of thousands of classes costs on a few nodes."""
CHUNK_PODS = 256
"""Pods that are spread in one step; bounds the table of pairs."""
WHOLE_BITS = 30
"""A resource that is wholly free counts 2^30; shares are scaled so that products stay below 2^31 and sums exact."""
SHARE_BITS = 10
REMEMBERED = 1_024
"""Amounts, at most, of which it is remembered what a pod that asks for them takes."""
SHARES_KEPT = 64
"""Sets of resources, at most, of which it is kept what each node has left of them together: half a megabyte each, at
50,000 nodes. Of a dozen resources that these offer, pods may ask for any few."""
_BEST = 1 << 24
_FARTHEST, _MOST_HELD = (1 << 31) - 1, 1 << 56
"""Beyond these, scores do not differ, nor does how much more is held of a resource than a node offers: where `100M` was
meant to be `100m`, keys' bits would not do."""
_FAR = 1 << 46
"""Beyond it, shares of nodes do not differ where shards have nodes of their own: the keys' bits would not do."""
_TAKEN = np.int64(np.iinfo(np.int64).max)
PREFERENCE_WEIGHT = 1 << SHARE_BITS
"""What a fully preferred node (all of the pod's preferred affinity) is worth for each resource that counts: as much as
if that resource were wholly free."""
_AVOIDED = "PreferNoSchedule"
_OWN = 61
"""The bit of a key by which a shard's own nodes come first. What is below it is a score and a tie."""
_SCORE_BITS, _LEVEL_BITS = 17, 14
"""Of a key's 31 upper bits, where a preference goes before that. Exact up to 63 resources that count, and three avoided
taints."""

Placed = list[tuple[int, int]]
"""(row, pods on it), the most attractive node first."""
Places = dict[ClassInfo, Placed]
"""Of pods of several classes."""
Rows = npt.NDArray[np.intp]


def split(placed: Placed, pods: int) -> tuple[Placed, Placed]:
    """The places of the first so many pods, and those of the others."""
    first: Placed = []
    rest: Placed = []
    for row, here in placed:
        kept = min(here, pods)
        pods -= kept
        if kept:
            first.append((row, kept))
        if kept < here:
            rest.append((row, here - kept))
    return first, rest


class Loan(NamedTuple):
    """Room that is kept for others than those who may take it for now."""

    kept: Places
    rows: Rows
    free: Ints
    """Of these rows, before."""


class Room:
    """What is free in one cycle. `rows_scanned` measures the work in rows, for slicing.

    A *share* of a row is what it has left, summed over the resources that count for a class, each as a fraction of the
    node's own. A class's pod takes the same from it on every node of one *shape* (nodes of equal allocatable), so shares
    are kept as sums that go down with every pod, and the k-th pod costs no more than the first.
    """

    def __init__(self, table: NodeTable, score: str) -> None:
        self.table = table
        self._left = Left.of(table)
        self.free: Ints = self._left.free.copy(order="F")
        self.rule = SCORES[score]
        self.rows_scanned = 0
        self.reserved: Ints | None = None
        """What of `free` is taken off for reservations; None: nothing is kept from the group that is being placed."""
        self.own: Ints | None = None
        """For each row 1 for a node of the shard's own, else 0; None: no node is anybody's."""
        self.ports = Ports(table)
        self._shares: dict[tuple[int, ...], Ints] = {}
        self._touched: Mask = np.zeros(len(self.free), bool)
        """Rows whose room was taken or given back in this cycle."""
        self._least: Ints = self._left.least.copy()

    def place(self, info: ClassInfo, pods: int, seed: int) -> Placed:
        """Places for up to `pods` pods of the class; takes their room. Fewer (or none) when there is no more room."""
        return list(chain.from_iterable(self.steps(info, pods, seed)))

    def steps(self, info: ClassInfo, pods: int, seed: int) -> Iterator[Placed]:
        """`place`, step by step: each looks at all nodes."""
        while pods > 0:
            wanted = pods if self.rule.FILLS else min(pods, CHUNK_PODS)
            rows, counts = self._step(info, wanted, seed)
            done = int(counts.sum())
            if not done:
                break
            self.take(info, rows, counts)
            yield list(zip(rows.tolist(), counts.tolist(), strict=True))
            pods -= done
            if done < wanted:
                break

    def place_within(self, info: ClassInfo, pods: int, places: dict[int, int]) -> Placed:
        """Places for up to `pods` pods of the class in these rows, no more in each than is said there; takes their room,
        and what it takes off `places`."""
        self.rows_scanned += len(places)
        rows = np.array(list(places), np.intp)
        if not rows.size:
            return []
        usable = fits.feasible(self.table, info)
        ports = self.ports_free(info)
        usable = usable[rows] if ports is None else usable[rows] & ports[rows]
        most = np.array(list(places.values()))
        deep = np.where(usable, np.minimum(fits.capacity(self.free[rows], info), most), 0)
        used, counts = self._fill(rows, np.minimum(deep, 1) if info.fact.host_ports else deep, pods)
        if not len(used):
            return []
        self.take(info, used, counts)
        placed = list(zip(used.tolist(), counts.tolist(), strict=True))
        for row, count in placed:
            places[row] -= count
        return placed

    def ports_free(self, info: ClassInfo) -> Mask | None:
        """Rows whose ports are free for the class, what this cycle opened counted; None when it asks for none."""
        return self.ports.free(info) if info.fact.host_ports else None

    def overdrawn(self, info: ClassInfo, row: int) -> bool:
        """Whether less than nothing is left there of something that the class asks for, whatever is reserved, or its
        ports are somebody else's, too."""
        free = self.free[row] if self.reserved is None else self.free[row] + self.reserved[row]
        if any(free[column] < 0 for column, _ in info.columns):
            return True
        return bool(info.fact.host_ports) and fits.ports_shared(self.table, info, row)

    def take(self, info: ClassInfo, rows: Rows, counts: Ints) -> None:
        """Take room for so many pods in each of these rows, whether it is there or not."""
        self._count(info, rows, counts)
        if info.fact.host_ports:
            self.ports.open(info, rows)

    def give_back(self, info: ClassInfo, rows: Rows, counts: Ints) -> None:
        """What `take` took."""
        self._count(info, rows, -counts)
        if info.fact.host_ports:
            self.ports.close(info, rows)

    def undo(self, info: ClassInfo, placed: Placed) -> None:
        """Give the room of `placed` back; more than one step may have used a row."""
        if placed:
            self.give_back(info, *_by_row(placed))

    def lend(self, kept: Places) -> Loan:
        """What the state keeps there for pods of these classes is free, its ports included, until it is kept again."""
        rows = np.array(sorted({row for placed in kept.values() for row, _ in placed}), np.intp)
        loan = Loan(kept, rows, self.free[rows])
        for info, placed in kept.items():
            used, counts = _by_row(placed)
            self._count(info, used, -counts)
        self.ports.lend(kept)
        return loan

    def keep_again(self, loan: Loan) -> None:
        """Of it is kept again what was not taken. Nowhere is more free than before, whatever of it was taken: until the
        binder gives it back, nobody else may have any of it."""
        free = np.minimum(loan.free, self.free[loan.rows])
        for info, placed in loan.kept.items():
            self._count(info, *_by_row(placed))
        used = loan.rows[(free > self.free[loan.rows]).any(axis=1)]
        self.free[loan.rows] = free
        for columns, share in self._shares.items():
            share[used] = self._shares_left(columns, used)
        self.ports.keep_again()

    def _count(self, info: ClassInfo, rows: Rows, counts: Ints) -> None:
        for column, amount in info.columns:
            left = self.free[rows, column] - counts * amount
            self.free[rows, column] = left
            self._least[column] = min(int(self._least[column]), int(left.min()))
        self._touched[rows] = True
        for columns, share in self._shares.items():
            share[rows] -= counts * self._left.shapes.taken(info, columns)[self._left.shapes.of_row[rows]]

    def _has_room(self, info: ClassInfo) -> Mask | None:
        """Rows that take one more pod by resources; None: all of them."""
        mask: Mask | None = None
        for column, amount in info.columns:
            if amount > self._least[column]:
                enough = self.free[:, column] >= amount
                mask = enough if mask is None else np.logical_and(mask, enough, out=mask)
        return mask

    def _usable(self, info: ClassInfo) -> Mask:
        """Rows that take one more pod. Do not write to it."""
        usable = fits.feasible(self.table, info)
        roomy = self._has_room(info)
        if roomy is not None:
            usable = usable & roomy
        ports = self.ports_free(info)
        return usable if ports is None else usable & ports

    # ------------------------------------------------------------------------------------------------------------ keys

    def _step(self, info: ClassInfo, pods: int, seed: int) -> tuple[Rows, Ints]:
        self.rows_scanned += self.table.size + STEP_ROWS
        usable = self._usable(info)
        if not usable.any():  # as for most that waits: no need to compare nodes
            # From its first use on a share goes down by what each pod takes, rounded. When that is, decides: so it is
            # used here, too, as it was when older logs were written.
            self._share(_counting(info))
            return _nothing()
        keys = np.where(usable, self._keys(info, seed, 1, None), _TAKEN)
        if pods == 1:
            return np.array([int(keys.argmin())]), np.ones(1, np.int64)
        rows = _smallest(keys, pods)
        deep = np.minimum(fits.capacity(self.free[rows], info), 1 if info.fact.host_ports else pods)
        return self._fill(rows, deep, pods) if self.rule.FILLS else self._spread(info, rows, deep, pods, seed)

    @staticmethod
    def _fill(rows: Rows, deep: Ints, pods: int) -> tuple[Rows, Ints]:
        before = np.cumsum(deep) - deep
        counts = np.clip(pods - before, 0, deep)
        used = counts > 0
        return rows[used], counts[used]

    def _spread(self, info: ClassInfo, rows: Rows, deep: Ints, pods: int, seed: int) -> tuple[Rows, Ints]:
        """The best `pods` of all pairs (row, k-th pod on it); looks as many pods deep as it has to."""
        depth, limit = min(2, int(deep.max())), int(deep.max())
        while True:
            steps = np.arange(1, depth + 1)[None, :]
            keys = self._keys(info, seed, steps, rows[:, None])
            keys[steps > deep[:, None]] = _TAKEN
            chosen = np.argsort(keys, axis=None, kind="stable")[:pods]
            values = keys.reshape(-1)[chosen]
            if depth == limit or (len(chosen) == pods and values[-1] < keys[:, -1].min()):
                break
            depth = min(depth * 4, limit)
        counts = np.bincount(chosen[values != _TAKEN] // depth, minlength=len(rows))
        used = counts > 0
        return rows[used], counts[used]

    def _keys(self, info: ClassInfo, seed: int, pod: int | Ints, rows: Rows | None) -> Ints:
        """Ascending: best first. The score when the `pod`-th pod is on the row, then the seed's order of the nodes.

        `rows` None: all. Shapes broadcast: rows ``n × 1`` and pods ``1 × d`` give ``n × d`` keys.
        """
        every = slice(None) if rows is None else rows
        columns = _counting(info)
        taken = self._left.shapes.taken(info, columns)[self._left.shapes.of_row[every]]
        left = self._share(columns)[every] - (taken if isinstance(pod, int) and pod == 1 else taken * pod)
        score = self.rule.score(left >> (WHOLE_BITS - SHARE_BITS))
        preference = self._preference(info)
        own = self.own
        if preference is not None and own is not None:
            level = _clipped(preference[every] * 2 + own[every], _LEVEL_BITS)
            score, own = _clipped(score, _SCORE_BITS) + (level << _SCORE_BITS), None
        elif preference is not None:
            score = score + preference[every] * len(columns)
        if any(self._left.least[column] < 0 for column in columns):  # somebody holds more than a node offers
            score = np.clip(score, _BEST - _FARTHEST, _BEST + _FARTHEST)
        tie = (self.table.rank()[every] * np.uint32(seed | 1)).astype(np.int64)
        keys = ((_BEST - score) << 32) | tie
        if own is not None:
            keys -= own[every] << _OWN
        return cast(Ints, keys)

    # ---------------------------------------------------------------------------------------------------------- shares

    def _share(self, columns: tuple[int, ...]) -> Ints:
        """What each row has left in these resources together: 2^30 for each that is wholly free."""
        share = self._shares.get(columns)
        if share is None:
            share = self._shares[columns] = self._bounded(self._left.share(columns).copy())
            rows = np.flatnonzero(self._touched)
            share[rows] = self._shares_left(columns, rows)
        return share

    def _shares_left(self, columns: tuple[int, ...], rows: Rows) -> Ints:
        """Counted anew."""
        return self._bounded(self._left.shapes.shares(self.free, columns, rows))

    def _bounded(self, share: Ints) -> Ints:
        """A node may hold far more than it offers now."""
        return share if self.own is None else cast(Ints, np.clip(share, -_FAR, _FAR))

    def preference_in_slices(self, info: ClassInfo) -> Generator[None, None, None]:
        """Find out which nodes the class would like, where one takes it: thousands of expressions may say it."""
        preferences = self.table.preferences
        if info.fact.preferred_affinity and not preferences.known(self.table, info) and self._usable(info).any():
            yield from preferences.in_slices(self.table, info, _preference)

    def _preference(self, info: ClassInfo) -> Ints | None:
        """Preferred node affinity and PreferNoSchedule taints, 0 … `PREFERENCE_WEIGHT` or below 0; None: none asked."""
        table, wishes = self.table, bool(info.fact.preferred_affinity)
        if not wishes and not _avoids(table):
            return None
        preference = table.preferences.of(table, info, _preference)
        return preference if wishes or preference.any() else None


class Left:
    """What each row has left, kept between cycles: only rows whose claims or nodes changed are counted anew."""

    FRESH = 256
    """After so many counts `least` is computed from all rows again: in between it falls with what is taken, and does not
    rise with what is given back."""

    def __init__(self, table: NodeTable) -> None:
        self.shapes = Shapes.of(table)
        self.free: Ints = np.asfortranarray(table.allocatable - table.held - table.proposed)
        self.least: Ints = self._bound(table)
        """For each resource, no node has less left than this. So where a class asks for no more, every node has enough,
        and need not be looked at."""
        self._shares: dict[tuple[int, ...], Ints] = {}
        self._age = 0

    @staticmethod
    def of(table: NodeTable) -> Left:
        """As of now."""
        rows, left = table.recounted(), table.cache.get("left")
        if left is None or rows is None:
            left = table.cache["left"] = Left(table)
        elif len(rows):
            left._count(table, rows)
        return cast(Left, left)

    def share(self, columns: tuple[int, ...]) -> Ints:
        """What each row has left of these resources together: 2^30 for each that is wholly free."""
        share = self._shares.get(columns)
        if share is None:
            if len(self._shares) == SHARES_KEPT:
                del self._shares[next(iter(self._shares))]
            share = self._shares[columns] = self.shapes.shares(self.free, columns, slice(None))
        return share

    def _count(self, table: NodeTable, rows: Ints) -> None:
        self.free[rows] = table.allocatable[rows] - table.held[rows] - table.proposed[rows]
        for columns, share in self._shares.items():
            share[rows] = self.shapes.shares(self.free, columns, rows)
        self._age += 1
        if self._age % self.FRESH == 0:
            self.least = self._bound(table)
        else:
            np.minimum(self.least, self.free[rows].min(axis=0), out=self.least)

    def _bound(self, table: NodeTable) -> Ints:
        least: Ints = self.free[table.present].min(axis=0, initial=int(_TAKEN))
        return least


class Shapes:
    """Nodes by what they offer: rows of equal allocatable are of one shape.

    They are kept until a node changes, whatever is claimed.
    """

    @staticmethod
    def of(table: NodeTable) -> Shapes:
        shapes = table.cache.get("shapes")
        if shapes is None:
            shapes = table.cache["shapes"] = Shapes(table)
        return cast(Shapes, shapes)

    def __init__(self, table: NodeTable) -> None:
        allocatable = table.allocatable
        self.of_row: Rows = table.shape_codes.astype(np.intp)
        offers = np.zeros((table.shapes, allocatable.shape[1]), np.int64)
        offers[self.of_row] = allocatable  # rows of one shape all say the same
        largest = allocatable.max(axis=0, initial=0)
        self.shifts = [max(0, int(amount).bit_length() - WHOLE_BITS) for amount in largest]
        """Right shifts that bring each resource below 2^30."""
        scaled = offers >> np.array(self.shifts)
        self.inverse: Ints = np.where(scaled > 0, (1 << WHOLE_BITS) // np.maximum(scaled, 1), 0)
        """2^30 / allocatable: shapes × resources."""
        self._least: Ints = -_MOST_HELD // np.maximum(self.inverse, 1)
        self._taken: dict[tuple[tuple[int, int], ...], Ints] = {}
        """By what is asked for of each, not by the class: one that is gone may be as large as a pod."""

    def taken(self, info: ClassInfo, columns: tuple[int, ...]) -> Ints:
        """For each shape what one pod of the class takes from the share of these resources."""
        key = tuple((column, info.amounts.get(column, 0)) for column in columns)
        taken = self._taken.get(key)
        if taken is None:
            if len(self._taken) == REMEMBERED:
                self._taken.clear()
            of_each = ((amount >> self.shifts[column]) * self.inverse[:, column] for column, amount in key)
            taken = self._taken[key] = cast(Ints, sum(of_each))
        return taken

    def shares(self, free: Ints, columns: tuple[int, ...], rows: Rows | slice) -> Ints:
        """What the rows of `free` have left of these resources together."""
        shapes = self.of_row[rows]
        left = ((c, np.maximum(free[rows, c] >> self.shifts[c], self._least[shapes, c])) for c in columns)
        return cast(Ints, sum(amount * self.inverse[shapes, c] for c, amount in left))


def _by_row(placed: Placed) -> tuple[Rows, Ints]:
    """Each row once, and how many pods are there."""
    used, pods = (np.array(each) for each in zip(*placed, strict=True))
    rows, where = np.unique(used, return_inverse=True)
    counts = np.zeros(len(rows), np.int64)
    np.add.at(counts, where, pods)
    return rows, counts


def _counting(info: ClassInfo) -> tuple[int, ...]:
    """The resources that count for the class's score: cpu, memory and the extended ones that it asks for; beside them
    the number of pods where it asks for none of these, or all of its pods would go to one node."""
    extended = [column for column, _ in info.columns if column > PODS]
    asks = bool(extended) or any(column in info.amounts for column in (CPU, MEMORY))
    return (CPU, MEMORY, *extended) if asks else (CPU, MEMORY, PODS)


def _avoids(table: NodeTable) -> bool:
    """Whether some node may be one that pods avoid where they can: what nodes were tainted with is known for a while."""
    if "avoids" not in table.cache:
        table.cache["avoids"] = any(t.effect == _AVOIDED for _, taints in table.taint_sets for t in taints)
    return cast(bool, table.cache["avoids"])


def _preference(table: NodeTable, info: ClassInfo, rows: masks.Rows) -> Generator[None, None, Ints]:
    def avoided(tainted: Taints) -> int:
        return sum(taint.effect == _AVOIDED and not tolerations.cover(taint) for taint in tainted[1])

    tolerations, preferred = info.constraint.tolerations, info.fact.preferred_affinity
    whole = sum(term.weight for term in preferred) or 1
    total = (yield from fits.of_taints(table, rows, avoided)) * -PREFERENCE_WEIGHT
    for wish in preferred:
        total += (yield from fits.term_mask(table, wish.term, rows)) * (wish.weight * PREFERENCE_WEIGHT // whole)
    return total


def _clipped(values: Ints, bits: int) -> Ints:
    """Within so many bits, one of them the sign's."""
    clipped: Ints = np.clip(values, -(1 << (bits - 1)) + 1, (1 << (bits - 1)) - 1)
    return clipped


def _nothing() -> tuple[Rows, Ints]:
    return np.zeros(0, np.intp), np.zeros(0, np.int64)


def _smallest(keys: Ints, wanted: int) -> Rows:
    """Rows of the `wanted` smallest keys, in order; keys that are taken are left out. All others are distinct."""
    if wanted < len(keys):
        threshold = np.partition(keys, wanted - 1)[wanted - 1]
        rows = np.flatnonzero((keys <= threshold) & (keys != _TAKEN))
    else:
        rows = np.flatnonzero(keys != _TAKEN)
    return rows[np.argsort(keys[rows], kind="stable")]

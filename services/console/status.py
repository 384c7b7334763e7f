"""Status: who holds what, how fast it goes, and who waits: from a log that runs, or from one in a file.

Everything but the holders of leases is in the log. A writer's *lag* is a number of commits. While something waits for
planner or binder to decide, it counts those that came since the basis of their last commit. Otherwise it counts those
that a writer's last commit had not seen, because others appended them while it was made. Rates are of the last
`WINDOW_S` seconds before now; for a file, before its end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from events import ProposalRefused, envelope, subjects
from events.connection import Connection
from events.envelope import Commit, MalformedCommit, Stored
from events.jetstream import JetStreamLog
from events.lease import holder_of
from events.log import EventLog, LogError
from services.console import show
from services.console.counted import counted
from services.console.kinds import check_of_a_cluster
from services.console.summary import TO_BE_TRIED, overdrawn, refusals, reserved, tried_again_s
from services.console.versions import supported
from services.start import state_at
from services.state import cohorts, versions
from services.state.fold import State
from services.state.form import UnknownCommit

if TYPE_CHECKING:
    from rich.console import Group

WINDOW_S = 10
"""Rates are counted over so long."""
MOST_RECENT = 100_000
"""Commits of that time that are counted at most: a writer's clock that is ahead would keep all."""
TAIL_COMMITS = 2_000
"""Read again for the rates of a log that is only looked at once; under more load than that the window is shorter."""
EVERY_S = 1.0
"""How often a status that is watched is told anew."""


class Last(NamedTuple):
    """A writer's last commit."""

    sequence: int
    time_ns: int
    cause: str
    basis: int
    lag: int
    """What it had not seen when it was decided."""


class Moment(NamedTuple):
    """What one commit adds to the rates."""

    time_ns: int
    events: int
    decisions: int
    refused: int


class Observer:
    """The fold of a log up to now, and what its last commits say about its writers."""

    def __init__(self, state: State, leases: JetStreamLog | None) -> None:
        self.state = state
        self._leases = leases
        """Where leases are asked for; None: nobody holds any."""
        self._last: dict[str, Last] = {}
        self._recent: deque[Moment] = deque(maxlen=MOST_RECENT)
        self._newest_ns = 0
        """The latest time of a commit that is not still to come."""

    @classmethod
    async def of(cls, log: EventLog) -> Observer:
        """At the log's end as of now. Raises Unusable for a federation's log, LogError, UnknownCommit."""
        await check_of_a_cluster(log, "look at it with `muster job list` and `muster replay`")
        observer = cls((await state_at(log)).state, log if isinstance(log, JetStreamLog) else None)
        end = observer.state.sequence
        async for batch in log.read(max((await log.bounds()).first - 1, end - TAIL_COMMITS), end):
            for stored in batch:
                observer._note_stored(stored)
        for writer in ("admin", *observer.state.holders):
            if writer not in observer._last:
                before = await log.last(subjects.subject(log.cluster, writer))
                if before is not None:
                    observer._note_stored(before)
        return observer

    def fold(self, batch: Iterable[Stored]) -> None:
        """Raises UnknownCommit."""
        for stored in batch:
            commit = self.state.apply_stored(stored)
            if commit is not None:
                self._note(commit)

    def _note_stored(self, stored: Stored) -> None:
        """Of a commit that is in the state already. The fold read it, unless it began at a snapshot behind it. Raises
        UnknownCommit."""
        try:
            if envelope.header_of(stored) is not None:
                self._note(envelope.decode(stored))
        except MalformedCommit as error:
            raise UnknownCommit(str(error)) from error

    def _note(self, commit: Commit) -> None:
        header, time_ns = commit.header, self._believed_ns(commit.header.time_ns)
        self._last[header.writer] = Last(commit.sequence, time_ns, header.cause, header.basis, _lag(commit))
        self._recent.append(_moment(commit, time_ns))
        while self._recent[-1].time_ns - self._recent[0].time_ns > WINDOW_S * 1_000_000_000:
            self._recent.popleft()

    def _believed_ns(self, time_ns: int) -> int:
        """A commit's time; if that is still to come, the time of the commits before it.

        A writer whose clock is ahead would make all others as old as that, and leave them out of the rates.
        """
        if self._leases is not None and time_ns > (now_ns := time.time_ns()):
            return self._newest_ns or now_ns
        self._newest_ns = max(self._newest_ns, time_ns)
        return time_ns

    # ------------------------------------------------------------------------------------------------------- the answer

    async def status(self, cluster: str) -> dict[str, Any]:
        """Ready for JSON."""
        state = self.state
        newest_ns = max((last.time_ns for last in self._last.values()), default=0)
        now_ns = newest_ns if self._leases is None else max(newest_ns, time.time_ns())
        writers = self._writers()
        leases = dict(zip(writers, await asyncio.gather(*(self._holder(cluster, one) for one in writers)), strict=True))
        to_try = Counter(state.owner(group) for group in cohorts.waiting(state))  # many: gone through once
        return {
            "cluster": cluster,
            "end": state.sequence,
            "age_s": _seconds(now_ns - newest_ns) if self._last else None,
            "connected": None if self._leases is None else _is_answered(self._leases.connection),
            "synced": state.synced,
            "rules": state.rules_version,
            "state": state.state_version,
            "policy": None if state.policy is None else state.policy.profile.name,
            "epoch": state.epoch,
            "writers": {writer: self._writer(writer, leases[writer], now_ns, to_try) for writer in writers},
            "shards": self._shards(to_try),
            **self._rates(now_ns),
            "proposals": len(state.proposals),
            "open_intents": len(state.permitted),
            "waiting": {TO_BE_TRIED: len(state.ready), **refusals(state)},
            "tried_again_s": tried_again_s(state),
            "nominated_groups": len(state.group_nominations),
            "reserved": reserved(state),
            "overdrawn": overdrawn(state),
            "ignored": dict(sorted(state.ignored.items())),
            "set_aside": state.set_aside,
            "rejected": len(state.rejections),
        }

    def _writers(self) -> list[str]:
        """All but the shards that are gone and own nothing."""
        shards = set(self.state.shards) | set(self.state.owners)
        known = sorted(set(self.state.holders) | set(self._last))
        return [w for w in known if not w.startswith("planner.") or subjects.shard_of(w) in shards]

    def _writer(self, writer: str, lease: str | None, now_ns: int, to_try: Counter[str]) -> dict[str, Any]:
        last = self._last.get(writer)
        supports = versions.writers(self.state).get(writer)
        return {
            "supports": None if supports is None else supported(supports),
            "holder": self.state.holders.get(writer, ""),
            "lease": lease,
            "last": last.sequence if last is not None else None,
            "cause": last.cause if last is not None else None,
            "age_s": _seconds(now_ns - last.time_ns) if last is not None else None,
            "lag": self._lag(writer, last, to_try) if last is not None else None,
        }

    def _lag(self, writer: str, last: Last, to_try: Counter[str]) -> int:
        """Of a writer that has nothing to say nobody can tell by the log how far it has read. `to_try`: groups that may
        be tried now, by the shard that owns them."""
        role, _, shard = writer.partition(".")
        awaited = bool(to_try[shard] if role == "planner" else self.state.proposals)
        return self.state.sequence - 1 - last.basis if awaited and role in ("planner", "binder") else last.lag

    async def _holder(self, cluster: str, writer: str) -> str | None:
        """Who holds the lease; None where there are none, or they cannot be asked for."""
        if self._leases is None or writer == "admin":
            return None
        with suppress(LogError):
            return await holder_of(self._leases.connection, cluster, writer)
        return None

    def _shards(self, to_try: Counter[str]) -> dict[str, dict[str, Any]]:
        state = self.state
        owned = Counter(state.owners)
        parked = Counter(state.owner(state.groups[key]) for cohort in state.cohorts.values() for key in cohort.groups)
        return {
            shard: {
                "alive": shard in state.shards,
                "partitions": owned[shard],
                "to_try": to_try[shard],
                "refused": parked[shard],
            }
            for shard in sorted({*state.shards, *state.owners} - {""})
        }

    def _rates(self, now_ns: int) -> dict[str, Any]:
        recent = [moment for moment in self._recent if now_ns - moment.time_ns <= WINDOW_S * 1_000_000_000]
        return {
            "window_s": WINDOW_S,
            "events_per_s": sum(moment.events for moment in recent) / WINDOW_S,
            "decisions_per_s": sum(moment.decisions for moment in recent) / WINDOW_S,
            "conflicts_per_s": sum(moment.refused for moment in recent) / WINDOW_S,
        }


def _lag(commit: Commit) -> int:
    """Of an input that names no basis: none."""
    return commit.sequence - 1 - commit.header.basis if commit.header.cause in ("decide", "outcome", "tick") else 0


def _moment(commit: Commit, time_ns: int) -> Moment:
    decisions = len(commit.events) if commit.header.cause == "decide" else 0
    refused = sum(type(event) is ProposalRefused for event in commit.events)
    return Moment(time_ns, len(commit.events), decisions, refused)


def _is_answered(connection: Connection) -> bool:
    """By JetStream, when the leases were asked for: a server whose others are away keeps its connections."""
    return connection.client.is_connected and connection.answers_for_s() > 0


def _seconds(ns: int) -> float:
    return round(max(0, ns) / 1e9, 1)


async def watch(log: EventLog) -> AsyncGenerator[dict[str, Any]]:
    """The status, again and again. Raises LogError, UnknownCommit."""
    observer = await Observer.of(log)

    async def follow() -> None:
        async for batch in log.follow(observer.state.sequence):
            observer.fold(batch)

    following = asyncio.create_task(follow(), name="following the log")
    try:
        while not following.done():
            yield await observer.status(log.cluster)
            await asyncio.wait({following}, timeout=EVERY_S)
        following.result()
    finally:
        following.cancel()


# --------------------------------------------------------------------------------------------------------- for people


@contextmanager
def shown() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Shows a status again and again: on a terminal in the place of the one before, elsewhere behind it."""
    from rich.live import Live

    out = show.console()

    def append(found: dict[str, Any]) -> None:
        with out.capture() as captured:
            out.print(picture(found))
        out.file.write(captured.get())
        out.file.flush()

    if not out.is_terminal:
        yield append
        return
    with Live(console=out, auto_refresh=False) as live:
        yield lambda found: live.update(picture(found), refresh=True)


def picture(found: dict[str, Any]) -> Group:
    """The status as tables; first what a small terminal must still show."""
    from rich.console import Group
    from rich.text import Text

    age = "none that can be read" if found["age_s"] is None else f"{found['age_s']} s ago"
    head = f"{found['cluster']}: commit {found['end']}, {age}"
    if found["connected"] is False:
        head += "; NATS is away: this is what was known"
    rates = (
        f"in the last {found['window_s']} s: {found['decisions_per_s']:.1f} decisions/s, "
        f"{found['conflicts_per_s']:.1f} of them refused proposals; {found['events_per_s']:.1f} events/s\n"
        f"now: {counted(found['proposals'], 'proposal')} to judge, "
        f"{counted(found['open_intents'], 'binding')} under way, "
        f"{counted(found['nominated_groups'], 'group')} with room nominated"
    )
    if not found["synced"]:
        reads = "ingest reads" if "ingest" in found["writers"] else "no ingest has read"
        head += f"; {reads} the cluster, nobody decides"
    elif missing := _missing(found):
        head += f"; there is no {' and no '.join(missing)}: nothing is placed"
    wrong = show.counts(found["ignored"])
    in_force = f"rules {found['rules']}, state {found['state']}, policy {found['policy'] or 'none'}"
    objects = f"{found['rejected']} (muster replay names them)" if found["rejected"] else "none"
    also = (
        f"rejected objects: {objects}; ignored: {wrong}; set aside: {found['set_aside']}; "
        f"epoch {found['epoch']}; {in_force}"
    )
    low = partial(show.table, low=True)  # all of it on 24 lines
    return Group(
        Text(head, style="bold"),
        Text(rates),
        Text(also, style="dim"),
        low("Waiting groups", ("reason", "groups", "tried again in s"), _waiting_rows(found)),
        *(
            low(title, columns, found[name].items())
            for title, columns, name in (
                ("Kept for starving gangs", ("gang", "room"), "reserved"),
                ("Nodes that hold more than they offer", ("node", "held"), "overdrawn"),
            )
            if found[name]
        ),
        low("Writers", ("writer", "holder", "lease", "last commit", "age s", "lag"), _writer_rows(found)),
        low("Shards", ("shard", "alive", "partitions", "to try", "refused"), _shard_rows(found)),
    )


def _missing(found: dict[str, Any]) -> list[str]:
    """Roles without which a log that ingest has begun goes no further. A dead process is not missed: its row says so."""
    there = {writer.partition(".")[0] for writer in found["writers"]}
    return [role for role in ("planner", "binder") if role not in there]


def _waiting_rows(found: dict[str, Any]) -> list[tuple[object, ...]]:
    soon = found["tried_again_s"]
    return [(reason, groups, _or_dash(soon.get(reason))) for reason, groups in found["waiting"].items()]


def _writer_rows(found: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for writer, said in found["writers"].items():
        lease = {None: "–", "": "free", said["holder"]: "held"}.get(said["lease"], said["lease"])
        cells = (_or_dash(said[name]) for name in ("last", "age_s", "lag"))
        rows.append((writer, said["holder"] or "–", lease, *cells))
    return rows


def _shard_rows(found: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (shard, "yes" if said["alive"] else "no", said["partitions"], said["to_try"], said["refused"])
        for shard, said in found["shards"].items()
    ]


def _or_dash(value: object) -> object:
    return "–" if value is None else value

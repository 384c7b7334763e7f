"""Verify a log: fold to every basis, decide again, compare the payloads byte for byte.

Two readings. The first takes the headers alone and notes which commits were decided at which basis. The second folds one
state, and wherever somebody decided, the same core decides again over that state; what it decides is kept, as bytes,
until the commit itself comes, a few commits later. So memory holds an entry for each decision and a handful of
payloads. A writer has read its own commits before it decides (design, rule 3): no decision is made twice.

Facts, ticks, requests, policies and outcomes are inputs: they are folded and counted. An outcome is checked for its
intent (a pod is bound to the node that a permit before it named, and no other outcome answered that), a commit may hold
only what its writer may say and its cause allows, so that no decision hides among the inputs, and a clock goes on in
steps that count or are said not to. `services.console.kinds` says who decides, and what an intent is, in each kind of
log. `SnapshotTaken` must have the digest of the state at its sequence. What must hold of any state is checked at the end
(`services.state.validate`), and of each permit where it is decided again (`services.console.kinds.permits`).

Each stretch of a log is folded and decided by the versions that were in force there. A commit of rules that this code
lacks is folded and not verifiable here; nothing can be said of what follows a fold that it lacks.

A purged log is verified from the oldest snapshot that what is left of it continues: the report says from where, and
with which digest. What was decided or intended before that place is folded and counted, and cannot be decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeGuard

import msgspec

import events as ev
from events import Event, envelope, subjects
from events.envelope import Commit, Header, Stored
from events.log import EventLog
from events.wire import UNDECODABLE
from services.console.kinds import CLUSTER, Kind, kind_of
from services.start import FOLD_BYTES, NoStart, beginning, in_slices, read_on, snapshots_said
from services.state.form import Folded, UnknownCommit, UnknownVersion
from services.state.validate import Violated


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log and the rules part: what stands in the log, and what they say at its basis."""

    sequence: int
    basis: int
    writer: str
    what: str
    logged: list[Any] = []
    decided: list[Any] = []


class Report(msgspec.Struct, kw_only=True):
    """What was found. `decided` counts commits, `reproduced` those that came out alike, `decisions` their events."""

    cluster: str
    start: int = 0
    """The place from which it was folded: 0, or that of the snapshot on which a purged log stands."""
    start_digest: str = ""
    """Of that snapshot."""
    unfolded: int = 0
    """Commits before that place that are there and cannot be folded: no snapshot is left of where they begin."""
    first: int = 0
    last: int = 0
    causes: dict[str, int] = {}
    """Commits by cause."""
    folded: int = 0
    """Of these; `last` is the last of them."""
    decided: int = 0
    reproduced: int = 0
    decisions: int = 0
    outcomes: int = 0
    snapshots: int = 0
    """Whose digest was found again."""
    before: int = 0
    """Of a purged log, decisions whose basis, and outcomes whose intent, lies before `start`."""
    unverifiable: int = 0
    """Commits that this version cannot decide again, or not even fold."""
    why_unverifiable: str = ""
    """Of the first."""
    differences: int = 0
    difference: Difference | None = None
    """The first."""
    violation: str = ""
    """The first sentence about a permit, or the state, that does not hold."""
    digest: str = ""

    @property
    def verified(self) -> bool:
        """Every decision was reproduced, every effect had its intent, and permits and state are sound."""
        return not (self.differences or self.violation or self.unverifiable)

    @property
    def exit_code(self) -> int:
        """0: verified; 1: a difference, or something unsound; 5: nothing wrong, but not all of it is verifiable here."""
        if self.differences or self.violation:
            return 1
        return 5 if self.unverifiable else 0


class Again(NamedTuple):
    """What is decided at a basis, and what was in force there."""

    epoch: int
    rules: int
    state: int
    decided: list[Event]


async def verify(
    log: EventLog, *, validate_every: int = 0, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Decide a log again, up to its end as of now. `validate_every`: commits between two checks of the whole state
    (0: once, at the end).

    `progress` is told (commits done, commits in all). Raises LogError, UnknownCommit.
    """
    end = await log.end()
    kind = await kind_of(log)
    verifier = Verifier(log.cluster, kind)
    try:
        start = await beginning(log, kind.form)
    except NoStart as error:
        verifier.report.first = (await log.bounds()).first
        verifier.cannot(str(error))
        return verifier.report
    if start.base is not None:
        verifier.stand_on(start.state, start.base.digest)
        verifier.report.unfolded = start.base.sequence + 1 - (await log.bounds()).first
    async for batch in read_on(log, verifier.report.start, end):
        verifier.expect(batch)
    async for batch in read_on(log, verifier.report.start, end):
        if verifier.blind:
            break
        await in_slices(verifier.check(batch, validate_every))
        if progress is not None:
            progress(batch[-1].sequence, end)
    verifier.finish(strict=bool(validate_every))
    return verifier.report


class Verifier:
    """One log's verification: give `expect` all batches, then `check` all of them again, then `finish`."""

    def __init__(self, cluster: str, kind: Kind = CLUSTER) -> None:
        self.report = Report(cluster=cluster)
        self.state: Any = kind.form.empty()
        self._kind = kind
        self._checks = kind.checks(self.state)
        self.blind = False
        """Whether the log was written by a fold that is not this one."""
        self._decided_at: dict[int, list[tuple[int, str]]] = {}
        """basis → (sequence, writer) of what was decided there."""
        self._again: dict[int, Again] = {}
        """By sequence, until it comes by."""
        self._said: dict[str, int] = {}
        """Writer → its last commit so far."""
        self._last: dict[str, int] = {}
        """Subject → the last message there so far, whoever's."""
        self._wanted: set[int] = set()
        """Places of which there was a snapshot."""
        self._digests: dict[int, str] = {}

    def stand_on(self, state: Folded, digest: str) -> None:
        """Begin with this state instead of an empty one: a purged log's."""
        self.state = state
        self._checks = self._kind.checks(state)
        self.report.start, self.report.start_digest = state.sequence, digest
        self._digests[state.sequence] = digest

    # --------------------------------------------------------------------------------------------------- first reading

    def expect(self, batch: list[Stored]) -> None:
        report = self.report
        report.first = report.first or batch[0].sequence
        for stored in batch:
            header = envelope.header_of(stored)
            cause = header.cause if header is not None else "foreign"
            report.causes[cause] = report.causes.get(cause, 0) + 1
            if self._is_decision(header) and self._has_rules(header.writer, header.rules):
                self._decided_at.setdefault(header.basis, []).append((stored.sequence, header.writer))
            elif cause == "outcome":
                self._wanted.update(one.sequence for one in snapshots_said(stored))

    # -------------------------------------------------------------------------------------------------- second reading

    def check(self, batch: list[Stored], validate_every: int = 0) -> Generator[None, None, None]:
        """With a yield now and then, so that a connection can answer pings in between. Raises UnknownCommit."""
        if self.report.start == self.state.sequence > 0:
            yield from self._decide_again()
        folded = 0
        for stored in batch:
            folded += len(stored.header) + len(stored.payload)
            if folded >= FOLD_BYTES:
                folded = 0
                yield
            header = envelope.header_of(stored)
            if header is not None and header.state not in self._kind.form.folds:
                self._blinded(f"from commit {stored.sequence} on it was folded by state version {header.state}")
                return
            reproduced = self._compare(stored, header) if self._is_decision(header) else None
            if header is not None:
                self._check_writer(stored, header)
                self._said[header.writer] = stored.sequence
            commit = self._fold(stored, header, reproduced)
            if self.blind:
                return
            if commit is not None:
                self._note(stored, commit)
                if inert := self._checks.inert():
                    self._differ(stored, commit.header, inert)
                if reproduced is None:  # else its bytes are those of the rules
                    self._check_bytes(stored, commit.header)
            self._last[stored.subject] = stored.sequence
            yield from self._decide_again()
            if stored.sequence in self._wanted:
                self._digests[stored.sequence] = yield from self._kind.form.digest_in_slices(self.state)
            if validate_every and stored.sequence % validate_every == 0:
                self._validate()

    def _fold(self, stored: Stored, header: Header | None, reproduced: list[Event] | None) -> Commit | None:
        """None for what is nobody's, and where nothing can be folded from here on. Raises UnknownCommit."""
        try:
            commit: Commit | None = self.state.apply_stored(stored, reproduced)
        except UnknownVersion as error:
            self.report.folded += 1
            self._blinded(str(error))
            return None
        except UnknownCommit as error:
            if header is None or self._is_known(header):
                raise
            self._blinded(str(error))
            return None
        self.report.folded += 1
        here = self._is_decision(header) and header.basis >= self.report.start
        if here and header is not None and not self._has_rules(header.writer, header.rules):
            self.cannot(f"commit {stored.sequence} was decided by rules version {header.rules}")
        return commit

    def finish(self, *, strict: bool = False) -> None:
        """`strict`: a snapshot of the state must be the state, too."""
        form = self._kind.form
        self.report.last = self.state.sequence
        self.report.before += self._checks.before
        self._validate()
        self.report.digest = form.digest(self.state)
        if strict and form.digest(form.decode(form.encode(self.state))) != self.report.digest:
            self._unsound("the state of its snapshot has another digest (7.6)")

    def _blinded(self, why: str) -> None:
        """Nothing can be said of the rest."""
        self.cannot(why, max(1, sum(self.report.causes.values()) - self.report.folded))
        self.blind = True

    def cannot(self, why: str, commits: int = 1) -> None:
        self.report.unverifiable += commits
        self.report.why_unverifiable = self.report.why_unverifiable or why

    def _unsound(self, why: str) -> None:
        self.report.violation = self.report.violation or why

    def _is_decision(self, header: Header | None) -> TypeGuard[Header]:
        return header is not None and header.cause == "decide" and subjects.role_of(header.writer) in self._checks.rules

    def _is_known(self, header: Header) -> bool:
        """Whether this code has the rules of who wrote the commit: else it may say what this code has no word for."""
        of_all = [version for versions in self._checks.rules.values() for version in versions]
        return header.rules in self._checks.rules.get(subjects.role_of(header.writer), of_all)

    def _has_rules(self, writer: str, version: int) -> bool:
        """Whether this code can decide by these rules of that writer's."""
        return version in self._checks.rules[subjects.role_of(writer)]

    def _decide_again(self) -> Generator[None, None, None]:
        """Whoever decided over exactly this state: the same core again."""
        state = self.state
        for sequence, writer in self._decided_at.pop(state.sequence, ()):
            in_force = self._has_rules(writer, state.rules_version)  # else its header says otherwise
            decided = (yield from self._checks.decide(writer)) if in_force else []
            if broken := self._checks.broken(decided):
                self._unsound(f"commit {sequence}: {broken}")
            self._again[sequence] = Again(state.epoch, state.rules_version, state.state_version, decided)

    def _compare(self, stored: Stored, header: Header) -> list[Event] | None:
        """What the rules decide, where that is what the log says: equal bytes are equal events, and decoded already."""
        report, own = self.report, self._said.get(header.writer, 0)
        if header.basis < report.start:
            report.before += 1
            if own:
                self._differ(stored, header, _behind(header, own))
            return None
        report.decided += 1
        if not self._has_rules(header.writer, header.rules):
            return None
        again = self._again.pop(stored.sequence, None)
        if again is None:
            self._differ(stored, header, f"nothing can have been decided at its basis {header.basis}")
        elif header.basis < own:
            self._differ(stored, header, _behind(header, own))
        elif (header.rules, header.state) != (again.rules, again.state):
            in_force = f"in force at its basis were {again.rules} and {again.state}"
            self._differ(stored, header, f"it names rules {header.rules} and state {header.state}; {in_force}")
        elif envelope.encode_events(again.decided) != stored.payload:
            self._differ(stored, header, "the payload is not what the rules decide at its basis", again.decided)
        elif header.epoch != again.epoch:
            what = f"its epoch is {header.epoch}, that of its basis {again.epoch}"
            self._differ(stored, header, what, again.decided)
        else:
            report.reproduced += 1
            report.decisions += len(again.decided)
            return again.decided
        return None

    def _differ(self, stored: Stored, header: Header, what: str, decided: list[Event] | None = None) -> None:
        self.report.differences += 1
        if self.report.difference is not None:
            return
        try:
            logged = msgspec.json.decode(stored.payload, type=list[Any])
        except UNDECODABLE:
            logged = [stored.payload.decode(errors="replace")]
        self.report.difference = Difference(
            sequence=stored.sequence,
            basis=header.basis,
            writer=header.writer,
            what=what,
            logged=logged,
            decided=msgspec.to_builtins(decided or []),
        )

    # ----------------------------------------------------------------------------------------------- intents and inputs

    def _check_writer(self, stored: Stored, header: Header) -> None:
        """No kind of log is verified by passing over the decisions of the other. What is no decision hangs on no basis
        and no epoch, but says of none that could not be: nobody has read what is not there yet, nor, but for who takes
        over, less than what he wrote."""
        role, own = subjects.role_of(header.writer), self._said.get(header.writer, 0)
        decides = role in self._checks.rules
        if header.cause == "decide":
            if not decides:
                who = ", ".join(sorted(self._checks.rules))
                self._differ(stored, header, f"a decision of a {role}, where {who} may decide")
        elif header.basis >= stored.sequence:
            self._differ(stored, header, f"nothing can have been read at its basis {header.basis}")
        elif decides and header.cause != "taken" and header.basis < own:
            self._differ(stored, header, _behind(header, own))
        elif header.epoch > self.state.epoch:
            self._differ(stored, header, f"its epoch is {header.epoch}, that of its place {self.state.epoch}")

    def _note(self, stored: Stored, commit: Commit) -> None:
        """Remember intents; check that outcomes have theirs, that inputs are nothing else, and that everybody says what
        is his to say: fold and feed pass over the rest."""
        cause, role = commit.header.cause, subjects.role_of(commit.header.writer)
        if foreign := [event for event in commit.events if type(event) not in subjects.WRITES[role]]:
            self._differ(stored, commit.header, f"{type(foreign[0]).__name__} is not for {role} to say")
            return
        if role not in self._checks.rules:
            return
        if cause == "decide":
            self._checks.decided(commit.events)
            return
        allowed = self._checks.inputs.get(cause, frozenset())
        shard = subjects.shard_of(commit.header.writer)
        for index, event in enumerate(commit.events):
            if type(event) is ev.Ticked:
                self._check_tick(stored, commit.header, event)
            elif isinstance(event, ev.PlannerTaken | ev.PlannerLeft) and event.shard != shard:
                what = f"event {index}: {type(event).__name__} of {event.shard}, by {commit.header.writer}"
                self._differ(stored, commit.header, what)
            if type(event) not in allowed:
                self._differ(stored, commit.header, f"event {index}: {type(event).__name__} under the cause {cause!r}")
            elif type(event) is ev.SnapshotTaken:
                self._check_snapshot(stored, commit.header, event)
            elif cause == "taken":
                self._checks.taken(event)
            elif cause == "outcome":
                self.report.outcomes += 1
                if (intended := self._checks.unintended(event)) is not None:
                    what = f"event {index}: {type(event).__name__}, intended was {intended or 'nothing'}"
                    self._differ(stored, commit.header, what)

    def _check_tick(self, stored: Stored, header: Header, tick: ev.Ticked) -> None:
        """A clock goes on, and a step of it counts as a whole or not at all (`services.state.clock`). How long one is
        that counts is not asked: what is simulated without a wall clock goes from deadline to deadline."""
        before_ns = self._checks.times.get(header.writer, 0)
        step_ns = tick.time_ns - before_ns
        self._checks.times[header.writer] = max(before_ns, tick.time_ns)
        if step_ns < 0 or tick.jumped_ns not in (0, step_ns):
            what = f"the clock of {header.writer} went on by {step_ns} ns, of which {tick.jumped_ns} are not to count"
            self._differ(stored, header, what)

    def _check_bytes(self, stored: Stored, header: Header) -> None:
        """A commit's message id is made of its payload and of what stood before it on its subject: that was nothing, too,
        where a retention had purged it. Of the first there in a purged log nobody knows. What differs already needs no
        second word."""
        if self.report.difference is not None and self.report.difference.sequence == stored.sequence:
            return
        before = self._last.get(stored.subject, 0)
        if not before and self.report.start:
            return
        ids = (envelope.message_id(stored.subject, one, stored.payload) for one in (before, 0))
        if stored.message_id not in ids:
            self._differ(stored, header, "its bytes are not those that its message id was made of")

    def _check_snapshot(self, stored: Stored, header: Header, taken: ev.SnapshotTaken) -> None:
        if taken.state not in self._kind.form.folds or taken.sequence < self.report.start:
            return
        found = self._digests.get(taken.sequence, "of a place that is not there yet")
        if found == taken.digest:
            self.report.snapshots += 1
        else:
            what = f"SnapshotTaken of {taken.sequence} says {taken.digest}; the state's digest there is {found}"
            self._differ(stored, header, what)

    def _validate(self) -> None:
        try:
            self._checks.validate()
        except Violated as violated:
            self._unsound(f"at {self.state.sequence}: {violated}")


def _behind(header: Header, own: int) -> str:
    """Rule 3 of the design: a writer has read what it wrote."""
    return f"its basis {header.basis} lies before its writer's own commit {own}"

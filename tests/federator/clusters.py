"""Simulated clusters for the federator's histories: what they truly run, and how they answer.

A run's life is a list of (time, state, attempt), made when it is submitted; stopping it cuts the list off. Names are kept
for ever. Times are true milliseconds; a cluster's own clock is off by its skew.
"""

from __future__ import annotations

from random import Random
from typing import Any

from services.federator.backends import (
    FAILED,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    TERMINAL,
    UNKNOWN,
    WAITING,
    Absent,
    Accepted,
    Described,
    InDoubt,
    Limited,
    Listing,
    Owner,
    Refused,
    Run,
    Silent,
    Stopped,
    Submitted,
    Taken,
)


class TrueRun:
    """One run, as it truly is."""

    def __init__(self, name: str, owner: Owner | None, life: list[tuple[int, str, int]], uid: str = "") -> None:
        self.name = name
        self.uid = uid
        self.owner = owner
        self.life = life
        self.stopped = False
        self.returned = False
        """Whether its cluster was restored to before it was stopped, ended by hand, released or cleared, or to before an
        earlier attempt to submit it; or it came late, and its content was refused meanwhile."""

    def at(self, now_ms: int) -> tuple[int, str, int]:
        """Since when it is in which state and attempt."""
        found = self.life[0]
        for step in self.life:
            if step[0] > now_ms:
                break
            found = step
        return found

    def ends(self, now_ms: int) -> bool:
        """Whether nothing of it runs, or ever will."""
        return self.at(now_ms)[1] in TERMINAL

    def stop(self, now_ms: int, shown_ms: int, dead_ms: int) -> None:
        """It goes on for a while, and is said to run for a part of that."""
        if self.stopped or self.ends(now_ms):
            return
        self.stopped = True
        attempt = self.at(now_ms)[2]
        if any(state in TERMINAL and time_ms <= dead_ms for time_ms, state, _ in self.life):
            return
        self.life = [step for step in self.life if step[0] <= shown_ms]
        self.life += [(shown_ms, STOPPING, attempt), (dead_ms, STOPPED, attempt)]

    def end(self, dead_ms: int) -> None:
        """It is ended by hand, or with its cluster."""
        if not self.ends(dead_ms):
            self.life = [step for step in self.life if step[0] < dead_ms] + [(dead_ms, STOPPED, self.at(dead_ms)[2])]

    def shown(self, now_ms: int, skew_ms: int) -> Run:
        since_ms, state, attempt = self.at(now_ms)
        started_ms = since_ms + skew_ms if state == RUNNING else 0
        return Run(name=self.name, uid=self.uid, state=state, attempt=attempt, started_ms=started_ms)


def a_life(rng: Random, now_ms: int, guard_ms: int) -> list[tuple[int, str, int]]:
    """Waiting, running, sometimes failing, being tried again or not known for a while; often to the end of time."""
    life = [(now_ms, WAITING, 0)]
    kind = rng.random()
    time_ms = now_ms + rng.choice((0, 2_000, 10_000, 40_000, 120_000, 300_000)) + rng.randrange(5_000)
    life.append((time_ms, RUNNING, 0))
    attempt = 0
    if kind < 0.3:  # its attempt dies, which still reads as if it went on, and the next one begins
        time_ms += rng.randrange(1, 2 * guard_ms)
        attempt = 1
        if rng.random() < 0.5:
            life.append((time_ms, WAITING, 1))
            time_ms += rng.randrange(1, 20_000)
        life.append((time_ms, RUNNING, 1))
    if kind > 0.9:
        time_ms += rng.randrange(1, 2 * guard_ms)
        life.append((time_ms, UNKNOWN, attempt))
        time_ms += rng.randrange(1, 30_000)
        life.append((time_ms, RUNNING, attempt))
    end = rng.random()
    if end < 0.35:
        time_ms += rng.randrange(1, 4 * guard_ms)
        life.append((time_ms, rng.choice((SUCCEEDED, FAILED, FAILED, STOPPED)), attempt))
    return life


Backup = list[tuple[TrueRun, dict[str, Any]]]
"""Of a cluster: its runs, and each as it was."""


class TrueCluster:
    """A cluster of one user. Who stops what isn't ours is told to `touched`."""

    holds = False
    """Whether nothing of a submission runs before it is released."""

    def __init__(self, account: str, rng: Random, guard_ms: int) -> None:
        self.account = account
        self.rng = rng
        self.guard_ms = guard_ms
        self.runs: dict[str, TrueRun] = {}
        """By name."""
        self.ever: list[TrueRun] = []
        """Those that somebody deleted as well."""
        self.identifies = False
        """Whether runs have identities, and names are free again when somebody deletes them: Kubernetes."""
        self.closed = False
        self.skew_ms = 0
        self.tells_time = rng.random() < 0.8
        self.limited_ms = (0, 0)
        self.forbidden_ms = (0, 0)
        self.stop_refused_ms = (0, 0)
        self.cut_ms = (0, 0)
        """From when to when it cannot be reached."""
        self.content_refused = False
        self.contents_ms = (0, 0)
        """From when to when it refuses contents that it takes else: OpenPAI's hived, where its cells are fewer."""
        self.touched: list[str] = []
        """Foreign runs that somebody tried to stop."""

    def submit(self, name: str, owner: Owner, now_ms: int) -> Submitted:
        if self.closed:
            return InDoubt(reason="nobody is there")
        if within(self.limited_ms, now_ms):
            return Limited(retry_after_ms=1_000)
        if self.content_refused or within(self.contents_ms, now_ms):
            return Refused(code="InvalidProtocolError", message="", of_content=True)
        if within(self.forbidden_ms, now_ms):
            return Refused(code="ForbiddenUserError", message="", of_content=False)
        if name in self.runs:
            return Taken()
        uid = f"{name}#{len(self.ever)}" if self.identifies else ""
        before = any((run.name, run.owner) == (name, owner) for run in self.ever)
        run = self.runs[name] = TrueRun(name, owner, a_life(self.rng, now_ms, self.guard_ms), uid)
        refused = 0 < self.contents_ms[1] <= now_ms  # maybe, and whoever submitted it has believed that
        run.returned = (before or refused) and not self.identifies  # before: its name was free again
        self.ever.append(run)
        return Accepted(uid=uid)

    def listing(self, now_ms: int) -> Listing:
        skew_ms = self.skew_ms
        return Listing(
            runs=tuple([run.shown(now_ms, skew_ms) for run in self.runs.values()]),
            clock_ms=now_ms + skew_ms if self.tells_time else 0,
        )

    def delete(self, name: str, now_ms: int) -> None:
        """By hand, as the API server lets anybody do; its pods take their time."""
        self.runs.pop(name).end(now_ms + self.rng.randrange(20_000))

    def close(self, now_ms: int) -> None:
        """It is decommissioned."""
        self.closed = True
        for run in self.ever:
            run.end(now_ms)

    def backup(self) -> Backup:
        return [(run, dict(vars(run))) for run in self.runs.values()]

    def restore(self, backup: Backup, taken_ms: int, now_ms: int) -> None:
        """It knows what it knew then. What was done to a run since is undone, and it goes on from there; so does, at
        times, what had come to its end since. What was made since is in no list, and whatever runs of it is ended."""
        runs = {run.name: run for run, _ in backup}
        for run in self.runs.values():
            if runs.get(run.name) is not run:
                run.end(now_ms + self.rng.randrange(20_000))
        for run, was in backup:
            untouched = self.runs.get(run.name) is run and all(vars(run)[name] == value for name, value in was.items())
            if untouched and not (run.ends(now_ms) and not run.ends(taken_ms) and self.rng.random() < 0.5):
                continue
            vars(run).update(was, returned=True)
            run.life = [
                (time_ms if time_ms <= taken_ms else time_ms + now_ms - taken_ms, state, attempt)
                for time_ms, state, attempt in run.life
            ]
        self.runs = runs

    def stop(self, name: str, uid: str, now_ms: int) -> Stopped:
        if within(self.limited_ms, now_ms):
            return Limited(retry_after_ms=1_000)
        run = self.runs.get(name)
        if run is None or run.uid != uid:
            return Absent()
        if run.owner is None:
            self.touched.append(name)
        if within(self.stop_refused_ms, now_ms):
            return Refused(code="ForbiddenUserError", message="", of_content=False)
        shown_ms = now_ms + self.rng.randrange(15_000)
        run.stop(now_ms, shown_ms, shown_ms + self.rng.randrange(20_000))
        return Accepted(uid="")

    def describe(self, name: str, now_ms: int) -> Described | Absent | Silent:
        run = self.runs.get(name)
        if run is None and any(one.name == name and not one.ends(now_ms) for one in self.ever):
            return Silent(reason="pods are left")
        return Absent() if run is None else Described(run=run.shown(now_ms, self.skew_ms), owner=run.owner)


def within(period_ms: tuple[int, int], now_ms: int) -> bool:
    return period_ms[0] <= now_ms < period_ms[1]


def foreign(name: str) -> TrueRun:
    """Somebody else's, and it runs for ever."""
    return TrueRun(name, None, [(0, RUNNING, 0)])

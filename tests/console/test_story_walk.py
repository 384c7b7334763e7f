"""Stories of random walks: whatever happens, a story agrees with the state, and its lines with the log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import events as ev
from events.envelope import Stored, decode
from services.console.story import GANG, POD, Story
from services.console.story.followed import Followed
from services.console.story.steps import Step
from services.console.story.verdicts import WAITS_FOR
from services.console.summary import waiting_groups, why_each_waits
from services.state.fold import State
from services.state.records import BOUND_CLAIM, FAILED, PENDING, PROPOSED, SUCCEEDED, TERMINATING
from services.state.timeouts import gang_stands
from tests.console.stories import members
from tests.walk.walk import Walk

ABOUT_ALL = (
    ev.IngestTaken,
    ev.ClusterSynced,
    ev.PlannerTaken,
    ev.PlannerLeft,
    ev.ShardLost,
    ev.PartitionsAssigned,
    ev.PolicyAdopted,
    ev.PolicyChanged,
)


def names(commits: list[Stored]) -> dict[tuple[str, str], set[str]]:
    """Each pod and each gang, with what a commit may call it: its name and UIDs, its gang, and whom that names."""
    found: dict[tuple[str, str], set[str]] = {}
    named: dict[str, set[str]] = {}
    for event in (event for stored in commits for event in decode(stored).events):
        if isinstance(event, ev.PodObserved):
            pod = f"{event.namespace}/{event.name}"
            called = {f'"name":"{event.name}"', f'"{event.uid}"', f'"pod/{pod}"'}
            found.setdefault((POD, pod), set()).update(called)
            if event.gang is not None:
                key = event.gang.gang
                found.setdefault((GANG, key), {f'"{key}"', f'"name":"{key.partition("/")[2]}"'}).update(called)
                named.setdefault(key, {key}).add(pod)
                if event.gang.declared is not None:
                    named[key].update(event.gang.declared.groups)
    for gangs in named.values():
        for key in [key for key in gangs if key in named]:
            gangs.update(named[key])
            named[key].update(gangs)
    for gangs in named.values():
        together = set[str]().union(*(found.get((GANG, key), set()) for key in gangs))
        for key in gangs:
            for kind in (POD, GANG):
                if (kind, key) in found:
                    found[kind, key] |= together
    return found


def stories(commits: list[Stored]) -> Iterator[tuple[State, dict[str, str], list[Story]]]:
    """Behind each commit: the state, why each pod waits there, and all stories up to there."""
    state = State()
    told = [Story(state, *key) for key in sorted(names(commits))]
    for stored in commits:
        commit = state.apply_stored(stored)
        assert commit is not None
        for story in told:
            story.add(commit)
        yield state, {pod.fact.uid: why for pod, why in why_each_waits(state)}, told


def walked(seed: int) -> list[Stored]:
    walk = Walk(seed, replacement="evict" if seed % 4 == 3 else "keep")
    walk.walk(300)
    walk.settle(10)
    return walk.world.log.commits


@pytest.mark.parametrize("seed", range(6))
def test_at_any_place_of_a_walk_it_agrees_with_the_state(seed: int) -> None:
    for state, waits, told in stories(walked(seed)):
        groups = waiting_groups(state)
        for story in told:
            of, stands = story.followed, story.followed.stands()
            where = f"{state.sequence}: {of.kind} {of.name}: {stands}"
            assert of.members == members(state, of), where
            assert of.statuses.total() == len(of.members), where
            assert of.is_there == (stands != "gone"), where
            if of.kind == POD:
                assert all(why in stands for uid, why in waits.items() if uid in of.members), where
            elif of.name in groups and state.groups[of.name].gangs == (of.name,):
                pods, why = groups[of.name]
                assert f"{pods} pod{'s' * (pods != 1)} not bound: {why}" in stands, where
            assert bool(story.lines) >= bool(of.members), where


@pytest.mark.parametrize("seed", range(6, 10))
def test_each_line_is_of_a_commit_that_says_something_of_it(seed: int) -> None:
    commits, called = walked(seed), names(walked(seed))
    (*_, (_, _, told)) = stories(commits)
    for story in told:
        key, lines = (story.followed.kind, story.followed.name), story.lines
        assert [line.sequence for line in lines] == sorted(line.sequence for line in lines)
        for line in lines:
            assert 0 < line.sequence <= line.until
            assert (line.times == 1) or line.until > line.sequence
            for sequence in (line.sequence, line.until):
                assert _says(commits[sequence - 1], called[key]), f"{key} {line}"


class Heard(Story):
    """A story, and the words of all steps and of those that were told last."""

    def __init__(self, state: State, kind: str, name: str) -> None:
        self.words: set[str] = set()
        self.all: set[str] = set()
        super().__init__(state, kind, name)

    def _add(self, step: Step, *where: Any) -> None:
        self.words.add(ALIKE.get(step.what, "refused" if step.is_refusal else step.what))
        self.all |= self.words
        super()._add(step, *where)


ALIKE = {
    **dict.fromkeys(("given back", "proposal refused", "dropped", "binding failed"), "place lost"),
    "not evicted": "evicted",
}
ACCOUNT = {
    *("bound", "proposed", "held", "permitted", "place lost", "refused", "timed out", "may be tried"),
    *(TERMINATING, SUCCEEDED, FAILED, "gone", "to be evicted", "evicted"),
    *("room reserved", "reserved no more", "room nominated", "nominated no more", "no planner", "planner"),
}
"""The words of which `account` is another."""


class PodLook(NamedTuple):
    status: str
    node: str
    stage: str
    gated: bool
    evicting: bool


class Look(NamedTuple):
    """What the state says of one pod or gang."""

    pods: dict[str, PodLook]
    group: str
    cohort: int
    reserved: object
    nominated: object
    timed_out: bool
    planner: str


def look(state: State, of: Followed) -> Look:
    pods = {}
    for uid, pod in state.pods.items():
        if of.name == (pod.gang if of.kind == GANG else f"{pod.fact.namespace}/{pod.fact.name}"):
            claim = state.claims.get(uid)
            stage = "" if claim is None or claim.stage == BOUND_CLAIM else claim.stage
            pods[uid] = PodLook(pod.status, pod.node, stage, pod.fact.gated, uid in state.evictions)
    last = state.pods[next(reversed(pods))] if pods else None
    gang = state.gangs.get(of.name if of.kind == GANG else last.gang if last else "")
    key = gang.group if gang is not None else last.group if last else ""
    group, reserved, nominated = state.groups.get(key), state.reservations.get(key), state.group_nominations.get(key)
    owner = state.owner(group) if group is not None else ""
    return Look(
        pods,
        key,
        group.cohort if group is not None else 0,
        reserved.sequence if reserved is not None else None,
        nominated.assignments if nominated is not None else None,
        gang is not None and gang_stands(state, gang),
        owner if owner in state.shards else "",
    )


def account(story: Heard, before: Look, after: Look) -> Iterator[str]:
    """What became of it, as the states before and behind a commit have it."""
    of = story.followed
    for uid, now in after.pods.items():
        if (was := before.pods.get(uid)) is not None:
            yield from account_of_a_pod(was, now)
    if before.pods.keys() - of.state.pods.keys():
        yield "gone"
    waits = [pod for pod in after.pods.values() if pod.status == PENDING]
    unplaced = waits if of.kind == GANG else [pod for pod in waits if not pod.stage and not pod.gated]
    if after.cohort not in (0, before.cohort) and of.state.cohorts[after.cohort].reason in WAITS_FOR and unplaced:
        yield "refused"
    for word, was, now in (
        ("reserved", before.reserved, after.reserved),
        ("nominated", before.nominated, after.nominated),
    ):
        if now not in (None, was):
            yield f"room {word}"
        elif now is None and was is not None and f"room {word}" in story.all:  # else it came later
            yield f"{word} no more"
    if after.timed_out != before.timed_out and (after.timed_out or waits):
        yield "timed out" if after.timed_out else "may be tried"
    if after.planner != before.planner and waits and any(pod.status == PENDING for pod in before.pods.values()):
        yield "planner" if after.planner else "no planner"


def account_of_a_pod(was: PodLook, now: PodLook) -> Iterator[str]:
    if now.node not in ("", was.node):
        yield "bound"
    if now.status != was.status and now.status in (TERMINATING, SUCCEEDED, FAILED):
        yield now.status
    if now.stage not in ("", was.stage):
        yield now.stage
    if was.stage and not now.stage and now.status == PENDING:
        yield "place lost"
    if now.evicting != was.evicting:
        yield "to be evicted" if now.evicting else "evicted"


def is_seen(event: ev.Event) -> bool:
    """Whether the states around its commit say what it did: not of pods that come or go with it, nor of a proposal whose
    pods are gone, or have a node, since."""
    return not isinstance(event, ev.PodObserved | ev.PodDeleted | ev.ProposalRefused)


@pytest.mark.parametrize("seed", range(10, 16))
def test_what_is_told_happened_and_what_happened_is_told(seed: int) -> None:
    state, commits = State(), walked(seed)
    told = [Heard(state, *key) for key in sorted(names(commits))]
    looks = [look(state, story.followed) for story in told]
    for stored in commits:
        commit = state.apply_stored(stored)
        assert commit is not None
        all_seen = all(map(is_seen, commit.events)) and not state.moved
        for at, story in enumerate(told):
            before, after = looks[at], look(state, story.followed)
            story.words.clear()
            story.add(commit)
            words, expected = story.words & ACCOUNT, set(account(story, before, after))
            if before.pods and before.group == after.group:
                where = f"{state.sequence}: {story.followed.kind} {story.followed.name}"
                assert (words if all_seen else words & expected) == expected, where
            looks[at] = after


def _says(stored: Stored, called: set[str]) -> bool:
    """A gang group is one with the gangs that it names: what a commit says of one of them may be of all."""
    text = stored.payload.decode()
    return any(one in text for one in called) or any(isinstance(one, ABOUT_ALL) for one in decode(stored).events)


@pytest.mark.parametrize("seed", range(4))
def test_begun_at_any_place_of_a_walk_it_knows_what_it_knows_there_from_the_first_commit_on(seed: int) -> None:
    """As of a purged log: what is told from there on is told of the same proposals, rooms, evictions and deadlines."""
    for state, _, told in stories(walked(seed)):
        for story in told:
            whole, begun = story.followed, Followed(state, story.followed.kind, story.followed.name)
            where = f"{state.sequence}: {whole.kind} {whole.name}"
            assert begun.members == members(state, begun), where
            of_who_waits = ("gangs", "everybody") if whole.waits else ()
            for what in ("gang", "declaration", "timed_out", "evicting", "rejections", *of_who_waits):
                assert getattr(begun, what) == getattr(whole, what), f"{where}: {what}"
            for at in whole.proposals | begun.proposals:
                known, found = whole.proposals.get(at, []), set(begun.proposals.get(at, []))
                assert set(whole.staged(known, PROPOSED)) <= found <= set(known), where
            if whole.kind == GANG:
                assert begun.kept.keys() == whole.kept.keys(), where
                for what in ("requested", "reserved", "nominated"):  # who came later was not told that it began
                    assert getattr(begun, what) >= getattr(whole, what), f"{where}: {what}"


def test_walks_have_lines_of_nearly_every_kind() -> None:
    """Else the tests above would say little."""
    whats = Counter[str]()
    for seed in range(10):
        (*_, (_, _, told)) = stories(walked(seed))
        whats.update(line.what for story in told for line in story.lines)
    assert {"proposal refused", "held", "given back", "no room", "binding failed", "no planner"} <= whats.keys()
    assert len(whats) > 30


def digest() -> str:
    found = hashlib.sha256()
    for seed in range(3):
        (*_, (_, _, told)) = stories(walked(seed))
        for story in told:
            found.update(repr((story.followed.name, story.lines, story.followed.stands())).encode())
    return found.hexdigest()


def test_it_is_the_same_whatever_the_hash_seed() -> None:
    program = "from tests.console.test_story_walk import digest; print(digest())"
    said = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        said.append(done.stdout)
    assert said[0] == said[1]
    assert len(said[0].strip()) == hashlib.sha256().digest_size * 2

"""Stories of random walks: whatever happens, a story agrees with the state, and its lines with the log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

import events as ev
from events.envelope import Stored, decode
from services.console.story import GANG, POD, Story
from services.console.summary import waiting_groups, why_each_waits
from services.state.fold import State
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


def _says(stored: Stored, called: set[str]) -> bool:
    """A gang group is one with the gangs that it names: what a commit says of one of them may be of all."""
    text = stored.payload.decode()
    return any(one in text for one in called) or any(isinstance(one, ABOUT_ALL) for one in decode(stored).events)


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

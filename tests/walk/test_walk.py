"""Random walks, bounded by counts: whatever a cluster does, the invariants of docs/design.md, section 7, hold."""

import pytest

from services.state import snapshot
from tests.bounds import bound, forget, largest
from tests.walk.checks import check_empty, check_rest, refold
from tests.walk.walk import Walk


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_the_invariants_hold(seed: int) -> None:
    walk = Walk(seed, replacement="evict" if seed % 4 == 3 else "keep")
    walk.walk(400)
    middle = snapshot.encode(walk.state)
    walk.settle()
    check_rest(walk.state, walk.cluster)
    digest = snapshot.digest(walk.state)
    assert snapshot.digest(refold(walk.world)) == digest
    assert snapshot.digest(refold(walk.world, snapshot.decode(middle))) == digest


@pytest.mark.parametrize("seed", range(8))
def test_however_little_a_commit_takes_everything_is_decided_in_the_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decision is a part of what there is to say, and the next goes on (`services.state.commits`).

    A refusal with the room that it asks for is one unit, here of up to 615 bytes (seed 700,120).
    """
    bound(monkeypatch, 800, pods_named=1)
    walk = Walk(seed, replacement="evict" if seed % 4 == 3 else "keep")
    walk.walk(400)
    walk.settle()
    check_rest(walk.state, walk.cluster)
    assert largest(walk.world.log) <= 800
    assert snapshot.digest(refold(walk.world)) == snapshot.digest(walk.state)


@pytest.mark.parametrize("seed", range(16))
def test_of_what_is_gone_nothing_is_left(seed: int) -> None:
    """However long a log is, its state is as large as its cluster."""
    walk = Walk(seed, replacement="evict" if seed % 4 == 3 else "keep")
    walk.walk(400)
    walk.clear()
    walk.settle()
    check_empty(walk.state)


@pytest.mark.parametrize("seed", [1, 8, 25])
def test_however_little_is_remembered_the_same_is_decided(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of taints that were coded anew a row without a node kept its old code, and planners ended."""
    usual, forgetful = Walk(seed), Walk(seed)
    usual.walk(400)
    forget(monkeypatch)
    forgetful.walk(400)
    assert [one.payload for one in forgetful.world.log.commits] == [one.payload for one in usual.world.log.commits]
    assert snapshot.digest(forgetful.state) == snapshot.digest(usual.state)

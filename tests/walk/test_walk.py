"""Random walks, bounded by counts: whatever a cluster does, the invariants of the design's section 7 hold."""

import pytest

from services.state import snapshot
from tests.walk.checks import check_rest, refold
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

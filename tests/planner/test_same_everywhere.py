"""What is decided is the same on every machine: whatever the order of rows, hash seed and CPU (design, section 5)."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import events as ev
from events import envelope
from services.planner.core import decide_now
from services.state import snapshot
from services.state.fold import State
from tests.world import World


def scenario(order: list[int], *, readd: bool = False) -> World:
    """Nodes of several kinds, observed in `order`; pods on them, gangs and pods that wait."""
    world = World()
    source = random.Random(7)
    kinds = [(source.choice([2, 4, 8]), source.choice([8, 16]), source.choice([0, 0, 2])) for _ in range(40)]
    digests = [world.scheduling_class(cpu=1), world.scheduling_class(cpu=1, gpu=1), world.scheduling_class(cpu=2)]
    if readd:
        for number in order[:10]:
            world.node(f"n{number}", cpu=1)
        for number in order[:10]:
            world.facts(ev.NodeDeleted(name=f"n{number}", uid=f"uid-n{number}"))
    for number in order:
        cpu, memory_gi, gpu = kinds[number]
        world.node(f"n{number}", cpu, memory_gi, gpu=gpu, labels={"zone": "ab"[number % 2]})
    for number in range(20):
        world.pod(f"held-{number}", of=digests[0], node=f"n{number}", candidate=False)
    for gang in range(6):
        for member in range(5):
            world.pod(f"g{gang}-{member}", f"g{gang}", minimum=4, of=digests[(gang + member % 2) % 3], created_s=gang)
    for number in range(30):
        world.pod(f"p{number}", of=digests[number % 3], priority=number % 2, created_s=number)
    world.pod("too-large", cpu=100)
    world.pod("nowhere", selector={"zone": "c"})
    return world


def plan_bytes(state: State) -> bytes:
    return envelope.encode_events(decide_now(state, "a"))


def test_permuted_rows_give_equal_bytes() -> None:
    expected = plan_bytes(scenario(list(range(40))).state)
    assert expected.count(b"GangPlaced") > 10
    assert b"GroupsRefused" in expected
    for seed in range(3):
        order = list(range(40))
        random.Random(seed).shuffle(order)
        assert plan_bytes(scenario(order).state) == expected


def test_nodes_that_went_and_came_again_give_equal_bytes() -> None:
    expected = plan_bytes(scenario(list(range(40))).state)
    assert plan_bytes(scenario(list(range(40)), readd=True).state) == expected


def test_a_start_from_a_snapshot_gives_equal_bytes() -> None:
    order = list(range(40))
    random.Random(3).shuffle(order)
    state = scenario(order).state
    assert plan_bytes(snapshot.decode(snapshot.encode(state))) == plan_bytes(state)


WALK = """
import hashlib
from tests.walk.walk import Walk
digest = hashlib.sha256()
for seed in range(6):
    walk = Walk(seed)
    walk.walk(250)
    walk.settle(3)
    for stored in walk.world.log.commits:
        digest.update(stored.payload)
print(digest.hexdigest())
"""


def log_digest(**environment: str) -> str:
    """Digest of the logs of some whole scenarios, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        env={**os.environ, **environment},
        cwd=os.getcwd(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def cpu_features() -> list[str]:
    """What numpy chooses by on this machine, and can be told to leave alone."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [feature for feature in __cpu_dispatch__ if __cpu_features__.get(feature)]


def test_hash_seeds_and_cpu_features_give_equal_bytes_of_a_whole_log() -> None:
    expected = log_digest(PYTHONHASHSEED="1")
    assert len(expected) == hashlib.sha256().digest_size * 2
    assert log_digest(PYTHONHASHSEED="2") == expected
    assert log_digest(PYTHONHASHSEED="3", NPY_DISABLE_CPU_FEATURES=" ".join(cpu_features())) == expected

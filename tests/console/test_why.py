"""Why a pod waits, at any place of a log: what is said is so there."""

import pytest

import events as ev
from services.binder.report import condition
from services.console.summary import TO_BE_TRIED, summary, waiting_groups, why_each_waits
from services.state import snapshot
from services.state.fold import State
from services.state.records import HELD
from services.state.reservations import rooms
from tests.planner.test_sharing import behind_others
from tests.test_starvation import GANG, MEMBERS, Busy, policy
from tests.walk.walk import Walk
from tests.why import why_waiting
from tests.world import World


def why(world: World, uid: str) -> str:
    return why_waiting(world.state, world.state.pods[uid])


def test_who_was_refused_and_is_to_be_tried_again_is_not_said_to_be_tried_never() -> None:
    """As it was: "not tried yet", of a pod whose condition said what it had been refused for."""
    world = World()
    world.pod("web")
    world.settle()
    assert why(world, "web").startswith("no nodes available to schedule pods")
    world.pod("web", priority=5)
    world.pass_s(2)
    assert world.state.groups["pod/default/web"].attempts == 1
    assert why(world, "web") == "to be tried"


def test_where_nobody_decides_yet_it_is_said() -> None:
    world = World()
    world.pod("web")
    world.facts(ev.IngestTaken(holder="next"))
    assert why(world, "web") == "to be tried, once ingest has read the cluster"
    world.facts(ev.ClusterSynced(nodes=0, pods=1))
    assert why(world, "web") == "to be tried"


def test_where_there_is_no_planner_it_is_said() -> None:
    world = World()
    world.lose("a")
    world.judge()
    world.pod("web")
    alone = "to be tried, and no planner that lives owns its partition"
    assert why(world, "web") == alone
    world.join("b")
    assert why(world, "web") == alone
    world.judge()
    assert why(world, "web") == "to be tried"


def test_a_complete_gang_that_is_held_waits_for_the_others_of_its_group() -> None:
    world = World()
    world.node("n0")
    both = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, both)
    world.koordinator("default/b", 2, 2, both)
    world.propose("default/a", {"a-0": "n0", "a-1": "n0"})
    world.judge()
    assert why(world, "a-0") == "waits on node n0 for the rest of its gang group"


def test_who_was_put_behind_groups_of_other_shards_is_told_so() -> None:
    """The node is empty: "1 Insufficient cpu", which its condition says, too, is not all that there is to it."""
    world, _, ours = behind_others()
    assert why(world, ours).startswith(
        "0/1 nodes are available: 1 Insufficient cpu. Groups of other shards that come before it were left their room."
    )


def test_room_that_is_kept_is_told_in_a_sentence_of_its_own() -> None:
    busy = Busy(policy(after=1))
    world = busy.world
    while not world.state.reservations:
        busy.end_one()
    world.deleted(MEMBERS[0])
    world.pass_s(3)
    world.plan()
    (kept,) = world.state.reservations.values()
    on = len({node for _, node, _ in rooms(kept)})
    lacks = "gang default/train has 7 of its minimum of 8 pods: less than minAvailable"
    assert waiting_groups(world.state)[GANG] == (
        7,
        f"{lacks}. Room for 8 pods on {on} nodes is kept for it as it becomes free.",
    )


@pytest.mark.parametrize("seed", range(8))
def test_at_any_place_of_a_walk_it_agrees_with_the_state_and_with_the_conditions(seed: int) -> None:
    walk = Walk(seed, replacement="evict" if seed % 4 == 3 else "keep")
    walk.walk(300)
    state = State()
    for stored in walk.world.log.commits:
        state.apply_stored(stored)
        told = {pod.fact.uid: said for pod, said in why_each_waits(state)}
        assert len(told) == summary(state)["waiting"] == sum(pods for pods, _ in waiting_groups(state).values())
        for uid, said in told.items():
            pod, claim, due = state.pods[uid], state.claims.get(uid), condition(state, uid, in_doubt=True)
            where = f"{state.sequence}: {uid} {pod.status}: {said}"
            if due is not None:
                assert said.startswith(due.message.removesuffix(".")), where
            elif claim is not None and not pod.fact.gated:
                assert claim.node in said.split(), where
                assert claim.stage in (HELD, said.partition(":")[0]), where
            elif not pod.fact.gated and not state.groups[pod.group].cohort:
                assert said.startswith(TO_BE_TRIED), where
        if state.sequence % 10 == 0:
            assert waiting_groups(snapshot.decode(snapshot.encode(state))) == waiting_groups(state)

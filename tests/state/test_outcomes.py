"""Every arrival order of outcome and fact folds to the same state (design, rule 6): of what is not a binding.

Bindings have theirs in `test_claims`. The facts come in one order, and so does what is answered about one pod.
"""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from services.state import timeouts
from services.state.fold import State
from tests.state.test_claims import about, essence, merged
from tests.world import World, of_type

Said = list[ev.Event]
MARKED = {
    "annotated": "marked 300 | says 300",
    "annotated after an edit": "renewed 250, marked 300 | edited 250, says 300",
    "annotated and removed": "marked 300 | says 300, not 400",
    "annotated and removed unseen": "marked 300 | not 400",
    "annotated and removed unseen, then bound": "marked 300 | assigned 400",
    "annotated and removed, and annotated by its user": "marked 300 | says 300, not 400, says 500",
    "annotated and bound": "marked 300 | says 300, assigned 400",
    "annotated and terminating": "marked 300 | says 300, terminating 400",
    "annotated and deleted": "marked 300 | says 300, deleted",
    "bound and annotated": "renewed 250, marked 300 | assigned 250, says 300",
    "refused": "failed |",
    "refused and edited": "failed | edited 400",
    "renewed and deleted": "renewed 250 | edited 250, deleted",
    "terminating": "| terminating 250",
    "deleted": "| deleted",
}
EVICTED = {
    "evicted": "evicted | terminating 300, deleted",
    "evicted and finished": "evicted | terminating 300, finished 400, deleted",
    "evicted, and still there": "evicted | terminating 300",
    "ended before": "not evicted | finished 300",
    "ended before, and deleted": "not evicted | finished 300, deleted",
    "deleted before": "evicted | deleted",
    "deleted before anybody asked": "| deleted",
    "called off": "not evicted |",
}
REPORTED = {
    "told": "told 300 | edited 400",
    "told after an edit": "told 300 | edited 250",
    "told twice": "told 300, told 500 | edited 400",
    "told and bound": "told 300 | assigned 400",
    "told and deleted": "told 300 | deleted",
}


def spelt(world: World, uid: str, fate: str) -> tuple[Said, Said]:
    """(outcomes, facts) of what is said of the pod, each with the resourceVersion that it names."""
    outcomes, _, facts = fate.partition("|")
    fact = world.state.pods[uid].fact

    def event(said: str) -> ev.Event:
        what, _, number = said.strip().rpartition(" ") if said.strip()[-1].isdigit() else (said.strip(), "", "0")
        version, there = int(number), about(uid)

        def observed(says: bool, priority: int = 0) -> ev.PodObserved:
            gang = fact.gang and msgspec.structs.replace(fact.gang, timed_out=True if says else msgspec.UNSET)
            return msgspec.structs.replace(fact, resource_version=number, gang=gang, priority=priority)

        return {
            "marked": lambda: ev.TimeoutMarked(pods=((uid, number),)),
            "renewed": lambda: ev.TimeoutMarkRenewed(pods=((uid, number),)),
            "failed": lambda: ev.TimeoutMarkFailed(**there, message="no"),
            "evicted": lambda: ev.PodEvicted(**there),
            "not evicted": lambda: ev.EvictionFailed(**there, message="the pod has ended"),
            "told": lambda: ev.ConditionsReported(reason="x", pods=((uid, number),)),
            "says": lambda: observed(True),
            "not": lambda: observed(False),
            "edited": lambda: observed(False, priority=7),
            "assigned": lambda: ev.PodAssigned(**about(uid, version), node="n0"),
            "terminating": lambda: ev.PodTerminating(**about(uid, version)),
            "finished": lambda: ev.PodFinished(**about(uid, version), succeeded=True, reason=""),
            "deleted": lambda: ev.PodDeleted(**there),
        }[what]()

    return tuple([event(said) for said in stream.split(",") if said.strip()] for stream in (outcomes, facts))


def timed_out(pods: int) -> tuple[World, list[str]]:
    """A gang whose waiting time is over, and whose pods are to be annotated."""
    world = World()
    world.node("n0", cpu=32)
    world.versions = 100
    uids = world.koordinator("default/a", pods, pods)
    world.propose("default/a", {uids[0]: "n0"})
    world.judge()
    world.pass_s(600)
    assert len(of_type(world.judge(), ev.GangTimedOut)) == 1
    assert sorted(world.state.marks) == uids
    return world, uids


def to_be_evicted(pods: int) -> tuple[World, list[str]]:
    """Pods that run, and whose gang is to be evicted."""
    world = World()
    world.node("n0", cpu=32)
    world.versions = 100
    uids = world.gang("train", pods, pods)
    world.settle()
    for uid in uids:
        world.assigned(uid, "n0")
        world.append("binder", [ev.EvictionIntended(**about(uid, 200), reason="x")], cause="decide")
    assert sorted(world.state.evictions) == uids
    return world, uids


def refused(pods: int) -> tuple[World, list[str]]:
    """Pods that wait for room."""
    world = World()
    world.node("n0", cpu=1)
    world.versions = 100
    uids = [world.pod(f"alone-{i}", cpu=4) for i in range(pods)]
    world.plan()
    return world, uids


START = {
    **dict.fromkeys(MARKED, timed_out),
    **dict.fromkeys(EVICTED, to_be_evicted),
    **dict.fromkeys(REPORTED, refused),
}
FATES = {**MARKED, **EVICTED, **REPORTED}


def folded(fates: list[str], source: random.Random) -> State:
    world, uids = START[fates[0]](max(2, len(fates)))
    said = [spelt(world, uid, FATES[fate]) for uid, fate in zip(uids, fates, strict=False)]
    facts = [("ingest", event) for _, facts in said for event in facts]
    for writer, event in merged(source, [facts, *([("binder", event) for event in outcomes] for outcomes, _ in said)]):
        world.append(writer, [event], cause="outcome" if writer == "binder" else "facts")
    return world.state


def whole(state: State) -> dict[str, object]:
    return essence(state) | {
        "marks": sorted(state.marks),
        "evictions": sorted(state.evictions),
        "timed out": {key: sorted(gang.timed_out) for key, gang in state.gangs.items()},
        "waits for its user": {key: timeouts.stands(state, group) for key, group in state.groups.items()},
        "phases": {key: group.phase for key, group in state.groups.items()},
    }


@given(
    st.sampled_from((MARKED, EVICTED, REPORTED)).flatmap(
        lambda fates: st.lists(st.sampled_from(sorted(fates)), min_size=1, max_size=3)
    ),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=100)
def test_every_order_of_outcomes_and_facts_folds_to_the_same_state(fates: list[str], source: random.Random) -> None:
    assert whole(folded(fates, source)) == whole(folded(fates, random.Random(0)))


@pytest.mark.parametrize("fate", FATES)
def test_each_fate_settles_its_intent_whatever_comes_first(fate: str) -> None:
    states = [whole(folded([fate], random.Random(seed))) for seed in range(12)]
    assert all(state == states[0] for state in states)
    named = "alone-0" if fate in REPORTED else "train-0" if fate in EVICTED else "a-0"
    assert named not in [*states[0]["marks"], *states[0]["evictions"]]

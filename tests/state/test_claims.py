"""Claims have one life (design, rule 6): every arrival order of outcome and fact folds to the same state."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from services.state import snapshot
from services.state.fold import State
from services.state.records import IDLE
from tests.world import World

FATES = (
    "bound",
    "bound after an edit",
    "bound and terminating",
    "bound and deleted",
    "bound and finished",
    "bound, finished and deleted",
    "bound elsewhere",
    "rejected",
    "rejected and deleted",
    "deleted",
    "terminating and deleted",
)


def about(uid: str, version: int = 0) -> dict[str, str]:
    found = {"uid": uid, "namespace": "default", "name": uid}
    return found | {"resource_version": str(version)} if version else found


def streams(world: World, uid: str, fate: str) -> tuple[list[ev.Event], list[ev.Event]]:
    """What the API server's answers and its watch say of a pod that is to be bound to n0, each in its own order."""
    edited = msgspec.structs.replace(world.state.pods[uid].fact, resource_version="200", priority=7)
    assigned = ev.PodAssigned(**about(uid, 300), node="n0")
    yes = [ev.PodBound(**about(uid), node="n0")]
    terminating, deleted = ev.PodTerminating(**about(uid, 400)), ev.PodDeleted(**about(uid))
    finished = ev.PodFinished(**about(uid, 400), succeeded=True, reason="")

    def no(reason: str, elsewhere: str = "") -> list[ev.Event]:
        failed = ev.BindingFailed(**about(uid), node="n0", reason=reason, message="", assigned_node=elsewhere)
        return [failed]

    return {
        "bound": (yes, [assigned]),
        "bound after an edit": ([ev.BindingRenewed(**about(uid, 200), node="n0"), *yes], [edited, assigned]),
        "bound and terminating": (yes, [assigned, terminating]),
        "bound and deleted": (yes, [assigned, terminating, deleted]),
        "bound and finished": (yes, [assigned, finished]),
        "bound, finished and deleted": (yes, [assigned, finished, deleted]),
        "bound elsewhere": (no("AlreadyAssigned", "n1"), [ev.PodAssigned(**about(uid, 300), node="n1")]),
        "rejected": (no("Rejected"), [edited]),
        "rejected and deleted": (no("Rejected"), [deleted]),
        "deleted": (no("PodGone"), [deleted]),
        "terminating and deleted": (no("PodGone"), [terminating, deleted]),
    }[fate]


def merged(source: random.Random, sequences: list[list[tuple[str, ev.Event]]]) -> list[tuple[str, ev.Event]]:
    """One of the orders that keep each sequence's own."""
    turns = [index for index, sequence in enumerate(sequences) for _ in sequence]
    source.shuffle(turns)
    left = [iter(sequence) for sequence in sequences]
    return [next(left[turn]) for turn in turns]


def essence(state: State) -> dict[str, object]:
    """The state modulo places: who holds which room, which pods there are, and who belongs to what."""
    return {
        "claims": {uid: (c.node, c.stage, c.scheduling_class) for uid, c in sorted(state.claims.items())},
        "pods": {
            uid: (p.fact, p.status, p.node, p.resource_version, p.group, p.gang)
            for uid, p in sorted(state.pods.items())
        },
        "gangs": {key: (sorted(g.members), g.declaration, g.satisfied) for key, g in sorted(state.gangs.items())},
        "groups": {key: (g.pod, g.gangs, g.priority, sorted(g.held)) for key, g in sorted(state.groups.items())},
        "permitted": sorted(state.permitted),
        "lost": sorted(state.lost),
        "room": {name: state.table.held[row].tolist() for name, row in sorted(state.table.rows.items())},
        "proposed": {name: state.table.proposed[row].tolist() for name, row in sorted(state.table.rows.items())},
        "listed": {name: sorted(node.claims) for name, node in sorted(state.nodes.items())},
    }


def permitted_gang(pods: int, minimum: int) -> tuple[World, list[str]]:
    """A gang whose pods are permitted on n0, where nothing of it is bound yet."""
    world = World()
    world.node("n0", cpu=32)
    world.versions = 100
    uids = world.gang("train", pods, minimum)
    world.plan()
    world.judge()
    assert sorted(world.state.permitted) == uids
    world.node("n1", cpu=32)
    return world, uids


def folded(fates: list[str], minimum: int, source: random.Random) -> State:
    world, uids = permitted_gang(len(fates), minimum)
    sequences = []
    for uid, fate in zip(uids, fates, strict=True):
        outcomes, facts = streams(world, uid, fate)
        sequences += [[("binder", event) for event in outcomes], [("ingest", event) for event in facts]]
    for writer, event in merged(source, sequences):
        world.append(writer, [event])
    return world.state


def undecided(fates: list[str]) -> list[str]:
    """Whose room is to be kept depends on who was lost first; and after a no, on whether its room was given back."""
    lost = [fate for fate in fates if fate not in ("bound", "bound after an edit")]
    return ["lost"] if len(lost) > 1 or lost == ["rejected and deleted"] else []


@given(st.lists(st.sampled_from(FATES), min_size=1, max_size=3), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=150)
def test_every_order_of_outcomes_and_facts_folds_to_the_same_state(
    fates: list[str], minimum: int, source: random.Random
) -> None:
    minimum = min(minimum, len(fates))
    in_turn = folded(fates, minimum, random.Random(0))
    other = folded(fates, minimum, source)
    left_out = undecided(fates)
    for name, value in essence(in_turn).items():
        if name not in left_out:
            assert essence(other)[name] == value


@pytest.mark.parametrize("fate", FATES)
def test_each_fate_ends_where_the_cluster_ended(fate: str) -> None:
    state = folded([fate], 1, random.Random(1))
    where = {uid: (claim.node, claim.stage) for uid, claim in state.claims.items()}
    on_n0 = {"train-0": ("n0", "bound")}
    expected = {
        "bound": on_n0,
        "bound after an edit": on_n0,
        "bound and terminating": on_n0,
        "bound elsewhere": {"train-0": ("n1", "bound")},
    }
    assert where == expected.get(fate, {})
    assert not state.permitted


def unplaced(state: State) -> list[bytes]:
    """Everything that a snapshot holds, but for the log's length and the counters."""
    return [line for line in snapshot.FORM.lines(state) if not line.startswith((b"sequence ", b"ignored "))]


@pytest.mark.parametrize(
    "outcome",
    [
        ev.PodBound(**about("ghost"), node="n0"),
        ev.BindingFailed(**about("ghost"), node="n0", reason="PodGone", message="", assigned_node=""),
        ev.BindingFailed(**about("ghost"), node="n0", reason="AlreadyAssigned", message="", assigned_node="n1"),
        ev.BindingRenewed(**about("ghost", 9), node="n0"),
        ev.ConditionsReported(reason="x", pods=(("ghost", "9"),)),
        ev.PodEvicted(**about("ghost")),
        ev.EvictionFailed(**about("ghost"), message=""),
        ev.EvictionIntended(**about("ghost", 9), reason=""),
        ev.NominationEnded(gang="default/train", pod="ghost", reason="Expired"),
        ev.RoomNominated(gang="default/train", pod="ghost", node="n0", waiting_ms=1),
    ],
    ids=lambda event: type(event).__name__,
)
def test_outcomes_for_absent_uids_are_inert(outcome: ev.Event) -> None:
    world, _ = permitted_gang(2, 2)
    before = unplaced(world.state)
    world.append("binder", [outcome], cause="outcome")
    assert unplaced(world.state) == before


@pytest.mark.parametrize(
    "fact",
    [
        ev.PodAssigned(**about("ghost", 9), node="n0"),
        ev.PodTerminating(**about("ghost", 9)),
        ev.PodFinished(**about("ghost", 9), succeeded=True, reason=""),
        ev.PodDeleted(**about("ghost")),
        ev.NodeDeleted(name="n9", uid="x"),
        ev.NodeDeleted(name="n0", uid="of an earlier node"),
        ev.PodGroupDeleted(namespace="default", name="train", uid="of an earlier one", dialect="x"),
        ev.PriorityClassDeleted(name="ghost", uid="ghost"),
        ev.RejectionEnded(kind="Node", namespace="", name="ghost", uid="ghost"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_facts_about_what_is_not_there_are_inert(fact: ev.Event) -> None:
    world, _ = permitted_gang(2, 2)
    before = unplaced(world.state)
    world.facts(fact)
    assert unplaced(world.state) == before


def test_a_node_that_is_only_named_by_its_claims_stays_when_one_of_its_name_is_gone() -> None:
    world = World()
    world.pod("early", node="n9")
    world.facts(ev.NodeDeleted(name="n9", uid="x"))
    assert list(world.state.nodes["n9"].claims) == ["early"]


@pytest.mark.parametrize("stage", ["proposed", "permitted", "bound"])
def test_a_fact_without_a_node_never_clears_a_claim(stage: str) -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    if stage != "proposed":
        world.judge()
    if stage == "bound":
        world.append("binder", [ev.PodBound(**about("alone"), node="n0")], cause="outcome")
    world.pod("alone", priority=3)
    claim = world.state.claims["alone"]
    assert (claim.node, claim.stage) == ("n0", stage)
    assert world.state.pods["alone"].fact.priority == 3


def test_a_fact_with_a_node_wins_over_whatever_was_intended() -> None:
    world, _ = permitted_gang(1, 1)
    world.assigned("train-0", "n1")
    world.append("binder", [ev.PodBound(**about("train-0"), node="n0")], cause="outcome")
    assert world.state.claims["train-0"].node == "n1"
    assert world.state.pods["train-0"].node == "n1"


def test_a_pod_that_changed_and_was_bound_while_nobody_looked_is_where_one_fact_says() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    fact = world.state.pods["alone"].fact
    seen = {"status": "bound", "node": "n0", "priority": 5, "resource_version": world.version()}
    world.facts(msgspec.structs.replace(fact, **seen))
    assert world.where("alone") == ["n0"]
    assert world.state.claims["alone"].node == "n0"


def test_an_older_fact_is_dropped() -> None:
    world = World()
    world.pod("alone", priority=1)
    newest = world.state.pods["alone"].fact
    world.pod("alone", priority=2)
    world.facts(newest)
    assert world.state.pods["alone"].fact.priority == 2


def test_a_fact_of_the_same_version_is_news() -> None:
    """What it says may depend on another object, too, such as a priority class."""
    world = World()
    world.pod("alone", priority=1)
    world.facts(msgspec.structs.replace(world.state.pods["alone"].fact, priority=2))
    assert world.state.groups["pod/default/alone"].priority == 2


def test_resource_versions_compare_as_integers() -> None:
    world = World()
    world.versions = 98
    world.pod("alone", priority=1)
    world.pod("alone", priority=2)
    assert world.state.pods["alone"].resource_version == "100"
    assert world.state.pods["alone"].fact.priority == 2


def test_a_fact_is_not_old_because_the_binder_wrote_since() -> None:
    """An edit that came before the binder's own write, and is read after it, is news."""
    world = World()
    world.pod("alone", priority=1)
    edited = msgspec.structs.replace(world.state.pods["alone"].fact, resource_version="50", priority=2)
    world.append("binder", [ev.ConditionsReported(reason="x", pods=(("alone", "51"),))], cause="outcome")
    world.facts(edited)
    pod = world.state.pods["alone"]
    assert (pod.fact.priority, pod.resource_version) == (2, "51")


def test_a_finished_pod_comes_to_no_life_again() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.settle()
    world.finished("alone")
    for event in (
        ev.PodBound(**about("alone"), node="n0"),
        ev.BindingFailed(**about("alone"), node="n0", reason="AlreadyAssigned", message="", assigned_node="n0"),
    ):
        world.append("binder", [event], cause="outcome")
    world.assigned("alone", "n0")
    assert world.state.pods["alone"].status == "succeeded"
    assert not world.state.claims


def test_terminating_pods_hold_their_room_until_they_are_gone_finished_ones_free_it() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("old")
    world.settle()
    world.pod("new")
    world.terminating("old")
    world.settle()
    assert world.where("new") == [""]
    world.finished("old")
    world.pass_s(2)
    world.settle()
    assert world.where("new") == ["n0"]


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_pod_that_is_observed_when_it_is_over_frees_its_room(status: str) -> None:
    """What ends it may come as a whole observation, too."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("a")
    world.pod("b")
    world.settle()
    assert world.where("a", "b") == ["n0", ""]
    over = msgspec.structs.replace(world.state.pods["a"].fact, status=status, node="n0", resource_version="900")
    world.facts(over)
    assert "a" not in world.state.claims
    world.pass_s(2)
    world.settle()
    assert world.where("b") == ["n0"]


@pytest.mark.parametrize("gang", ["", "train"])
def test_a_pod_that_was_never_bound_and_is_over_leaves_nothing_to_be_tried(gang: str) -> None:
    world = World()
    world.node("n0")
    world.pod("a", gang, minimum=1 if gang else 0)
    over = msgspec.structs.replace(world.state.pods["a"].fact, status="failed", node="n0", resource_version="900")
    world.facts(over)
    assert [group.phase for group in world.state.groups.values()] == [IDLE]
    assert not world.state.ready


def permitted() -> World:
    world = World()
    world.node("n0")
    world.node("n1")
    world.pod("alone")
    world.propose("pod/default/alone", {"alone": "n0"})
    world.judge()
    assert list(world.state.permitted) == ["alone"]
    return world


def test_an_answer_that_says_where_the_pod_is_places_it_there() -> None:
    """Before any fact does: nobody plans it meanwhile."""
    world = permitted()
    elsewhere = ev.BindingFailed(**about("alone"), node="n0", reason="AlreadyAssigned", message="", assigned_node="n1")
    world.append("binder", [elsewhere], cause="outcome")
    assert world.where("alone") == ["n1"]
    assert world.bound() == ["alone"]
    assert world.state.claims["alone"].node == "n1"


def begun_anew(stage: str) -> World:
    """Etcd was restored from a backup: the pod that was bound to n0 waits again, and by now is planned on n1."""
    world = permitted()
    world.pod("alike")  # for their scheduling class
    fact = world.state.pods["alone"].fact
    world.facts(ev.PodAssigned(**about("alone", 700), node="n0"))
    world.facts(ev.PodDeleted(**about("alone")), fact)
    world.propose("pod/default/alone", {"alone": "n1"})
    if stage == "permitted":
        world.judge()
    assert world.state.claims["alone"].stage == stage
    return world


@pytest.mark.parametrize("stage", ["proposed", "permitted"])
@pytest.mark.parametrize(
    "outcome",
    [
        ev.PodBound(**about("alone"), node="n0"),
        ev.BindingFailed(**about("alone"), node="n0", reason="Rejected", message="", assigned_node=""),
        ev.BindingRenewed(**about("alone", 700), node="n0"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_became_of_a_binding_that_was_taken_back_says_nothing_of_the_next(stage: str, outcome: ev.Event) -> None:
    world = begun_anew(stage)
    before = copy.copy(world.state.claims["alone"])
    world.append("binder", [outcome], cause="outcome")
    assert (world.bound(), world.state.claims["alone"]) == ([], before)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_pod_that_is_on_its_way_out_stays_so_when_it_is_bound(elsewhere: bool) -> None:
    world = permitted()
    world.terminating("alone")
    yes = ev.PodBound(**about("alone"), node="n0")
    no = ev.BindingFailed(**about("alone"), node="n0", reason="AlreadyAssigned", message="", assigned_node="n1")
    world.append("binder", [no if elsewhere else yes], cause="outcome")
    assert world.state.pods["alone"].status == "terminating"
    assert world.where("alone") == ["n1" if elsewhere else "n0"]


def test_nor_does_a_fact_that_says_where_it_is_bring_it_back() -> None:
    world = permitted()
    world.terminating("alone")
    world.assigned("alone", "n1")
    pod = world.state.pods["alone"]
    assert (pod.status, pod.observed, pod.node) == ("terminating", "terminating", "n1")


@pytest.mark.parametrize(
    "fact",
    [
        ev.PodAssigned(**about("alone", 700), node="n0"),
        ev.PodTerminating(**about("alone", 700)),
        ev.PodFinished(**about("alone", 700), succeeded=True, reason=""),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_the_version_of_what_was_seen_is_known(fact: ev.Event) -> None:
    """What is done to the pod next has it as its precondition, and an ingest that starts goes on from it."""
    world = permitted()
    world.facts(fact)
    pod = world.state.pods["alone"]
    assert (pod.resource_version, pod.observed_version) == ("700", "700")


def test_a_refused_pod_that_is_on_its_way_out_waits_for_nothing() -> None:
    world = World()
    world.pod("alone")
    world.plan()
    assert world.state.cohorts
    world.terminating("alone")
    assert not world.state.cohorts
    assert not world.plan_would()

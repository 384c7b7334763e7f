"""Verify asks of each permit what no permit may do, whatever the rules say."""

from collections.abc import Iterator

import msgspec
import pytest

import events as ev
from events.objects import Binding, Declaration, NodeBindings, Place
from services.binder import core as binder
from services.binder.bench import Bench
from services.binder.rules.coscheduling import permit
from services.console.kinds.permits import broken
from services.console.verify import verify
from services.state.fold import State
from tests.binder.test_nominations import GANG, contested, lose
from tests.homes import folded
from tests.world import World, of_type


def permitted(group: str, pods: dict[str, str], dropped: tuple[str, ...] = ()) -> ev.GangPermitted:
    """`pods`: UID → node."""
    bindings = tuple(NodeBindings(node, (Binding(uid, "1"),)) for uid, node in pods.items())
    return ev.GangPermitted(group=group, proposals=(Place(1, 0),), bindings=bindings, dropped=dropped)


def placed(world: World, gang: str, pods: int, minimum: int, node: str = "n0") -> ev.GangPermitted:
    """The gang's pods are there and proposed on the node; their permit."""
    uids = world.gang(gang, pods, minimum)
    world.propose(f"default/{gang}", dict.fromkeys(uids, node))
    return permitted(f"default/{gang}", dict.fromkeys(uids, node))


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n0", cpu=4)
    return world


def test_what_fits_and_starts_together_is_sound(world: World) -> None:
    assert broken(world.state, [placed(world, "train", 4, 4)]) == ""
    assert broken(world.state, binder.decide_now(world.state)) == ""


def test_a_permit_below_the_minimum(world: World) -> None:
    whole = placed(world, "train", 3, 3)
    lacks = msgspec.structs.replace(whole, bindings=whole.bindings[:2])
    assert (
        broken(world.state, [lacks]) == "default/train is permitted, and gang default/train is below its minimum (7.3)"
    )
    rest = msgspec.structs.replace(whole, bindings=whole.bindings[2:])
    assert broken(world.state, [rest, lacks]).startswith("default/train"), "it is not there yet with the first"


def test_a_permit_for_pods_whose_gang_runs(world: World) -> None:
    placed(world, "train", 2, 2)
    world.judge()
    later = world.pod("later", "train")
    world.propose("default/train", {later: "n0"})
    assert broken(world.state, [permitted("default/train", {later: "n0"})]) == ""


def test_a_permit_while_another_gang_of_the_group_lacks_its_minimum(world: World) -> None:
    names = ("default/a", "default/b")
    ours = world.koordinator("default/a", 2, 2, {"groups": names})
    theirs = world.koordinator("default/b", 1, 2, {"groups": names})
    world.propose("default/a", dict.fromkeys((*ours, *theirs), "n0"))
    alone = permitted("default/a", dict.fromkeys(ours, "n0"))
    assert broken(world.state, [alone]) == "default/a is permitted, and gang default/b is below its minimum (7.3)"


def test_a_permit_while_a_task_lacks_its_minimum() -> None:
    world = World()
    world.node("n0", cpu=4)
    tasks = {"ps": 1, "worker": 2}
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums=tasks)
    uids = [world.volcano(f"{task}-{i}", "job", task) for task in ("ps", "worker") for i in range(3)]
    world.propose("default/job@batch", dict.fromkeys(uids[:4], "n0"))
    alike = permitted("default/job@batch", dict.fromkeys(uids[:3], "n0"))
    assert broken(world.state, [alike]).endswith("gang default/job@batch is below its minimum (7.3)")
    world.propose("default/job@batch", dict.fromkeys(uids[2:5], "n0"))
    assert "7.3" in broken(world.state, [permitted("default/job@batch", dict.fromkeys(uids[:2] + uids[3:4], "n0"))])


def test_permits_that_together_exceed_what_the_node_has(world: World) -> None:
    permits = [placed(world, gang, 2, 2) for gang in ("a", "b", "c")]
    assert broken(world.state, permits[:2]) == ""
    assert broken(world.state, permits) == "what is permitted exceeds what n0 has (7.2)"


def test_a_pod_more_than_the_node_takes() -> None:
    world = World()
    world.node("n0", pods=1)
    world.pod("theirs", node="n0", candidate=False)
    assert broken(world.state, [placed(world, "train", 1, 1)]) == "what is permitted exceeds what n0 has (7.2)"


def test_room_that_the_same_decision_gives_back_is_there(world: World) -> None:
    world.gang("waits", 3, 4)
    world.propose("default/waits", {f"waits-{i}": "n0" for i in range(3)})
    world.judge()
    after = placed(world, "train", 4, 4)
    released = ev.GangReleased(group="default/waits", reason="Timeout", pods=tuple(f"waits-{i}" for i in range(3)))
    assert broken(world.state, [after]) == "what is permitted exceeds what n0 has (7.2)"
    assert broken(world.state, [released, after]) == ""


def test_room_that_was_nominated_for_the_group_is_its_own() -> None:
    world = contested(nodes=2)
    for turn in range(3):
        lose(world, turn)
    world.plan()
    verdicts = world.judge()
    before = folded(world.log.commits, len(world.log.commits) - 1)
    assert [type(event).__name__ for event in verdicts] == ["GroupNominationEnded", "GangPermitted"]
    assert broken(before, verdicts) == ""
    (alone,) = of_type(verdicts, ev.GangPermitted)
    assert alone.group == GANG
    assert "7.2" in broken(before, [alone]), "as long as it is nominated nobody else has it"
    waits = ev.GangHeld(group=GANG, proposal=alone.proposals[0], waiting_ms=0)
    assert "7.2" in broken(before, [waits, alone]), "nor does another verdict about the group give it back"


def test_a_resource_that_the_pods_do_not_ask_for_may_be_overdrawn(world: World) -> None:
    world.pod("theirs", node="n0", candidate=False, memory_gi=8)
    world.node("n0", cpu=4, memory_gi=4)
    world.pod("ours", memory_gi=0)
    world.propose("pod/default/ours", {"ours": "n0"})
    assert broken(world.state, [permitted("pod/default/ours", {"ours": "n0"})]) == ""


def test_a_permit_on_a_node_that_is_not_there(world: World) -> None:
    permit = placed(world, "train", 1, 1)
    elsewhere = permitted(permit.group, {"train-0": "n9"})
    assert broken(world.state, [elsewhere]) == "default/train is permitted on n9, which is not there (7.2)"


def test_a_permit_for_who_is_permitted_bound_or_gone(world: World) -> None:
    permit = placed(world, "train", 1, 1)
    said = "default/train is permitted with train-0, which does not wait for a node (7.1)"
    assert broken(world.state, [permit, permit]) == said
    world.judge()
    assert broken(world.state, [permit]) == said
    world.assigned("train-0", "n0")
    assert broken(world.state, [permit]) == said
    world.deleted("train-0")
    assert broken(world.state, [permit]) == said


def test_a_permit_that_settles_a_proposal_and_binds_nobody(world: World) -> None:
    placed(world, "train", 1, 1)
    assert broken(world.state, [permitted("default/train", {}, dropped=("train-0",))]) == ""


# ---------------------------------------------------------------------------------------------------------------- room


def held(world: World, node: str = "n0") -> list[str]:
    """Three pods of a gang of four wait there for the fourth."""
    uids = world.gang("waits", 3, 4)
    world.propose("default/waits", dict.fromkeys(uids, node))
    world.judge()
    return uids


def test_the_node_that_is_exceeded_is_named(world: World) -> None:
    world.node("n1", cpu=1)
    permits = [placed(world, "a", 2, 2), placed(world, "b", 2, 2, "n1")]
    assert broken(world.state, permits) == "what is permitted exceeds what n1 has (7.2)"


def test_who_held_its_room_already_takes_it_once(world: World) -> None:
    uids = [*held(world), world.pod("waits-3", "waits", minimum=4)]
    world.propose("default/waits", {"waits-3": "n0"})
    assert broken(world.state, [permitted("default/waits", dict.fromkeys(uids, "n0"))]) == ""


def test_room_of_held_pods_that_a_permit_drops_is_there(world: World) -> None:
    dropped = tuple(held(world))
    after = placed(world, "train", 4, 4)
    assert broken(world.state, [permitted("default/waits", {}, dropped), after]) == ""


def test_room_that_is_given_back_elsewhere_or_was_before_is_no_room_here(world: World) -> None:
    world.node("n1", cpu=4)
    elsewhere = held(world, "n1")
    proposed = world.gang("late", 2, 2)
    world.propose("default/late", dict.fromkeys(proposed, "n0"))
    permits = [placed(world, "a", 3, 3), placed(world, "b", 2, 2)]
    for pods in (elsewhere, proposed, ["gone"]):
        released = ev.GangReleased(group="default/any", reason="NotTaken", pods=tuple(pods))
        assert broken(world.state, [released, *permits]) == "what is permitted exceeds what n0 has (7.2)"


def decided(world: World) -> tuple[State, list[ev.Event]]:
    """What the planner proposes is judged: the state before that, and the verdicts."""
    world.plan()
    verdicts = world.judge()
    return folded(world.log.commits, len(world.log.commits) - 1), verdicts


def test_room_that_was_kept_for_a_replacement_is_its_own(world: World) -> None:
    world.gang("train", 4, 4)
    world.settle()
    world.deleted("train-0")
    world.judge()
    world.pod("train-4", "train", minimum=4)
    before, verdicts = decided(world)
    assert [type(event) for event in verdicts] == [ev.NominationEnded, ev.GangPermitted]
    assert broken(before, verdicts) == ""
    assert "7.2" in broken(before, verdicts[1:]), "as long as it is kept nobody else has it"


def test_room_that_is_nominated_for_a_group_first_gives_nothing_back() -> None:
    world = contested(nodes=3)
    for turn in range(2):
        lose(world, turn)
    (proposed,) = of_type(world.plan(), ev.GangPlaced)
    world.pod("stranger", node=proposed.required[0].node, candidate=False, cpu=2)
    world.node("n9", cpu=1)
    world.pod("other")
    world.propose("pod/default/other", {"other": "n9"})
    verdicts = world.judge()
    assert [type(event) for event in verdicts] == [ev.ProposalRefused, ev.GroupNominated, ev.GangPermitted]
    assert broken(folded(world.log.commits, len(world.log.commits) - 1), verdicts) == ""


# ------------------------------------------------------------------------------------------------------------ minimums


@pytest.mark.parametrize("over", [False, True])
def test_who_runs_or_has_succeeded_counts(world: World, over: bool) -> None:
    world.gang("train", 2, 2)
    world.settle()
    if over:
        world.finished("train-0")
    later = world.pod("later", "train", minimum=2)
    world.propose("default/train", {later: "n0"})
    assert broken(world.state, [permitted("default/train", {later: "n0"})]) == ""


def test_a_gang_that_nobody_declared_has_no_minimum_yet(world: World) -> None:
    world.pod("train-0", "train", dialect="coscheduling/v1alpha1")
    world.propose("default/train", {"train-0": "n0"})
    said = "default/train is permitted, and gang default/train is below its minimum (7.3)"
    assert broken(world.state, [permitted("default/train", {"train-0": "n0"})]) == said


def test_a_permit_while_a_gang_that_is_named_is_not_there(world: World) -> None:
    uids = world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    world.propose("default/a", dict.fromkeys(uids, "n0"))
    said = "default/a is permitted, and gang default/b is below its minimum (7.3)"
    assert broken(world.state, [permitted("default/a", {"a-0": "n0"})]) == said


def test_a_gang_that_was_satisfied_once_needs_no_minimum_itself_nor_for_others(world: World) -> None:
    both = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2)
    world.settle()
    world.deleted("a-1")
    ours = world.koordinator("default/a", 2, 2, both)[1:]
    theirs = world.koordinator("default/b", 2, 2, both)
    world.propose("default/a", dict.fromkeys((*ours, *theirs), "n0"))
    world.deleted("a-0")
    assert broken(world.state, [permitted("default/a", dict.fromkeys(ours, "n0"))]) == ""
    assert broken(world.state, [permitted("default/a", dict.fromkeys(theirs, "n0"))]) == ""
    short = permitted("default/a", dict.fromkeys((*ours, *theirs[:1]), "n0"))
    assert broken(world.state, [short]) == "default/a is permitted, and gang default/b is below its minimum (7.3)"


def test_where_only_who_waits_counts_those_that_run_do_not_within_the_group_alone(world: World) -> None:
    in_waves = {"match_policy": "only-waiting"}
    world.koordinator("default/b", 2, 2, in_waves)
    world.settle()
    for name in ("late-0", "late-1"):
        declared = Declaration(min_member=2, waiting_time_ms=0, said=("match_policy", "min_member"), **in_waves)
        world.pod(name, "b", dialect="koordinator/v1alpha1", declared=declared)
    world.propose("default/b", {"late-0": "n0", "late-1": "n0"})
    alone, wave = (dict.fromkeys(names, "n0") for names in (("late-0",), ("late-0", "late-1")))
    said = "default/b is permitted, and gang default/b is below its minimum (7.3)"
    assert broken(world.state, [permitted("default/b", alone)]) == said
    assert broken(world.state, [permitted("default/b", wave)]) == ""
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    world.propose("default/a", {"a-0": "n0"})
    assert broken(world.state, [permitted("default/a", {"a-0": "n0"})]) == "", "that waits for who runs"


@pytest.mark.parametrize(("minimum", "least", "sound"), [(3, 1, True), (4, 1, False), (2, 2, True)])
def test_beside_the_tasks_the_whole_has_its_minimum_and_alone_where_theirs_are_more(
    minimum: int, least: int, sound: bool
) -> None:
    world = World()
    world.node("n0", cpu=4)
    world.pod_group("job", minimum, dialect="volcano/v1beta1", task_minimums={"ps": least, "worker": 2})
    uids = [world.volcano(f"{task}-{i}", "job", task) for task in ("ps", "worker") for i in range(2)]
    named = uids[1:]
    world.propose("default/job@batch", dict.fromkeys(uids, "n0"))
    said = broken(world.state, [permitted("default/job@batch", dict.fromkeys(named, "n0"))])
    assert ("7.3" in said) != sound


def nothing_lacks(*_: object) -> Iterator[None]:
    """As if there were room for everything."""
    return iter(())


@pytest.mark.parametrize(
    ("module", "name", "wrong", "pods", "said"),
    [
        (
            permit,
            "quorum",
            lambda state, gang, assumed: True,
            2,
            "default/a is permitted, and gang default/a is below its minimum (7.3)",
        ),
        (Bench, "take", nothing_lacks, 3, "what is permitted exceeds what n0 has (7.2)"),
    ],
)
async def test_rules_that_err_are_found_although_they_err_alike_the_second_time(
    world: World, monkeypatch: pytest.MonkeyPatch, module: object, name: str, wrong: object, pods: int, said: str
) -> None:
    """As it was: the permit was reproduced, and nothing was said of it."""
    monkeypatch.setattr(module, name, wrong)
    for gang in ("a", "b"):
        uids = world.gang(gang, 3, 3)
        world.propose(f"default/{gang}", dict.fromkeys(uids[:pods], "n0"))
    world.judge()
    report = await verify(world.log)
    assert report.violation == f"commit {len(world.log.commits)}: {said}"
    assert report.exit_code == 1
    assert report.differences == 2, "the proposals, which no planner made"
    assert report.reproduced == report.decided

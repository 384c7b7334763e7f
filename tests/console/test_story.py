"""A pod's or a gang's story (`services.console.story`): given these events, these lines."""

from __future__ import annotations

from typing import Any

import msgspec

import events as ev
from events import envelope, subjects
from events.envelope import Header
from events.objects import Taint
from services.console.story import GANG, POD, Story
from services.console.summary import waiting_groups
from services.state import snapshot
from tests.binder.rules.koordinator.test_deadlock import the_texts_example
from tests.console.stories import said, stands, story_of, told
from tests.planner.test_sharing import behind_others
from tests.why import why_waiting
from tests.world import World

TRAIN = "default/train"


def rejected(kind: str, name: str) -> ev.DeclarationRejected:
    return ev.DeclarationRejected(
        kind=kind,
        namespace="default",
        name=name,
        uid="u",
        resource_version="1",
        field="spec.minMember",
        value="-1",
        expected="at least 1",
    )


# ------------------------------------------------------------------------------------------------------ a life, whole


def test_a_gangs_life_is_told_of_its_pods_together() -> None:
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=2)
    uids = world.gang("train", 4, 4)
    world.settle()
    for uid in uids:
        world.finished(uid)
        world.deleted(uid)
    assert told(world, TRAIN) == [
        "seen: 1 pod now",
        "declared: minimum 4",
        "seen: 4 pods now",
        "proposed: 4 pods on 2 nodes",
        "permitted: 4 pods on 2 nodes, to be bound",
        "bound: 4 of 4 pods bound, on 2 nodes",
        "succeeded: 4 pods so far",
        "gone: 4 pods so far, 0 left",
    ]
    assert stands(world, TRAIN) == "gone"


def test_a_pods_life() -> None:
    world = World()
    world.node("n0")
    world.pod("web", priority=5)
    world.settle()
    world.terminating("web")
    world.deleted("web")
    assert told(world, "default/web", POD) == [
        "seen: without a gang, priority 5",
        "proposed: on node n0",
        "permitted: on node n0, to be bound",
        "bound: to node n0",
        "terminating: it is being deleted",
        "gone: it was terminating on node n0",
    ]
    assert stands(world, "default/web", POD) == "gone"


def test_a_pod_of_a_gang_hears_what_its_gang_is_told() -> None:
    world = World()
    world.pod_group("train", 2)
    world.pod("train-0", "train", dialect="coscheduling/v1alpha1")
    world.settle()
    lacks = "gang default/train has 1 of its minimum of 2 pods: less than minAvailable"
    assert told(world, "default/train-0", POD) == [
        "seen: of gang default/train (coscheduling/v1alpha1), priority 0",
        "declared: minimum 2",
        f"too few pods: {lacks}",
    ]
    assert stands(world, "default/train-0", POD) == lacks


def test_each_line_says_where_when_and_by_whom() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    world.plan()
    seen, proposed = story_of(world.log, "default/web", POD).lines
    assert (proposed.sequence, proposed.time_ns, proposed.writer) == (
        world.state.sequence,
        world.state.sequence * 1_000_000_000,
        "planner.a",
    )
    assert seen.writer == "ingest"
    assert (seen.times, seen.until, seen.until_ns) == (1, seen.sequence, seen.time_ns)


def test_who_finished_says_how() -> None:
    world = World()
    world.node("n0")
    world.pod("a")
    world.settle()
    world.finished("a", succeeded=False, reason="OutOfcpu")
    assert told(world, "default/a", POD)[-1] == "failed: on node n0: OutOfcpu"
    assert stands(world, "default/a", POD) == "failed"


def test_another_pod_of_the_name_begins_its_own_life() -> None:
    world = World()
    world.pod("web")
    world.deleted("web")
    fact = ev.PodObserved(**{**msgspec.structs.asdict(_fact(world, "web")), "uid": "another"})
    world.facts(world.classes[fact.scheduling_class], fact)
    assert told(world, "default/web", POD) == [
        "seen: without a gang, priority 0",
        "gone: it was not bound",
        "made anew: another one of this name, of the UID another: without a gang, priority 0",
    ]


def test_a_pod_that_is_made_anew_time_and_again_has_a_story_that_one_can_read() -> None:
    """As of a StatefulSet whose pod fails and fails."""
    world = World()
    world.node("n0")
    world.pod("web-0")
    fact = _fact(world, "web-0")
    for number in range(1, 10):
        world.settle()
        (last,) = world.state.pods
        world.finished(last, succeeded=False, reason="Error")
        world.deleted(last)
        world.facts(
            world.classes[fact.scheduling_class],
            msgspec.structs.replace(fact, uid=f"another-{number}", resource_version=world.version()),
        )
    another = "another one of this name, of the UID another-9: without a gang, priority 0"
    assert told(world, "default/web-0", POD) == [
        "seen: without a gang, priority 0",
        "proposed: on node n0 (9 times)",
        "permitted: on node n0, to be bound (9 times)",
        "bound: to node n0 (9 times)",
        "failed: on node n0: Error (9 times)",
        "gone: it had failed on node n0 (9 times)",
        f"made anew: {another} (9 times)",
    ]


def _fact(world: World, uid: str) -> ev.PodObserved:
    events = (event for stored in world.log.commits for event in envelope.decode(stored).events)
    return next(event for event in events if isinstance(event, ev.PodObserved) and event.uid == uid)


def test_one_that_somebody_else_bound() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    world.assigned("web", "n0")
    world.pod("foreign", node="n0", candidate=False)
    assert told(world, "default/web", POD)[1:] == ["bound: to node n0, by somebody else"]
    assert told(world, "default/foreign", POD) == ["seen: another scheduler's, bound on node n0"]


# ------------------------------------------------------------------------------------------------------- why it waited


def test_gates() -> None:
    world = World()
    world.pod("web", gated=True)
    world.settle()
    waits = "its scheduling gates are not removed"
    assert stands(world, "default/web", POD) == waits
    world.pod("web")
    assert told(world, "default/web", POD) == [
        f"seen: without a gang, priority 0, {waits}",
        "gates removed: it may be placed",
    ]


def test_the_gates_of_a_gang_are_counted() -> None:
    world = World()
    world.gang("train", 2, 2, gated=True)
    world.settle()
    world.pod("train-0", "train", minimum=2)
    assert told(world, TRAIN)[-1] == "gates removed: 1 pod left with gates"


def test_not_declared_rejected_and_mended() -> None:
    world = World()
    world.pod("train-0", "train", dialect="coscheduling/v1alpha1")
    world.settle()
    for kind, name in (("PodGroup", "other"), ("Pod", "train"), ("PodGroup", "train")):
        world.facts(rejected(kind, name))
    why = "spec.minMember is '-1'; expected at least 1"
    assert stands(world, TRAIN) == (f"1 pod not bound: gang default/train: its PodGroup train is rejected: {why}")
    world.pod_group("train", 1)
    world.pod_group("train", 3)
    assert told(world, TRAIN) == [
        "seen: 1 pod now",
        "not declared: gang default/train waits for its PodGroup",
        f"rejected: PodGroup default/train cannot be taken: {why}",
        "declared: minimum 1",
        "not rejected: PodGroup default/train is gone, or was mended",
        "declared anew: minimum 3, it was 1",
    ]


def test_a_pod_that_is_rejected_has_a_story_though_no_fact_of_it_is_there() -> None:
    world = World()
    world.facts(rejected("Pod", "web"))
    assert told(world, "default/web", POD) == [
        "rejected: Pod default/web cannot be taken: spec.minMember is '-1'; expected at least 1"
    ]
    assert stands(world, "default/web", POD) == "spec.minMember is '-1'; expected at least 1"
    world.facts(ev.RejectionEnded(kind="Pod", namespace="default", name="web", uid="u"))
    assert told(world, "default/web", POD)[1:] == ["not rejected: Pod default/web is gone, or was mended"]


def test_refusals_that_differ_in_numbers_are_one_line_with_the_last_word() -> None:
    """A job that waited for days must have a story that one can read."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("large", cpu=9)
    world.settle()
    first = world.state.sequence
    for number in range(1, 20):
        world.node(f"n{number}", cpu=1)
        world.pass_s(12)
        world.settle()
    story = story_of(world.log, "default/large", POD)
    assert [said(line) for line in story.lines][1:] == [
        "no room: 0/20 nodes are available: 20 Insufficient cpu. Backs off for 10 s. (20 times)"
    ]
    assert (story.lines[1].sequence, story.lines[1].until) == (first, world.state.sequence)
    world.node("n0", cpu=1, unschedulable=True)
    world.pass_s(12)
    world.settle()
    assert len(told(world, "default/large", POD)) == 3, "another reason is another line"


def test_refusals_that_come_and_go_in_any_order_are_a_line_each() -> None:
    """In a busy cluster now this lacks and now that, for days; the autoscaler's taint has another time on each node."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("large", cpu=9)
    world.settle()
    for number in range(30):
        taint = Taint(key="ToBeDeleted", value=f"17672256{number:02}", effect="NoSchedule")
        world.node("n0", cpu=1, taints=(taint,) if number % 7 in (1, 2, 5) else (), unschedulable=number % 3 == 0)
        world.pass_s(12)
        world.settle()
    lines = story_of(world.log, "default/large", POD).lines[1:]
    assert len(lines) <= 4
    assert sum(line.times for line in lines) == 31
    assert [line.sequence for line in lines] == sorted(line.sequence for line in lines)
    assert max(line.until for line in lines) == world.state.sequence


def test_turns_that_repeat_are_told_once() -> None:
    """As of a gang that holds what it got for its waiting time, again and again."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2, waiting_time_ms=1_000)
    for i in range(2):
        world.pod(f"train-{i}", "train", dialect="coscheduling/v1alpha1")
    for _ in range(5):
        world.propose(TRAIN, {}, {"train-0": "n0"})
        world.judge()
        world.pass_s(3)
        world.judge()
        world.pass_s(12)
    assert [line.partition(",")[0] for line in told(world, TRAIN)][2:] == [
        "proposed: 1 pod on node n0 (5 times)",
        "held: 1 pod on node n0",
        "given back: 1 pod: the rest did not come within its waiting time",
    ]
    assert all("(5 times)" in line for line in told(world, TRAIN)[2:])
    lines = story_of(world.log, TRAIN).lines
    assert [line.sequence for line in lines] == sorted(line.sequence for line in lines)


def test_how_long_it_was_held_is_said() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 2, waiting_time_ms=1_000)
    for i in range(2):
        world.pod(f"train-{i}", "train", dialect="coscheduling/v1alpha1")
    world.propose(TRAIN, {"train-0": "n0"})
    world.judge()
    since = world.state.sequence
    assert told(world, "default/train-0", POD)[-1] == "held: on node n0, for the rest of its gang, for 1 s at most"
    assert (
        stands(world, TRAIN)
        == "2 pods not bound: 1 of them: to be tried; 1 of them: waits on node n0 for the rest of its gang"
    )
    world.pass_s(3)
    world.judge()
    why = "the rest did not come within its waiting time"
    waited = world.state.sequence - since
    assert (
        told(world, "default/train-0", POD)[-1]
        == f"given back: {why}, {waited:.1f} s after it began to wait. Backs off for 1 s."
    )
    assert told(world, "default/train-1", POD)[2:] == [], "nothing of it was held"


def test_behind_others() -> None:
    world, _, ours = behind_others()
    assert told(world, f"default/{ours}", POD)[-1] == (
        "behind others: 0/1 nodes are available: 1 Insufficient cpu. "
        "Groups of other shards that come before it were left their room. Backs off for 1 s."
    )


def test_a_gang_that_waits_for_another_of_its_group() -> None:
    world = World()
    world.node("n0")
    both = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 1, 1, both)
    world.settle()
    waits = told(world, "default/a")[-1]
    assert waits.startswith("waits for a gang: ")
    world.koordinator("default/b", 1, 1, both)
    world.settle()
    lines = told(world, "default/a")
    assert lines[1] == "declared: minimum 1, its group is default/a, default/b"
    assert lines[lines.index(waits) + 1] == "gang group: planned together with default/b"
    assert lines[-1] == "bound: 1 of 1 pod bound, on node n0"


def test_a_koordinator_gang_that_ran_out_of_time_until_its_user_acts() -> None:
    world = World()
    world.node("n0")
    world.koordinator(TRAIN, 2, 2, {"waiting_time_ms": 1_000})
    world.propose(TRAIN, {}, {"train-0": "n0"})
    world.judge()
    world.pass_s(3)
    world.judge()
    world.mark()
    world.settle()
    for i in range(2):
        world.says(f"train-{i}", timed_out=False)
    lines = told(world, TRAIN)
    at = lines.index("timed out: its waiting time is over: it is not tried again until its user acts")
    assert lines[at + 1].startswith("given back: 1 pod: the rest did not come")
    assert lines[at + 2].startswith("not tried: gang default/train: the waiting time is over")
    assert lines[at + 3] == "may be tried: nothing says any more that it ran out of waiting time"


def test_a_deadlock() -> None:
    world = the_texts_example()
    world.plan()
    world.judge()
    gives = [line for line in told(world, "default/gang3") if line.startswith(("deadlock", "given back"))]
    assert gives[0] == "deadlock: it gives its room back for default/gang1, default/gang2"
    assert gives[1].startswith("given back: 4 pods: gangs block each other, and the others come first")
    assert told(world, "default/gang1")[-1] == "deadlock: default/gang3 gives its room back, and it is tried at once"
    world.pod("web")
    world.append("binder", [ev.DeadlockFound(group="default/gang3", blocked=("default/gang1",))], cause="by hand")
    assert [line for line in told(world, "default/web", POD) if "deadlock" in line] == []


# --------------------------------------------------------------------------------------------- who is told what, and how


def test_a_pod_that_changes_its_gang_leaves_one_and_joins_the_other() -> None:
    world = World()
    world.gang("train", 2, 2)
    world.pod("train-1", "other")
    assert told(world, TRAIN)[-1] == "a pod left: its label names another gang; 1 pod now"
    assert told(world, "default/other") == ["seen: 1 pod now"]
    assert (
        told(world, "default/train-1", POD)[-2:]
        == [
            "changed: it names the gang default/other",
            "declared no more: there is no PodGroup of its gang, nor a pod that declares it",
        ]
        or told(world, "default/train-1", POD)[-1] == "changed: it names the gang default/other"
    )


def test_a_pod_that_joins_brings_the_node_that_its_fact_does_not_say_yet() -> None:
    """Its binding was answered before its label was seen, and what was seen is from before the binding (seed 360102)."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.plan()
    world.settle()
    world.pod("train-1", "other")
    assert told(world, "default/other") == ["seen: 1 pod now"]
    assert stands(world, "default/other") == "1 of 1 pod bound, on node n0"


def test_a_label_that_was_edited_on_the_way_counts_when_that_is_settled() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.plan()
    world.pod("train-1", "other")
    assert told(world, TRAIN)[-1].startswith("proposed")
    world.settle()
    assert "a pod left: its label names another gang; 1 pod now" in told(world, TRAIN)
    assert any(line.startswith("a pod joined") for line in told(world, "default/other"))


def test_what_is_edited_is_said() -> None:
    world = World()
    world.pod("web")
    world.pod("web", priority=7, cpu=2)
    assert told(world, "default/web", POD)[-1] == "changed: priority 7, it was 0; what it asks for"
    for candidate, whose in ((False, "another scheduler's now"), (True, "this scheduler's now")):
        world.pod("web", priority=7, cpu=2, candidate=candidate)
        assert told(world, "default/web", POD)[-1] == f"changed: {whose}"


def test_a_declaration_is_said_with_all_that_counts_of_it() -> None:
    world = World()
    world.pod_group("train", 3, 30_000, mode="NonStrict", task_minimums={"ps": 1, "worker": 2}, priority=5)
    world.pod("train-0", "train", dialect="coscheduling/v1alpha1")
    said = "minimum 3, NonStrict, of its tasks ps 1, worker 2, waiting time 30 s, priority 5"
    assert f"declared: {said}" in told(world, TRAIN)
    world.pod_group("train", 3, 30_000, mode="NonStrict", task_minimums={"ps": 2}, priority=5)
    assert told(world, TRAIN)[-1] == "declared anew: minimums of tasks ps 2, it was ps 1, worker 2"
    world.pod_group_deleted("train")
    assert told(world, TRAIN)[-1] == "declared no more: there is no PodGroup of its gang, nor a pod that declares it"


def test_optional_pods_that_find_no_place_are_dropped() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.node("n1", cpu=1)
    world.gang("train", 2, 1)
    world.propose(TRAIN, {"train-0": "n0"}, {"train-1": "n1"})
    world.pod("stranger", node="n1", candidate=False)
    world.judge()
    why = "its place was not there any more; its gang starts without it"
    assert told(world, TRAIN)[-2:] == ["permitted: 1 pod on node n0, to be bound", f"dropped: 1 pod: {why}"]
    assert told(world, "default/train-1", POD)[-2:] == ["proposed: on node n1", f"dropped: {why}"]
    assert told(world, "default/train-0", POD)[-1] == "permitted: on node n0, to be bound"


def test_how_it_stands_is_told_in_the_words_of_replay() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 3, 3)
    world.settle()
    world.node("n1", cpu=1, unschedulable=True)
    (why,) = (why for pods, why in waiting_groups(world.state).values())
    assert "Tried again in " in why
    assert stands(world, TRAIN) == f"3 pods not bound: {why}"
    assert stands(world, "default/train-0", POD) == why_waiting(world.state, world.state.pods["train-0"])


def test_of_a_purged_log_it_begins_with_how_it_stood() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.gang("train", 2, 2)
    world.propose(TRAIN, {}, {"train-0": "n0"})
    world.judge()
    state = snapshot.decode(snapshot.encode(world.state))
    base, at = stands(world, TRAIN), world.state.sequence
    stories = [Story(state, GANG, TRAIN), Story(state, POD, "default/train-0"), Story(state, GANG, "default/none")]
    world.pass_s(12)
    world.judge()
    for stored in world.log.commits[at:]:
        commit = state.apply_stored(stored)
        assert commit is not None
        for story in stories:
            story.add(commit)
    gang, pod, none = ([said(line) for line in story.lines] for story in stories)
    assert gang[0] == f"as of a snapshot: everything before was purged; it stood: {base}"
    assert gang[1:] == ["given back: 1 pod: the rest did not come within its waiting time. Backs off for 1 s."]
    assert pod[1:] == ["given back: the rest did not come within its waiting time. Backs off for 1 s."]
    assert none == []


def test_what_nobody_may_write_tells_nothing() -> None:
    world = World()
    world.pod("web")
    header: dict[str, Any] = {"epoch": 0, "basis": 0, "time_ns": 0, "cause": "facts"}
    forged = Header(writer="admin", **header)
    last = world.log._last["muster.test.ingest"]
    world.log.append_now(subjects.subject("test", "ingest"), forged, envelope.encode_events([a_deletion()]), last)
    world.append("admin", [a_deletion()], cause="admin")
    assert told(world, "default/web", POD) == ["seen: without a gang, priority 0"]


def a_deletion() -> ev.PodDeleted:
    return ev.PodDeleted(uid="web", namespace="default", name="web")

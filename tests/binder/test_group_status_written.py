"""What is written to PodGroups, when, and again when it may not have arrived or somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import events as ev
from events.envelope import decode
from services.binder.report import scheduled
from services.binder.service.rounds import Rate
from services.kubernetes.errors import Conflict, Unreachable
from services.state.slices import at_once
from tests.binder.behind import Client, Reader, behind, notice, running
from tests.world import World


async def test_a_status_whose_write_had_no_answer_is_not_taken_for_the_one_before() -> None:
    world, client = World(), Client()
    world.node("n0", cpu=2)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    writer, _ = behind(world, client)
    gang = world.state.gangs["default/train"]
    for away in (False, True, False):
        client.away = away
        if away:
            with pytest.raises(Unreachable):
                await writer.pod_groups._write(
                    gang.key, world.state.pod_groups[gang.pod_group], {"phase": "Unknown"}, {}
                )
        else:
            writer.pod_groups.gangs.put(gang.key)
            await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert client.phases == ["Running", "Running"]


async def test_a_pod_group_that_somebody_else_wrote_is_looked_at_now_and_written_in_the_next_round() -> None:
    """As a pod is: a binder that was stopped and replaced wakes up, and does not overwrite what its successor said."""
    world, client = World(), Client()
    client.elsewhere = "4711"
    world.pod_group("train", 1)
    writer, _ = behind(world, client)
    writer.notice(decode(world.log.commits[-1]))
    refused = [await write.make() for write in list(writer.pod_groups.due(10)) if write is not None]
    assert refused == [2], "the write, and the look"
    assert (client.phases, list(writer.pod_groups.gangs)) == ([], ["default/train"])
    await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert (client.phases, list(writer.pod_groups.gangs)) == (["Pending"], [])


async def test_what_was_read_to_be_written_over_is_written_as_it_is_once_all_is_heard() -> None:
    """A binder that was stopped and replaced would say what was due then."""
    world, client = World(), Client()
    client.elsewhere = "4711"
    world.pod_group("train", 1)

    async def hear_all() -> None:
        world.node("n0")
        world.pod("train-0", "train")
        world.settle()

    writer, _ = behind(world, client, hear_all)
    writer.notice(decode(world.log.commits[-1]))
    for _ in range(2):
        await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert client.phases == ["Running"]


async def test_a_gang_that_goes_with_its_last_pod_has_no_status() -> None:
    world = World()
    world.pod("train-0", "train", minimum=1)
    reader = Reader(world)
    await reader.round()
    world.deleted("train-0")
    assert not world.state.gangs
    await reader.round()
    assert reader.client.phases == []


async def test_a_webhooks_conflict_about_a_pod_group_that_nobody_wrote_is_a_refusal() -> None:
    """As it was: it was written and read twice a second for as long as the webhook said so."""
    world, client = World(), Client()
    client.refusal = Conflict("patch podgroups/status default/train", 409, "Conflict", "the webhook's words")
    world.pod_group("train", 1)
    writer, _ = behind(world, client)
    writer.notice(decode(world.log.commits[-1]))
    await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert not list(writer.pod_groups.gangs)
    assert len(writer.rounds.refused) == 1


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_pod_that_is_gone_at_once_counts_no_longer_in_the_status_of_its_pod_group(resumed: bool) -> None:
    """Deleted by force, or while nobody looked: no fact says before that it is on its way out."""
    world = running(2)
    reader = Reader(world)
    if resumed:
        at_once(reader.writer.resume())
        reader.seen = len(world.log.commits)
    await reader.round()
    world.deleted("train-1")
    await reader.round()
    assert reader.client.phases == ["Running", "Pending"]


async def test_a_gang_runs_once_its_binding_has_an_answer() -> None:
    """The fact may come later, or another time."""
    world = World()
    world.node("n0")
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    reader = Reader(world)
    await reader.round()
    world.plan()
    world.judge()
    await reader.round()
    bound = ev.PodBound(uid="train-0", namespace="default", name="train-0", node="n0")
    world.append("binder", [bound], cause="outcome")
    await reader.round()
    assert reader.client.phases == ["Scheduling", "Running"]


@pytest.mark.parametrize(
    ("happens", "phase"),
    [
        (lambda world: world.finished("train-0"), "Finished"),
        (lambda world: world.finished("train-0", succeeded=False), "Failed"),
        (lambda world: world.deleted("train-0"), "Pending"),
    ],
)
async def test_a_gang_says_what_became_of_its_pod(happens: Callable[[World], None], phase: str) -> None:
    world = running(1)
    reader = Reader(world)
    await reader.round()
    happens(world)
    await reader.round()
    assert reader.client.phases == ["Running", phase]


async def test_volcanos_controller_hears_that_a_pod_is_being_deleted() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 1, dialect="volcano/v1beta1")
    world.pod("train-0", "train", dialect="volcano/v1beta1")
    world.settle()
    reader = Reader(world)
    await reader.round()
    world.terminating("train-0")
    await reader.round()
    assert reader.client.phases == ["Running", "Running"], "one runs, none runs"


async def test_no_more_is_written_at_a_time_than_may_be_and_the_oldest_first() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.pod_group(name, 2)
        world.pod(f"{name}-0", name)
    world.plan()
    writer, _ = behind(world, Client())
    notice(writer, world)
    for name in ("a", "b", "c"):
        writer.events.add(scheduled(ev.PodBound(uid=name, namespace="default", name=name, node="n0"), 1))
    for due in (writer.pod_groups.due, writer.conditions.due, writer.events.due):
        assert len(list(due(2))) == 2
    assert (list(writer.pod_groups.gangs), list(writer.conditions.pods)) == (["default/c"], ["c-0"])
    assert [event.regarding[3] for event in writer.events.waiting] == ["c"]


async def test_where_all_gangs_of_a_group_change_each_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 gangs that name each other would be 16 million looks, in one go."""
    world = World()
    keys = tuple(f"default/g{number:02}" for number in range(20))
    for key in keys:
        world.koordinator(key, 1, 1, {"groups": keys})
    assert len(world.state.groups) == 1
    writer, _ = behind(world, Client())
    notice(writer, world)
    noted: list[str] = []
    monkeypatch.setattr(writer.pod_groups.gangs, "put", lambda *of: noted.extend(of))
    list(writer.pod_groups.due(1))
    assert sorted(noted) == sorted(keys)


async def test_a_gang_without_a_pod_group_or_without_anything_to_say_gets_no_status() -> None:
    world = World()
    world.gang("train", 2, 2)
    world.pod_group("native", 2, dialect="kubernetes/v1alpha2")
    reader = Reader(world)
    await reader.round()
    assert not reader.client.phases


async def test_a_start_tells_a_pod_group_without_pods_of_its_phase() -> None:
    """Volcano's controller makes its pods when it has heard."""
    world, client = World(), Client()
    world.pod_group("train", 1)
    writer, _ = behind(world, client)
    at_once(writer.resume())
    await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert client.phases == ["Pending"]


async def test_a_gang_that_finds_no_room_for_the_rest_of_it_says_so() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    world.pod("train-0", "train", node="n0")
    world.pod("train-1", "train")
    reader = Reader(world)
    await reader.round()
    world.plan()
    await reader.round()
    assert reader.client.phases == ["Scheduling", "Unknown"]


def leaves_the_group(world: World) -> None:
    declared = {"groups": ("default/b",), "match_policy": "once-satisfied"}
    world.pod_group("b", 1, dialect="koordinator/v1alpha1", **declared)


@pytest.mark.parametrize(
    "happens", [lambda world: world.deleted("b-1"), leaves_the_group], ids=["deleted", "regrouped"]
)
async def test_a_gang_that_waited_for_room_with_another_of_its_group_says_when_that_waits_no_more(
    happens: Callable[[World], None],
) -> None:
    """The simulator of faults found it, seed 3366 over the trace: the pod that waited was of another gang, whose status
    was written anew when it was deleted; this one's said Unknown for good. So it did when the other gang was put into
    another group (seed 411756), which may be long after it was declared so."""
    world = World()
    world.node("n0", cpu=3)
    for name, minimum in (("a", 2), ("b", 1)):
        groups = ("default/a", "default/b")
        world.pod_group(name, minimum, dialect="koordinator/v1alpha1", groups=groups, match_policy="once-satisfied")
    for name in ("a-0", "a-1", "b-0"):
        world.pod(name, name[0], dialect="koordinator/v1alpha1")
    world.settle()
    world.deleted("a-1")
    reader = Reader(world)
    world.pod("b-1", "b", cpu=5, dialect="koordinator/v1alpha1")
    world.plan()
    at_once(reader.writer.resume())
    await reader.round()
    assert reader.client.phases == ["Unknown", "Running"]
    happens(world)
    await reader.round()
    assert reader.client.phases == ["Unknown", "Running", "Pending"]


@pytest.mark.parametrize("other", ["", "other"], ids=["alone", "of another gang"])
async def test_a_gang_says_so_when_a_pod_is_not_its_own_any_more_that_was_on_its_way_to_a_node(other: str) -> None:
    """Simulated seed 437266: its label was taken away while it was permitted, which counts once its binding is refused:
    the PodGroup said Scheduling for good. And where it went to another gang, that one counts with it, and without it when
    it is gone."""
    world = World()
    world.node("n0", cpu=8)
    for gang, minimum in (("train", 2), ("other", 3)):
        world.pod_group(gang, minimum)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    for name in ("other-0", "other-1"):
        world.pod(name, "other")
    world.plan()
    world.judge()
    reader = Reader(world)
    at_once(reader.writer.resume())
    await reader.round()
    world.pod("train-1", other)
    await reader.round()
    written = len(reader.client.phases)
    about = {"uid": "train-1", "namespace": "default", "name": "train-1", "node": "n0"}
    failed = ev.BindingFailed(**about, reason="Forbidden", message="no", assigned_node="")
    world.append("binder", [failed], cause="outcome")
    await reader.round()
    assert reader.client.phases[written:] == (["Pending", "Scheduling"] if other else ["Pending"])
    assert world.state.moved == ["train-1"]
    world.deleted("train-1")
    assert world.state.moved == [], "it is of one commit"
    await reader.round()
    assert reader.client.phases[written:] == (["Pending", "Scheduling", "Pending"] if other else ["Pending"])


async def test_a_refusal_of_a_group_that_is_gone_concerns_nobody() -> None:
    world, client = World(), Client()
    world.pod("waits", cpu=200)
    (refused,) = world.plan_without_appending()
    world.deleted("waits")
    world.append("planner.a", [refused], cause="decide")
    writer, _ = behind(world, client)
    writer.notice(decode(world.log.commits[-1]))
    assert not writer.conditions.pods


async def test_a_gang_that_a_pod_left_for_another_says_so() -> None:
    world = World()
    for name in ("old", "new"):
        world.pod_group(name, 2)
    for name in ("p0", "p1"):
        world.pod(name, "old")
    reader = Reader(world)
    await reader.round()
    assert sorted(reader.client.phases) == ["Pending", "Scheduling"]
    world.pod("p1", "new")
    await reader.round()
    assert reader.client.phases[2:] == ["Pending"]


async def test_what_has_finished_stays_finished_when_its_pods_are_removed() -> None:
    world = running(1)
    world.finished("train-0")
    reader = Reader(world)
    await reader.round()
    world.deleted("train-0")
    await reader.round()
    assert reader.client.phases == ["Finished"]
    assert not reader.writer.pod_groups._gang_of


async def test_who_has_finished_before_a_takeover_and_is_removed_behind_it_still_counts() -> None:
    world = running(2)
    world.finished("train-0")
    reader = Reader(world)
    reader.seen = len(world.log.commits)
    at_once(reader.writer.resume())
    await reader.round()
    world.deleted("train-0")
    await reader.round()
    assert reader.client.phases == ["Running"]


@pytest.mark.parametrize("stands", ["Finished", "Failed", "Completed", "Running"])
async def test_what_has_ended_has_ended_after_a_takeover_too(stands: str) -> None:
    """Its pods are gone, so that the log says no more than that it has none."""
    world = running(1)
    world.finished("train-0", succeeded=stands != "Failed")
    world.deleted("train-0")
    reader = Reader(world)
    client = reader.client
    client.stands, client.elsewhere = stands, "4711"
    at_once(reader.writer.resume())
    for _ in range(3):
        await reader.round()
    expected = "Pending" if stands == "Running" else "as it was"
    assert client.phases == [expected]
    world.pod("train-1", "train")
    client.elsewhere = ""
    await reader.round()
    assert client.phases == [expected, "Scheduling"]


async def test_a_gang_that_failed_and_was_removed_failed_and_does_not_run() -> None:
    """The simulator of faults found it: it said Failed, and that its other pods ran, when they had been evicted."""
    world = running(2)
    reader = Reader(world)
    world.finished("train-0", succeeded=False)
    await reader.round()
    reader.client.stands = "Failed"
    world.deleted("train-1")
    await reader.round()
    assert reader.client.phases == ["Failed", "as it was"]


async def test_a_gang_that_failed_is_pending_again_when_too_few_pods_come() -> None:
    """The simulator of faults found it, seed 311: that was due already while how it had ended was left, so that it seemed
    to have been written."""
    world, pods = running(3), ["train-0", "train-1", "train-2"]
    world.finished(pods[0], succeeded=False)
    reader = Reader(world)
    await reader.round()
    reader.client.stands = "Failed"
    for name in pods[1:]:
        world.deleted(name)
    await reader.round()
    world.pod("train-3", "train")
    await reader.round()
    assert reader.client.phases == ["Failed", "as it was", "Pending"]


@pytest.mark.parametrize(("dialect", "looks"), [("coscheduling/v1alpha1", 1), ("volcano/v1beta1", 0)])
async def test_what_stands_on_a_pod_group_is_read_only_where_its_gang_may_have_ended(dialect: str, looks: int) -> None:
    """Volcano's controller makes pods when it has heard: a look at each PodGroup would let it wait twice as long."""
    world = World()
    world.node("n0")
    world.pod_group("train", 1, dialect=dialect)
    reader = Reader(world)
    client = reader.client
    await reader.round()
    assert client.looked == looks
    world.pod("train-0", "train", dialect=dialect)
    world.settle()
    await reader.round()
    world.finished("train-0")
    await reader.round()
    assert client.looked == looks
    assert len(client.phases) == 3


async def test_what_was_written_to_a_pod_group_is_forgotten_with_it(world: World) -> None:
    writer, _ = behind(world, Client())

    async def rounds() -> None:
        notice(writer, world, seen)
        await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)

    seen = 0
    world.pod_group("train", 2)
    await rounds()
    assert list(writer.pod_groups._written) == ["default/train"]
    seen = len(world.log.commits)
    world.pod_group_deleted("train")
    await rounds()
    assert not writer.pod_groups._written


async def test_what_was_seen_of_a_pod_group_is_remembered_for_its_turn_however_many_there_are() -> None:
    """Every status that a process before this one wrote is newer than the fact. With 20,000 of them all was forgotten
    before its turn came again: nobody's status was ever written."""
    world, client = World(), Client()
    client.elsewhere = "4711"
    for number in range(200):
        world.pod_group(f"train{number}", 1)
    writer, _ = behind(world, client)
    at_once(writer.resume())
    for _ in range(2 * 200 // 50):
        await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
    assert len(writer.pod_groups._statuses) == len(client.phases) == 200


async def test_pod_groups_that_come_and_go_are_not_remembered() -> None:
    world, client = World(), Client()
    writer, _ = behind(world, client)
    for number in range(500):
        world.pod_group(f"train{number}", 1)
        writer.notice(decode(world.log.commits[-1]))
        await writer.rounds.round(Rate(1_000.0), writer.pod_groups.due)
        world.pod_group_deleted(f"train{number}")
    assert len(client.phases) == 500
    assert len(writer.pod_groups._statuses) < 100

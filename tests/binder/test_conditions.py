"""Why a pod waits, written on it: never over what somebody else wrote, nor when it is not true any more."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events.envelope import decode
from services.binder.service.rounds import Rate
from services.binder.service.write_behind import WriteBehind
from services.kubernetes.errors import Conflict
from services.state.slices import at_once
from tests.binder.behind import Client, Reader, behind, notice, told
from tests.why import why_waiting
from tests.world import World


async def test_a_pod_that_somebody_else_wrote_is_looked_at_now_and_written_in_the_next_round(world: World) -> None:
    """The simulator of faults found it, seed 39787: a binder that was stopped and replaced woke up, was refused, read the
    pod's new version and overwrote with it what its successor had said, before it knew of that."""
    client = Client()
    client.elsewhere = "4711"
    writer, outcomes = behind(world, client)
    notice(writer, world)
    await told(writer)
    assert not outcomes
    assert (client.conditions, list(writer.conditions.pods)) == ([], ["waits"])
    client.elsewhere, before = "4712", list(writer.conditions.pods)
    assert [await write.make() for write in list(writer.conditions.due(10))] == [2], (
        "the write that was refused, and the look"
    )
    assert list(writer.conditions.pods) == before
    await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
    assert (client.conditions, list(writer.conditions.pods)) == (["waits"], [])
    assert not outcomes


async def test_a_webhooks_conflict_about_a_pod_that_nobody_wrote_is_a_refusal(world: World) -> None:
    """As it was: its condition was asked for twice a second, without a word, for as long as the webhook said so."""
    client = Client()
    client.refusal = Conflict("patch pods/status default/waits", 409, "Conflict", "the webhook's words")
    client.elsewhere = world.state.pods["waits"].resource_version
    writer, _ = behind(world, client)
    notice(writer, world)
    await told(writer)
    assert not writer.conditions.pods
    assert len(writer.rounds.refused) == 1
    client.refusal = None
    writer.rounds.refused.popleft()()
    await told(writer)
    assert client.conditions == ["waits"]


@pytest.mark.parametrize("seen", [None, ("another", ""), ("waits", "n0")])
async def test_a_pod_that_is_another_or_bound_by_now_is_not_told_that_it_waits(world: World, seen: Any) -> None:
    client = Client()
    client.elsewhere = "4711"

    async def get_pod(namespace: str, name: str) -> Any:
        uid, node = seen or ("", "")
        pod = SimpleNamespace(uid=uid, resource_version="4711", node_name=node)
        return SimpleNamespace(metadata=pod, spec=pod) if seen else None

    client.get_pod = get_pod  # type: ignore[method-assign]
    writer, outcomes = behind(world, client)
    notice(writer, world)
    await told(writer)
    assert not writer.conditions.pods
    assert not outcomes


async def test_a_pod_that_was_read_to_be_written_over_is_told_what_is_due_once_all_is_heard(world: World) -> None:
    """A binder that was stopped and replaced would say what was due then."""
    client = Client()
    client.elsewhere = "4711"

    async def hear_all() -> None:
        world.node("large", cpu=300)
        world.pass_s(15)
        world.settle()

    writer, _ = behind(world, client, hear_all)
    notice(writer, world)
    for _ in range(2):
        await told(writer)
    assert world.where("waits") == ["large"]
    assert client.conditions == []


async def test_a_pod_that_comes_to_a_gang_that_was_refused_is_told_what_it_waits_for() -> None:
    """The simulator of faults found it, seed 43847: its coming wakes nobody, so that no refusal named it."""
    world, client = World(), Client()
    world.node("n0", cpu=2)
    world.pod_group("train", 3)
    world.pod("train-0", "train")
    world.settle()
    writer, _ = behind(world, client)
    before = len(world.log.commits)
    world.pod("train-1", "train")
    world.settle()
    notice(writer, world, before)
    await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
    assert client.conditions == ["train-1"]
    assert [one["reason"] for one in client.said] == ["WaitingForMembers"]


async def test_a_gang_that_leaves_its_group_is_told_of_itself_alone() -> None:
    """It waits for the same as before; its key is the group's, so that it went on speaking for both."""
    reader = Reader(world := World())
    world.node("n0", cpu=1)
    both = {"groups": ("default/a", "default/b")}
    for gang, named in (("default/a", both), ("default/b", both), ("default/a", None)):
        world.koordinator(gang, 2, 2, named)
        world.pass_s(5)
        world.settle()
        await reader.round()
    said = dict(zip(reader.client.conditions, reader.client.said, strict=True))
    assert all(" gang default/a: 1 of the 2 pods " in said[uid]["message"] for uid in ("a-0", "a-1"))


async def test_pods_that_wait_are_told_when_their_pod_group_comes_and_cannot_be_read_and_when_it_goes() -> None:
    world, client = World(), Client()
    world.node("n0")
    world.pod("train-0", "train", dialect="volcano/v1beta1")
    world.settle()
    writer, _ = behind(world, client)
    about = {"kind": "PodGroup.scheduling.volcano.sh", "namespace": "default", "name": "train", "uid": "u"}
    what = {"field": "spec.minMember", "value": "abc", "expected": "an integer"}
    for event in (ev.DeclarationRejected(**about, resource_version="1", **what), ev.RejectionEnded(**about)):
        before = len(world.log.commits)
        world.facts(event)
        notice(writer, world, before)
        await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
        writer.conditions.report()
    rejected, waits = (one["message"] for one in client.said)
    assert rejected.endswith("is rejected: spec.minMember is 'abc'; expected an integer")
    assert waits.endswith("waits for its PodGroup")


async def test_a_condition_whose_write_had_no_answer_is_not_taken_for_the_one_before() -> None:
    """It may have been written: when the pod waits again for what it was told last, that is said again. And the object
    changes, so that the write without an answer fails if it comes still later."""
    world, client = World(), Client()
    world.node("n0", cpu=4)
    world.pod("waits", cpu=200)
    world.settle()
    writer, outcomes = behind(world, client)
    notice(writer, world)
    await told(writer)
    world.append("binder", outcomes, cause="outcome")
    first = world.state.cohorts[world.state.groups["pod/default/waits"].cohort]
    condition, first.condition = first.condition, "InsufficientRoom: node(s) were unschedulable"
    writer.conditions.pods.put("waits")
    client.away = True
    await told(writer)
    client.away, first.condition = False, condition
    writer.conditions.pods.put("waits")
    await told(writer)
    assert client.conditions == ["waits", "waits"]
    assert ["lastProbeTime" in said for said in client.said] == [False, True]
    writer.conditions.pods.put("waits")
    await told(writer)
    assert client.conditions == ["waits", "waits"]


async def test_after_a_start_conditions_are_said_again_that_a_binder_before_may_have_changed(world: World) -> None:
    """The simulator of faults found it, seed 8091: it had told the pod something else, and ended before the log knew."""
    before, outcomes = behind(world, Client())
    notice(before, world)
    await told(before)
    world.append("binder", outcomes, cause="outcome")
    client = Client()
    writer, _ = behind(world, client)
    at_once(writer.resume())
    for _ in range(2):
        await told(writer)
    assert client.conditions == ["waits"]
    assert "lastProbeTime" in client.said[0]


async def test_after_a_start_a_pod_that_was_never_told_is_told_as_for_the_first_time(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    at_once(writer.resume())
    await told(writer)
    assert client.conditions == ["waits"]
    assert "lastProbeTime" not in client.said[0]


async def test_no_more_are_told_at_a_time_than_may_be() -> None:
    world, client = World(), Client()
    world.node("n0", cpu=4)
    for uid in ("first", "second", "third"):
        world.pod(uid, cpu=200)
    world.settle()
    writer, _ = behind(world, client)
    notice(writer, world)
    assert len(list(writer.conditions.due(2))) == 2
    assert len(list(writer.conditions.pods)) == 1


async def test_a_pod_that_goes_before_its_turn_is_not_told(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    notice(writer, world)
    world.deleted("waits")
    await told(writer)
    assert client.conditions == []


async def told_of_a_gang() -> tuple[World, Client, WriteBehind, list[ev.Event]]:
    """Two pods, for neither of which there is room; both are told, and one has the event."""
    world, client = World(), Client()
    world.node("n0", cpu=4)
    world.gang("train", 2, 1, cpu=200)
    world.settle()
    writer, outcomes = behind(world, client)
    notice(writer, world)
    await told(writer)
    return world, client, writer, outcomes


@pytest.mark.parametrize("goes", ["bound by somebody else", "taken into another gang"])
async def test_when_the_pod_that_has_the_event_waits_no_longer_another_of_its_gang_gets_one(goes: str) -> None:
    world, client, writer, _ = await told_of_a_gang()
    [has] = client.events
    [other] = {"train-0", "train-1"} - {has}
    if goes == "bound by somebody else":
        world.assigned(has, "n0")
    else:
        world.pod(has, "other", minimum=1, cpu=200)
    world.pass_s(2)
    world.plan()
    writer.conditions.doubt(other)
    writer.conditions.note((other,))
    await told(writer)
    assert client.events == [has, other]


async def test_a_pod_that_is_taken_into_another_gang_is_told_of_that_though_the_reason_is_the_same() -> None:
    world, client, writer, outcomes = await told_of_a_gang()
    world.append("binder", outcomes, cause="outcome")
    world.pod("train-0", "other", minimum=1, cpu=200)
    world.settle()
    writer.conditions.note(("train-0",))
    await told(writer)
    [*_, last] = client.said
    assert last["reason"] == "Unschedulable"
    assert "gang default/other: 0 of the 1 pods" in last["message"]


async def test_pods_that_are_set_aside_are_told_so() -> None:
    """The binder's own word: no planner refuses them."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.propose("default/train", {"train-0": "n0", "train-1": "n0"})
    reader = Reader(world)
    await reader.round()
    world.judge()
    await reader.round()
    assert reader.client.conditions == ["train-0", "train-1"]
    assert {one["reason"] for one in reader.client.said} == {"SetAside"}


async def test_a_word_of_which_the_log_hears_late_is_taken_back_if_it_is_not_true_any_more() -> None:
    """Told of another reason, and refused as before until the log knew: it seemed to have been told that already."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("waits", cpu=200)
    world.settle()
    reader = Reader(world)
    await reader.round()
    cohort = world.state.cohorts[world.state.groups["pod/default/waits"].cohort]
    condition = cohort.condition
    for reason in ("InsufficientRoom: node(s) were unschedulable", condition):
        cohort.condition = cohort.message = reason
        reader.writer.conditions.pods.put("waits")
        await reader.round(logged=False)
    for _ in range(2):
        await reader.round()
    assert reader.client.said[-1]["message"] == condition
    assert world.state.pods["waits"].reported == condition


async def test_a_pod_that_is_placed_before_its_write_begins_is_not_told_that_it_waits(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    notice(writer, world)
    chosen = list(writer.conditions.due(10))
    world.node("n1", cpu=400)
    world.pass_s(20)
    world.settle()
    assert world.where("waits") == ["n1"]
    assert [await write.make() for write in chosen] == [0]
    assert client.conditions == []


async def test_a_condition_says_since_when_and_keeps_that_when_only_its_message_changes(world: World) -> None:
    """As the kube-scheduler has it: the time is that of the status, which is False from the first word on."""
    client = Client()
    writer, _ = behind(world, client)
    for reason in ("", "InsufficientRoom"):
        world.state.pods["waits"].reported = reason
        notice(writer, world)
        await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
    first, again = client.said
    assert datetime.fromisoformat(first["lastTransitionTime"]).tzinfo is not None
    assert "lastTransitionTime" not in again


async def test_what_was_seen_of_a_pod_is_forgotten_with_it(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    notice(writer, world)
    await told(writer)
    assert list(writer.conditions._groups) == ["waits"]
    client.elsewhere = "4711"
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
    assert list(writer.conditions._versions) == ["waits"]
    assert writer.conditions._in_doubt == {"waits"}
    about = {"uid": "waits", "namespace": "default", "name": "waits", "node": "n0", "assigned_node": ""}
    world.append("binder", [ev.BindingFailed(**about, reason="Forbidden", message="no")], "outcome")
    writer.notice(decode(world.log.commits[-1]))
    assert list(writer.conditions._refused) == ["waits"]
    world.deleted("waits")
    writer.notice(decode(world.log.commits[-1]))
    assert not writer.conditions._refused
    assert not writer.conditions._versions
    assert not writer.conditions._in_doubt
    assert not writer.conditions._groups


async def test_of_a_pod_that_is_gone_before_an_answer_is_heard_nothing_is_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: something of each such pod, for as long as the process lived."""
    client = Client()
    writer, _ = behind(world, client)
    patch = client.patch_pod_status

    async def gone_meanwhile(*about: Any) -> str:
        world.deleted("waits")
        writer.notice(decode(world.log.commits[-1]))
        return await patch(*about)

    monkeypatch.setattr(client, "patch_pod_status", gone_meanwhile)
    notice(writer, world)
    await told(writer)
    assert client.conditions == ["waits"]
    about = {"uid": "waits", "namespace": "default", "name": "waits", "node": "n0", "assigned_node": ""}
    world.append("binder", [ev.BindingFailed(**about, reason="Forbidden", message="no")], "outcome")
    writer.notice(decode(world.log.commits[-1]))
    await told(writer)
    assert not writer.conditions._groups
    assert not writer.conditions._refused
    assert not writer.conditions._in_doubt


async def test_a_gang_that_is_made_anew_under_its_name_gets_an_event_of_its_own() -> None:
    """As it was: a Job that was deleted and made again, and found no room as before, had no FailedScheduling; nor had a
    StatefulSet's pod. The one before stood on pods that are gone, which `kubectl describe` shows nobody."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    reader = Reader(world)
    for run in ("first", "second"):
        for number in range(2):
            world.pod(f"{run}-{number}", "train")
        world.settle()
        for _ in range(2):
            await reader.round()
        for number in range(2):
            world.deleted(f"{run}-{number}")
    assert reader.client.conditions == ["first-0", "first-1", "second-0", "second-1"]
    assert reader.client.events == ["first-0", "second-0"]


async def test_a_pod_that_had_no_room_and_whose_binding_is_refused_is_not_unschedulable_any_more() -> None:
    """An autoscaler would act on it for as long as an admission policy forbids the binding, which may be for ever. Of
    the second refusal it is told nothing new. The third has other words: it went on naming a right that was granted."""
    world = World()
    world.pod("waits")
    world.settle()
    reader = Reader(world)
    await reader.round()
    world.node("n0")
    for message in ("not this one", "not this one", "a webhook's no"):
        world.pass_s(40)
        world.plan()
        world.judge()
        about = {"uid": "waits", "namespace": "default", "name": "waits", "node": "n0", "assigned_node": ""}
        world.append("binder", [ev.BindingFailed(**about, reason="Forbidden", message=message)], "outcome")
        await reader.round()
    said = [(one["reason"], one["message"]) for one in reader.client.said]
    assert said == [
        ("Unschedulable", "no nodes available to schedule pods"),
        ("BindingFailed", "not this one"),
        ("BindingFailed", "a webhook's no"),
    ]


async def told_last(reader: Reader) -> dict[str, str]:
    """What each pod's condition says now."""
    await reader.round()
    said = zip(reader.client.conditions, reader.client.said, strict=True)
    return {uid: one["message"] for uid, one in said}


async def test_pods_of_a_gang_group_are_told_of_the_gang_that_lacks_pods_now() -> None:
    """Each time for the same reason, so that the reason alone does not say whether they know it."""
    world, roles = World(), ("default/a", "default/b")
    world.koordinator("default/a", 1, 2, {"groups": roles})
    world.koordinator("default/b", 1, 2, {"groups": roles})
    world.plan()
    reader = Reader(world)
    short = "gang {} has 1 of its minimum of 2 pods: less than minAvailable"
    assert await told_last(reader) == dict.fromkeys(("a-0", "b-0"), short.format("default/a"))
    world.koordinator("default/a", 2, 2, {"groups": roles})
    world.plan()
    assert await told_last(reader) == dict.fromkeys(("a-0", "a-1", "b-0"), short.format("default/b"))


async def test_pods_of_a_job_are_told_of_the_task_whose_pods_are_gated_now() -> None:
    world = World()
    world.node("n0")
    world.pod_group("job", 2, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 1})
    world.volcano("ps-0", "job", "ps", gated=True)
    world.volcano("worker-0", "job", "worker", gated=True)
    world.volcano("other-0", "job", "other")
    world.volcano("other-1", "job", "other")
    world.plan()
    reader = Reader(world)
    gated = "task {} of gang default/job@batch needs 1 more pods; 0 may be scheduled, others are gated or done"
    assert await told_last(reader) == dict.fromkeys(("other-0", "other-1"), gated.format("ps"))
    world.volcano("ps-0", "job", "ps")
    world.plan()
    assert await told_last(reader) == dict.fromkeys(("other-0", "other-1", "ps-0"), gated.format("worker"))


async def test_a_pod_that_comes_to_a_gang_that_lacks_some_is_told_how_many_there_are_with_it() -> None:
    """Who was told before is not told again for a count (D21); and whoever asks for the reason gets what is true now."""
    world = World()
    world.pod_group("train", 4)
    world.pod("train-0", "train")
    world.plan()
    reader = Reader(world)
    short = "gang default/train has {} of its minimum of {} pods: less than minAvailable"
    assert await told_last(reader) == {"train-0": short.format(1, 4)}
    world.pod("train-1", "train")
    assert await told_last(reader) == {"train-0": short.format(1, 4), "train-1": short.format(2, 4)}
    world.pod_group("train", 5)
    assert why_waiting(world.state, world.state.pods["train-0"]) == short.format(2, 5)


async def test_what_is_written_is_true_when_it_is_written() -> None:
    """Another pod came since this one was chosen. It is not skipped: nothing would put it in the queue again."""
    world = World()
    world.pod_group("train", 4)
    world.pod("train-0", "train")
    world.plan()
    reader = Reader(world)
    reader.notice()
    (write,) = reader.writer.conditions.due(1)
    world.pod("train-1", "train")
    assert await write.make() == 2, "its condition, and an event"
    assert [one["message"].split()[3] for one in reader.client.said] == ["2"]


async def test_pods_of_a_gang_without_room_are_told_when_no_more_are_to_come() -> None:
    """As long as some are, only room has it tried again: that nobody has to wait for them any more is news, though room
    is what is missing before and after."""
    world = World()
    world.node("n0", cpu=1)
    world.koordinator("default/train", 2, 2, {"total_member": 4})
    world.plan()
    reader = Reader(world)
    nodes = "0/1 nodes are available: 1 Insufficient cpu."
    about = f"{nodes} gang default/train: 1 of the 2 pods that must start together have a node."
    more = "Of gang default/train 2 more pods are to come; before, only room has it tried again."
    assert set((await told_last(reader)).values()) == {f"{about} {more}"}
    world.pass_s(2)
    world.koordinator("default/train", 4, 2, {"total_member": 4})
    world.plan()
    assert await told_last(reader) == {f"train-{number}": about for number in range(4)}
    world.pass_s(20)
    world.node("n0", cpu=1)
    world.plan()
    assert len(world.state.cohorts) == 1
    await reader.round()
    assert len(reader.client.said) == 6, "told once each, and the first two twice"

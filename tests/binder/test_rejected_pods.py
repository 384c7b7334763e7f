"""What a pod is told that cannot be taken as it is declared: read before it is written, as the log has no fact of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import events as ev
from services.binder.service.rounds import Rate
from services.kubernetes.errors import Conflict, Unreachable
from services.kubernetes.objects import Pod
from services.kubernetes.transport import UNREADABLE
from services.state.slices import at_once
from tests.binder.behind import Client, behind, notice
from tests.binder.behind import told as hear
from tests.world import World

REJECTED = ev.DeclarationRejected(
    kind="Pod",
    namespace="default",
    name="bad",
    uid="u-bad",
    resource_version="7",
    field="metadata.labels[pod-group/min-available]",
    value="abc",
    expected="an integer from 1 to 2147483647",
)
MESSAGE = "metadata.labels[pod-group/min-available] is 'abc'; expected an integer from 1 to 2147483647"


class Reading(Client):
    """An API server that has this pod."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] | Exception | None = {"metadata": {"uid": "u-bad", "resourceVersion": "9"}}

    async def get_pod(self, namespace: str, name: str) -> Any:
        if isinstance(self.seen, Exception):
            raise self.seen
        return None if self.seen is None else msgspec.convert(self.seen, Pod)


@pytest.fixture
def world() -> World:
    world = World()
    world.facts(REJECTED)
    return world


def rejected(**about: str) -> ev.DeclarationRejected:
    return msgspec.structs.replace(REJECTED, **about)


async def told(world: World, client: Reading, times: int = 1) -> list[ev.Event]:
    writer, outcomes = behind(world, client)
    notice(writer, world)
    for _ in range(times):
        await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    return outcomes


async def test_it_is_told_once_what_is_wrong(world: World) -> None:
    client = Reading()
    assert not await told(world, client, times=2), "the log has the rejection already"
    said = client.said[0]
    assert (said["type"], said["status"]) == ("PodScheduled", "False")
    assert (said["reason"], said["message"]) == ("DeclarationRejected", MESSAGE)
    assert "lastTransitionTime" in said
    assert len(client.said) == 1


async def test_the_time_of_a_condition_that_it_has_already_stays(world: World) -> None:
    client = Reading()
    client.seen = {
        "metadata": {"uid": "u-bad", "resourceVersion": "9"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }
    await told(world, client)
    assert "lastTransitionTime" not in client.said[0]


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {"metadata": {"uid": "another", "resourceVersion": "9"}},
        {"metadata": {"uid": "u-bad", "resourceVersion": "9", "deletionTimestamp": "2026-01-02T03:04:05Z"}},
        {"metadata": {"uid": "u-bad", "resourceVersion": "9"}, "spec": {"nodeName": "n0"}},
        Unreachable("get pods default/bad", UNREADABLE, "expected an object: …", sent=True),
    ],
)
async def test_one_that_is_gone_or_goes_runs_or_cannot_be_decoded_is_not_told(world: World, seen: Any) -> None:
    """The last may be another scheduler's."""
    client = Reading()
    client.seen = seen
    writer, _ = behind(world, client)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not client.said
    assert not writer.rejected_pods.waiting
    assert not writer.rounds.failed


async def test_one_that_is_gated_is_told_when_its_gates_are_gone(world: World) -> None:
    """Until then its condition is the API server's, which nobody would write again for a pod that is mended."""
    client = Reading()
    gates = [{"name": "example.com/quota"}]
    client.seen = {"metadata": {"uid": "u-bad", "resourceVersion": "9"}, "spec": {"schedulingGates": gates}}
    writer, _ = behind(world, client)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not client.said
    assert not writer.rejected_pods.waiting, "no round is spent on it before others"
    client.seen = {"metadata": {"uid": "u-bad", "resourceVersion": "10"}}
    (look_again,) = writer.rounds.refused
    look_again()
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert [said["message"] for said in client.said] == [MESSAGE]


async def test_what_was_changed_between_reading_and_writing_is_read_again(world: World) -> None:
    client = Reading()

    async def changes() -> None:
        client.elsewhere = "10"
        client.seen = {"metadata": {"uid": "u-bad", "resourceVersion": "10"}}

    writer, _ = behind(world, client, changes)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not client.said
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert [said["message"] for said in client.said] == [MESSAGE]


async def test_a_webhooks_conflict_about_a_pod_that_nobody_wrote_is_a_refusal(world: World) -> None:
    """As it was: the pod was read and written twice a second for as long as the webhook said so."""
    client = Reading()
    client.refusal = Conflict("patch pods/status default/bad", 409, "Conflict", "the webhook's words")
    writer, _ = behind(world, client)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not writer.rejected_pods.waiting
    assert len(writer.rounds.refused) == 1


async def test_who_was_replaced_while_he_stood_still_does_not_tell_what_was_wrong_with_the_pod_then(
    world: World,
) -> None:
    """Simulated seed 420778: it has been taken since, and waits for something else by its successor's word."""
    client = Reading()

    async def hears_of_it() -> None:
        world.facts(ev.RejectionEnded(kind="Pod", namespace="default", name="bad", uid="u-bad"))

    writer, _ = behind(world, client, hears_of_it)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not client.said
    assert not writer.rejected_pods.waiting


async def test_an_api_server_that_is_away_is_asked_again(world: World) -> None:
    client = Reading()
    client.seen = Unreachable("get pods default/bad", "ClientConnectorError", "connection refused", sent=False)
    writer, _ = behind(world, client)
    notice(writer, world)
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert len(writer.rounds.failed) == 1


async def test_after_a_start_whatever_stands_is_said_again(world: World) -> None:
    client = Reading()
    writer, _ = behind(world, client)
    at_once(writer.resume())
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert [said["message"] for said in client.said] == [MESSAGE]


async def test_one_that_can_be_read_by_now_is_not_told(world: World) -> None:
    client = Reading()
    writer, _ = behind(world, client)
    notice(writer, world)
    world.facts(ev.RejectionEnded(kind="Pod", namespace="default", name="bad", uid="u-bad"))
    await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
    assert not client.said


async def test_one_that_waited_is_told_again_what_it_waits_for_when_it_is_mended() -> None:
    """The log knows that it was told that, and not that it was told of its declaration since."""
    world, client, noticed = World(), Reading(), 0
    client.seen = {"metadata": {"uid": "bad", "resourceVersion": "9"}}
    writer, outcomes = behind(world, client)
    for rejection in (None, rejected(uid="bad"), None):
        if rejection is not None:
            world.facts(rejection)
        else:
            world.pod("bad", cpu=200)
            world.settle()
        notice(writer, world, noticed)
        await writer.rounds.round(Rate(1_000.0), writer.rejected_pods.due)
        await hear(writer)
        if outcomes:
            world.append("binder", list(outcomes), cause="outcome")
            outcomes.clear()
        noticed = len(world.log.commits)
    assert [one["reason"] for one in client.said] == ["Unschedulable", "DeclarationRejected", "Unschedulable"]


def test_one_that_has_a_node_is_not_asked_for(world: World) -> None:
    world.node("n0")
    world.pod("runs", node="n0")
    world.facts(rejected(name="runs", uid="runs"))
    writer, _ = behind(world, Reading())
    notice(writer, world)
    assert len(list(writer.rejected_pods.due(10))) == 1
    assert not writer.rejected_pods.waiting


async def test_no_more_are_told_at_a_time_than_may_be_and_namespaces_take_turns(world: World) -> None:
    """Of each there are two requests."""
    for namespace, name in (("default", "bad-too"), ("others", "bad")):
        world.facts(rejected(namespace=namespace, name=name, uid=f"u-{namespace}-{name}"))
    writer, _ = behind(world, Reading())
    notice(writer, world)
    assert len(list(writer.rejected_pods.due(4))) == 2
    assert list(writer.rejected_pods.waiting) == ["Pod/default/bad-too"]
    assert len(list(writer.rejected_pods.due(1))) == 1, "it may be more than was asked for"
    assert list(writer.rejected_pods.due(4)) == []


@pytest.mark.parametrize("seen", [None, {"metadata": {"uid": "u-bad", "resourceVersion": "10"}}])
async def test_each_request_counts_also_where_it_was_changed_or_is_gone_meanwhile(world: World, seen: Any) -> None:
    client = Reading()

    async def changes() -> None:
        client.elsewhere = "10"
        client.seen = seen

    writer, _ = behind(world, client, changes)
    notice(writer, world)
    costs = [[await write.make() for write in list(writer.rejected_pods.due(10)) if write] for _ in range(2)]
    assert costs == [[3], [1 if seen is None else 2]], "read, written, read again"
    assert len(client.said) == (0 if seen is None else 1)

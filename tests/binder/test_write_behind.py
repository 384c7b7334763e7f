"""What users read is written behind the bindings, and no part of it waits for all of another."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events import dialects
from services.binder.service import conditions, kubernetes_events, pod_groups, rounds, write_behind
from services.binder.service.rounds import Rate, Write
from services.binder.service.write_behind import WriteBehind
from services.kubernetes.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from services.state.slices import at_once
from services.telemetry import repeated
from tests.binder.behind import Client, Reader, behind, notice, said
from tests.waiting import until
from tests.world import World


async def test_a_burst_of_events_keeps_no_pod_from_hearing_why_it_waits(world: World) -> None:
    client = Client()
    writer, outcomes = behind(world, client)
    notice(writer, world)
    running = asyncio.create_task(writer.run())
    while not outcomes:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert client.conditions == ["waits"]
    assert len(client.events) < 80
    assert [type(outcome) for outcome in outcomes] == [ev.ConditionsReported]


async def test_namespaces_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods of one were bound, or wait, others hear with the next round; and lose no events."""
    monkeypatch.setattr(kubernetes_events, "EVENTS_KEPT", 40)
    client, world = Client(), World()
    world.node("n0", cpu=100, memory_gi=100)
    for number in range(60):
        world.pod(f"bound{number}", namespace="many")
    world.pod("bound", namespace="others")
    world.settle()
    for number in range(60):
        world.pod(f"waits{number}", cpu=200, namespace="many")
    world.pod("waits", cpu=200, namespace="others")
    world.plan()
    writer, _ = behind(world, client)
    notice(writer, world)
    for queue in (writer.events, writer.conditions):
        await writer.rounds.round(Rate(1.0), queue.due)
    assert len(client.conditions) == 50
    assert client.events[1] == "bound"
    assert client.conditions[1] == "waits"


def test_namespaces_take_turns_with_their_pod_groups_too() -> None:
    writer, _ = behind(World(), Client())
    first, second, other = (
        dialects.gang_key("coscheduling/v1alpha1", *about) for about in (("many", "a"), ("many", "b"), ("others", "a"))
    )
    writer.pod_groups.note((first, second, other))
    assert [writer.pod_groups.gangs.take() for _ in range(3)] == [first, other, second]


async def test_a_pod_that_goes_before_its_write_begins_costs_nothing(world: World) -> None:
    """The simulator of faults found it, seed 462: the write begins a turn of the loop after it was chosen."""
    client = Client()
    writer, _ = behind(world, client)
    notice(writer, world)
    chosen = list(writer.conditions.due(10))
    world.deleted("waits")
    assert [await write.make() for write in chosen] == [0]
    assert client.conditions == []


async def test_a_round_that_is_cancelled_before_its_writes_begin_leaves_nothing_unawaited(world: World) -> None:
    """The simulator of faults warned of it, now and then: a binder that ends in the middle of a round."""
    writer, _ = behind(world, Client())
    notice(writer, world)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        running = asyncio.create_task(writer.rounds.round(Rate(1_000.0), writer.conditions.due))
        await asyncio.sleep(0)
        assert not writer.conditions.pods  # chosen, and not begun
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        del running
        gc.collect()
    assert [str(one.message) for one in heard if "never awaited" in str(one.message)] == []


def one_that_runs_and_one_that_waits(client: Client) -> tuple[WriteBehind, list[ev.Event]]:
    """A gang whose PodGroup is to be written, and a pod that is to hear why it waits."""
    world = World()
    world.node("n0", cpu=2)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.pod("waits", cpu=200)
    world.settle()
    writer, outcomes = behind(world, client)
    notice(writer, world)
    return writer, outcomes


@pytest.mark.parametrize(
    "answer",
    [
        Unreachable("write", "ClientConnectorError", "refused", sent=False),
        Unauthorized("write", 401, "", "Unauthorized"),
    ],
)
async def test_what_an_api_server_that_restarts_did_not_hear_is_said_again(
    monkeypatch: pytest.MonkeyPatch, answer: ApiError
) -> None:
    """No fact has to come that says so once more: the gang of the last fact may be at its end. As it was, of what was
    answered with 401, as it is until the server has whoever knows its tokens, events were lost, and the rest came in
    five minutes."""
    monkeypatch.setattr(rounds, "ROUND_S", 0.005)
    monkeypatch.setattr(rounds, "AGAIN_S", 0.02)
    client = Client()
    writer, outcomes = one_that_runs_and_one_that_waits(client)
    client.refusal = answer
    running = asyncio.create_task(writer.run())
    while len(writer.rounds.failed) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    client.refusal = None
    while not (client.phases and outcomes and set(client.events) == {"train-0", "waits"}):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert client.phases == ["Running"]
    assert client.conditions == ["waits"]


async def test_under_a_lasting_load_there_is_a_round_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, began, sleep = 1_000.0, list[float](), asyncio.sleep
    writer, _ = behind(World(), Client())
    writer.rounds.busy = lambda: True

    async def passes(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s
        await sleep(0)

    def due(_: int) -> Iterator[Write]:
        began.append(now_s)
        return iter(())

    monkeypatch.setattr(asyncio, "sleep", passes)
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now_s)
    running = asyncio.create_task(
        writer.rounds.now_and_then(SimpleNamespace(rate=Rate(1.0), due=due, report=lambda: None))
    )
    while len(began) < 4:
        await sleep(0)
    running.cancel()
    gaps = [after - before for before, after in itertools.pairwise([1_000.0, *began])]
    assert all(5.0 <= gap <= 5.5 for gap in gaps)


async def test_of_thousands_that_are_refused_alike_one_line_is_told(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a line for each, 15 a second for as long as the role lacked the permission, and 50 of events."""
    writer, _ = behind(world, Client())

    def refused(request: str, code: int) -> Write:
        async def make() -> int:
            raise ApiError(request, code, "Forbidden", "no")

        return Write(make, lambda: None)

    for number in range(100):
        await writer.rounds.write(refused(f"patch pods/status ml/p{number}", 403))
        await writer.rounds.write(refused(f"create events ml/p{number}", 403))
    await writer.rounds.write(refused("patch pods/status ml/p7", 500))
    monkeypatch.setattr(repeated, "TOLD_S", 0.0)
    await writer.rounds.write(refused("patch pods/status ml/last", 403))
    assert [record.getMessage() for record in caplog.records] == [
        "written behind, and refused: 1, the last: patch pods/status ml/p0: 403 Forbidden: no",
        "written behind, and refused: 1, the last: create events ml/p0: 403 Forbidden: no",
        "written behind, and refused: 1, the last: patch pods/status ml/p7: 500 Forbidden: no",
        "written behind, and refused: 100, the last: patch pods/status ml/last: 403 Forbidden: no",
    ]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (Forbidden("write", 403, "Forbidden", "no such permission"), True),
        (NotFound("write", 404, "NotFound", "a webhook's no"), False),
        (Forbidden("write", 403, "Forbidden", "no new content in namespace ml because it is being terminated"), False),
    ],
    ids=["forbidden", "a webhook's 404", "a namespace that is going"],
)
async def test_what_was_refused_for_good_is_written_once_more_later_but_no_event(
    refusal: ApiError, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A role that lacked a permission got it: no fact says so, and a gang that runs has nothing new for hours. Of what is
    not found nothing is told: as a rule it has gone."""
    monkeypatch.setattr(rounds, "ROUND_S", 0.005)
    monkeypatch.setattr(rounds, "AGAIN_S", 0.02)
    monkeypatch.setattr(rounds, "REFUSED_TIMES", 3)
    client = Client()
    writer, outcomes = one_that_runs_and_one_that_waits(client)
    client.refusal = refusal
    running = asyncio.create_task(writer.run())
    refused = f"written behind, and refused: 1, the last: {refusal}"
    await until(lambda: len(writer.rounds.refused) == 2 and caplog.text.count(refused) == told)
    assert not writer.rounds.failed
    client.refusal = None
    await until(lambda: bool(client.phases and outcomes))
    running.cancel()
    assert (client.phases, client.conditions) == (["Running"], ["waits"])
    assert client.events == ["waits"], "with its condition; the one on the pod that is bound was refused"


async def test_nothing_is_written_while_bindings_are_on_their_way(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    bindings, looks = True, 0

    def busy() -> bool:
        nonlocal looks
        looks += 1
        return bindings

    writer.rounds.busy = busy
    notice(writer, world)
    running = asyncio.create_task(writer.run())
    while looks < 6:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    assert (client.conditions, client.events) == ([], [])
    bindings = False
    while not (client.conditions and client.events):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()


async def test_under_a_lasting_load_it_is_written_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_S", 0.005)
    monkeypatch.setattr(rounds, "OVERDUE_S", 0.02)
    client = Client()
    writer, outcomes = behind(world, client)
    writer.rounds.busy = lambda: True
    at_once(writer.resume())
    running = asyncio.create_task(writer.run())
    await until(lambda: outcomes, "a condition to be written and reported")
    running.cancel()
    assert client.conditions == ["waits"]


def test_a_start_looks_through_pods_and_gangs_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: in one piece, for half a second with 500,000 pods."""
    for module in (conditions, pod_groups):
        monkeypatch.setattr(module, "SLICE_NOTED", 1)
    monkeypatch.setattr(write_behind, "SLICE_REJECTED", 1)
    for number in range(5):
        world.pod_group(f"train-{number}", 1)
    for number in range(7):
        about = {"kind": "Pod", "namespace": "default", "name": f"bad-{number}", "uid": f"bad-{number}"}
        world.facts(ev.DeclarationRejected(**about, resource_version="1", field="spec", value="x", expected="y"))
    writer, _ = behind(world, Client())
    assert sum(1 for _ in writer.resume()) > 2 * len(world.state.pods) + len(world.state.gangs) + 7
    assert len(list(writer.events.waiting)) == len(list(writer.rejected_pods.waiting)) == 7
    assert list(writer.conditions.pods) == ["waits"]
    assert list(writer.pod_groups.gangs) == [f"default/train-{number}" for number in range(5)]


@pytest.mark.parametrize("kind", ["conditions", "pod_groups"])
async def test_a_round_looks_through_what_needs_no_write_in_slices(kind: str) -> None:
    """As it was: in one piece, for three quarters of a second when 100,000 pods were refused again for what they had been
    told already."""
    writer, _ = behind(World(), Client())
    queue = {"conditions": writer.conditions.pods, "pod_groups": writer.pod_groups.gangs}[kind]
    queue.put(*(f"default/gone-{number}" for number in range(20_000)))
    looking = asyncio.create_task(writer.rounds.round(Rate(1_000.0), getattr(writer, kind).due))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert list(queue), "some are left when others have their turn"
    await looking
    assert not list(queue)


async def test_a_start_tells_again_of_what_was_rejected() -> None:
    """The binder before may have ended before it did. Its name is the same, so that nothing is told twice."""
    world, client = World(), Client()
    about = {"kind": "Pod", "namespace": "default", "name": "bad", "uid": "uid-bad", "resource_version": "1"}
    world.facts(ev.DeclarationRejected(**about, field="spec", value="x", expected="y"))
    writer, _ = behind(world, client)
    at_once(writer.resume())
    await writer.rounds.round(Rate(1_000.0), writer.events.due)
    assert client.events == ["bad"]


async def test_one_pod_of_a_group_gets_an_event_for_each_thing_that_it_waits_for() -> None:
    world = World()
    world.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.settle()
    reader = Reader(world)
    for reason in ("", "InsufficientRoom: Insufficient cpu", "", "InsufficientRoom: Insufficient cpu"):
        if reason:
            next(iter(world.state.cohorts.values())).condition = reason
        reader.writer.conditions.pods.put("train-0", "train-1")
        await reader.round()
    assert reader.client.conditions == ["train-0", "train-1"] * 2
    assert reader.client.events == ["train-0"] * 2
    next(iter(world.state.cohorts.values())).condition = "InsufficientRoom: Insufficient memory"
    reader.writer.conditions.pods.put("train-0", "train-1")
    requests = [await write.make() for write in reader.writer.conditions.due(10) if write is not None]
    assert requests == [2, 1], "the event is a request as well"


@pytest.mark.parametrize(
    ("kept", "told"), [(20_000, ["a-0", "b-0"]), (1, ["a-0", "b-0"]), (0, ["a-0", "b-0", "a-1", "b-1"])]
)
async def test_what_was_told_to_groups_is_remembered_within_bounds(
    kept: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "TOLD_KEPT", kept)
    world = World()
    for name in ("a", "b"):
        world.pod_group(name, 3)
        for index in range(2):
            world.pod(f"{name}-{index}", name)
    world.settle()
    reader = Reader(world)
    for name in ("a-0", "b-0", "a-1", "b-1"):
        reader.notice()
        while reader.writer.conditions.pods:
            reader.writer.conditions.pods.take()
        reader.writer.conditions.pods.put(name)
        await reader.round(logged=False)
    assert reader.client.events == told
    assert len(reader.writer.conditions.told) <= kept + 1


async def test_a_request_without_an_answer_holds_up_its_own_queue_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROUND_S", 0.005)
    client, asked = Client(), asyncio.Event()

    async def hangs(*_: Any, **__: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client, "patch_pod_group_status", hangs)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    writer, outcomes = behind(world, client)
    running = asyncio.create_task(writer.run())
    notice(writer, world)
    await asked.wait()
    notice(writer, world)
    while not (client.conditions == ["waits"] and len(client.events) > 50 and outcomes):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert not client.phases


async def test_a_namespace_whose_writes_have_no_answer_holds_up_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: everybody's next round began when the slowest write of the one before had been tried for the seventh
    time, of a webhook that takes ten seconds before it fails more than a minute later."""
    monkeypatch.setattr(rounds, "ROUND_S", 0.005)
    client, world, answers, asked = Client(), World(), asyncio.Event(), list[str]()
    patch = client.patch_pod_status

    async def answered(namespace: str, *about: Any) -> str:
        asked.append(namespace)
        if namespace == "slow":
            await answers.wait()
        return await patch(namespace, *about)

    monkeypatch.setattr(client, "patch_pod_status", answered)
    world.node("n0")
    for number in range(3):
        world.pod(f"slow{number}", cpu=200, namespace="slow")
    world.plan()
    writer, outcomes = behind(world, client)
    notice(writer, world)
    running = asyncio.create_task(writer.run())
    await until(lambda: asked, "the slow one's to be written")
    at = len(world.log.commits)
    world.pod("late", cpu=200, namespace="slow")
    world.pod("waits", cpu=200, namespace="others")
    world.plan()
    notice(writer, world, at)
    await until(lambda: client.conditions == ["waits"] and outcomes, "the other to be told, and the log of it", 10.0)
    assert asked == ["slow"] * 3 + ["others"], "and no more of theirs is asked for meanwhile"
    answers.set()
    await until(lambda: len(client.conditions) == 5, "theirs to be told")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_so_many_writes_at_most_are_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    client, world, asked = Client(), World(), list[str]()

    async def silent(namespace: str, *_: Any) -> str:
        asked.append(namespace)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client, "patch_pod_status", silent)
    world.node("n0")
    for number in range(3 * int(rounds.BURST_WRITES)):
        world.pod(f"p{number}", cpu=200, namespace=f"ns{number}")
    world.plan()
    writer, _ = behind(world, client)
    notice(writer, world)
    begun, rate = list[asyncio.Task[None]](), Rate(1e9)
    for expected in (50, 100, 100):
        begun.append(asyncio.create_task(writer.rounds.round(rate, writer.conditions.due)))
        await until(lambda expected=expected: len(asked) == expected, "those that may be asked for")
    await until(begun[-1].done, "the last, with nothing to do, to end")
    for one in begun:
        one.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    assert rate.unanswered == 0


def test_what_was_saved_up_may_be_written_at_once_and_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now_s)
    rate, allowed = Rate(10.0), []
    for pause_s, writes in ((0, 50), (0, 0), (1, 10), (1, 30), (1, 0), (2, 0), (100, 0)):
        now_s += pause_s
        allowed.append(rate.allowance())
        rate.spend(writes)
    assert allowed == [50, 0, 10, 10, 0, 10, 50]


async def test_a_round_spends_the_requests_that_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds.time, "monotonic", lambda: 1_000.0)

    def write(requests: int) -> Write:
        async def make() -> int:
            if requests < 0:
                raise NotFound("write", 404, "NotFound", "gone")
            return requests

        return Write(make, lambda: None)

    rate = Rate(1.0)
    await rounds.Rounds(lambda: False).round(rate, lambda most: iter([write(3), write(1), write(0), write(-1)]))
    assert rate.allowance() == 50 - (3 + 1 + 0 + 1)


async def test_a_round_that_comes_while_another_still_looks_may_take_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 gangs one looks for seconds, and lets others have their turn. As it was, the binder ended when the last
    was taken meanwhile: the generator that looks raised StopIteration."""
    for module in (conditions, pod_groups):
        monkeypatch.setattr(module, "SLICE_LOOKED", 1)
    client, world = Client(), World()
    world.node("n0", cpu=5)
    for number in range(5):
        world.pod_group(f"train-{number}", 1)
        world.pod(f"train-{number}", f"train-{number}")
        world.pod(f"waits-{number}", cpu=200)
    world.settle()
    writer, _ = behind(world, client)
    notice(writer, world)
    for queue in (writer.pod_groups, writer.conditions):
        await asyncio.gather(*(writer.rounds.round(Rate(1_000.0), queue.due) for _ in range(2)))
    assert client.phases == ["Running"] * 5
    assert sorted(client.conditions) == [f"waits-{number}" for number in range(5)]


async def test_of_a_burst_the_oldest_events_are_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a binder keeps so many at most, of what is to be written and of what failed."""
    monkeypatch.setattr(kubernetes_events, "EVENTS_KEPT", 5)
    monkeypatch.setattr(rounds, "WRITES_KEPT", 5)
    client = Client()
    writer, _ = behind(world, client)
    notice(writer, world)
    client.away = True
    for _ in range(2):
        await writer.rounds.round(Rate(1_000.0), writer.events.due)
        assert len(writer.rounds.failed) == 5
        notice(writer, world)
    client.away = False
    await writer.rounds.round(Rate(1_000.0), writer.events.due)
    assert client.events == [one.name for one in said(world.log) if isinstance(one, ev.PodBound)][-5:]

"""Bindings on their way: when that is a load, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events.envelope import decode
from services.binder.service import effects
from services.binder.service.effects import LOAD, Effects
from services.binder.service.rounds import Rate
from services.binder.service.write_behind import DEFAULT_RATES, WriteBehind
from services.kubernetes.binding import BindResult, Outcome
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.state.records import PROPOSED
from services.state.slices import at_once
from services.telemetry import repeated
from tests.binder.behind import heard
from tests.binder.bindings import MANY, UNBOUND, Binding, said
from tests.waiting import until
from tests.world import World


async def test_a_few_bindings_in_a_second_are_no_load(binding: Binding, caplog: pytest.LogCaptureFixture) -> None:
    """A soak found it: at 25 pods/s there was always one within the last second, and so what is written behind had its
    turn every five seconds alone: at a third of its rates, with Kubernetes events that came half an hour late."""
    await binding.bind(*binding.intents[: LOAD - 1])
    assert not binding.effects.busy
    assert not caplog.records, "nothing of what went well"


async def test_many_are_one_until_they_are_some_time_ago(binding: Binding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "LULL_S", 60.0)
    await binding.bind(*binding.intents)
    assert binding.effects.busy
    monkeypatch.setattr(effects, "LULL_S", 0.0)
    assert not binding.effects.busy


async def test_one_that_is_asked_for_or_is_to_be_is_on_its_way(binding: Binding) -> None:
    """What users read is written while none is."""
    binding.client.answers.clear()
    binding.effects._put(binding.intents[0])
    assert binding.effects.busy
    await until(lambda: binding.client.asked, "the attempt")
    assert binding.effects.busy
    binding.client.answers.set()
    await until(lambda: binding.outcomes, "the answer")
    await until(lambda: not binding.effects.busy, "it to be over")


async def test_those_that_are_asked_for_again_keep_nothing_from_being_written(binding: Binding) -> None:
    """As it was: a few pods behind a webhook that hangs had users read of everybody's every five seconds alone, for as
    long as it hung."""
    binding.client.in_doubt = 1
    binding.effects._put(binding.intents[0])
    await until(lambda: binding.client.asked, "the attempt")
    binding.client.answers.clear()
    await until(lambda: binding.client.asked == 2, "the second one to be on its way")
    assert not binding.effects.busy
    binding.client.answers.set()
    await until(lambda: binding.outcomes, "the answer")
    await until(lambda: not binding.effects._repeated, "nobody's to be repeated")


@pytest.mark.parametrize("concurrency", [1, 64])
async def test_one_in_doubt_is_repeated_however_few_may_be_asked_for_at_a_time(concurrency: int) -> None:
    binding = Binding(concurrency)
    binding.client.in_doubt = 1
    running = asyncio.create_task(binding.effects.run())
    await binding.bind(binding.intents[0])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


EVER_MORE_SELDOM = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_a_binding_without_an_answer_is_repeated_ever_more_seldom_but_every_five_seconds(
    binding: Binding, pauses: list[float]
) -> None:
    binding.client.silent = {binding.intents[0]}
    binding.effects._put(binding.intents[0])
    await until(lambda: len(pauses) >= 9, "it to be repeated")
    assert pauses[:9] == EVER_MORE_SELDOM


@pytest.mark.parametrize(("asked_s", "waited"), [(1.0, [1.0, 1.0, 1.0, 1.0, 1.6, 3.2, 5.0]), (300.0, [30.0] * 7)])
async def test_who_asks_to_be_left_alone_is_not_asked_before_that(
    binding: Binding, pauses: list[float], asked_s: float, waited: list[float]
) -> None:
    """But after half a minute at the latest, whoever says what."""
    binding.client.busy = {binding.intents[0]: asked_s}
    binding.effects._put(binding.intents[0])
    await until(lambda: len(pauses) >= 7, "it to be repeated")
    assert pauses[:7] == waited
    assert not binding.effects._doubtful, "nothing of it can land"


async def test_a_pod_that_has_finished_meanwhile_has_no_intent(binding: Binding) -> None:
    first, second = binding.intents[:2]
    binding.world.finished(first)
    binding.effects._put(first)
    await binding.bind(second)
    assert binding.client.tried == {second}


async def test_a_pod_that_is_gone_is_neither_written_nor_warned_of(
    binding: Binding, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever became of an attempt before: nothing of it can land any more."""
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["gone"], binding.client.seen = {uid}, ""
    await binding.bind(uid)
    assert said(binding.outcomes) == ["PodGone"]
    assert not caplog.records


@pytest.mark.parametrize("answer", ["gone", "precondition"])
async def test_a_webhooks_no_is_one_whatever_code_it_has(
    binding: Binding, caplog: pytest.LogCaptureFixture, answer: Outcome
) -> None:
    """A 404 about a pod that is there was taken for the pod's end, and nobody was told what the webhook says. Of an older
    attempt it says nothing, so that this one is fenced."""
    first, doubtful = binding.intents[:2]
    version = binding.world.state.pods[first].resource_version
    binding.client.told[answer], binding.client.seen = {first}, version
    await binding.bind(first)
    assert said(binding.outcomes) == ["Rejected"]
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["the server's words"]
    binding.client.told[answer], binding.client.seen = {doubtful}, binding.world.state.pods[doubtful].resource_version
    binding.client.fenced = "4711"
    binding.effects._doubtful[doubtful] = "n0"
    binding.effects._put(doubtful)
    await until(lambda: len(binding.outcomes) == 3, "it to be fenced and refused")
    assert said(binding.outcomes[1:]) == ["BindingFailed", "Rejected"]


async def test_a_binding_that_was_refused_is_warned_of(binding: Binding, caplog: pytest.LogCaptureFixture) -> None:
    binding.client.told["rejected"] = {binding.intents[0]}
    await binding.bind(binding.intents[0])
    assert said(binding.outcomes) == ["Rejected"]
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["the server's words"]


async def test_after_a_start_a_refusal_settles_no_intent_before_it_is_fenced(binding: Binding) -> None:
    """What the process before had asked for may still land: a write of our own makes it fail (design, rule 5)."""
    uid = binding.intents[0]
    binding.client.told["rejected"] = {uid}
    at_once(binding.effects.resume())
    await until(lambda: "Rejected" in said(binding.outcomes), "the refusal")
    about = [one for one in binding.outcomes if not isinstance(one, ev.PodBound)]
    assert said(about) == ["BindingFailed", "Rejected"]
    assert about[0] == ev.ConditionsReported(reason="BindingFailed", pods=((uid, binding.client.seen),))


async def test_a_start_looks_through_what_is_intended_in_slices(
    binding: Binding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "SLICE_NOTED", 10)
    assert sum(1 for _ in binding.effects.resume()) == MANY // 10


async def test_what_no_attempt_can_have_done_needs_no_fence(binding: Binding) -> None:
    """A pod that is nearly as large as etcd takes cannot be written: as it was, its intent was in doubt for ever."""
    uid = binding.intents[0]
    binding.client.told["rejected"], binding.client.final = {uid}, True
    binding.client.error = ApiError("patch", 500, "", "etcdserver: request is too large")
    binding.effects._doubtful[uid] = "n0"
    await binding.bind(uid)
    assert said(binding.outcomes) == ["Rejected"]
    assert not binding.effects._doubtful


async def test_a_pod_that_goes_while_its_binding_is_refused_is_not_written(binding: Binding) -> None:
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["rejected"] = {uid}
    binding.client.answers.clear()
    binding.effects._put(uid)
    await until(lambda: binding.client.asked, "the attempt")
    binding.world.deleted(uid)
    binding.client.answers.set()
    await until(lambda: not binding.effects._doubtful, "it to be settled")
    assert not binding.outcomes


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, "BindingRenewed"),
        ({"node_name": None, "scheduling_gates": None}, "BindingRenewed"),
        ({"node_name": "n0"}, "PodBound"),
        ({"node_name": "n1"}, "AlreadyAssigned"),
        ({"scheduling_gates": ({"name": "wait"},)}, "Rejected"),
        ({"deletion_timestamp": "2026-01-02T03:04:05Z"}, "PodGone"),
        ({"phase": "Succeeded"}, "PodGone"),
        ({"phase": "Failed"}, "PodGone"),
    ],
)
async def test_a_pod_that_changed_is_looked_at_until_that_has_an_answer(
    binding: Binding, seen: dict[str, Any], expected: str
) -> None:
    """Bound by an attempt whose answer was lost, it has another version: only the pod itself tells."""
    uid = binding.intents[0]
    binding.client.pod |= seen
    binding.client.told["precondition"] = {uid}
    binding.client.lost = 2
    await binding.bind(uid)
    assert said(binding.outcomes) == [expected]
    assert not binding.client.lost


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize(
    ("error", "seen", "expected"),
    [(Conflict, "4711", "BindingRenewed"), (Conflict, "", "PodGone"), (NotFound, "", "PodGone")],
)
async def test_a_pod_that_changes_before_its_binding_is_fenced_says_what_became_of_that(
    binding: Binding, error: type[ApiError], seen: str, expected: str, lost: int
) -> None:
    """Its other version is as good as a write of our own: no older attempt can land. `lost`: looks without an answer."""
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["rejected"] = {uid}
    binding.client.error, binding.client.seen, binding.client.lost = error("patch", 409, "", ""), seen, lost
    await binding.bind(uid)
    assert said(binding.outcomes) == [expected]
    assert not binding.client.lost


async def test_a_fence_that_took_hold_is_in_the_log_before_the_refusal(binding: Binding) -> None:
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["rejected"] = {uid}
    binding.effects._put(uid)
    await until(lambda: len(binding.outcomes) == 2, "it to be fenced and refused")
    fence, refusal = binding.outcomes
    assert fence == ev.ConditionsReported(reason="BindingFailed", pods=((uid, "4711"),))
    assert isinstance(refusal, ev.BindingFailed)


async def test_a_write_that_is_refused_with_a_conflict_fences_nothing(binding: Binding) -> None:
    """The pod is as it was: an older attempt may still land."""
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["rejected"] = {uid}
    binding.client.error = Conflict("patch", 409, "", "a webhook")
    binding.client.seen = binding.world.state.pods[uid].resource_version
    binding.effects._put(uid)
    await until(lambda: binding.client.asked == 2, "it to be tried again")
    assert not binding.outcomes
    assert list(binding.effects._doubtful) == [uid]


@pytest.mark.parametrize(("node", "expected"), [("n0", ["PodBound"]), ("n1", [])])
async def test_a_doubt_is_forgotten_with_its_intent(binding: Binding, node: str, expected: list[str]) -> None:
    """The fact comes before a second answer: the API server had bound it, and its answer was lost. Users and traces are
    told of an outcome, if it is that one. `node`: where ingest sees the pod."""
    uid = binding.intents[0]
    binding.client.in_doubt = 1
    binding.effects._put(uid)
    await until(lambda: binding.client.asked, "the attempt")
    binding.world.node("n1")
    binding.world.assigned(uid, node)
    await until(lambda: not binding.effects._doubtful, "it to be settled")
    assert said(binding.outcomes) == expected
    await until(lambda: not (binding.effects._first or binding.effects._again), "the workers to be idle")


@pytest.mark.parametrize("planned_again", [False, True])
async def test_nor_is_anybody_told_of_an_attempt_that_was_taken_back(binding: Binding, planned_again: bool) -> None:
    """Etcd was restored to before it; by now its pod is planned on the same node, or holds nothing."""
    taken, other = binding.intents[:2]
    world, effects = binding.world, binding.effects
    effects._doubtful[taken] = "n0"
    fact = world.state.pods[taken].fact
    world.assigned(taken, "n0")
    world.deleted(taken)
    world.facts(fact)
    if planned_again:
        world.plan()
        assert world.state.claims[taken].stage == PROPOSED
    effects._put(taken)
    await until(lambda: not effects._doubtful, "it to be looked at")
    await binding.bind(other)
    assert [outcome.uid for outcome in binding.outcomes if isinstance(outcome, ev.PodBound)] == [other]


async def test_a_webhook_that_is_busy_holds_up_nobody_else(binding: Binding) -> None:
    """A 429 with a Retry-After of half a minute, of one namespace's webhook, kept each worker for two and a half."""
    theirs, others = binding.intents[:20], binding.intents[20:]
    binding.client.busy = dict.fromkeys(theirs, 30.0)
    for uid in theirs:
        binding.effects._put(uid)
    await binding.bind(*others)
    assert len(binding.outcomes) == len(others)


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_webhook_that_takes_its_time_keeps_workers_from_its_own_namespace_alone(repeated: bool) -> None:
    """First come, first served, everybody waited until each of thousands was asked for once, and again. `repeated`: the
    first attempts come to nothing."""
    binding = Binding(16, ("slow", "default", "other"))
    binding.client.slow = {"slow"}
    binding.client.answers.clear()
    pods = binding.world.state.pods
    theirs = [uid for uid in binding.intents if pods[uid].fact.namespace == "slow"]
    others = [uid for uid in binding.intents if uid not in theirs]
    if repeated:
        binding.client.in_doubt = len(others)
    running = asyncio.create_task(binding.effects.run())
    for uid in (*theirs, *others):
        binding.effects._put(uid)
    await until(lambda: len(binding.outcomes) == len(others), "the others to be bound")
    assert {outcome.uid for outcome in binding.outcomes} == set(others)  # type: ignore[attr-defined]
    binding.client.answers.set()
    await until(lambda: len(binding.outcomes) == MANY, "all to be bound")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_keeps_a_binding_waiting_is_told_once_after_a_while(
    binding: Binding, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook that fails: its pods had no word of it while that lasted. Without any answer it is no webhook."""
    silent, busy = binding.intents[:2]
    binding.client.silent, binding.client.busy = {silent}, {busy: 0.0}
    for uid in (silent, busy):
        binding.effects._put(uid)
    await until(lambda: len(pauses) >= 9, "them to be repeated")
    assert not binding.told
    monkeypatch.setattr(effects, "TOLD_AFTER_S", 0.0)
    before = len(pauses)
    await until(lambda: len(pauses) >= before + 9, "them to be repeated")
    assert [(one.name, one.message) for one in binding.told] == [(busy, "429")]
    binding.client.busy.clear()
    await until(lambda: binding.outcomes, "the one to be bound")
    assert not binding.effects._told


async def test_that_while_begins_with_the_first_attempt(
    binding: Binding, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt is answered soon, and none of them is the last."""
    looks = itertools.count(1)
    clock = SimpleNamespace(perf_counter=lambda: float(next(looks)), monotonic=time.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr(effects, "time", clock)
    [busy, *_] = binding.intents
    binding.client.busy = {busy: 0.0}
    binding.effects._put(busy)
    await until(lambda: binding.told, "its pod to be told")
    assert len(pauses) >= effects.TOLD_AFTER_S - 2


async def test_a_write_that_changed_nothing_fences_nothing(binding: Binding) -> None:
    """A webhook may put back what the write says: an older attempt may still land."""
    uid = binding.intents[0]
    binding.effects._doubtful[uid] = "n0"
    binding.client.told["rejected"] = {uid}
    binding.client.seen = binding.world.state.pods[uid].resource_version
    binding.effects._put(uid)
    await until(lambda: binding.client.asked == 2, "it to be tried again")
    assert not binding.outcomes


async def test_those_in_doubt_hold_up_nobody_else(binding: Binding, caplog: pytest.LogCaptureFixture) -> None:
    """A webhook that fails for one namespace's pods: as many of them as there are workers kept all others waiting."""
    theirs, others = binding.intents[:20], binding.intents[20:]
    binding.client.silent = set(theirs)
    for uid in theirs:
        binding.effects._put(uid)
    await binding.bind(*others)
    assert set(binding.effects._doubtful) == set(theirs)
    warned = [record.getMessage() for record in caplog.records]
    assert warned[0] == "bindings that came to nothing: 1, the last of default/p0 to n0: no answer"
    assert len(warned) < binding.client.asked - len(others), "now and then, not for each"
    binding.client.silent = set()
    await until(lambda: len(binding.outcomes) == MANY, "theirs to be bound when the webhook is back")
    assert not binding.effects._doubtful


async def test_a_warning_counts_what_came_to_nothing_since_the_one_before(
    binding: Binding, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "TOLD_S", 0.0)
    binding.client.in_doubt = 2
    await binding.bind(binding.intents[0])
    assert [record.args[0] for record in caplog.records if record.args] == [1, 1]


async def test_of_thousands_that_a_webhook_keeps_waiting_each_waits_for_longer(
    binding: Binding, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one namespace's; they were asked for all the time, and others' in between if there was time for that."""
    monkeypatch.setattr(effects, "REPEATED_PER_S", 2)
    kept, others = binding.intents[: MANY // 2], binding.intents[MANY // 2 :]
    binding.client.silent = set(kept)
    for uid in binding.intents:
        binding.effects._put(uid)
    await until(lambda: len(binding.outcomes) == len(others), "the others to be bound")
    await until(lambda: max(pauses, default=0) > effects.LONGEST_RETRY_S, "it to be repeated")
    binding.client.silent = set()
    await until(lambda: len(binding.outcomes) == MANY, "all to be bound")
    assert binding.effects.busy, "a load, whether they were bound at once or at last"
    assert not binding.effects._repeated.total()


class Refusing:
    """An API server: one binding without an answer, then refusals; what is written to the pod takes hold unanswered."""

    def __init__(self, version: str) -> None:
        self.version, self.asked = version, 0
        self.said: list[dict[str, str]] = []
        self.answers = False

    async def bind(self, namespace: str, name: str, uid: str, version: str, node: str) -> BindResult:
        self.asked += 1
        if version != self.version:
            return BindResult("precondition", "the object has been modified")
        return BindResult("in_doubt" if self.asked == 1 else "rejected", "a webhook")

    async def patch_pod_status(self, namespace: str, name: str, uid: str, version: str, status: Any) -> str:
        if version != self.version:
            raise Conflict("patch", 409, "Conflict", "the object has been modified")
        self.said += status["conditions"]
        self.version = str(int(version) + 1_000)
        if not self.answers:
            raise Unreachable("patch", "Timeout", "", sent=True)
        return self.version

    async def get_pod(self, namespace: str, name: str) -> Any:
        pod = SimpleNamespace(uid=name, resource_version=self.version, **UNBOUND)
        return SimpleNamespace(metadata=pod, spec=pod, status=pod)

    async def create_event(self, *_: Any, **__: Any) -> None:
        pass


async def test_a_pod_hears_again_what_it_waits_for_where_a_write_that_fenced_its_binding_had_no_answer() -> None:
    """That write says that the binding failed. The log knows of what was said before, which it is to say again."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("waits", cpu=2)
    outcomes: list[ev.Event] = []
    decider: Any = SimpleNamespace(state=world.state, active=True, report=outcomes.append, hear_all=heard)
    client: Any = Refusing("")
    behind = WriteBehind(decider, client, holder="test", busy=lambda: False, rates=DEFAULT_RATES)
    binding = Effects(decider, client, 4, overwrites=behind.conditions.doubt)

    def logged() -> None:
        if outcomes:
            world.append("binder", list(outcomes), cause="outcome")
            outcomes.clear()

    async def refused() -> None:
        world.plan()
        behind.notice(decode(world.log.commits[-1]))
        client.version = client.version or world.state.pods["waits"].resource_version
        client.answers = True
        for _ in range(2):  # the pod is another than the log knows
            await behind.rounds.round(Rate(1_000.0), behind.conditions.due)
        behind.conditions.report()
        logged()
        client.answers = False

    await refused()
    world.node("n0", cpu=4)
    world.pass_s(20)
    world.plan()
    world.judge()
    while world.state.permitted:
        await binding._bind("waits", 0.0)
        logged()
    assert client.said[-1]["reason"] == "BindingFailed"
    world.node("n0", cpu=1)
    world.pass_s(20)
    await refused()
    assert [one["reason"] for one in client.said] == ["Unschedulable", "BindingFailed", "Unschedulable"]
    assert ["lastTransitionTime" in one for one in client.said] == [True, False, False], "it was False all the time"

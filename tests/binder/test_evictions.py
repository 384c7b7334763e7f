"""Evictions on their way: how often they are asked for, and what becomes of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder.service import effects
from services.binder.service.effects import LOAD, Effects
from services.kubernetes.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from services.state.records import BOUND, FAILED, SUCCEEDED, TERMINATING
from services.state.slices import at_once
from services.telemetry import repeated
from tests.waiting import until


class Evicting:
    """A binder's effects over evictions that are intended. `answers`: what the API server says to each, in turn; at the
    end it evicts. `pods`: those of which it knows when it is asked."""

    def __init__(self, *uids: str, answers: list[ApiError] | None = None) -> None:
        self.answers = answers or []
        self.asked: list[str] = []
        self.pods: dict[str, Any] = {}
        self.in_flight = self.most = 0
        self.outcomes: list[ev.Event] = []
        self.intended = {uid: SimpleNamespace(uid=uid, namespace="ml", name=uid) for uid in uids}
        self.known = {uid: SimpleNamespace(gang="", status=BOUND, fact=SimpleNamespace(namespace="ml")) for uid in uids}
        self.state = SimpleNamespace(permitted={}, evictions=self.intended, pods=self.known, gangs={})
        self.set_policy("evict")
        decider: Any = SimpleNamespace(state=self.state, report=self.outcomes.append)
        self.effects = Effects(decider, self, 4)  # type: ignore[arg-type]

    def set_policy(self, replacement: str) -> None:
        self.state.policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=replacement)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self.asked.append(uid)
        if self.answers:
            raise self.answers.pop(0)

    async def get_pod(self, namespace: str, name: str) -> Any:
        if isinstance(found := self.pods.get(name), ApiError):
            del self.pods[name]
            raise found
        return found

    async def __aenter__(self) -> Evicting:
        self._running = asyncio.create_task(self.effects.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


async def test_an_eviction_is_asked_for_until_it_is_done() -> None:
    """Never sent, kept off by a disruption budget, or refused for now: none of these leaves a doubt."""
    answers = [
        Unreachable("evict", "ClientConnectorError", "connection refused", sent=False),
        ApiError("evict", 429, "TooManyRequests", BUDGET),
        Forbidden("evict", 403, "Forbidden", "no right"),
        ApiError("evict", 422, "Invalid", "a webhook's no"),
    ]
    async with Evicting("p0", answers=answers) as evicting:
        for _ in range(2):  # intended twice, and asked for once
            evicting.effects._evict_later("p0")
        await until(lambda: evicting.outcomes, "its outcome")
        await until(lambda: not evicting.effects._evicting, "it to be settled")
        assert not evicting.effects._doubtful_evictions
    assert evicting.outcomes == [ev.PodEvicted(uid="p0", namespace="ml", name="p0")]
    assert len(evicting.asked) == 5


async def test_an_eviction_that_a_disruption_budget_keeps_waiting_is_asked_for_ever_more_seldom(
    pauses: list[float],
) -> None:
    async with Evicting("p0", answers=[ApiError("evict", 429, "TooManyRequests", BUDGET)] * 9) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.outcomes, "its outcome")
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_a_server_that_asks_to_be_left_alone_is_within_bounds(pauses: list[float]) -> None:
    """As it was: its own `Retry-After`, which bindings heed, was passed over."""
    answers = [ApiError("evict", 429, "TooManyRequests", BUDGET, after_s) for after_s in (7.0, 0.0, 600.0)]
    async with Evicting("p0", answers=answers) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.outcomes, "its outcome")
    assert pauses == [7.0, 0.2, effects.REPEATED_WITHIN_S]


async def test_of_thousands_that_a_budget_keeps_waiting_each_waits_for_longer(pauses: list[float]) -> None:
    """A gang of 20,000 pods would be 4,000 requests a second, for as long as the budget stands."""
    async with Evicting("p0", answers=[ApiError("evict", 429, "TooManyRequests", BUDGET)] * 12) as evicting:
        evicting.effects._evicting.update(f"other{number}" for number in range(3_999))
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.outcomes, "its outcome")
    assert pauses[5:] == [3.2, 6.4, 12.8, 20.0, 20.0, 20.0, 20.0]


async def test_an_eviction_that_comes_to_nothing_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget may keep it waiting for ever: whoever wonders why the pod is still there reads the binder's log."""
    monkeypatch.setattr(repeated, "TOLD_S", 0.0)
    written = SimpleNamespace(metadata=SimpleNamespace(uid="p0", deletion_timestamp=None))
    conflict, missing = Conflict("evict", 409, "Conflict", "modified"), NotFound("evict", 404, "", "a webhook's no")
    refusals = [ApiError("evict", 429, "TooManyRequests", BUDGET), conflict, conflict, missing]
    async with Evicting("p0", answers=refusals) as evicting:
        evicting.pods["p0"] = Unreachable("get", "Timeout", "", sent=True)
        evicting.effects._evict_later("p0")
        await until(lambda: len(evicting.asked) == 2, "the second attempt, of whose pod nothing is heard")
        evicting.pods["p0"] = written
        await until(lambda: evicting.outcomes, "its outcome")
    assert [record.getMessage() for record in caplog.records] == [
        f"evictions that came to nothing: 1, the last of ml/p0: evict: 429 TooManyRequests: {BUDGET}",
        "evictions that came to nothing: 1, the last of ml/p0: get: no answer Timeout: ",
        "evictions that came to nothing: 1, the last of ml/p0: evict: 409 Conflict: modified",
        "evictions that came to nothing: 1, the last of ml/p0: evict: 404 : a webhook's no",
    ]


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (NotFound, None),
        (Conflict, None),
        (Conflict, {"uid": "another", "deletion_timestamp": None}),
        (Conflict, {"uid": "p0", "deletion_timestamp": "2026-01-02T03:04:05Z"}),
        (Conflict, Unreachable("get", "Timeout", "", sent=True)),
    ],
)
async def test_a_pod_that_is_gone_or_going_is_evicted(error: type[ApiError], seen: Any) -> None:
    async with Evicting("p0", answers=[error("evict", 409, "", "")]) as evicting:
        evicting.pods["p0"] = SimpleNamespace(metadata=SimpleNamespace(**seen)) if isinstance(seen, dict) else seen
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.outcomes, "its outcome")
    assert [type(outcome) for outcome in evicting.outcomes] == [ev.PodEvicted]
    assert len(evicting.asked) == 1 + isinstance(seen, ApiError)


async def test_one_that_is_intended_again_while_it_is_kept_waiting_goes_on_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "FIRST_RETRY_S", 60.0)
    async with Evicting("p0", "p1", answers=[ApiError("evict", 429, "TooManyRequests", BUDGET)]) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.asked and not evicting.effects._evictions, "the refusal")
        evicting.effects._evict_later("p0")
        evicting.effects._evict_later("p1")
        await until(lambda: evicting.outcomes, "the other's outcome")
    assert evicting.asked == ["p0", "p1"]


async def test_an_eviction_whose_pod_goes_meanwhile_is_forgotten() -> None:
    async with Evicting("p0", answers=[Unreachable("evict", "Timeout", "", sent=True)] * 1_000) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.effects._doubtful_evictions, "an attempt")
        evicting.intended.clear()
        await until(lambda: not evicting.effects._evicting, "it to be settled")
    assert not evicting.effects._doubtful_evictions
    assert not evicting.outcomes


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (SUCCEEDED, ev.EvictionFailed(uid="p0", namespace="ml", name="p0", message="the pod has ended")),
        (FAILED, ev.EvictionFailed(uid="p0", namespace="ml", name="p0", message="the pod has ended")),
        (TERMINATING, ev.PodEvicted(uid="p0", namespace="ml", name="p0")),
    ],
)
async def test_a_pod_that_ends_or_goes_while_its_eviction_is_refused_is_left_alone(
    status: str, expected: ev.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for as long as the pod was there, and took a pod that had done its work once the right was granted."""
    monkeypatch.setattr(effects, "FIRST_RETRY_S", 0.001)
    async with Evicting("p0", answers=[Forbidden("evict", 403, "Forbidden", "no right")] * 3) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.asked, "a refusal")
        evicting.known["p0"].status = status
        await until(lambda: evicting.outcomes, "the end of it")
        assert evicting.outcomes == [expected]
        assert len(evicting.asked) < 4


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_policy_that_keeps_the_rest_by_now_calls_off_what_cannot_land_any_more(in_doubt: bool) -> None:
    """An admin saw that gangs are torn down, and set it; hours later a disruption budget let go, and pods went."""
    budget = ApiError("evict", 429, "TooManyRequests", BUDGET)
    first = Unreachable("evict", "Timeout", "", sent=True) if in_doubt else budget
    async with Evicting("p0", answers=[first, budget]) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.asked, "an attempt")
        evicting.set_policy("keep")
        await until(lambda: evicting.outcomes, "the end of it")
    called_off = ev.EvictionFailed(uid="p0", namespace="ml", name="p0", message="the policy is keep by now")
    assert evicting.outcomes == [ev.PodEvicted(uid="p0", namespace="ml", name="p0") if in_doubt else called_off]


async def test_an_eviction_in_doubt_of_a_pod_that_has_ended_is_repeated() -> None:
    """The log would say that the pod stays, and then it goes."""
    async with Evicting("p0", answers=[Unreachable("evict", "Timeout", "", sent=True)]) as evicting:
        evicting.effects._evict_later("p0")
        await until(lambda: evicting.asked, "an attempt")
        evicting.known["p0"].status = SUCCEEDED
        await until(lambda: evicting.outcomes, "the end of it")
        assert [type(one) for one in evicting.outcomes] == [ev.PodEvicted]
        assert len(evicting.asked) == 2


async def test_an_eviction_that_a_binder_before_intended_is_not_called_off() -> None:
    """Nobody knows whether it was asked for: it may still take the pod, whatever became of that since."""
    evicting = Evicting("p0")
    evicting.known["p0"].status = SUCCEEDED
    at_once(evicting.effects.resume())
    async with evicting:
        await until(lambda: evicting.outcomes, "its outcome")
    assert (evicting.asked, [type(event) for event in evicting.outcomes]) == (["p0"], [ev.PodEvicted])


async def test_evictions_in_flight_are_bounded() -> None:
    """Of a gang of thousands whose policy is `evict`: all at once, they held up bindings, and waited for a connection
    until their time was over."""
    pods = [f"p{number}" for number in range(2 * LOAD)]
    async with Evicting(*pods) as evicting:
        at_once(evicting.effects.resume())
        await until(lambda: len(evicting.outcomes) == len(pods), "all to be evicted")
    assert sorted(evicting.asked) == sorted(pods)
    assert evicting.most == 3, "and the fourth is kept for other namespaces"

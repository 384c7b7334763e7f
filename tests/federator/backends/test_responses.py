"""What clusters say that is not sensible: it costs a time of day or a longer wait, and never the federator."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from services.federator.backends import InDoubt, Limited, NotSent, Refused
from services.federator.backends.kubernetes import _failed, _silent
from services.federator.backends.openpai import _retry_after_ms
from services.federator.backends.responses import clock_ms, cut, number
from services.kubernetes.errors import ApiError, Unreachable
from services.kubernetes.transport import Answer, _retry_after_s, error_of

ENDLESS = "9" * 5_000
DAY = "Mon, 01 Jan"
NOON = "Sun, 22 Nov 2026 12:00:00 GMT"
NOON_S = 1_795_348_800


@pytest.mark.parametrize(
    "date",
    [
        "",
        "noon",
        f"{DAY} 99999999999 00:00:00 GMT",
        f"{DAY} {ENDLESS} 00:00:00 GMT",
        f"{DAY} 2020 00:00:00 +99999999999",
    ],
)
def test_a_date_that_is_none(date: str) -> None:
    assert clock_ms(date) == 0
    assert clock_ms(NOON) == NOON_S * 1_000


@pytest.mark.parametrize("zone", ["", " -0000", " +0000", " UT"])
def test_a_date_is_that_of_greenwich_wherever_this_runs(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert clock_ms(NOON.replace(" GMT", zone)) == NOON_S * 1_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("said", "meant"), [("60", 60), ("", 0), ("-1", 0), ("1e3", 0), ("\u00b2", 0), (ENDLESS, 0)])
def test_a_number_that_is_none(said: str, meant: int) -> None:
    assert number(said) == meant


def test_of_a_message_the_beginning_is_kept_in_one_line() -> None:
    assert cut(" no\n\troom \r\n") == "no room"
    assert cut("x" * 501) == "x" * 500
    assert cut("no\x1b[31m\x9broom\u202e") == "no\ufffd[31m\ufffdroom\ufffd", "as it was, terminals obeyed"
    assert cut("no room" + " " * 50_000 + "here") == "no room", "as it was, each word of megabytes became an object"


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"Retry-After": "60"}, 60_000),
        ({"Retry-After": "60", "Date": NOON, "X-RateLimit-Reset": str(NOON_S + 20)}, 20_000),
        ({"Retry-After": "60", "Date": NOON, "X-RateLimit-Reset": str(NOON_S - 20)}, 1_000),
        ({"Retry-After": "60", "Date": NOON, "X-RateLimit-Reset": ENDLESS}, 60_000),
        ({"Retry-After": "999999999"}, 3_600_000),
        ({"Retry-After": ENDLESS}, 0),
        ({}, 0),
    ],
)
def test_how_long_a_limit_keeps_one_waiting(headers: dict[str, str], wait_ms: int) -> None:
    answer: Any = SimpleNamespace(status=429, headers=headers)
    assert _retry_after_ms(answer) == wait_ms
    other: Any = SimpleNamespace(status=503, headers=headers)
    assert _retry_after_ms(other) == 0, "that of a limit it says nothing of"


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (Unreachable("create", "TimeoutError", "", sent=True), InDoubt),
        (Unreachable("create", "ClientConnectorError", "", sent=False), NotSent),
        (ApiError("create", 429, "", ""), Limited),
        *((ApiError("create", code, "", ""), InDoubt) for code in (200, 408, 409, 500, 503, 504, 507)),
        *((ApiError("create", code, "", ""), Refused) for code in (302, 400, 401, 403, 404, 413, 422)),
    ],
)
def test_what_kubernetes_answers_to_an_effect(error: ApiError, meant: type[object]) -> None:
    failed = _failed(error)
    assert isinstance(failed, meant)
    if isinstance(failed, Refused):
        assert failed.code == f"HTTP {error.code}"
        assert failed.of_content is (error.code in (400, 413, 422)), "what no other attempt would be spared"
    if isinstance(failed, Limited):
        assert failed.retry_after_ms == 1_000, "where it does not say"


def test_a_silence_says_when_it_may_end() -> None:
    assert _silent(ApiError("list", 503, "", "", retry_after_s=7.0)).retry_after_ms == 7_000
    assert _silent(ApiError("list", 503, "", "")).retry_after_ms == 0


def test_kubernetes_is_not_waited_for_without_end() -> None:
    answer: Any = SimpleNamespace(status=429, headers={"Retry-After": ENDLESS})
    error = error_of("create jobs", Answer(429, b"", _retry_after_s(answer)))
    assert _failed(error) == Limited(retry_after_ms=3_600_000)

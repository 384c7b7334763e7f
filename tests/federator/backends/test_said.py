"""What clusters say that is not sensible: it costs a time of day or a longer wait, and never the federator."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from services.federator.backends import Limited
from services.federator.backends.kubernetes import _failed
from services.federator.backends.openpai import _retry_after_ms
from services.federator.backends.said import clock_ms, number
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


@pytest.mark.parametrize(("said", "meant"), [("60", 60), ("", 0), ("-1", 0), ("1e3", 0), (ENDLESS, 0)])
def test_a_number_that_is_none(said: str, meant: int) -> None:
    assert number(said) == meant


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


def test_kubernetes_is_not_waited_for_without_end() -> None:
    answer: Any = SimpleNamespace(status=429, headers={"Retry-After": ENDLESS})
    error = error_of("create jobs", Answer(429, b"", _retry_after_s(answer)))
    assert _failed(error) == Limited(retry_after_ms=3_600_000)

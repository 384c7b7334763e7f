"""What fails a thousand times a second is told of every ten."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from services.telemetry.repeated import TOLD_S, Repeated


@pytest.mark.parametrize("booted_s", [0.0, 9e6])
def test_it_is_told_at_once_and_then_as_often_as_it_may_with_how_often_it_was_due(
    booted_s: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = booted_s
    monkeypatch.setattr("services.telemetry.repeated.time", SimpleNamespace(monotonic=lambda: now_s))
    refused = Repeated(logging.getLogger("test"), "refused: %d, the last: %s")
    for word, after_s in (("a", 0), ("b", 0), ("c", TOLD_S - 1), ("d", TOLD_S), ("e", TOLD_S + 1), ("f", 2 * TOLD_S)):
        now_s = booted_s + after_s
        refused.warn(word, extra={"word": word})
    assert caplog.messages == ["refused: 1, the last: a", "refused: 3, the last: d", "refused: 2, the last: f"]
    assert [vars(record)["word"] for record in caplog.records] == ["a", "d", "f"]

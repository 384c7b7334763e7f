"""What people are told of one thing."""

from __future__ import annotations

import pytest

from services.console import show
from services.console.counted import counted
from services.console.retention import Retained
from services.console.simulate import simulate
from services.console.verify import verify
from tests.console.manifests import node, pod


def test_one_is_not_many() -> None:
    assert [counted(number, "pod") for number in range(3)] == ["0 pods", "1 pod", "2 pods"]


async def test_a_log_with_one_of_something_is_told_of_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """As it was: ``1 commits archived``."""
    show.retained(Retained(cluster="c", first=2, last=9, purged=1, archived=1, archive_end=9))
    show.report(await verify(simulate([node("n"), pod("a")]).log))
    said = capsys.readouterr().out
    assert "1 commit archived;" in said
    assert "1 commit purged;" in said
    assert "1 intended outcome;" in said

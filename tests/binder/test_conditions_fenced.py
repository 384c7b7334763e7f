"""A condition that may be another than the log has of it is written so that older attempts fail."""

from __future__ import annotations

import time
from typing import Any

import pytest

from services.state.slices import at_once
from tests.binder.behind import Client, behind, told
from tests.world import World


class ApiServer(Client):
    """Of one pod: a write that changes nothing leaves the resourceVersion as it is."""

    def __init__(self, version: str, *, kept: bool = False) -> None:
        super().__init__()
        self.now, self.stands, self._kept = version, dict[str, str](), kept

    async def patch_pod_status(self, namespace: str, name: str, uid: str, version: str, status: Any) -> str:
        (said,) = status["conditions"]
        self.said.append(said)
        if not self._kept and not said.items() <= self.stands.items():
            self.stands |= said
            self.now = str(int(self.now) + 1)
        return self.now


@pytest.mark.parametrize("kept", [False, True])
async def test_also_where_it_says_already_what_is_due_now(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by lossy history 712242: the binder before had a clock that was ahead, so that the pod said that second, and
    the write changed nothing; what that binder had sent before came behind it. What a webhook puts back stays so."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("waits", cpu=200)
    world.settle()
    monkeypatch.setattr(time, "time_ns", lambda: 1_767_225_617_000_000_000)
    before = ApiServer(world.state.pods["waits"].resource_version)
    writer, outcomes = behind(world, before)
    writer.conditions.doubt("waits")
    writer.conditions.note(["waits"])
    await told(writer)
    world.append("binder", outcomes, cause="outcome")
    first = before.now
    client = ApiServer(first, kept=kept)
    client.stands = dict(before.stands)
    writer, _ = behind(world, client)
    at_once(writer.resume())
    await told(writer)
    assert (client.now == first) == kept
    assert [said["lastProbeTime"] for said in client.said] == ["2026-01-01T00:00:17Z", "2026-01-01T00:00:18Z"]

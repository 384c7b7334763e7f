"""How much of a log the feed publishes at once."""

from __future__ import annotations

from typing import Any

import pytest

from events.cloudevents import FeedMessage
from events.facts import PodDeleted
from services.feed import core, service
from tests.feed.commits import stored


class Taking:
    """A feed that takes everything."""

    cluster = "prod"

    def __init__(self) -> None:
        self.portions: list[list[str]] = []

    async def publish(self, messages: list[FeedMessage]) -> None:
        self.portions.append([message.id for message in messages])


@pytest.mark.parametrize("bound", ["WINDOW", "PORTION_BYTES"])
async def test_a_long_batch_goes_out_in_portions_and_each_message_once(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither memory nor the loop is held for long, and a message that comes again would interrupt."""
    gone = [PodDeleted(uid=str(number), namespace="default", name="p") for number in range(2)]
    commits = [stored("ingest", gone, sequence) for sequence in range(1, 6)]
    small = {"WINDOW": 4, "PORTION_BYTES": 2 * len(commits[0].payload)}
    monkeypatch.setattr(service, bound, small[bound])
    feed: Any = Taking()
    await service._publish_batch(feed, commits, core.BEGINNING)
    assert [len(portion) for portion in feed.portions] == [4, 4, 2]
    assert [one for portion in feed.portions for one in portion] == [f"{n}.{at}" for n in range(1, 6) for at in (0, 1)]

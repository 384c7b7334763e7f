"""Planted bugs of the feed: found by histories that have one alone."""

from __future__ import annotations

from tests.simulation.planting import FED_FROM, Plant, plants_from

CORE, SERVICE, STREAM = "services.feed.core", "services.feed.service", "events.feed"


_plant = plants_from(FED_FROM)

FEED: dict[str, Plant] = {
    "published again": _plant(
        "what was published last is published once more by who goes on behind it",
        CORE,
        ("            if place <= after:\n", "            if place < after:\n"),
    ),
    "behind the commit": _plant(
        "who goes on behind a part of a commit leaves out the rest of it",
        SERVICE,
        ("    place = max(0, after[0] - 1)\n", "    place = after[0]\n"),
    ),
    "behind whatever comes": _plant(
        "a message is published wherever the stream ends by now",
        STREAM,
        (", EXPECTED_LAST: str(expected)}", "}"),
    ),
    "another log's": _plant(
        "behind a log that was set back it goes on from the place that the lost one had",
        SERVICE,
        ("        await _check_log(log, after, time)\n", ""),
    ),
}

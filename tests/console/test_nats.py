"""The commands against a NATS server: copies there and back, a log that lives there, the feed."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from events.answers import Refused
from events.cloudevents import CloudEvent, FeedMessage
from events.feed import Feed
from events.homes import open_log
from services.cli.muster import app
from services.console.location import open_location
from services.feed import core

runner = CliRunner()


def said(*arguments: str) -> dict:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_a_log_goes_into_nats_and_back_and_verifies_everywhere(log: Path, nats: str, tmp_path: Path) -> None:
    back = str(tmp_path / "back.db")
    there = said("import", str(log), nats)
    assert there["copied"] == there["end"] > 0
    assert said("export", nats, back, "--cluster", "simulated")["copied"] == there["end"]
    verified = [said("verify", where, *more) for where, *more in ([str(log)], [f"{nats}/simulated"], [back])]
    assert verified[0]["verified"] is True
    assert verified[0] == verified[1] == verified[2]
    named = said("verify", f"{nats}/other", "--cluster", "simulated")
    assert named == verified[0], "what is said beside the URL counts"


def test_the_policy_of_a_log_in_nats_is_changed_there(log: Path, nats: str) -> None:
    url = f"{nats}/simulated"
    said("import", str(log), nats)
    end = said("replay", url)["sequence"]
    changed = said("policy", "set", nats, "--cluster", "simulated", "--profile", "binpack")
    assert changed["sequence"] == end + 1
    assert said("policy", "show", url)["policy"]["profile"]["name"] == "binpack"
    assert said("replay", url)["policy"] == "binpack"
    assert said("replay", url, "--at", str(end))["policy"] == "default"


def test_a_log_in_nats_is_explained_as_in_its_file(log: Path, nats: str) -> None:
    said("import", str(log), nats)
    told = said("explain", f"{nats}/simulated", "default/b")
    assert (
        told == said("explain", nats, "default/b", "--cluster", "simulated") == said("explain", str(log), "default/b")
    )
    assert told["stories"][0]["lines"][-1]["what"] == "no room"


def test_a_cluster_without_a_log_and_a_server_that_is_not_there_are_told(nats: str) -> None:
    absent = runner.invoke(app, ["verify", nats, "--cluster", "nobody"])
    assert absent.exit_code == 2
    assert "nobody" in absent.stderr


async def _publish(url: str, log: Path) -> None:
    source = await open_log(str(log))
    feed = await Feed.open(url, source.cluster)
    await feed.position()
    async for batch in source.read():
        await feed.publish([message for stored in batch for message in core.messages(stored, source.cluster)])
    await feed.close()
    await source.close()


def test_subscribe_prints_cloud_events(log: Path, nats: str) -> None:
    """Told to end it gives back what it has in hand. As it was: by Ctrl-C alone, else its successor waited for 30 s."""
    asyncio.run(_publish(nats, log))
    command = [sys.executable, "-m", "services", "subscribe", "PodBound.default.*", "--nats", nats]
    command += ["--cluster", "simulated", "--json", "--durable", "told-to-end"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as subscriber:
        assert subscriber.stdout is not None
        message = json.loads(subscriber.stdout.readline())
        subscriber.terminate()
    assert subscriber.returncode == 0
    assert message["type"].endswith("PodBound")
    assert message["subject"] == "default/a"
    assert message["data"]["node"] == "n1"


async def _told(url: str, cluster: str, *bodies: bytes) -> None:
    feed = await Feed.open(url, cluster)
    last = await feed.position()
    first = 1 if last is None else core.place_of(last.id)[0] + 1
    subject = f"muster-feed.{cluster}.PodBound.a.b"
    await feed.publish([FeedMessage(id=f"{at}.0", subject=subject, body=body) for at, body in enumerate(bodies, first)])
    await feed.close()


BOUND = CloudEvent(
    specversion="1.0",
    id="2.0",
    source="muster/alien",
    type="dev.muster.PodBound",
    subject="a/b",
    time="2026-11-24T00:00:00Z",
    datacontenttype="application/json",
    dataschema="urn:muster:event:PodBound",
    writer="binder",
    data={},
)


@contextmanager
def subscribing(url: str, cluster: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "services", "subscribe", "PodBound", "--nats", url, "--cluster", cluster, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as subscriber:
        try:
            yield subscriber
        finally:
            subscriber.kill()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_subscribe_sets_aside_what_is_no_cloud_event_and_goes_on(nats: str, form: tuple[str, ...]) -> None:
    asyncio.run(_told(nats, "alien", b"hello", msgspec.json.encode(BOUND)))
    with subscribing(nats, "alien", *form) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        assert "PodBound" in subscriber.stdout.readline()
        aside = subscriber.stderr.readline()
    assert aside.startswith("set aside: message '1.0' on muster-feed.alien.PodBound.a.b: expected a CloudEvent: ")


def test_subscribe_ends_when_nobody_reads_it_any_more(nats: str) -> None:
    """As under `| head -1`: without a traceback, with 0."""
    asyncio.run(_told(nats, "unread", msgspec.json.encode(BOUND)))
    with subscribing(nats, "unread") as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        subscriber.stdout.readline()
        subscriber.stdout.close()
        asyncio.run(_told(nats, "unread", msgspec.json.encode(BOUND)))
        assert subscriber.wait(60) == 0
        assert subscriber.stderr.read() == ""


def test_subscribe_tells_what_is_wrong_with_a_pattern(nats: str) -> None:
    wrong = runner.invoke(app, ["subscribe", "PodBond", "--nats", nats])
    assert wrong.exit_code == 2
    assert "did you mean PodBound" in wrong.stderr


@pytest.mark.parametrize(
    ("location", "cluster", "opened"),
    [
        (None, None, "of-the-settings"),
        (None, "given", "given"),
        ("/of-the-url", None, "of-the-url"),
        ("/of-the-url", "given", "given"),
        ("", None, "of-the-settings"),
    ],
)
async def test_which_log_is_opened(
    nats: str, location: str | None, cluster: str | None, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_NATS_URL", nats)
    monkeypatch.setenv("MUSTER_CLUSTER", "of-the-settings")
    log = await open_location(None if location is None else f"{nats}{location}", cluster, create=True)
    assert log.cluster == opened
    await log.close()


async def test_a_log_is_made_with_the_replicas_of_the_settings(nats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which one server alone has none."""
    monkeypatch.setenv("MUSTER_LOG_REPLICAS", "3")
    with pytest.raises(Refused, match="replicas > 1 not supported"):
        await open_location(nats, "replicated", create=True)

"""The commands against a NATS server: copies there and back, a log that lives there, the feed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from events.feed import Feed
from events.homes import open_log
from services.cli.muster import app
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
    asyncio.run(_publish(nats, log))
    command = [sys.executable, "-m", "services", "subscribe", "PodBound.default.*", "--nats", nats]
    command += ["--cluster", "simulated", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as subscriber:
        assert subscriber.stdout is not None
        message = json.loads(subscriber.stdout.readline())
        subscriber.terminate()
    assert message["type"].endswith("PodBound")
    assert message["subject"] == "default/a"
    assert message["data"]["node"] == "n1"


def test_subscribe_tells_what_is_wrong_with_a_pattern(nats: str) -> None:
    wrong = runner.invoke(app, ["subscribe", "PodBond", "--nats", nats])
    assert wrong.exit_code == 2
    assert "did you mean PodBound" in wrong.stderr

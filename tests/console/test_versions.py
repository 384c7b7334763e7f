"""The admin's switch to other rules and another fold, and what `verify` says of a log that has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import events as ev
from events import envelope
from events.memory import MemoryLog
from events.subjects import FEDERATION
from services.cli.muster import app
from services.console.errors import Unusable
from services.console.replay import replay
from services.console.verify import verify
from services.console.versions import current, switch
from services.state import snapshot
from services.state.fold import State
from tests.second import BOTH, second
from tests.world import World

runner = CliRunner()


@pytest.fixture
def code() -> Iterator[None]:
    with second():
        yield


async def switched(rules: int = 2, version: int = 2) -> World:
    """A cluster that was switched while it worked, with something decided by both."""
    world = World(supports=BOTH)
    for i in range(4):
        world.node(f"n{i}", cpu=4)
    for i in range(6):
        world.pod(f"before-{i}", priority=i)
    world.settle()
    found = await switch(world.log, rules, version)
    world.state.apply_stored(world.log.commits[-1])
    assert (found["rules"], found["state"]) == (rules, version)
    for i in range(6):
        world.pod(f"after-{i}", priority=i)
    world.settle()
    world.append("binder", [ev.Renewed()], cause="renew")
    return world


@pytest.mark.usefixtures("code")
async def test_each_stretch_of_a_log_is_decided_by_what_was_in_force_there() -> None:
    world = await switched()
    assert world.state.ignored == {"Renewed": 1}
    stamped = [envelope.decode_header(stored) for stored in world.log.commits]
    assert {(one.rules, one.state) for one in stamped if one.cause == "decide"} == {(1, 1), (2, 2)}
    report = await verify(world.log, validate_every=1)
    assert report.verified
    assert report.reproduced == report.decided == sum(one.cause == "decide" for one in stamped)
    assert report.digest == snapshot.digest(world.state)


@pytest.mark.usefixtures("code")
async def test_of_two_admins_at_the_same_moment_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(supports=BOTH)

    async def overtaken(log: MemoryLog) -> State:
        state: State = await replay(log)
        world.append("admin", [ev.VersionsSwitched(rules=1, state=2)], cause="admin")
        return state

    monkeypatch.setattr("services.console.admin.replay", overtaken)
    with pytest.raises(Unusable, match="another admin wrote just now"):
        await switch(world.log, 2, None)
    assert (world.state.rules_version, world.state.state_version) == (1, 2)


async def test_rules_that_are_not_here_are_folded_and_not_verifiable() -> None:
    with second():
        world = await switched(version=1)
    by_second = [
        one for one in map(envelope.decode_header, world.log.commits) if one.rules == 2 and one.cause == "decide"
    ]
    report = await verify(world.log)
    assert (report.exit_code, report.unverifiable, report.differences) == (5, len(by_second), 0)
    assert report.why_unverifiable.endswith("was decided by rules version 2")
    assert report.reproduced == report.decided - len(by_second) > 0
    assert (report.last, report.digest) == (len(world.log.commits), snapshot.digest(world.state))


async def test_a_fold_that_is_not_here_ends_what_can_be_said() -> None:
    with second():
        world = await switched(rules=1)
    at = next(i for i, one in enumerate(world.log.commits, 1) if b"VersionsSwitched" in one.payload)
    report = await verify(world.log)
    assert (report.exit_code, report.differences, report.violation) == (5, 0, "")
    assert (report.folded, report.unverifiable) == (at, len(world.log.commits) - at)
    assert report.why_unverifiable == f"from {at} on the log is folded by state version 2, and this code has 1"
    assert report.reproduced == report.decided > 0


def lying(log: MemoryLog, field: str) -> tuple[MemoryLog, int]:
    """The same, but for the last decision, which names version 1; its sequence."""
    other = MemoryLog("test")
    other.commits = list(log.commits)
    place = max(one.sequence for one in log.commits if b"GangPlaced" in one.payload)
    stored = log.commits[place - 1]
    header = envelope.encode_header(msgspec.structs.replace(envelope.decode_header(stored), **{field: 1}))
    other.commits[place - 1] = msgspec.structs.replace(stored, header=header)
    return other, place


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("field", ["rules", "state"])
async def test_a_decision_that_names_other_versions_than_were_in_force_is_a_difference(field: str) -> None:
    log, place = lying((await switched()).log, field)
    report = await verify(log)
    assert report.exit_code == 1
    assert report.difference is not None
    assert report.difference.sequence == place
    assert "in force at its basis were 2 and 2" in report.difference.what


async def test_rules_that_are_here_are_a_difference_where_those_in_force_are_not() -> None:
    with second():
        log, place = lying((await switched(version=1)).log, "rules")
    report = await verify(log)
    assert (report.exit_code, report.differences) == (1, 1)
    assert report.difference is not None
    assert report.difference.sequence == place
    assert "it names rules 1 and state 1; in force at its basis were 2 and 1" in report.difference.what


@pytest.mark.usefixtures("code")
async def test_a_switch_is_refused_while_a_writer_lacks_it_and_names_him() -> None:
    world = World(supports=BOTH)
    world.append("planner.b", [ev.PlannerTaken(shard="b", holder="host-7")], cause="taken")
    commits = len(world.log.commits)
    with pytest.raises(Unusable, match=r"nothing was written: .*; planner.b \(host-7\) has rules 1, state 1$"):
        await switch(world.log, 2, None)
    assert len(world.log.commits) == commits
    world.leave("b")
    found = await switch(world.log, 2, None)
    assert (found["rules"], found["switched"]) == (2, True)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("rules", "version", "said"),
    [
        (1, 7, "--state 7: this muster has 1, 2"),
        (
            7,
            None,
            r"rules version 7, state version 1 are not everybody's; binder \(test\) has rules 1 and 2, state 1 and 2",
        ),
    ],
)
async def test_what_cannot_be_switched_is_not_written(rules: int | None, version: int | None, said: str) -> None:
    world = World(supports=BOTH)
    commits = len(world.log.commits)
    with pytest.raises(Unusable, match=said):
        await switch(world.log, rules, version)
    assert len(world.log.commits) == commits


@pytest.mark.parametrize("rules", [2, 10**24])
async def test_rules_that_nobody_has_are_not_switched_to_where_nobody_could_lack_them(rules: int) -> None:
    """As it was: no planner could start any more; of a number beyond 64 bits no commit could be read any more."""
    log = MemoryLog("empty")
    with pytest.raises(Unusable, match=f"--rules {rules}: this muster has 1$"):
        await switch(log, rules, None)
    assert not log.commits


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("asked", [(1, 1), (None, None)])
async def test_what_is_in_force_is_not_written_again(asked: tuple[int | None, int | None]) -> None:
    world = World(supports=BOTH)
    commits = len(world.log.commits)
    found = await switch(world.log, *asked)
    assert (found["rules"], found["switched"]) == (1, False)
    assert len(world.log.commits) == commits


@pytest.mark.usefixtures("code")
async def test_the_state_does_not_go_back() -> None:
    world = await switched()
    with pytest.raises(Unusable, match="--state 1: expected 2 or 3"):
        await switch(world.log, None, 1)
    assert (await switch(world.log, 1, None))["rules"] == 1


@pytest.mark.usefixtures("code")
async def test_who_joins_while_the_admin_looks_is_not_switched_past() -> None:
    world = World(supports=BOTH)

    class Slow(MemoryLog):
        """A shard of the older code joins between reading and appending."""

        async def append(self, *arguments: object, **options: object) -> int:  # type: ignore[override]
            world.append("planner.b", [ev.PlannerTaken(shard="b", holder="host-7")], cause="taken")
            return await super().append(*arguments, **options)  # type: ignore[arg-type]

    slow = Slow("test")
    slow.commits, slow._last = world.log.commits, world.log._last
    with pytest.raises(
        Unusable, match=r"nothing was switched, since somebody joined meanwhile: .*planner.b \(host-7\)"
    ):
        await switch(slow, 2, 2)
    assert (await current(world.log))["rules"] == 1


async def test_a_federation_has_nothing_to_switch() -> None:
    log = MemoryLog(FEDERATION)
    for work in (current(log), switch(log, 2, None)):
        with pytest.raises(Unusable, match="the log of a federation"):
            await work
    assert not log.commits


def test_show_and_switch_on_the_command_line(log: Path) -> None:
    with second():
        found = json.loads(runner.invoke(app, ["versions", "show", str(log), "--json"]).stdout)
        assert (found["rules"], found["state"]) == (1, 1)
        assert found["supports"]["binder"] == {"rules": [1], "state": [1]}
        said = runner.invoke(app, ["versions", "switch", str(log), "--rules", "2"])
        assert said.exit_code == 2
        assert "has rules 1, state 1" in said.stderr
    said = runner.invoke(app, ["versions", "switch", str(log)])  # as it was: nothing was done, and all was well
    assert (said.exit_code, said.stdout) == (2, "")
    assert "expected --rules N or --state N" in said.stderr
    said = runner.invoke(app, ["versions", "switch", str(log), "--rules", "1"])
    assert said.output.startswith("already in force at ")
    said = runner.invoke(app, ["versions", "show", str(log)])
    assert said.output.startswith("in force at ")
    assert "rules version 1, state version 1" in said.output
    assert "planner" in said.output

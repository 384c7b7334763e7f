"""The admin's commands: what the policy is, and changing it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main
from typer.testing import CliRunner

import events as ev
from events import envelope
from events.memory import MemoryLog
from events.policy import DEFAULT_POLICY, Policy
from services.cli.muster import app
from services.cli.policy import NO_CHANGES
from services.console.errors import Unusable
from services.console.policy import InvalidPolicy, change, changed, current
from services.console.verify import verify
from services.state.form import UnknownVersion
from services.writer import Writer
from tests.second import BOTH
from tests.world import World

runner = CliRunner()


def test_what_is_not_named_stays() -> None:
    policy = changed(DEFAULT_POLICY, {"permit_waiting_ms": 5, "profile": None})
    assert policy == msgspec.structs.replace(DEFAULT_POLICY, permit_waiting_ms=5)


def test_a_profile_by_name_and_then_its_score() -> None:
    assert changed(DEFAULT_POLICY, {"profile": "binpack"}).profile.node_score == "binpack"
    mixed = changed(
        DEFAULT_POLICY, {"profile": "default", "node_score": "binpack", "queue_order": "kube-batch"}
    ).profile
    assert (mixed.name, mixed.node_score, mixed.queue_order) == ("custom", "binpack", "kube-batch")


@pytest.mark.parametrize(
    ("profile", "changes", "name"),
    [
        ("default", {"node_score": "binpack"}, "binpack"),
        ("coscheduling", {"node_score": "least-allocated"}, "coscheduling"),
        ("koordinator", {"node_score": "binpack"}, "custom"),
        ("koordinator", {"queue_order": "coscheduling"}, "default"),
    ],
)
def test_a_profile_whose_rules_were_changed_has_the_name_of_those(
    profile: str, changes: dict[str, str], name: str
) -> None:
    """As it was: `status` went on to say "policy default"."""
    assert changed(changed(DEFAULT_POLICY, {"profile": profile}), changes).profile.name == name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node_score": "best"}, "--node-score 'best': expected one of least-allocated, binpack"),
        ({"queue_order": "fifo"}, "--queue-order 'fifo': expected one of coscheduling, koordinator, kube-batch"),
        ({"replacement_policy": "drop"}, "--replacement-policy 'drop': expected one of keep, evict"),
        ({"cycle_pods": 0}, "--cycle-pods 0: expected at least 1"),
        ({"gang_pods": 0}, "--gang-pods 0: expected at least 1"),
        ({"backoff_initial_ms": 0}, "--backoff-initial-ms 0: expected at least 1"),
        ({"backoff_initial_ms": 1, "backoff_max_ms": 0}, "--backoff-max-ms 0: expected at least 1"),
        ({"retry_ms": 999}, "--retry-ms 999: expected at least 1000"),
        ({"permit_waiting_ms": -1}, "--permit-waiting-ms -1: expected at least 0"),
        ({"retry_ms": 1 << 50}, "and at most"),
        ({"backoff_max_ms": 10}, "--backoff-max-ms 10: expected at least --backoff-initial-ms, 1000"),
    ],
)
def test_a_bad_value_names_its_flag_and_what_was_expected(changes: dict, said: str) -> None:
    with pytest.raises(InvalidPolicy) as raised:
        changed(DEFAULT_POLICY, changes)
    assert said in str(raised.value)


async def test_a_change_is_one_event_and_deciding_goes_on_by_it() -> None:
    world = World()
    world.node("n1")
    world.node("n2")
    sequence, policy, _ = await change(world.log, {"profile": "binpack"})
    commit = envelope.decode(world.log.commits[sequence - 1])
    assert commit.events == [ev.PolicyChanged(policy=policy)]
    assert (commit.header.writer, commit.header.cause) == ("admin", "admin")
    world.state.apply_stored(world.log.commits[sequence - 1])
    for i in range(4):
        world.pod(f"pod-{i}")
    world.settle()
    assert len(set(world.where(*(f"pod-{i}" for i in range(4))))) == 1
    assert await current(world.log) == (len(world.log.commits), policy)
    assert (await verify(world.log)).verified


async def test_a_log_without_a_policy_gets_one_from_the_defaults() -> None:
    log = MemoryLog("fresh")
    assert await current(log) == (0, None)
    _, policy, _ = await change(log, {"gang_pods": 7})
    assert policy == msgspec.structs.replace(DEFAULT_POLICY, gang_pods=7)


async def test_changing_nothing_writes_nothing() -> None:
    world = World()
    commits = len(world.log.commits)
    assert await change(world.log, {"replacement_policy": "keep"}) == (commits, world.state.policy, False)
    assert len(world.log.commits) == commits


async def test_of_two_admins_at_once_one_is_refused() -> None:
    log = MemoryLog("shared")
    await change(log, {"gang_pods": 7})

    class Slow(MemoryLog):
        """Somebody else's change comes between reading and appending."""

        async def end(self) -> int:
            if not self.__dict__.get("interrupted"):
                self.__dict__["interrupted"] = True
                await change(self, {"gang_pods": 8})
            return len(self.commits)

    slow = Slow("shared")
    slow.commits, slow._last = log.commits, log._last
    with pytest.raises(Unusable, match="another admin wrote just now"):
        await change(slow, {"gang_pods": 9})
    assert (await current(log))[1].gang_pods == 8


async def test_a_policy_whose_fields_this_version_may_not_know_is_not_rewritten() -> None:
    """It would lose them: a policy is written as a whole, and a field that came later comes with a state version."""
    world = World(supports=BOTH)
    writer = Writer(world.log, "admin")
    last = await world.log.last(writer.subject)
    writer.last = last.sequence if last is not None else 0
    switch = ev.VersionsSwitched(rules=1, state=2)
    place = await writer.append([switch], basis=world.state.sequence, cause="admin")
    with pytest.raises(UnknownVersion, match="folded by state version 2, and this code has 1"):
        await change(world.log, {"permit_waiting_ms": 1})
    assert len(world.log.commits) == place


def test_show_and_set_on_the_command_line(log: Path) -> None:
    said = runner.invoke(app, ["policy", "set", str(log), "--node-score", "binpack", "--gang-pods", "100", "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(runner.invoke(app, ["policy", "show", str(log), "--json"]).stdout)
    assert found["policy"]["gang_pods"] == 100
    assert found["policy"]["profile"]["node_score"] == "binpack"
    assert json.loads(said.stdout) == found
    assert "permit waiting ms" in runner.invoke(app, ["policy", "show", str(log)]).output
    twice = runner.invoke(app, ["policy", "set", str(log), "--gang-pods", "100"])
    assert twice.exit_code == 0
    assert "as it was: nothing was written" in twice.output
    again = runner.invoke(app, ["policy", "set", str(log), "--node-score", "worst"])
    assert again.exit_code == 2
    assert "expected one of least-allocated, binpack" in again.stderr


def test_every_field_can_be_set() -> None:
    command: Any = typer.main.get_command(app)
    options = {option.name for option in command.commands["policy"].commands["set"].params} - {*NO_CHANGES}
    of_the_profile = {"queue_order", "node_score"}
    assert options == {field.name for field in msgspec.structs.fields(Policy)} | of_the_profile


def test_the_help_has_each_bounds_unit_and_default() -> None:
    command: Any = typer.main.get_command(app)
    for option in command.commands["policy"].commands["set"].params:
        default = getattr(DEFAULT_POLICY, option.name, None)
        if isinstance(default, int):
            assert option.help.endswith(f" ({default})"), option.name
            assert option.metavar in ("MS", "PODS", "REFUSALS", "GANGS"), option.name
        elif option.name in ("replacement_policy", "queue_order", "node_score"):
            adopted = default or getattr(DEFAULT_POLICY.profile, option.name)
            assert f"{adopted} (in a new log)" in option.help


def test_the_bounds_of_starvation_are_shown_and_set(log: Path) -> None:
    flags = ["--reserve-after-refusals", "7", "--reservation-hold-ms", "1000", "--reservations", "2"]
    assert runner.invoke(app, ["policy", "set", str(log), *flags, "--json"]).exit_code == 0
    found = json.loads(runner.invoke(app, ["policy", "show", str(log), "--json"]).stdout)["policy"]
    assert [found[name] for name in ("reserve_after_refusals", "reservation_hold_ms", "reservations")] == [7, 1000, 2]

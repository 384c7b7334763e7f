"""One run: episodes of hurting and coming to rest, and the reckoning at the end."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from events.answers import Refused, Unanswered
from events.connection import Connection
from events.log import LogError
from events.permissions import FEDERATION_OPERATOR, JOBS
from services.federator.state import State as FederationState
from services.federator.validate import validate_state as validate_federation
from services.state.fold import State
from services.state.validate import validate_state
from tests.chaos import audit, federation, feeding, ledger, rest
from tests.chaos.federation import Members, Users
from tests.chaos.field import CLUSTER, Field
from tests.chaos.hurting import Hurting
from tests.chaos.ledger import Ledger
from tests.chaos.network import Network
from tests.chaos.plan import FEDERATORS, SUBSCRIBER, plan, variant
from tests.chaos.supervisor import KILLED, TERMINATED
from tests.chaos.witness import Witness
from tests.chaos.workload import Workload
from tests.e2e.cluster import check_room

EPISODE_S = 60.0
RESTS_WITHIN_S = 300.0
LOOK_S = 1.0
LOOKS = 3
"""Looks in a row that must find it at rest."""
TOLD_CHARACTERS = 4000
"""Of a service's first traceback: the log itself stays behind on the machine."""
EXPECTED_EXITS = {0, 3, 4, KILLED, TERMINATED}
"""Told to end; replaced; the log or the cluster out of reach; killed; told to end before it listened."""
NO_FEED = 2
"""And of a subscriber that comes before the feed has made its stream, or while no server is there."""


class Report(msgspec.Struct, kw_only=True):
    """What a run did and found."""

    seed: int
    seconds: float = 0.0
    episodes: int = 0
    kills: dict[str, int] = {}
    deeds: dict[str, int] = {}
    spared: int = 0
    starts: int = 0
    """Of services, by their supervisors."""
    exits: dict[str, int] = {}
    """Of services, by code."""
    ended_alone: dict[str, int] = {}
    """Servers that ended although nobody killed them."""
    seen: dict[str, int] = {}
    """By the witness."""
    commits: int = 0
    purged: int = 0
    """Of these; the archive has them."""
    acknowledged: int = 0
    published: int = 0
    """Messages of the feed."""
    delivered: int = 0
    """To a subscriber, as often as they came."""
    bindings: dict[str, int] = {}
    """That were asked for, by the API server's answer."""
    events: dict[str, int] = {}
    decisions: int = 0
    decided: int = 0
    reproduced: int = 0
    jobs: int = 0
    """Of the federation's users, all settled; `cancelled` of them while it went on."""
    cancelled: int = 0
    federation_commits: int = 0
    federation_acknowledged: int = 0
    federation_purged: int = 0
    federation_reproduced: int = 0
    """Decisions of the federator's that verify decided again."""
    rests_s: list[float] = []
    """How long it took to come to rest, in each episode."""
    violations: list[str] = []

    def line(self) -> str:
        by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        return (
            f"seed {self.seed}: {sum(self.kills.values())} kills ({by_kind}), {sum(self.deeds.values())} hurts in "
            f"{self.episodes} episodes, {self.seconds / 60:.1f} min; {self.seen.get('pods bound', 0)} pods and "
            f"{self.seen.get('gangs bound', 0)} gangs bound, {self.commits} commits ({self.acknowledged} acknowledged, "
            f"{self.purged} purged), {self.reproduced} of {self.decided} decisions verified; {self.jobs} federated jobs "
            f"settled, {self.cancelled} of them cancelled, {self.federation_commits} commits "
            f"({self.federation_acknowledged} acknowledged, {self.federation_purged} purged), "
            f"{self.federation_reproduced} decisions verified; "
            f"{len(self.violations)} violations"
        )


class Run:
    def __init__(self, directory: Path, network: Network, *, seed: int, isolated: bool) -> None:
        self.directory = directory
        self.report = Report(seed=seed)
        self.members = Members(seed)
        self.field = Field(directory, network, variant(seed), self.members, small_disks=isolated)
        self.witness, self.ledger = Witness(), Ledger(State(), validate_state)
        self.federation = Ledger(FederationState(), validate_federation)
        self.users: Users
        self._began_s = time.monotonic()
        self._seed = seed

    async def run(self, seconds: float, kills: int) -> Report:
        """Hurts for so long, or until so many kills (0: no such end). Ends early at a violation."""
        async with AsyncExitStack() as stack:
            try:
                await self.field.start(stack)
                await self._run(stack, seconds, kills)
            except (TimeoutError, LogError) as error:
                self._violated([f"{type(error).__name__}: {error}"])
            finally:
                self._sum_up()
                await self._keep()
        return self.report

    async def _run(self, stack: AsyncExitStack, seconds: float, kills: int) -> None:
        field, report = self.field, self.report
        log, federation_log = await field.log.open(), await field.federation_log.open()
        stack.push_async_callback(log.close)
        stack.push_async_callback(federation_log.close)
        asking = await Connection(field.nats.url).connect(**field.login(JOBS))
        stack.push_async_callback(asking.close)
        self.users = Users(self.members, asking, self._seed)
        workload = Workload(field.api, self.witness, self._seed)
        self._following = [
            asyncio.create_task(self.witness.follow(field.api), name="witness"),
            asyncio.create_task(self.ledger.follow(log), name="ledger"),
            asyncio.create_task(self.federation.follow(federation_log), name="the federation's ledger"),
        ]
        stack.push_async_callback(_cancelled, self._following)
        await workload.prepare()
        hurting = Hurting(field, plan(self._seed), self.say)
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0 and not report.violations:
            if kills and hurting.kills.total() >= kills:
                break
            working = [asyncio.create_task(one.run()) for one in (workload, self.users)]
            try:
                await hurting.hurt_for(min(EPISODE_S, left_s), kills)
            finally:
                _check(working)
                await _cancelled(working)
                report.kills, report.deeds, report.spared = dict(hurting.kills), dict(hurting.deeds), hurting.spared
            await self._come_to_rest(workload)
            report.episodes += 1
        await self._reckon()

    async def _come_to_rest(self, workload: Workload) -> None:
        """Everything runs, nothing new comes; then what must hold is looked at."""
        began_s, looks, why = time.monotonic(), 0, ["nobody looked yet"]
        await self.field.mend()
        self.field.resume_services()
        await workload.rest()
        self.members.heal()
        while looks < LOOKS:
            _check(self._following)
            if time.monotonic() - began_s > RESTS_WITHIN_S:
                self._violated([f"not at rest after {RESTS_WITHIN_S:.0f} s: {'; '.join(why)} (7.11 to 7.13)"])
                return
            await asyncio.sleep(LOOK_S)
            why = rest.unrest(self.ledger.state, self.witness.pods)
            why += federation.unrest(self.federation.state, self.members, self.users)
            looks = 0 if why else looks + 1
        self.report.rests_s.append(round(time.monotonic() - began_s, 1))
        found = rest.violations(
            self.ledger.state, self.witness.pods, workload.minimum, workload.touched, self.witness.bound
        )
        try:
            await check_room(self.field.api)
        except AssertionError as error:
            found.append(str(error))
        self._violated([*found, *self._noted()])
        state = self.ledger.state
        self.say(
            f"at rest after {self.report.rests_s[-1]} s: {len(self.witness.pods)} pods, {len(state.cohorts)} cohorts "
            f"wait, log at {state.sequence}, {len(self.federation.state.jobs)} federated jobs, "
            f"{sum(self.report.kills.values())} kills so far"
        )

    async def _reckon(self) -> None:
        """Services are told to end; their acknowledgements, the log, and what the rules decide again are compared."""
        await self._check_feed()
        await self._check_subscriber()
        self.report.cancelled = len(self.users.cancelled)
        await self._end_federation()
        codes = await self.field.end_services()
        self._violated(
            [f"{name}: exit {code} on SIGTERM" for name, code in codes.items() if code not in (0, TERMINATED)]
        )
        told = self._told([name for name in self.field.slots if name not in FEDERATORS])
        self.report.acknowledged = self.ledger.compare(await self.field.log.commits(), told)
        self.report.purged = await self.field.log.purged()
        self.report.federation_purged = await self.field.federation_log.purged()
        asked = list(audit.read(audit.path(self.directory)))
        self.report.bindings = {str(code): count for code, count in sorted(Counter(one.code for one in asked).items())}
        permitted_ns = self.ledger.permitted_ns(told, self.field.variant.clock_offsets_ms)
        self._violated(audit.violations(asked, permitted_ns))
        self.report.federation_acknowledged = self.federation.compare(
            await self.field.federation_log.commits(), self._told(FEDERATORS)
        )
        await self._verify()
        for name, slot in self.field.slots.items():
            expected = EXPECTED_EXITS | ({NO_FEED} if name == SUBSCRIBER else set())
            bad = {code: count for code, count in slot.exits.items() if code not in expected}
            said = slot.log.read_text(errors="replace") if slot.log.exists() else ""
            _, first, behind = said.partition("Traceback")
            if bad or first:
                found = f"{name}: exit codes {bad}, {said.count('Traceback')} tracebacks, in {slot.log}"
                self._violated([f"{found}\n{first}{behind[:TOLD_CHARACTERS]}".rstrip()])
        self._violated(self._noted())

    def _told(self, services: Iterable[str]) -> list[ledger.Acknowledged]:
        return list(ledger.acknowledgements({name: self.field.slots[name].log for name in services}))

    def _noted(self) -> list[str]:
        kept = [*self.field.log.violations, *self.field.federation_log.violations]
        told = [*self.federation.violations, *self.users.violations]
        return [*self.witness.violations, *self.ledger.violations, *told, *kept]

    async def _end_federation(self) -> None:
        operator = await Connection(self.field.nats.url).connect(**self.field.login(FEDERATION_OPERATOR))
        try:
            state = self.federation.state
            self._violated(await federation.end(state, self.users, self.members, operator, RESTS_WITHIN_S))
        finally:
            await operator.close()

    async def _verify(self) -> None:
        """Both logs."""
        report = self.report
        for log in (self.field.log, self.field.federation_log):
            await log.archive_all(RESTS_WITHIN_S)
        found = await self.field.log.verify()
        report.decided, report.reproduced, report.decisions = found["decided"], found["reproduced"], found["decisions"]
        report.federation_reproduced = (await self.field.federation_log.verify())["reproduced"]

    async def _check_feed(self) -> None:
        """It comes to hold what the log makes of it, and nothing else."""
        wanted = feeding.expected(await self.field.log.commits(), CLUSTER)
        deadline_s = time.monotonic() + RESTS_WITHIN_S
        found: list[feeding.Published] = []
        while len(found) < len(wanted):
            with suppress(Unanswered, Refused):  # servers find together again, and the feed makes its stream
                found = await self.field.published()
            if time.monotonic() > deadline_s:
                self._violated([f"the feed has {len(found)} of {len(wanted)} messages and does not go on"])
                break
            if len(found) < len(wanted):
                await asyncio.sleep(LOOK_S)
        later = feeding.expected(await self.field.log.commits(), CLUSTER)
        self._violated(feeding.violations(found, later))
        self.report.published = len(found)

    async def _check_subscriber(self) -> None:
        """It comes to have what the feed has for it, each in its turn."""
        field, deadline_s = self.field, time.monotonic() + RESTS_WITHIN_S
        wanted = feeding.expected(await field.log.commits(), CLUSTER, field.variant.pattern)
        delivered = field.delivered()
        while len(set(delivered)) < len(wanted):
            if time.monotonic() > deadline_s:
                self._violated([f"a subscriber got {len(delivered)} messages of {len(wanted)}, and no more"])
                break
            await asyncio.sleep(LOOK_S)
            delivered = field.delivered()
        later = feeding.expected(await field.log.commits(), CLUSTER, field.variant.pattern)
        self._violated(feeding.delivery_violations(delivered, later))
        self.report.delivered = len(delivered)

    def _violated(self, found: list[str]) -> None:
        for one in found:
            if one not in self.report.violations:
                self.report.violations.append(one)
                self.say(f"VIOLATION {one}")

    def _sum_up(self) -> None:
        report, slots = self.report, self.field.slots.values()
        report.seconds = round(time.monotonic() - self._began_s, 1)
        report.starts = sum(slot.starts for slot in slots)
        exits: Counter[int] = sum((slot.exits for slot in slots), Counter())
        report.exits = {str(code): count for code, count in sorted(exits.items())}
        report.ended_alone = dict(self.field.ended_alone)
        report.seen = dict(self.witness.counted)
        report.commits = self.ledger.counted.pop("commits", 0)
        self.ledger.counted.pop("acknowledged", None)
        report.events = dict(self.ledger.counted)
        report.jobs, report.federation_commits = len(self.federation.state.jobs), self.federation.counted["commits"]

    async def _keep(self) -> None:
        """What lies on disks that go with the namespaces; and the log itself, where something is to be explained."""
        for name, server in self.field.nats.servers.items():
            if server.log_path.exists():
                shutil.copy(server.log_path, self.directory / f"nats-{name}.log")
        if self.report.violations:
            code, out, err = await self.field.muster(
                "export", self.field.nats.url, str(self.directory / "log.db"), role="reader"
            )
            self.say(f"export of the log: exit {code} {out.strip()} {err.strip()}")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f}  {text}", flush=True)


def _check(tasks: list[asyncio.Task[None]]) -> None:
    """Raises what ended one of them."""
    for task in tasks:
        if task.done():
            task.result()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

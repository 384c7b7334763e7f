"""Carries a plan out on the field: each hurt in a task of its own, which undoes at its end what it changed."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from events import cloudevents, lease, object_store
from events.connection import Connection
from events.log import LogError
from events.permissions import FEDERATION_OPERATOR, KEEPER
from tests.chaos.field import CLUSTER, Field, role_of
from tests.chaos.network import Loss
from tests.chaos.plan import GUEST, NATS, SCORES, Hurt

STORM_S = 0.3
"""Between two looks whether there is somebody to kill again."""
RESTARTS_S, LOOK_S = 6.0, 0.05
"""For how long each that comes is told to end; and between two looks whether one came."""
REFILL_S = 0.1
CHUNK = bytes(1 << 20)


class Hurting:
    """`kills` are kill -9 by what was killed; `deeds` are hurts by kind, `spared` those whose target was hurt already."""

    def __init__(self, field: Field, hurts: Iterator[Hurt], say: Callable[[str], None]) -> None:
        self.field, self.hurts, self.say = field, hurts, say
        self.kills: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        self.spared = 0
        self._score = SCORES[0]
        self._ways: dict[str, Callable[[Hurt], Awaitable[None]]] = {
            "kill": self._kill,
            "kill role": self._kill,
            "kill all": self._kill,
            "storm": self._storm,
            "end": self._end,
            "restarts": self._restarts,
            "pause": self._pause,
            "policy": self._policy,
            "guest": self._guest,
            "nobody's message": self._have_answered,
            "purge": self._purge,
            "kill nats": self._kill_nats,
            "kill quorum": self._kill_nats,
            "pause nats": self._pause_nats,
            "part nats": self._part_nats,
            "fill disk": self._fill_disk,
            "cut from nats": self._from_nats("all"),
            "lossy to nats": self._from_nats("some"),
            "answers lost from nats": self._from_nats("answers"),
            "resets from nats": self._from_nats("resets"),
            "cut from api": self._from_api("all"),
            "lossy to api": self._from_api("some"),
            "answers lost from api": self._from_api("answers"),
            "resets from api": self._from_api("resets"),
            "kill apiserver": self._kill_control,
            "kill etcd": self._kill_control,
            "pause apiserver": self._pause_control,
            "pause etcd": self._pause_control,
            "cut from members": self._from_members("all"),
            "lossy to members": self._from_members("some"),
            "answers lost from members": self._from_members("answers"),
            "resets from members": self._from_members("resets"),
            "members err": self._members_err,
            "member cut off": self._cut_off_members,
        }

    async def hurt_for(self, seconds: float, kills: int) -> None:
        """So long, or until so many were killed in all; returns when nothing is hurt any more."""
        deadline_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < deadline_s and (not kills or self.kills.total() < kills):
                hurt = next(self.hurts)
                await asyncio.sleep(hurt.after_s)
                tasks.create_task(self._do(hurt))

    async def _do(self, hurt: Hurt) -> None:
        self.deeds[hurt.deed] += 1
        self.say(str(hurt))
        await self._ways[hurt.deed](hurt)

    # -------------------------------------------------------------------------------------------------------- services

    async def _kill(self, hurt: Hurt) -> None:
        for name in hurt.targets:
            self.kills[role_of(name)] += self.field.slots[name].kill()

    async def _storm(self, hurt: Hurt) -> None:
        """Whenever one is back it is killed again."""
        end_s = time.monotonic() + hurt.lasts_s
        while time.monotonic() < end_s:
            await self._kill(hurt)
            await asyncio.sleep(STORM_S)

    async def _end(self, hurt: Hurt) -> None:
        for name in hurt.targets:
            slot = self.field.slots[name]
            if slot.process is not None and slot.process.alive:
                slot.process.popen.terminate()

    async def _restarts(self, hurt: Hurt) -> None:
        """Whoever is back is told to end so long after it began: while it imports, connects, or is about to be active."""
        (name,) = hurt.targets
        slot, told, end_s = self.field.slots[name], 0, time.monotonic() + RESTARTS_S
        while time.monotonic() < end_s:
            if slot.alive and slot.starts != told:
                told = slot.starts
                await asyncio.sleep(hurt.lasts_s)
                await self._end(hurt)
            await asyncio.sleep(LOOK_S)

    async def _pause(self, hurt: Hurt) -> None:
        stopped = [slot.process for name in hurt.targets if (slot := self.field.slots[name]).process is not None]
        for process in stopped:
            process.pause()
        try:
            await asyncio.sleep(hurt.lasts_s)
        finally:
            for process in stopped:
                process.resume()

    async def _guest(self, hurt: Hurt) -> None:
        """Joins, or is told to leave."""
        slot = self.field.slots[GUEST]
        if not slot.wanted.is_set():
            slot.wanted.set()
            return
        slot.wanted.clear()
        if slot.process is not None and slot.process.alive:
            slot.process.popen.terminate()

    async def _policy(self, hurt: Hurt) -> None:
        """An admin changes it, if it can be had."""
        self._score = next(score for score in SCORES if score != self._score)
        with suppress(TimeoutError):
            await self.field.muster("policy", "set", self.field.nats.url, "--node-score", self._score, role="admin")

    async def _have_answered(self, hurt: Hurt) -> None:
        """JetStream answers on whatever subject a request names, be it of UTF-8 or not (`events/permissions.py`)."""
        newest = await self._newest_snapshot() if "snapshot" in hurt.targets else ""
        onto = {
            "log": f"muster.{CLUSTER}.".encode() + b"\xff",
            "lease": lease.subject(CLUSTER, "binder").encode(),
            "snapshot": f"$O.{object_store.bucket(CLUSTER)}.M.{newest}".encode(),
        }
        with suppress(LogError, OSError):
            connection = await Connection(self.field.nats.url).connect(**self.field.login("subscriber"))
            asked = f"PUB $JS.API.STREAM.INFO.{cloudevents.stream(CLUSTER)} ".encode()
            try:
                for name in hurt.targets:
                    connection.client._transport.write(asked + onto[name] + b" 0\r\n\r\n")
                await connection.client.flush()
            finally:
                await connection.close()

    async def _newest_snapshot(self) -> str:
        """As its subject names it."""
        with suppress(LogError):
            operator = await Connection(self.field.nats.url).connect(**self.field.login("operator"))
            try:
                names = await object_store.Bucket(operator, object_store.bucket(CLUSTER)).names()
                return base64.urlsafe_b64encode(max(names, default="none").encode()).decode()
            finally:
                await operator.close()
        return "none"

    async def _purge(self, hurt: Hurt) -> None:
        """A log's retention: what takes longer is killed."""
        log = {KEEPER: self.field.log, FEDERATION_OPERATOR: self.field.federation_log}
        for name in self._free(hurt):
            if await log[name].purge(hurt.lasts_s):
                self.kills["retention"] += 1
            self.field.busy.discard(name)

    # ------------------------------------------------------------------------------------------------------------ NATS

    def _free(self, hurt: Hurt) -> list[str]:
        """Of the targets those that nobody hurts yet; they are busy from now on."""
        free = [name for name in hurt.targets if name not in self.field.busy]
        self.spared += len(hurt.targets) - len(free)
        self.field.busy |= set(free)
        return free

    async def _kill_nats(self, hurt: Hurt) -> None:
        names = self._free(hurt)
        for name in names:
            self.field.nats.servers[name].kill()
            self.kills["nats"] += 1
        await asyncio.sleep(hurt.lasts_s)
        await asyncio.gather(*map(self._start_nats, names))

    async def _start_nats(self, name: str) -> None:
        await self.field.start_nats(name)
        self.field.busy.discard(name)

    async def _pause_nats(self, hurt: Hurt) -> None:
        names = self._free(hurt)
        for name in names:
            self.field.nats.servers[name].pause()
        try:
            await asyncio.sleep(hurt.lasts_s)
        finally:
            for name in names:
                self.field.nats.servers[name].resume()
                self.field.busy.discard(name)

    async def _part_nats(self, hurt: Hurt) -> None:
        (name,) = hurt.targets
        field = self.field
        others = [field.routes[other] for other in NATS if other != name]
        parted = field.network.part(f"nats {name}", field.routes[name], others)
        if parted is None:
            self.spared += 1
            return
        try:
            await asyncio.sleep(hurt.lasts_s)
        finally:
            field.network.heal(parted)

    async def _fill_disk(self, hurt: Hurt) -> None:
        """The server has to be started again: one that met a full disk leaves JetStream alone from then on."""
        if not self.field.small_disks:
            self.spared += len(hurt.targets)
            return
        names = self._free(hurt)
        await asyncio.gather(*(self._fill(name, hurt.lasts_s) for name in names))
        for name in names:
            await asyncio.to_thread(self.field.nats.servers[name].stop)
            await self._start_nats(name)

    async def _fill(self, name: str, seconds: float) -> None:
        """Whatever is freed meanwhile is taken, too."""
        file = self.field.directory / "nats" / name / "filler"
        end_s = time.monotonic() + seconds
        try:
            while time.monotonic() < end_s:
                await asyncio.to_thread(_fill_up, file)
                await asyncio.sleep(REFILL_S)
        finally:
            file.unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------------- network

    def _from_nats(self, loss: Loss) -> Callable[[Hurt], Awaitable[None]]:
        async def hurt_it(hurt: Hurt) -> None:
            await self._lose(hurt, self.field.client_ports, loss)

        return hurt_it

    def _from_api(self, loss: Loss) -> Callable[[Hurt], Awaitable[None]]:
        async def hurt_it(hurt: Hurt) -> None:
            await self._lose(hurt, [self.field.control_plane.port], loss)

        return hurt_it

    def _from_members(self, loss: Loss) -> Callable[[Hurt], Awaitable[None]]:
        async def hurt_it(hurt: Hurt) -> None:
            await self._lose(hurt, [self.field.members.port], loss)

        return hurt_it

    async def _lose(self, hurt: Hurt, ports: list[int], loss: Loss) -> None:
        network = self.field.network
        lost = [network.lose(name, ports, loss) for name in hurt.targets]
        try:
            await asyncio.sleep(hurt.lasts_s)
        finally:
            for one in lost:
                network.heal(one)

    # --------------------------------------------------------------------------------------------- federation's members

    async def _members_err(self, hurt: Hurt) -> None:
        for alias in hurt.targets:
            self.field.members.err(alias)

    async def _cut_off_members(self, hurt: Hurt) -> None:
        names = self._free(hurt)
        for alias in names:
            self.field.members.cut_off(alias, True)
        try:
            await asyncio.sleep(hurt.lasts_s)
        finally:
            for alias in names:
                self.field.members.cut_off(alias, False)
                self.field.busy.discard(alias)

    # --------------------------------------------------------------------------------------------------- control plane

    async def _kill_control(self, hurt: Hurt) -> None:
        for name in self._free(hurt):
            self.field.control(name).kill()
            self.kills[name] += 1
            await asyncio.sleep(hurt.lasts_s)
            await self.field.start_control(name)
            self.field.busy.discard(name)

    async def _pause_control(self, hurt: Hurt) -> None:
        for name in self._free(hurt):
            process = self.field.control(name)
            process.pause()
            try:
                await asyncio.sleep(hurt.lasts_s)
            finally:
                process.resume()
                self.field.busy.discard(name)


def _fill_up(file: Path) -> None:
    """Until nothing more fits."""
    with suppress(OSError), file.open("ab", buffering=0) as filler:
        size = len(CHUNK)
        while size:
            try:
                os.write(filler.fileno(), CHUNK[:size])
            except OSError:
                size //= 2

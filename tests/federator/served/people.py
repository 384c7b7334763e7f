"""Users and operators who speak to the service's handlers, as its NATS micro service has them answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

import events as ev
from events.log import LogError
from events.micro import Unfit
from tests.federator.audit import Violation
from tests.federator.clusters import TrueCluster
from tests.federator.served.process import Running
from tests.federator.simulation.people import HASTY, People

if TYPE_CHECKING:
    from tests.federator.served.world import Served

PATIENCE_MS = 5_000
"""Of a client, for an answer; then it asks again, whatever came of it."""
UNANSWERED = LogError("no answer")
Told = Callable[[Any], None]
"""What a client does with its answer: what was answered, or the exception that says no."""


class Clients(People):
    world: Served  # type: ignore[assignment]

    def request(self, verb: str, asked: dict[str, Any], told: Told) -> None:
        """One request and its answer; lost with the process that has it."""
        world, loop = self.world, self.world.loop
        waiting = True

        def answer(result: Any) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                told(result)

        process = world.serving()
        if process is None:
            return world.at(world.now_ms + 500, answer, UNANSWERED)
        loop.after(world.others_rng.uniform(0.0001, 0.02), self._arrive, process, verb, asked, answer)
        return world.at(world.now_ms + PATIENCE_MS, answer, UNANSWERED)

    def _arrive(self, process: Running, verb: str, asked: dict[str, Any], answer: Told) -> None:
        if not process.ready or process.federator is None:
            return
        handler = process.federator.handlers()[verb]
        task = process.context.run(self.world.loop.create_task, handler(msgspec.json.encode(asked)))  # type: ignore[arg-type]
        process.answering.add(task)
        task.add_done_callback(lambda done: self._answered(process, done, answer))

    def _answered(self, process: Running, task: asyncio.Task[Any], answer: Told) -> None:
        process.answering.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, Unfit | LogError):
            self.world.fail(error)
        self.world.loop.after(0.001, answer, task.result() if error is None else error)

    # --------------------------------------------------------------------------------------------------------- users

    def ask(self, request: ev.JobFederated) -> None:
        """A user's client: it asks until it has its answer."""
        world = self.world

        def told(answer: Any) -> None:
            if isinstance(answer, LogError):
                world.count["submitted once more"] += answer is UNANSWERED
                return world.at(world.now_ms + 1_000, self.ask, request)
            unlisted = isinstance(answer, Unfit) and "expected user and uri of the clusters file" in str(answer)
            if unlisted:
                return world.at(world.now_ms + 5_000, self.ask, request)
            if isinstance(answer, Unfit) and request.name not in world.names:
                world.fail(Violation(f"{request.name} is refused, and unknown: {answer}"))
            world.requests.remove(request)
            return None

        self.request("submit", {"document": world.document(request)}, told)

    def cancel(self, uid: str) -> None:
        """`uid`: of the request; it is the job's name that users know."""
        world = self.world
        name = world.name_of(uid)
        if name not in world.names:
            return world.at(world.now_ms + 1_000, self.cancel, uid)

        def told(answer: Any) -> None:
            if isinstance(answer, LogError):
                world.at(world.now_ms + 1_000, self.cancel, uid)
            elif not isinstance(answer, Unfit):
                world.count["cancelled by its user"] += answer["cancelled"]

        return self.request("cancel", {"name": name}, told)

    def look_around(self) -> None:
        """What is there, and how one of it is."""

        def told(answer: Any) -> None:
            if isinstance(answer, LogError):
                return
            self.world.count["looked"] += 1
            if answer:
                self.request("status", {"name": answer[0]["name"]}, lambda _: None)

        self.request("list", {}, told)

    # ----------------------------------------------------------------------------------------------------- operators

    def rush(self) -> None:
        for job in list(self.world.folded.jobs.values()):
            self.give_up(job.uid, self.world.rng.choice(list(job.places)), HASTY)

    def look(self) -> None:
        return self.look_at(self.world.folded)

    def give_up(self, uid: str, alias: str, by: str) -> None:
        world = self.world
        job = world.folded.jobs.get(uid)
        if job is None:
            return

        def told(answer: Any) -> None:
            world.count["given up"] += not isinstance(answer, Exception)

        self.request("give-up", {"name": job.name, "cluster": alias, "by": by, "reason": "decommissioned"}, told)

    def delete(self, cluster: TrueCluster) -> None:
        if cluster.identifies:
            super().delete(cluster)

"""Requests of a federation's users, by verb: JSON in, what is answered out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from events.log import Unavailable
from events.micro import Handler, Unfit
from events.wire import UNDECODABLE
from services.federator import core, mcc, requests
from services.federator.records import Job
from services.federator.service.told import Stories
from services.writer import SteppedDown

if TYPE_CHECKING:
    from services.federator.service import Federator

T = TypeVar("T", bound=msgspec.Struct)


def handlers(federator: Federator) -> dict[str, Handler]:
    """For `events.micro`."""
    stories = Stories(federator.decider.log)

    async def submit(data: bytes) -> Any:
        asked = _asked(data, requests.Submit)
        try:
            uid = await federator.federate(asked.document)
        except mcc.InvalidJob as error:
            raise Unfit(400, str(error)) from error
        return {"job": uid, "name": federator.state.jobs[uid].name}

    async def status(data: bytes) -> Any:
        return requests.shown(federator.state, named(_asked(data, requests.Named).name))

    async def listed(data: bytes) -> Any:
        return requests.listed(federator.state, _asked(data, requests.Listed).offset)

    async def cancel(data: bytes) -> Any:
        return {"cancelled": await federator.cancel(named(_asked(data, requests.Named).name))}

    async def explain(data: bytes) -> Any:
        asked = _asked(data, requests.Explained)
        lines = await stories.of(asked.name, asked.offset)
        if not lines:
            raise Unfit(404, f"there is no job {asked.name!r} in the log")
        return lines[asked.offset : asked.offset + requests.PAGE]

    async def give_up(data: bytes) -> Any:
        asked = _asked(data, requests.GiveUp)
        job = named(asked.name)
        if asked.cluster not in job.places:
            raise Unfit(404, f"{asked.name} has no cluster {asked.cluster!r}: expected one of {', '.join(job.places)}")
        try:
            await federator.give_up(job, job.places[asked.cluster], asked.by, asked.reason)
        except core.KeptUp as error:
            raise Unfit(409, f"{asked.name} on {asked.cluster} cannot be given up: {error}") from error
        return {"given_up": True}

    def named(name: str) -> Job:
        """Raises Unfit."""
        job = requests.by_name(federator.state, name)
        if job is None:
            raise Unfit(404, f"there is no job {name!r}, or none any more: `muster job explain` reads the log")
        return job

    found = {
        "submit": submit,
        "status": status,
        "list": listed,
        "cancel": cancel,
        "explain": explain,
        "give-up": give_up,
    }
    return {verb: _not_now(handler) for verb, handler in found.items()}


def _not_now(handler: Handler) -> Handler:
    """Who learns from a request that another process took over does not know what came of it; that one does."""

    async def answer(data: bytes) -> Any:
        try:
            return await handler(data)
        except SteppedDown as error:
            raise Unavailable(f"another federator took over: ask again: {error}") from error

    return answer


def _asked(data: bytes, of: type[T]) -> T:
    """Raises Unfit."""
    try:
        return msgspec.json.decode(data, type=of)
    except UNDECODABLE as error:
        raise Unfit(400, f"expected {', '.join(of.__struct_encode_fields__)} as JSON: {error}") from error

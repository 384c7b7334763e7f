"""`muster job`: multi-cluster jobs, by requests to the federator; `explain` by its log."""

from __future__ import annotations

import asyncio
import sys
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from events import micro, subjects
from events.connection import Connection
from events.homes import EXPECTED_URL, SUFFIX, split, without_credentials
from events.log import EventLog, Unavailable
from events.micro import Unfit
from services import documents, settings
from services.console import show, timeline
from services.console.commands import finish, told_errors
from services.console.errors import Unusable
from services.console.kinds import check_of_a_federation
from services.console.location import open_location
from services.console.replay import EPOCH, Reading, check_place, read_place
from services.federator.backends import Owner
from services.federator.explain import Said, Story
from services.federator.mcc import InvalidJob, MultiClusterJob, load
from services.federator.records import ENDED, SETTLED
from services.federator.requests import MOST_DOCUMENT, PAGE
from services.federator.snapshot import FORM
from services.federator.specialize import specialize, to_yaml
from services.federator.timeline import Drawing
from services.telemetry.logs import printable

WATCH_S = 0.5
NOT_NOW = 503
"""A federator that cannot reach its log, or has just been replaced."""
GIVE_UP_WITHIN_S = 120.0
"""An attempt that is under way is waited for: a request, unanswered."""
NOT_SUBMITTED = "not-submitted"
"""Stands where the marker has the job's UID, which is made when it is submitted."""


def show_special(file: Path, alias: str, *, as_json: bool = False) -> int:
    """The job for one cluster, on stdout. Exit code 0, or 2 with what is wrong."""
    with told_errors(InvalidJob):
        _, job = _read(file)
        owner = Owner(federation=NOT_SUBMITTED, job=NOT_SUBMITTED, cluster=alias)
        special = specialize(job, alias, owner)
    if as_json:
        show.json_line(special)
    else:
        sys.stdout.write(to_yaml(special))
    return 0


def _read(file: Path) -> tuple[str, MultiClusterJob]:
    """The document, and what it says. Raises Unusable."""
    try:
        text = documents.read(file)
        if len(text) > MOST_DOCUMENT:
            raise Unusable(f"{file}: {len(text):,} characters: expected at most {MOST_DOCUMENT:,}")
        return text, load(text)
    except documents.Unreadable as error:
        raise Unusable(str(error)) from error
    except InvalidJob as error:
        raise Unusable(f"{file}: {error}") from error


def submit(file: Path, nats: str | None, federation: str, *, watch: bool = False, as_json: bool = False) -> int:
    """Exit code 0, or 2 with what is wrong; with `watch` 1 when no cluster kept it."""
    with told_errors(Unfit):
        text, job = _read(file)  # what is wrong is told even where no federator runs
        if problems := job.token_problems():  # and no token goes anywhere
            raise Unusable(f"{file}: {'; '.join(problems)}")
        return finish(_submit(text, nats, federation, watch, as_json))


async def _submit(text: str, nats: str | None, federation: str, watch: bool, as_json: bool) -> int:
    async with await _Asking.open(nats, federation) as federator:
        accepted = await federator.ask("submit", document=text)
        if not watch:
            show.json_line(accepted) if as_json else print(f"{accepted['name']}: accepted as {accepted['job']}")
            return 0
        return await _watched(accepted["name"], federator, as_json)


async def _watched(name: str, federator: _Asking, as_json: bool) -> int:
    """Exit code 0 when it is settled, 1 when no cluster kept it."""
    before: list[str] = []
    while True:
        job = await _status_of(name, federator)
        if not as_json:
            lines = _lines(job)
            for line in lines:
                if line not in before:
                    print(printable(line), flush=True)
            before = lines
        if job["phase"] == SETTLED:
            if as_json:
                show.json_line(job)
            return 0 if job["cluster"] and not job["cancelled"] else 1
        await asyncio.sleep(WATCH_S)


async def _status_of(name: str, federator: _Asking) -> Any:
    """Waits for a federator where one ends and the next begins: the job goes on meanwhile. Raises Unfit."""
    told = ""
    while True:
        try:
            return await federator.ask("status", name=name)
        except (Unavailable, Unfit) as error:
            if isinstance(error, Unfit) and error.code != NOT_NOW:
                raise
            if str(error) != told:
                sys.stderr.write(f"{error}; asking again\n")
            told = str(error)
            await asyncio.sleep(WATCH_S)


def watched(name: str, nats: str | None, federation: str, *, as_json: bool = False) -> int:
    """As `submit` does behind it."""

    async def watching() -> int:
        async with await _Asking.open(nats, federation) as federator:
            return await _watched(name, federator, as_json)

    with told_errors(Unfit):
        return finish(watching())


def status(name: str, nats: str | None, federation: str, *, as_json: bool = False) -> int:
    """Exit code 0, or 2: there is no such job."""
    job = _asked(nats, federation, "status", name=name)
    if as_json:
        show.json_line(job)
        return 0
    columns = ("cluster", "priority", "submission", "run", "name there", "why it is refused or stopped")
    rows = [
        (at["cluster"], f"{at['priority']:g}", _phase(at), at["run"], at["name"], _why(at)) for at in job["clusters"]
    ]
    out = show.console()
    out.print(show.table(f"{job['name']}: {_stand(job)}", columns, rows))
    for at in job["clusters"]:
        if silent := _silent(at):
            out.print(printable(f"{at['cluster']} does not answer: {silent}"), soft_wrap=True)
    return 0


def listed(nats: str | None, federation: str, *, as_json: bool = False) -> int:
    with told_errors(Unfit):
        jobs = finish(_listed(nats, federation))
    if as_json:
        show.json_line(jobs)
        return 0
    rows = [(job["name"], job["phase"] + _cancelled(job), job["cluster"], job["clusters"]) for job in jobs]
    show.console().print(show.table("Jobs", ("name", "phase", "cluster", "of"), rows))
    return 0


async def _listed(nats: str | None, federation: str) -> list[dict[str, Any]]:
    """All jobs, page by page. Each page is asked for so that it begins with the last job of the page before: if that is
    not in it, jobs were forgotten meanwhile and all places moved, so one is asked for that begins earlier."""
    found: dict[str, dict[str, Any]] = {}
    offset = 0
    async with await _Asking.open(nats, federation) as federator:
        while True:
            page = await federator.ask("list", offset=offset)
            if offset and not any(job["job"] in found for job in page):
                offset = max(0, offset - PAGE)
                continue
            found |= {job["job"]: job for job in page}
            if len(page) < PAGE:
                return list(found.values())
            offset += PAGE - 1


def cancel(name: str, nats: str | None, federation: str, *, as_json: bool = False) -> int:
    """Exit code 0, 1 when nothing of it was left, 2: there is no such job."""
    answer = _asked(nats, federation, "cancel", name=name)
    if as_json:
        show.json_line(answer)
    else:
        print(f"{name}: {'is being stopped on every cluster' if answer['cancelled'] else 'nothing of it was left'}")
    return 0 if answer["cancelled"] else 1


def give_up(name: str, alias: str, nats: str | None, federation: str, *, by: str, reason: str, as_json: bool) -> int:
    """Exit code 0, or 2: there is no such job or cluster, or it cannot be given up."""
    with told_errors():
        if not reason.strip():
            raise Unusable("--reason: expected why nothing of it can be there; the log keeps it")
    answer = _asked(nats, federation, "give-up", GIVE_UP_WITHIN_S, name=name, cluster=alias, by=by, reason=reason)
    if as_json:
        show.json_line(answer)
    else:
        print(f"{name}: {alias} is given up; the log says that {by} declared it")
    return 0


def explain(name: str, nats: str | None, federation: str, *, at: str | None = None, as_json: bool = False) -> int:
    """Exit code 0, or 2: the log has no such job. Reads the log; no federator need run."""
    with told_errors():
        drawing, story = finish(_told(name, nats, federation, at))
        line, lines = drawing.line(), story.lines
        if not lines:
            where = f"in the log of {federation!r}" + (f" up to {at}" if at is not None else "")
            raise Unusable(f"there is no job {name!r} {where}: expected a name of `muster job list`")
    if as_json:
        show.json_line(lines)
        return 0
    out = show.console()
    if line is not None:
        out.print(show.headed(name, "bold", f", accepted {_time(line.from_ns):%Y-%m-%d %H:%M:%S}Z"))
        out.print(timeline.picture(line, out.width))
        out.print()
    out.print(timeline.told(lines, lambda line: f"{line.sequence:>6} {_time(line.time_ns):%m-%d %H:%M:%S}"))
    return 0


async def _told(name: str, nats: str | None, federation: str, at: str | None) -> tuple[Drawing, Story]:
    """What the federator said of the job, up to a place. Raises BadPlace, LogError, UnknownCommit."""
    sequence, time_ns = read_place(at) if at is not None else (None, None)
    log: EventLog = await open_location(nats, federation)
    try:
        await check_of_a_federation(log)
        reading = await Reading.of(log, FORM)
        check_place(sequence, reading.end)
        drawing, story = Drawing(name, reading.state), Story(name, deepcopy(reading.state))  # which folds by event
        async for commit in reading.up_to(sequence, time_ns):
            if commit is not None:
                drawing.look(commit.header.time_ns)
                story.add(Said(commit.sequence, commit.header.time_ns, commit.events))
    finally:
        await log.close()
    return drawing, story


def _time(time_ns: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_ns // 1_000)


def _asked(nats: str | None, federation: str, verb: str, within_s: float = micro.WITHIN_S, **request: str) -> Any:
    async def asked() -> Any:
        async with await _Asking.open(nats, federation) as federator:
            return await federator.ask(verb, within_s, **request)

    with told_errors(Unfit):
        return finish(asked())


class _Asking:
    """Requests to the federator of a federation."""

    def __init__(self, connection: Connection, federation: str) -> None:
        self._connection, self._prefix = connection, subjects.jobs(federation)

    @classmethod
    async def open(cls, nats: str | None, federation: str) -> _Asking:
        chosen = settings.read({"nats_url": nats})
        if not subjects.valid_cluster(federation):
            raise Unusable(f"--federation {federation!r}: expected {subjects.EXPECTED_CLUSTER}")
        if chosen.nats_url.endswith(SUFFIX):
            raise Unusable(
                f"{without_credentials(chosen.nats_url)}: this is asked of a federator: {EXPECTED_URL}; "
                "`muster job explain` and `muster replay` read a log in a file"
            )
        servers, _ = split(chosen.nats_url)
        return cls(await Connection(servers).connect(**chosen.nats_options()), federation)

    async def ask(self, verb: str, within_s: float = micro.WITHIN_S, **request: str | int) -> Any:
        return await micro.ask(self._connection, self._prefix, verb, request, within_s)

    async def __aenter__(self) -> _Asking:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._connection.close()


def _lines(job: dict[str, Any]) -> list[str]:
    return [*map(_line, job["clusters"]), _stand(job)]


def _line(at: dict[str, Any]) -> str:
    why = _why(at)
    return f"{at['cluster']}: {_phase(at)} {at['run']}".rstrip() + (f": {why}" if why else "")


def _why(at: dict[str, Any]) -> str:
    if at["given_up"]:
        return f"given up by {at['given_up']}"
    if at["stopped_for"] and at["refusal"] and at["phase"] != ENDED:
        return f"{at['stopped_for']}, refused: {at['refusal']}"
    return str(at["stopped_for"] or at["refusal"])


def _phase(at: dict[str, Any]) -> str:
    also = (", in doubt" if at["in_doubt"] else "") + (", no answer" if _silent(at) else "")
    return f"{at['phase']}{also}"


def _silent(at: dict[str, Any]) -> str:
    """Why the cluster does not answer; a federator of an earlier version does not say."""
    return str(at.get("silent", ""))


def _stand(job: dict[str, Any]) -> str:
    nowhere = ", on no cluster" if job["phase"] == SETTLED and not job["cancelled"] else ""
    where = f" on {job['cluster']}" if job["cluster"] else nowhere
    return f"{job['phase']}{where}{_cancelled(job)}"


def _cancelled(job: dict[str, Any]) -> str:
    return ", cancelled" if job["cancelled"] else ""

"""The OpenPAI backend: what a list says, what limits leave room for, and who hears of a token."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.federator.backends import (
    FAILED,
    RUNNING,
    STOPPED,
    STOPPING,
    WAITING,
    Accepted,
    Described,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Owner,
    Refused,
    Silent,
    Submission,
    Taken,
    openpai,
)
from services.federator.backends.credentials import NoSecret, Secret
from services.federator.backends.openpai import OpenPai as Backend
from services.federator.backends.openpai import _Answer
from services.federator.backends.pace import Pace
from services.federator.clusters import Limits as ClientLimits
from services.simulator.openpai.jobs import Life, Refusal
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import LateFault, OpenPai, Served
from tests.federator.backends.sites import OWNER, START, UNLIMITED, Clock, job, submission

NAME = "train-v100"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def pai() -> AsyncIterator[OpenPai]:
    async with OpenPai() as running:
        yield running


@pytest.fixture
def served(pai: OpenPai, clock: Clock) -> Served:
    life = Life(waiting_ms=10_000, dying_ms=2_000, notice_ms=1_000)
    return pai.add(
        "v100", tokens={"secret": "alice", "fresh": "alice", "other": "bob"}, clock=clock, life=life, limits=UNLIMITED
    )


class Opened:
    """Backends that are closed at the end."""

    def __init__(self, served: Served, token_file: Path) -> None:
        self.served, self.token_file = served, token_file
        self.backends: list[Backend] = []
        token_file.write_text("secret")

    def __call__(self, user: str = "alice", **options: Any) -> Backend:
        made = Backend(self.served.url, user, Secret(file=str(self.token_file)), **options)
        self.backends.append(made)
        return made


@pytest.fixture
async def opened(served: Served, tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened(served, tmp_path / "token")
    yield opened
    for backend in opened.backends:
        await backend.close()


async def only(backend: Backend) -> tuple[str, int, int]:
    """State, attempt and start of the one run."""
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    (run,) = listing.runs
    described = await backend.describe(run.name)
    assert isinstance(described, Described)
    assert described.run == run, "both queries say the same"
    return run.state, run.attempt, run.started_ms


# ---------------------------------------------------------------------------------------------------- what a list says


async def test_an_attempt_that_dies_does_not_run_and_the_next_is_another(
    served: Served, opened: Opened, clock: Clock
) -> None:
    backend = opened()
    served.lives[NAME] = Life(waiting_ms=1_000, running_ms=3_000, dying_ms=2_000, exit_codes=(1,))
    retried = msgspec.json.encode(job(NAME) | {"jobRetryCount": 1})
    assert isinstance(await backend.submit(Submission(name=NAME, body=retried)), Accepted)
    told = []
    for at_ms in (0, 1_000, 4_000, 6_000, 7_000, 10_000, 12_000):
        clock.now_ms = START + at_ms
        told.append(await only(backend))
    assert told == [
        (WAITING, 0, 0),
        (RUNNING, 0, START + 1_000),
        (STOPPING, 0, START + 1_000),
        (WAITING, 1, 0),
        (RUNNING, 1, 0),
        (STOPPING, 1, 0),
        (FAILED, 1, 0),
    ]


async def test_a_launched_time_that_is_made_up_is_none(opened: Opened, clock: Clock) -> None:
    backend = opened()
    await backend.submit(submission(NAME))
    await backend.stop(NAME, "")
    clock.now_ms += 5_000
    assert await only(backend) == (STOPPED, 0, 0)


async def test_the_clock_is_the_clusters(opened: Opened, clock: Clock) -> None:
    clock.now_ms = START + 300_000
    listing = await opened().observe()
    assert listing == Listing(runs=(), clock_ms=START + 300_000)


async def test_one_request_lists_all_of_a_user(served: Served, opened: Opened) -> None:
    for number in range(200):
        served.submit("alice", msgspec.json.encode(job(f"j{number}")).decode())
    served.submit("bob", msgspec.json.encode(job("j0")).decode())
    listing = await opened().observe()
    assert isinstance(listing, Listing)
    assert (len(listing.runs), served.counts["list"]) == (200, 1)


async def test_what_comes_between_two_pages_hides_nothing(served: Served, opened: Opened) -> None:
    for number in range(0, 20, 2):
        served.submit("alice", msgspec.json.encode(job(f"j{number:02}")).decode())
    added = iter(range(1, 20, 2))
    listed = served.listed

    def growing(query: Any) -> Any:
        assert query["order"] == "jobName,ASC", "one that has no ties, and in which nothing moves up"
        page = listed(query)
        for number in (next(added, None), next(added, None)):
            if number is not None:
                served.submit("alice", msgspec.json.encode(job(f"j{number:02}")).decode())
        return page

    served.listed = growing  # type: ignore[method-assign]
    listing = await opened(page=3).observe()
    assert isinstance(listing, Listing)
    names = [run.name for run in listing.runs]
    assert len(names) == len(set(names))
    assert {f"j{number:02}" for number in range(0, 20, 2)} <= set(names)


async def test_a_server_that_gives_the_same_page_for_ever_is_asked_no_more(served: Served, opened: Opened) -> None:
    for number in range(5):
        served.submit("alice", msgspec.json.encode(job(f"j{number:02}")).decode())
    listed = served.listed
    served.listed = lambda query: listed({**query, "offset": "0"})  # type: ignore[method-assign]
    silent = await opened(page=3).observe()
    assert isinstance(silent, Silent)
    assert "offset 6" in silent.reason


async def test_a_late_submission_takes_its_name_and_the_earlier_one_fails(
    served: Served, opened: Opened, clock: Clock
) -> None:
    backend = opened()
    served.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=5_000))
    assert isinstance(await backend.submit(submission(NAME)), InDoubt)
    assert isinstance(await backend.submit(submission(NAME)), Accepted)
    clock.now_ms += 5_000
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    assert len(listing.runs) == 1
    assert await backend.submit(submission(NAME)) == Taken()


@pytest.mark.parametrize("marker", [None, "uid-1", {}, {"federation": "f", "job": 1, "cluster": "c"}, ["a"]])
async def test_a_marker_that_cannot_be_read_is_no_owner(served: Served, opened: Opened, marker: Any) -> None:
    made = job(NAME) | {"extras": {"dev.muster.federator": marker}}
    served.submit("alice", msgspec.json.encode(made).decode())
    described = await opened().describe(NAME)
    assert isinstance(described, Described)
    assert described.owner is None


# --------------------------------------------------------------------------------------------------------------- limits


async def test_429_says_how_long_the_window_still_is(
    served: Served, opened: Opened, pai: OpenPai, clock: Clock
) -> None:
    limits = Limits(requests_per_minute=0, lists_per_minute=1, submissions_per_hour=1)
    opened.served = pai.add("narrow", tokens={"secret": "alice"}, clock=clock, limits=limits)
    backend = opened(limits=ClientLimits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0))
    assert isinstance(await backend.submit(submission("first")), Accepted)
    assert isinstance(await backend.observe(), Listing)
    clock.now_ms += 20_000
    assert await backend.submit(submission(NAME)) == Limited(retry_after_ms=3_580_000)
    silent = await backend.observe()
    assert isinstance(silent, Silent)
    assert silent.retry_after_ms == 40_000


async def test_the_client_keeps_to_the_limits_by_itself(served: Served, opened: Opened) -> None:
    backend = opened(limits=ClientLimits(requests_per_minute=20, lists_per_minute=3, submissions_per_hour=2))
    answers = [await backend.submit(submission(f"j{number}")) for number in range(3)]
    assert [type(answer) for answer in answers] == [Accepted, Accepted, NotSent]
    listings = [await backend.observe() for _ in range(4)]
    assert [type(listing) for listing in listings] == [Listing] * 3 + [Silent]
    silent = listings[-1]
    assert isinstance(silent, Silent)
    assert 0 < silent.retry_after_ms <= 60_000
    assert (served.counts["submit"], served.counts["list"]) == (2, 3)


@pytest.mark.parametrize(
    ("limit", "window_ms"),
    [("requests_per_minute", 60_000), ("lists_per_minute", 60_000), ("submissions_per_hour", 3_600_000)],
)
async def test_each_limit_is_of_a_window(
    opened: Opened, limit: str, window_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = ClientLimits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)
    backend = opened(limits=msgspec.structs.replace(none, **{limit: 1}))
    told = []
    for at_ms in (0, window_ms - openpai.MOMENT_MS - 1, window_ms):
        monkeypatch.setattr(openpai, "_now_ms", lambda at_ms=at_ms: at_ms)
        hindered = await (backend.submit(submission(NAME)) if limit.startswith("sub") else backend.observe())
        told.append(isinstance(hindered, NotSent | Silent))
    assert told == [False, True, False]


async def test_a_list_that_is_a_moment_early_waits(
    served: Served, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a poll is that comes exactly as often as the server lets."""
    backend = opened(limits=ClientLimits(requests_per_minute=0, lists_per_minute=1, submissions_per_hour=0))
    now_ms, behind_ms = openpai._now_ms, 60_000 - openpai.MOMENT_MS // 4
    monkeypatch.setattr(openpai, "_now_ms", lambda: now_ms() - behind_ms)
    assert isinstance(await backend.observe(), Listing)
    monkeypatch.setattr(openpai, "_now_ms", now_ms)
    assert isinstance(await backend.observe(), Listing)
    assert isinstance(await backend.observe(), Silent), "a minute is more than a moment"
    assert served.counts["list"] == 2


async def test_stops_have_room_when_nothing_else_has(served: Served, opened: Opened) -> None:
    backend = opened(limits=ClientLimits(requests_per_minute=20, lists_per_minute=0, submissions_per_hour=0))
    await backend.submit(submission(NAME))
    while isinstance(await backend.observe(), Listing):
        pass
    assert isinstance(await backend.submit(submission("other")), NotSent)
    for _ in range(2):
        assert isinstance(await backend.stop(NAME, ""), Accepted)
    assert isinstance(await backend.stop(NAME, ""), NotSent)
    assert sum(served.counts.values()) == 20


@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 50), st.lists(st.integers(-30, 30), max_size=60))
def test_no_window_ever_holds_more_than_it_may(most: int, kept: int, window_ms: int, gaps: list[int]) -> None:
    """Behind a negative gap comes one of those for whom places are kept."""
    pace, now_ms, taken = Pace(most, window_ms), 0, []
    for gap in gaps:
        now_ms += abs(gap)
        left = 0 if gap < 0 else min(kept, most - 1)
        wait_ms = pace.wait_ms(now_ms, left)
        full = sum(at > now_ms - window_ms for at in taken) >= most - left
        assert (wait_ms > 0) == full
        if wait_ms:
            assert pace.wait_ms(now_ms + wait_ms - 1, left) == 1, "no less than that"
            now_ms += wait_ms
            assert pace.wait_ms(now_ms, left) == 0, "and no more"
        pace.take(now_ms)
        taken.append(now_ms)
    assert all(sum(at <= other < at + window_ms for other in taken) <= most for at in taken)


# --------------------------------------------------------------------------------------------------------------- tokens


async def test_a_token_that_is_rotated_is_read_anew(served: Served, opened: Opened) -> None:
    backend = opened()
    assert isinstance(await backend.observe(), Listing)
    del served.tokens["secret"]
    opened.token_file.write_text("fresh\n")
    assert isinstance(await backend.submit(submission(NAME)), Accepted)


async def test_a_token_that_is_not_accepted_is_refused_and_never_shown(
    served: Served, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    opened.token_file.write_text("hunter2")
    backend = opened()
    told = [await backend.submit(submission(NAME)), await backend.stop(NAME, ""), await backend.observe()]
    assert isinstance(told[0], Refused)
    assert told[0].code == "UnauthorizedUserError"
    assert isinstance(told[1], Refused)
    assert isinstance(told[2], Silent)
    assert "hunter2" not in repr([*told, backend, vars(backend), caplog.text])


async def test_a_server_that_repeats_the_token_is_not_repeated(served: Served, opened: Opened) -> None:
    served.tokens["hunter2"] = "alice"
    opened.token_file.write_text("hunter2")

    def echo(*_: object) -> Any:
        raise Refusal(403, "ForbiddenUserError", "you said Bearer hunter2")

    served.execute = echo  # type: ignore[method-assign]
    refused = await opened().stop(NAME, "")
    assert refused == Refused(code="ForbiddenUserError", message="you said Bearer ***", of_content=False)


async def test_a_token_that_was_rotated_meanwhile_is_not_repeated(served: Served, opened: Opened) -> None:
    """The answer to a request with the old one comes when the new one is read: the old one may be good for a while."""
    backend = opened()

    async def rotated(*_: object) -> Any:
        opened.token_file.write_text("fresh")
        for _ in range(2):
            backend._token.forget()
            await backend._token.read()
        return _Answer(403, b'{"code": "ForbiddenUserError", "message": "secret, or fresh"}', 0)

    backend._once = rotated  # type: ignore[method-assign]
    await backend._token.read()
    refused = await backend.stop(NAME, "")
    assert refused == Refused(code="ForbiddenUserError", message="***, or ***", of_content=False)


async def test_an_answer_that_is_no_http_is_not_repeated(opened: Opened) -> None:
    """aiohttp quotes what it cannot read, and something on the way may reflect a request's headers."""

    async def reflect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = await reader.readuntil(b"\r\n\r\n")
        sent = next(line for line in headers.split(b"\r\n") if line.startswith(b"Authorization"))
        writer.write(b"HTTP/1.1 200 OK\r\n" + sent.replace(b": ", b" ") + b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(reflect, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        backend = Backend(f"http://127.0.0.1:{port}", "alice", Secret(file=str(opened.token_file)))
        told = await backend.stop(NAME, "")
        await backend.close()
    assert isinstance(told, InDoubt)
    assert "Bearer ***" in told.reason
    assert "secret" not in told.reason


@pytest.mark.parametrize(
    "body", [b"?" * 495 + b"hunter2", json.dumps({"code": "hunter2 " * 100_000, "message": "?"}).encode()]
)
async def test_of_what_a_server_says_the_beginning_is_repeated_and_no_part_of_the_token(
    served: Served, opened: Opened, body: bytes
) -> None:
    """The log keeps code and message; a code may be as long as the server likes."""
    opened.token_file.write_text("hunter2")
    backend = opened()
    await backend._token.read()
    refused = backend._refused(_Answer(403, body, 0))
    assert isinstance(refused, Refused)
    assert "hun" not in refused.code + refused.message
    assert max(len(refused.code), len(refused.message)) <= 500


async def test_only_the_server_itself_says_that_a_content_is_never_taken(opened: Opened) -> None:
    """R16: it settles earlier attempts in doubt as well; what a proxy refuses may have come through before."""
    backend = opened()
    for status, body, of_content in (
        (400, b'{"code": "InvalidProtocolError", "message": "no name"}', True),
        (400, b"<html>400 Bad Request</html>", False),
        (413, b"<html>413 Request Entity Too Large</html>", False),
        (403, b'{"code": "ForbiddenUserError", "message": ""}', False),
    ):
        refused = backend._refused(_Answer(status, body, 0))
        assert isinstance(refused, Refused)
        assert refused.of_content is of_content


async def test_without_a_token_nothing_is_sent(served: Served, opened: Opened) -> None:
    backend = opened()
    opened.token_file.unlink()
    answer = await backend.submit(submission(NAME))
    assert isinstance(answer, NotSent)
    assert str(opened.token_file) in answer.reason
    assert isinstance(await backend.observe(), Silent)
    assert sum(served.counts.values()) == 0


def test_where_a_secret_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI", "hunter2")
    assert Secret(variable="PAI").read() == "hunter2"
    (tmp_path / "odd").write_bytes(b"hunter2\xff")
    for number, odd in enumerate(("hunter2 x", "hunter2\nx", "hunter2\u00e9")):
        monkeypatch.setenv(f"ODD_{number}", odd)
    for secret, said in (
        *((Secret(variable=f"ODD_{number}"), rf"^\$ODD_{number}: expected one word") for number in range(3)),
        (Secret(variable="NONE"), "NONE"),
        (Secret(file=str(tmp_path)), ":"),
        (Secret(file=str(tmp_path / "odd")), "odd: expected text"),
    ):
        with pytest.raises(NoSecret, match=said) as error:
            secret.read()
        assert "hunter2" not in str(error.value)
    for both in ("", "PAI"):
        with pytest.raises(ValueError, match="a variable or a file"):
            Secret(variable=both, file=both)


async def test_what_is_not_yaml_is_never_sent(served: Served, opened: Opened) -> None:
    backend = opened()
    two = submission(NAME).body + b"---\nname: train-v100\n"
    unclosed = submission(NAME).body.replace(b"run", b'"echo <% hunter2"')
    assert unclosed != submission(NAME).body
    for body in (b"a: [", b"secrets: {a: hunter2", b"name: other\n", two, unclosed):
        refused = await backend.submit(Submission(name=NAME, body=body))
        assert isinstance(refused, Refused)
        assert refused.of_content
        assert "hunter2" not in refused.message
    assert served.counts["submit"] == 0


async def test_a_job_may_have_as_many_bytes_as_the_server_takes(served: Served, opened: Opened) -> None:
    backend, body = opened(), submission(NAME).body + b"#"
    for size, taken in ((openpai.MOST_BYTES + 1, False), (openpai.MOST_BYTES, True)):
        answer = await backend.submit(Submission(name=NAME, body=body.ljust(size, b"#")))
        assert isinstance(answer, Accepted) is taken
    assert served.counts["submit"] == 1


async def test_the_owner_is_compared_whole(served: Served, opened: Opened) -> None:
    backend = opened()
    await backend.submit(submission(NAME))
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner == OWNER
    assert described.owner != Owner(federation="fed", job="uid-1", cluster="k80")

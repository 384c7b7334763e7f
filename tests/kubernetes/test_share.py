"""What the API server turns away says how many requests may be on their way: a share of its own, one that grows again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.share import LEAST, TURNED_AWAY, Share

MOST = 64
TOLD = TURNED_AWAY + b", please try again later.\n"
WEBHOOKS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}'


class Crowd:
    """Requests that wait for the share, or are on their way."""

    def __init__(self, most: int = MOST) -> None:
        self.share = Share(most)
        self.on_their_way: list[int] = []
        """What each was told as it entered."""
        self.asking: list[asyncio.Task[None]] = []

    async def ask(self, count: int) -> int:
        """So many more: how many are on their way."""
        self.asking += [asyncio.create_task(self._enter()) for _ in range(count)]
        return await self.settled()

    async def _enter(self) -> None:
        self.on_their_way.append(await self.share.enter())

    async def settled(self) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return len(self.on_their_way)

    async def answer(self, count: int, turned_away: bool | None = False) -> int:
        for _ in range(count):
            entered = self.on_their_way.pop(0)
            if turned_away:
                self.share.turned_away(entered)
            elif turned_away is not None:
                self.share.answered()
            self.share.leave()
        return await self.settled()

    async def close(self) -> None:
        for task in self.asking:
            task.cancel()
        await asyncio.gather(*self.asking, return_exceptions=True)


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    yield made
    await made.close()


async def test_nobody_waits_where_nothing_is_turned_away(crowd: Crowd) -> None:
    assert await crowd.ask(MOST) == MOST
    assert await crowd.ask(10) == MOST
    assert await crowd.answer(10) == MOST
    assert await crowd.answer(MOST, None) == 0


async def test_what_was_on_its_way_together_halves_it_once(crowd: Crowd) -> None:
    """Half of what was on its way, however many there might have been."""
    assert await crowd.ask(32) == 32
    assert await crowd.answer(20, True) == 12
    assert await crowd.ask(32) == 16
    assert await crowd.answer(12, True) == 16, "sent before that was known"
    assert await crowd.answer(1, True) == 15, "sent since: eight from now on"
    assert await crowd.answer(8) == 8


async def test_some_are_always_on_their_way_and_with_each_round_of_answers_one_more(crowd: Crowd) -> None:
    await crowd.ask(300)
    for _ in range(20):
        await crowd.answer(len(crowd.on_their_way), True)
    assert len(crowd.on_their_way) == LEAST
    assert await crowd.answer(LEAST, None) == LEAST, "no answer says nothing"
    assert await crowd.answer(LEAST) == LEAST, "not quite one more yet: 4, 4.25, 4.49, 4.71, 4.92"
    assert await crowd.answer(LEAST) == LEAST + 1


async def test_who_is_cancelled_while_he_waits_or_as_he_is_let_in_keeps_nobody_out(crowd: Crowd) -> None:
    await crowd.ask(MOST)
    await crowd.ask(3)
    waits, let_in, last = crowd.asking[MOST:]
    waits.cancel()
    await crowd.settled()
    crowd.on_their_way.pop()
    crowd.share.leave()
    let_in.cancel()
    await asyncio.wait({last})
    assert await crowd.settled() == MOST
    assert (waits.cancelled(), let_in.cancelled()) == (True, True)


@given(st.lists(st.tuples(st.sampled_from(["ask", "cancel", True, False, None]), st.integers(1, 9)), max_size=60))
def test_whatever_is_answered_each_comes_to_its_turn(steps: list[tuple[str | bool | None, int]]) -> None:
    async def run() -> None:
        crowd = Crowd(8)
        for step, count in steps:
            if step == "ask":
                await crowd.ask(count)
            elif step == "cancel":
                for task in crowd.asking[-count:]:
                    task.cancel()
                await crowd.settled()
            else:
                await crowd.answer(min(count, len(crowd.on_their_way)), step)  # type: ignore[arg-type]
            assert len(crowd.on_their_way) <= 8
        while crowd.on_their_way:
            await crowd.answer(1)
        assert all(task.done() for task in crowd.asking)

    asyncio.run(run())


@asynccontextmanager
async def seats(count: int, told: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that turns away what is beyond so many at a time; of each request, how many were there with it."""
    present, met = 0, list[int]()

    async def bind(_: web.Request) -> web.Response:
        nonlocal present
        present += 1
        met.append(present)
        try:
            if present > count:
                await asyncio.sleep(0)
                return web.Response(status=429, body=told, headers={"Retry-After": "1"})
            await asyncio.sleep(0.002)
            return web.Response(status=201, body=b"{}")
        finally:
            present -= 1

    app = web.Application()
    app.router.add_post("/{path:.*}", bind)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield f"http://127.0.0.1:{port}", met
    await runner.cleanup()


@pytest.mark.parametrize("told", [TOLD, WEBHOOKS], ids=["of the server's own", "a webhook's"])
async def test_only_the_servers_own_word_makes_fewer_of_them(told: bytes) -> None:
    async with seats(1, told) as (url, met), Client(direct(url)) as client:
        bindings = (client.bind("default", f"p{number}", "uid", "1", "n1") for number in range(800))
        outcomes = Counter(result.outcome for result in await asyncio.gather(*bindings))
        assert outcomes.total() == len(met) == 800
        assert set(outcomes) == {"bound", "not_executed"}
        assert (max(met[500:]) <= 2 * LEAST) == (told == TOLD)

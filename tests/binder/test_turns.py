"""Whose turn it is: namespaces in turn, each in its order, and none has all of the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.binder.service.rounds import Queue
from services.binder.service.turns import Turns
from tests.waiting import until


def turns_of(*keys: str, workers: int = 1) -> Turns[str]:
    """Of keys `namespace/name`."""
    turns = Turns[str](lambda key: key.partition("/")[0], workers)
    for key in keys:
        turns.put(key)
    return turns


@asynccontextmanager
async def at_work(turns: Turns[str]) -> AsyncIterator[list[str]]:
    """What workers took that are never done with it."""
    taken: list[str] = []

    async def work() -> None:
        while True:
            taken.append(await turns.take())

    worker = asyncio.create_task(work())
    yield taken
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_namespaces_take_turns_and_each_is_served_in_its_order() -> None:
    turns = turns_of("a/1", "a/2", "a/3", "b/1", "c/1", "b/2")
    taken = []
    while turns:
        taken.append(await turns.take())
        turns.done(taken[-1])
    assert taken == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]


async def test_one_namespace_never_has_the_last_quarter_of_the_workers() -> None:
    turns = turns_of(*(f"a/{number}" for number in range(20)), workers=8)
    async with at_work(turns) as taken:
        await until(lambda: len(taken) == 6, "its share")
        turns.put("b/0")
        await until(lambda: taken[6:] == ["b/0"], "another's, and nothing else")
        turns.done("b/0")
        turns.done("a/3")
        await until(lambda: taken[7:] == ["a/6"], "its next, as one is done")


async def test_it_is_busy_until_all_is_done() -> None:
    turns = turns_of()
    async with at_work(turns) as taken:
        assert not turns
        turns.put("a/0")
        assert turns, "handed out, or about to be"
        await until(lambda: taken, "it to be taken")
        assert turns
        turns.done("a/0")
        assert not turns


async def test_a_worker_that_was_cancelled_loses_nothing() -> None:
    turns = turns_of(workers=2)
    async with at_work(turns):
        await asyncio.sleep(0)
    turns.put("a/0")
    assert await turns.take() == "a/0"


async def test_a_namespace_has_no_turn_while_any_of_its_writes_has_no_answer() -> None:
    async def made() -> int:
        return 1

    queue = Queue[str](lambda key: key.partition("/")[0])
    first, second = (queue.write(key, made) for key in ("a/1", "a/2"))
    queue.put("a/3", "b/1")
    with first.until_answered():
        with second.until_answered():
            assert list(queue.namespaces()) == ["b"]
        assert list(queue.namespaces()) == ["b"]
    assert list(queue.namespaces()) == ["a", "b"]

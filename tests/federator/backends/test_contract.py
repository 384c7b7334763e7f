"""What the federator relies on, of every backend, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.federator.backends import (
    FAILED,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    TERMINAL,
    WAITING,
    Absent,
    Accepted,
    Backend,
    Described,
    Holding,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Owner,
    Refused,
    Run,
    Silent,
    Submission,
    Taken,
)
from services.simulator.cluster import SimulatedCluster
from services.simulator.openpai.server import OpenPai
from tests.federator.backends import sites
from tests.federator.backends.sites import (
    OWNER,
    PAGE,
    UNLIMITED,
    Clock,
    KubernetesSite,
    OpenPaiSite,
    Site,
    submission,
)
from tests.waiting import answered, until

NAME = "train-v100"
PAGES = 3
"""A first, one between two others, and a last."""


@pytest.fixture(params=["openpai", "kubernetes", "kubernetes-roles"])
async def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    if request.param == "kubernetes-roles":
        monkeypatch.setattr(sites, "ROLES", 3)
    if request.param == "openpai":
        clock = Clock()
        async with OpenPai() as pai:
            tokens = {"secret": "alice"}
            served = pai.add("v100", tokens=tokens, clock=clock, life=OpenPaiSite.LIFE, limits=UNLIMITED)
            yield OpenPaiSite(served, clock, tmp_path)
    else:
        async with SimulatedCluster() as cluster:
            yield KubernetesSite(cluster)


@pytest.fixture
async def backend(site: Site) -> AsyncIterator[Backend]:
    opened = site.open()
    yield opened
    await opened.close()


async def listed(backend: Backend) -> dict[str, Run]:
    seen = await backend.observe()
    assert isinstance(seen, Listing), seen
    return {run.name: run for run in seen.runs}


async def seen(backend: Backend, name: str, *states: str) -> Run:
    """The run when it is in one of these states."""

    async def look() -> Run | None:
        run = (await listed(backend)).get(name)
        return run if run is not None and run.state in states else None

    return await answered(look, f"{name} to be {' or '.join(states)}")


async def accepted(backend: Backend, name: str = NAME) -> Accepted:
    """Submitted, and released where that takes something."""
    answer = await backend.submit(submission(name))
    assert isinstance(answer, Accepted)
    if answer.held:
        assert isinstance(backend, Holding)
        assert isinstance(await backend.release(submission(name), answer.uid), Accepted)
    return answer


async def running(site: Site, backend: Backend, name: str = NAME) -> Run:
    await accepted(backend, name)
    await pods_made(site, backend, name)
    site.start(name)
    run = await seen(backend, name, RUNNING)
    assert site.alive(name)
    return run


async def pods_made(site: Site, backend: Backend, name: str) -> None:
    """Until there is something to start."""
    if isinstance(site, KubernetesSite):
        await until(lambda: len(site.pods(name)) >= 2 * sites.ROLES, "the Job's pods")


# -------------------------------------------------------------------------------------------------------------- submit


async def test_a_submission_is_listed_and_says_whose_it_is(backend: Backend) -> None:
    answer = await backend.submit(submission(NAME))
    assert isinstance(answer, Accepted)
    run = (await listed(backend))[NAME]
    assert run == Run(name=NAME, uid=answer.uid, state=WAITING, attempt=0, started_ms=0, held=answer.held)
    assert await backend.describe(NAME) == Described(run=run, owner=OWNER)


async def test_any_name_that_a_job_may_have(backend: Backend) -> None:
    names = ["A_b-C", "a-b-c", "a_b-c", "n" * 255, "_"]
    for name in names:
        assert isinstance(await backend.submit(submission(name)), Accepted), name
    assert sorted(await listed(backend)) == sorted(names)
    for name in names:
        described = await backend.describe(name)
        assert isinstance(described, Described)
        assert (described.run.name, described.owner) == (name, OWNER)


async def test_submitted_twice_there_is_one(backend: Backend) -> None:
    assert isinstance(await backend.submit(submission(NAME)), Accepted)
    for _ in range(2):
        assert await backend.submit(submission(NAME)) == Taken()
    assert list(await listed(backend)) == [NAME]


async def test_submitted_by_many_at_once_there_is_one(backend: Backend) -> None:
    answers = await asyncio.gather(*(backend.submit(submission(NAME)) for _ in range(8)))
    assert sum(isinstance(answer, Accepted) for answer in answers) == 1
    assert answers.count(Taken()) == 7


async def test_an_answer_that_is_lost_leaves_doubt_and_the_job_is_found(site: Site, backend: Backend) -> None:
    site.plan("submit", hang_up=True, applied=True)
    assert isinstance(await backend.submit(submission(NAME)), InDoubt)
    assert site.there(NAME)
    assert await backend.submit(submission(NAME)) == Taken()
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner == OWNER


async def test_a_request_that_is_lost_leaves_doubt_and_can_be_repeated(site: Site, backend: Backend) -> None:
    site.plan("submit", hang_up=True)
    assert isinstance(await backend.submit(submission(NAME)), InDoubt)
    assert await backend.describe(NAME) == Absent()
    assert isinstance(await backend.submit(submission(NAME)), Accepted)


async def test_a_server_in_trouble_leaves_doubt(site: Site, backend: Backend) -> None:
    site.plan("submit", status=500, applied=True)
    assert isinstance(await backend.submit(submission(NAME)), InDoubt)
    assert site.there(NAME)


async def test_an_answer_that_takes_too_long_leaves_doubt(site: Site) -> None:
    impatient = site.open(timeout_s=0.2)
    try:
        site.plan("submit", delay_s=600.0, applied=True)
        assert isinstance(await impatient.submit(submission(NAME)), InDoubt)
    finally:
        await impatient.close()


async def test_429_says_when_to_come_again(site: Site, backend: Backend) -> None:
    site.plan("submit", status=429, retry_after_s=7)
    assert await backend.submit(submission(NAME)) == Limited(retry_after_ms=7_000)
    assert not site.there(NAME)


async def test_a_foreign_job_of_the_same_name_is_told_and_left_alone(site: Site, backend: Backend) -> None:
    site.put(NAME, None)
    assert await backend.submit(submission(NAME)) == Taken()
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner is None
    assert described.run.state not in TERMINAL


async def test_a_job_of_another_owner_is_not_ours(site: Site, backend: Backend) -> None:
    other = Owner(federation="other", job="uid-9", cluster="v100")
    site.put(NAME, other)
    assert await backend.submit(submission(NAME)) == Taken()
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner == other


@pytest.mark.parametrize(
    "body", [b"name: [", b"", b"- a", b"name: train-v100", b"name: other", b"\xff", b"name: " + b"x" * 200_000]
)
async def test_what_is_no_job_is_refused_for_good(site: Site, backend: Backend, body: bytes) -> None:
    refused = await backend.submit(Submission(name=NAME, body=body))
    assert isinstance(refused, Refused)
    assert refused.of_content
    assert len(refused.message) <= 500
    assert not site.there(NAME)


# ---------------------------------------------------------------------------------------------------------------- life


async def test_a_life(site: Site, backend: Backend) -> None:
    run = await running(site, backend)
    assert run.started_ms > 0
    assert (await listed(backend))[NAME] == run, "equal while nothing changed"
    site.finish(NAME, 0)
    site.elapse()
    assert (await seen(backend, NAME, SUCCEEDED)).attempt == 0


async def test_a_job_that_fails(site: Site, backend: Backend) -> None:
    await running(site, backend)
    site.finish(NAME, 1)
    site.elapse()
    await seen(backend, NAME, FAILED)
    assert not site.alive(NAME)


async def test_a_process_that_starts_sees_what_the_one_before_saw(site: Site, backend: Backend) -> None:
    await running(site, backend)
    await accepted(backend, "second")
    await pods_made(site, backend, "second")
    again = site.open()
    try:
        before, after = await backend.observe(), await again.observe()
        assert isinstance(before, Listing)
        assert isinstance(after, Listing)
        assert sorted(before.runs, key=lambda run: run.name) == sorted(after.runs, key=lambda run: run.name)
        assert after.clock_ms > 0
    finally:
        await again.close()


# ---------------------------------------------------------------------------------------------------------------- stop


async def stopped(site: Site, backend: Backend, run: Run) -> None:
    """Until it is; meanwhile it may be anything but over in another way."""
    for _ in range(2):
        assert isinstance(await backend.stop(run.name, run.uid), Accepted), "as often as it is asked"
    now = (await listed(backend))[run.name]
    assert now.state in (WAITING, RUNNING, STOPPING, STOPPED)
    site.elapse()
    await seen(backend, run.name, STOPPED)
    assert not site.alive(run.name)
    assert await backend.submit(submission(run.name)) == Taken(), "the name is never free again"


async def test_a_running_job_is_stopped(site: Site, backend: Backend) -> None:
    await stopped(site, backend, await running(site, backend))


async def test_a_job_is_stopped_while_it_starts(site: Site, backend: Backend) -> None:
    await accepted(backend)
    await stopped(site, backend, await seen(backend, NAME, WAITING))


async def test_a_job_is_stopped_before_its_cluster_has_looked_at_it(site: Site, backend: Backend) -> None:
    answer = await backend.submit(submission(NAME))
    assert isinstance(answer, Accepted)
    assert isinstance(await backend.stop(NAME, answer.uid), Accepted)
    site.elapse()
    await seen(backend, NAME, STOPPED)


async def test_a_stop_that_is_refused(site: Site, backend: Backend) -> None:
    run = await running(site, backend)
    site.plan("stop", status=403)
    refused = await backend.stop(NAME, run.uid)
    assert isinstance(refused, Refused)
    assert not refused.of_content
    site.elapse()
    assert (await listed(backend))[NAME] == run
    await stopped(site, backend, run)


async def test_a_stop_whose_answer_is_lost_is_repeated(site: Site, backend: Backend) -> None:
    run = await running(site, backend)
    planned = site.plan("stop", hang_up=True, applied=True, times=0)  # aiohttp sends a PUT a second time by itself
    assert isinstance(await backend.stop(NAME, run.uid), InDoubt)
    site.faults.lift(planned)
    await stopped(site, backend, run)


async def test_a_stop_of_what_is_not_there(backend: Backend) -> None:
    assert await backend.stop(NAME, "a-uid") == Absent()


async def test_a_stop_of_what_is_over_changes_nothing(site: Site, backend: Backend) -> None:
    run = await running(site, backend)
    site.finish(NAME, 0)
    site.elapse()
    over = await seen(backend, NAME, SUCCEEDED)
    assert isinstance(await backend.stop(NAME, run.uid), Accepted)
    site.elapse()
    assert (await listed(backend))[NAME] == over


# ------------------------------------------------------------------------------------------------------------- observe


async def test_nothing_is_there(backend: Backend) -> None:
    assert await listed(backend) == {}
    assert await backend.describe(NAME) == Absent()


async def test_a_list_that_fails_once_is_asked_again(site: Site, backend: Backend) -> None:
    await backend.submit(submission(NAME))
    for what in ({"status": 500, "times": 1}, {"hang_up": True, "times": 2}):  # aiohttp repeats one by itself
        planned = site.plan("list", **what)
        assert list(await listed(backend)) == [NAME]
        assert planned.hits == what["times"]


async def test_a_cluster_that_does_not_say_is_silent(site: Site, backend: Backend) -> None:
    await backend.submit(submission(NAME))
    site.plan("list", status=500, times=0)
    site.plan("describe", status=500, times=0)
    assert isinstance(await backend.observe(), Silent)
    assert isinstance(await backend.describe(NAME), Silent)


async def test_a_cluster_that_is_not_there(site: Site) -> None:
    if isinstance(site, OpenPaiSite):
        site.served.url = "http://127.0.0.1:9"
    elif isinstance(site, KubernetesSite):
        site.cluster.url = "http://127.0.0.1:9"
    backend = site.open()
    try:
        assert isinstance(await backend.submit(submission(NAME)), NotSent)
        assert isinstance(await backend.stop(NAME, "a-uid"), NotSent)
        assert isinstance(await backend.observe(), Silent)
        assert isinstance(await backend.describe(NAME), Silent)
    finally:
        await backend.close()


async def test_jobs_of_many_pages(site: Site, backend: Backend) -> None:
    site.put_many(PAGES * PAGE)
    before = site.requests()
    runs = await listed(backend)
    assert len(runs) == PAGES * PAGE
    assert set(runs) == {f"many-{number}" for number in range(PAGES * PAGE)}
    assert site.requests() - before in (PAGES, PAGES + 1), "each page once"

"""Muster's own client, as the federator uses it: Jobs that are a gang."""

from __future__ import annotations

import pytest

from services.kubernetes.client import Client as Own
from services.kubernetes.errors import ApiError, Conflict, Forbidden, NotFound
from services.kubernetes.gang_jobs import CONTROLLER, JOBS, GangJobs
from services.kubernetes.resources import POD_GROUPS
from tests.contract.client import OTHER_UID, Accounts, Client, Object, podgroup

PHASE = "example.com/phase"
HELD = ("metadata", "annotations", PHASE)
LABELS = {"example.com/federator": "muster"}
SELECTOR = "example.com/federator=muster"


def job(name: str, size: int = 1) -> Object:
    container = {"name": "main", "image": "i", "args": ["x" * size]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": LABELS, "annotations": {PHASE: "held"}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.fixture
async def jobs(client: Client, accounts: Accounts) -> GangJobs:
    return GangJobs(accounts.admin, client.namespace)


async def test_own_jobs_are_made_listed_let_go_and_stopped(client: Client, jobs: GangJobs) -> None:
    async with jobs:
        uid = await jobs.create(JOBS, job("a"))
        found, date = await jobs.jobs(SELECTOR)
        assert [(one.metadata.uid, one.spec.suspend, one.says(PHASE)) for one in found] == [(uid, True, "held")]
        assert date.endswith("GMT")
        assert await jobs.jobs("example.com/federator=other") == ([], (await jobs.jobs("a=b"))[1])
        assert await jobs.pods(f"{CONTROLLER} in (a, b)") == []
        await jobs.resume("a", {("metadata", "uid"): uid, HELD: "held"}, PHASE, "released")
        let_go = await jobs.get_job("a")
        assert let_go is not None
        assert (let_go.spec.suspend, let_go.says(PHASE)) == (False, "released")
        await jobs.resume("a", {("metadata", "uid"): uid}, "example.com/new", "x")
        assert (await jobs.jobs(SELECTOR))[0][0].says("example.com/new") == "x"
        await jobs.suspend("a", uid, {PHASE: "stopped"})
        stopped = await jobs.get_job("a")
        assert stopped is not None
        assert (stopped.spec.suspend, stopped.says(PHASE)) == (True, "stopped")
        await jobs.delete("a", uid)
        assert await jobs.get_job("a") is None
        assert await jobs.get_job("b") is None


async def test_own_jobs_that_are_refused(client: Client, jobs: GangJobs) -> None:
    async with jobs:
        uid = await jobs.create(JOBS, job("a"))
        with pytest.raises(Conflict) as taken:
            await jobs.create(JOBS, job("a"))
        assert taken.value.reason == "AlreadyExists"
        with pytest.raises(Conflict):
            await jobs.suspend("a", OTHER_UID, {})
        with pytest.raises(NotFound):
            await jobs.suspend("b", uid, {})
        for wrong in ({("metadata", "uid"): OTHER_UID}, {HELD: "stopped"}, {("metadata", "labels", "no"): uid}):
            with pytest.raises(ApiError) as error:
                await jobs.resume("a", wrong, PHASE, "released")
            assert error.value.code == 422
        with pytest.raises(NotFound):
            await jobs.resume("b", {("metadata", "uid"): uid}, PHASE, "released")
        with pytest.raises(Conflict):
            await jobs.delete("a", OTHER_UID)
        with pytest.raises(NotFound):
            await jobs.delete("b", uid)
        held = await jobs.get_job("a")
        assert held is not None
        assert (held.metadata.uid, held.spec.suspend, held.says(PHASE)) == (uid, True, "held")


async def test_own_jobs_that_no_server_takes(client: Client, jobs: GangJobs) -> None:
    async with jobs:
        for wrong, code in ((job("A_"), 422), (job("a") | {"spec": {"suspend": "x"}}, 400), (job("a", 3_200_000), 413)):
            with pytest.raises(ApiError) as error:
                await jobs.create(JOBS, wrong)
            assert (error.value.code, error.value.retryable) == (code, False)
        assert (await jobs.jobs(SELECTOR))[0] == []


async def test_own_jobs_where_there_is_no_namespace(client: Client, accounts: Accounts) -> None:
    async with GangJobs(accounts.admin, "no-such-namespace") as nowhere:
        with pytest.raises(NotFound):
            await nowhere.create(JOBS, job("a"))
        assert (await nowhere.jobs(SELECTOR))[0] == []
        assert await nowhere.get_job("a") is None


async def test_own_jobs_without_rights(client: Client, accounts: Accounts) -> None:
    async with GangJobs(accounts.stranger, client.namespace) as nobody:
        for asked in (nobody.create(JOBS, job("a")), nobody.jobs(SELECTOR), nobody.get_job("a")):
            with pytest.raises(Forbidden):
                await asked


async def test_own_podgroup_beside_the_jobs(crd: Client, jobs: GangJobs, own: Own) -> None:
    async with jobs:
        uid = await jobs.create(POD_GROUPS, podgroup("g"))
        with pytest.raises(Conflict) as taken:
            await jobs.create(POD_GROUPS, podgroup("g"))
        assert taken.value.reason == "AlreadyExists"
    found = await own.get_pod_group(POD_GROUPS, crd.namespace, "g")
    assert found is not None
    assert found.metadata.uid == uid

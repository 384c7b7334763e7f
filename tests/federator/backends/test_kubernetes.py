"""Runs on Kubernetes: held until they are released, stopped for good, cleared by UID; several task roles as one gang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from services.federator.backends import (
    FAILED,
    MARKER,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    WAITING,
    Absent,
    Accepted,
    Described,
    InDoubt,
    Listing,
    NotSent,
    Owner,
    Refused,
    Run,
    Submission,
    Taken,
)
from services.federator.backends.gangs import job_names
from services.federator.backends.kubernetes import Kubernetes
from services.federator.specialize import to_yaml
from services.kubernetes.access import Access, AccessError
from services.kubernetes.errors import Unreachable
from services.kubernetes.gang_jobs import Job
from tests.federator.backends.sites import OWNER, KubernetesSite, job, submission
from tests.waiting import answered, until

NAME, ROLES = "train", 3
FIRST, OTHERS = job_names(NAME, OWNER)
JOBS = (FIRST, f"{OTHERS}-1", f"{OTHERS}-2")


async def submitted(backend: Kubernetes, roles: int = ROLES) -> str:
    answer = await backend.submit(submission(NAME, roles=roles))
    assert isinstance(answer, Accepted)
    assert answer.held
    return answer.uid


async def started(site: KubernetesSite, backend: Kubernetes, roles: int = ROLES) -> str:
    uid = await submitted(backend, roles)
    assert isinstance(await backend.release(submission(NAME, roles=roles), uid), Accepted)
    await until(lambda: len(site.pods(NAME)) == 2 * roles, "all pods")
    site.start(NAME)
    await seen(backend, RUNNING)
    return uid


async def begun(site: KubernetesSite, backend: Kubernetes, succeeded: dict[str, int | None]) -> None:
    """It runs. `succeeded`: its task roles, with their minSucceededInstances."""
    described = job(NAME, roles=len(succeeded))
    for role, count in succeeded.items():
        described["taskRoles"][role]["completion"] = {} if count is None else {"minSucceededInstances": count}
    given = Submission(name=NAME, body=to_yaml(described).encode())
    answer = await backend.submit(given)
    assert isinstance(answer, Accepted)
    assert isinstance(await backend.release(given, answer.uid), Accepted)
    await until(lambda: len(site.pods(NAME)) == 2 * len(succeeded), "all pods")
    site.start(NAME)
    await seen(backend, RUNNING)


async def run(backend: Kubernetes) -> Run | None:
    found = await backend.observe()
    assert isinstance(found, Listing)
    return next((one for one in found.runs if one.name == NAME), None)


async def seen(backend: Kubernetes, state: str) -> Run:
    async def look() -> Run | None:
        now = await run(backend)
        return now if now is not None and now.state == state else None

    return await answered(look, f"a run that is {state}")


async def until_listed(backend: Kubernetes, condition: Callable[[], object]) -> None:
    """List it until the condition holds."""

    async def look() -> object:
        assert isinstance(await backend.observe(), Listing)
        return condition()

    await answered(look)


def jobs(site: KubernetesSite) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in site.cluster.list("Job")}


def end(site: KubernetesSite, of_job: str, phase: str, count: int = 2) -> None:
    pods = [pod for pod in site.pods(NAME) if pod["metadata"]["name"].startswith(f"{of_job}-")]
    for pod in pods[:count]:
        site.cluster.patch("Pod", pod["metadata"]["name"], {"status": {"phase": phase}}, subresource="status")


# ---------------------------------------------------------------------------------------------------------------- held


async def test_nothing_runs_before_it_is_released(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    assert list(jobs(site)) == [FIRST], "one object takes the name"
    await until(lambda: "conditions" in jobs(site)[FIRST].get("status", {}), "its controller to have looked at it")
    assert site.pods(NAME) == []
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    (held,) = listing.held
    assert (held.run.uid, held.run.state, held.owner) == (uid, WAITING, OWNER)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), Accepted)
    assert sorted(jobs(site)) == sorted(JOBS)
    await until(lambda: len(site.pods(NAME)) == 2 * ROLES, "all pods of all roles")
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert not described.run.held
    released = await backend.observe()
    assert isinstance(released, Listing)
    assert released.held == ()


async def test_a_release_is_repeated_as_often_as_one_likes(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    answers = await asyncio.gather(*(backend.release(submission(NAME, roles=ROLES), uid) for _ in range(5)))
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), Accepted)
    await until(lambda: len(site.pods(NAME)) == 2 * ROLES, "all pods")
    assert sorted(jobs(site)) == sorted(JOBS)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("request_number", range(6))
async def test_all_roles_or_none_whichever_request_is_lost(
    site: KubernetesSite, backend: Kubernetes, request_number: int, applied: bool
) -> None:
    """Of a release: three objects are made, three Jobs let go, the first one last."""
    uid = await submitted(backend)
    verb, resource, nth = [
        ("create", "podgroups", 0),
        ("create", "jobs", 0),
        ("create", "jobs", 1),
        ("patch", "jobs", 0),
        ("patch", "jobs", 1),
        ("patch", "jobs", 2),
    ][request_number]
    if nth:
        site.cluster.faults.plan(verb=verb, resource=resource, times=nth)  # does no harm to those before
    lost = site.cluster.faults.plan(verb=verb, resource=resource, hang_up=True, applied=applied)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), InDoubt)
    assert lost.hits, "it was lost"
    let_go = request_number == 5 and applied
    assert bool(jobs(site)[FIRST]["spec"]["suspend"]) != let_go, "without the first Job's pods the gang waits"
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), Accepted)
    await until(lambda: len(site.pods(NAME)) == 2 * ROLES, "all pods of all roles")
    assert sorted(jobs(site)) == sorted(JOBS)


@pytest.mark.parametrize("nth", range(ROLES))
async def test_all_roles_or_none_whichever_is_let_go_by_what_stands_between_alone(
    site: KubernetesSite, backend: Kubernetes, nth: int
) -> None:
    """A proxy that says yes to anything. As it was, a role was held for good whose release it had answered
    (lossy-federated, 713570)."""
    uid = await submitted(backend)
    if nth:
        site.cluster.faults.plan(verb="patch", resource="jobs", times=nth)
    lost = site.cluster.faults.plan(verb="patch", resource="jobs", status=200)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), InDoubt)
    assert lost.hits
    assert jobs(site)[FIRST]["spec"]["suspend"]
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), Accepted)
    await until(lambda: len(site.pods(NAME)) == 2 * ROLES, "all pods of all roles")


async def test_what_stands_between_makes_nothing_and_clears_nothing(site: KubernetesSite, backend: Kubernetes) -> None:
    """As it was: a run without a UID was accepted, roles let go without their PodGroup, and what is there was gone."""
    faults = site.cluster.faults
    made = faults.plan(verb="create", resource="jobs", status=200)
    assert isinstance(await backend.submit(submission(NAME, roles=ROLES)), InDoubt)
    uid = await submitted(backend)
    grouped = faults.plan(verb="create", resource="podgroups", status=200)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), InDoubt)
    assert jobs(site)[FIRST]["spec"]["suspend"]
    gone = faults.plan(verb="delete", resource="jobs", status=200)
    assert isinstance(await backend.clear(NAME, uid), InDoubt)
    assert (made.hits, grouped.hits, gone.hits) == (1, 1, 1)
    assert FIRST in jobs(site)
    assert isinstance(await backend.clear(NAME, uid), Accepted)
    assert FIRST not in jobs(site)


@pytest.mark.parametrize("resource", ["podgroups", "jobs"])
async def test_a_release_meets_a_quota_that_somebody_else_takes_of(
    site: KubernetesSite, backend: Kubernetes, resource: str
) -> None:
    """Kubernetes answers 409 to that as well, and nothing was made."""
    uid = await submitted(backend)
    site.cluster.faults.plan(verb="create", resource=resource, status=409)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), InDoubt)
    assert jobs(site)[FIRST]["spec"]["suspend"]
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), Accepted)
    assert sorted(jobs(site)) == sorted(JOBS)
    assert len(list(site.cluster.list("PodGroup"))) == 1


async def test_a_release_that_comes_after_the_stop_lets_nothing_go(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    assert isinstance(await backend.stop(NAME, uid), Accepted)
    assert await backend.release(submission(NAME, roles=ROLES), uid) == Absent()
    await seen(backend, STOPPED)
    assert site.pods(NAME) == []


async def test_a_stop_in_the_middle_of_a_release(site: KubernetesSite, backend: Kubernetes) -> None:
    """Somebody else stops it between any two of its requests: the first Job never goes."""
    for nth in range(6):
        name = f"train-{nth}"
        given = submission(name, roles=ROLES)
        answer = await backend.submit(given)
        assert isinstance(answer, Accepted)
        verb, before = ("create", nth) if nth < 3 else ("patch", nth - 3)
        if before:
            site.cluster.faults.plan(verb=verb, times=before)  # as they are
        slow = site.cluster.faults.plan(verb=verb, delay_s=0.2, times=1)
        releasing = asyncio.create_task(backend.release(given, answer.uid))
        await until(lambda: slow.hits, "the release to be under way")  # noqa: B023
        assert isinstance(await backend.stop(name, answer.uid), Accepted)
        await releasing
        first, _ = job_names(name, OWNER)
        assert jobs(site)[first]["spec"]["suspend"]
        assert isinstance(await backend.stop(name, answer.uid), Accepted), "as it is repeated until its end is seen"
        assert all(other["spec"]["suspend"] for other in jobs(site).values())


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_release_that_looked_a_moment_too_early_lets_nothing_go(
    site: KubernetesSite, backend: Kubernetes, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its look the run is stopped, or cleared and its name taken by a submission that comes late."""
    uid, phase, looks = await submitted(backend), backend._phase, ["held"]

    async def looked(first: str, uid: str) -> str:
        return looks.pop() if looks else await phase(first, uid)

    monkeypatch.setattr(backend, "_phase", looked)
    if not replaced:
        assert isinstance(await backend.stop(NAME, uid), Accepted)
    assert await backend.release(submission(NAME, roles=ROLES), "another" if replaced else uid) == Absent()
    assert jobs(site)[FIRST]["spec"]["suspend"], "without it nothing of the gang runs"


async def test_a_run_that_is_being_deleted_is_not_released(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    site.cluster.patch("Job", FIRST, {"metadata": {"finalizers": ["example.com/kept"]}})
    site.cluster.delete("Job", FIRST)
    assert list(jobs(site)) == [FIRST]
    assert await backend.release(submission(NAME, roles=ROLES), uid) == Absent()
    assert list(jobs(site)) == [FIRST]


async def test_of_a_release_something_was_sent_before_the_cluster_was_gone(
    backend: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await submitted(backend)

    async def resume(*_: object) -> None:
        raise Unreachable("patch jobs", "ClientConnectorError", "refused", sent=False)

    monkeypatch.setattr(backend._jobs, "resume", resume)
    assert isinstance(await backend.release(submission(NAME, roles=ROLES), uid), InDoubt)


async def test_without_a_token_nothing_is_sent_and_nothing_refused(site: KubernetesSite) -> None:
    """Its file is being written anew. A refusal would end the job's race there, for good."""

    def missing() -> str:
        raise AccessError("token: expected a bearer token, found an empty file")

    bare = Kubernetes(Access(site.cluster.url, authorization=missing), "default")
    try:
        one = submission(NAME)
        assert isinstance(await bare.submit(one), NotSent)
        assert isinstance(await bare.stop(NAME, "u"), NotSent)
        assert isinstance(await bare.release(one, "u"), InDoubt), "of several requests"
    finally:
        await bare.close()
    assert not site.there(NAME)


@pytest.mark.parametrize(
    "role",
    [{}, 1, {"instances": "two"}, {"dockerImage": []}, {"resourcePerInstance": {"cpu": 1}}, {"completion": [1]}],
)
async def test_a_body_that_is_no_job_is_refused_and_is_no_error(backend: Kubernetes, role: Any) -> None:
    described = job(NAME)
    described["taskRoles"]["worker"] = described["taskRoles"]["worker"] | role if role and role != 1 else role
    for body in (to_yaml(described), to_yaml(described | {"extras": {MARKER: 1}}), "a: 1\n---\nb: 2", "1"):
        given = Submission(name=NAME, body=body.encode())
        for refused in (await backend.submit(given), await backend.release(given, "a-uid")):
            assert isinstance(refused, Refused)
            assert refused.of_content


# ------------------------------------------------------------------------------------------------------ stopped, cleared


async def test_a_run_whose_name_kubernetes_would_not_take(site: KubernetesSite, backend: Kubernetes) -> None:
    given = submission("Train_V100", roles=ROLES)
    answer = await backend.submit(given)
    assert isinstance(answer, Accepted)
    assert not await backend.is_gone(given.name, answer.uid)
    assert isinstance(await backend.release(given, answer.uid), Accepted)
    assert isinstance(await backend.stop(given.name, answer.uid), Accepted)
    assert all(one["spec"]["suspend"] for one in jobs(site).values())
    assert isinstance(await backend.clear(given.name, answer.uid), Accepted)
    await until(lambda: not jobs(site), "all Jobs of the run to go")


async def test_a_run_of_several_roles_is_stopped_whole(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await started(site, backend)
    assert isinstance(await backend.stop(NAME, uid), Accepted)
    await seen(backend, STOPPED)
    assert site.pods(NAME) == []
    assert await backend.submit(submission(NAME)) == Taken(), "until it is cleared"


async def test_a_stop_begins_with_the_first_job(site: KubernetesSite, backend: Kubernetes) -> None:
    """Without it the gang is below its minimum, whatever becomes of the others."""
    uid = await started(site, backend)
    site.plan("list", status=403)
    assert isinstance(await backend.stop(NAME, uid), Refused)
    assert [name for name, one in jobs(site).items() if one["spec"]["suspend"]] == [FIRST]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_part_that_is_gone_keeps_no_other_from_being_stopped(
    site: KubernetesSite, backend: Kubernetes, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await started(site, backend)
    others = await backend._others(uid)
    site.cluster.delete("Job", others[0].metadata.name)
    if replaced:
        site.put(others[0].metadata.name, None)

    async def listed(_: str) -> list[Job]:
        return others

    monkeypatch.setattr(backend, "_others", listed)
    assert isinstance(await backend.stop(NAME, uid), Accepted)
    suspended = {name for name, one in jobs(site).items() if one["spec"].get("suspend")}
    assert suspended == {FIRST, others[1].metadata.name}


async def test_what_is_cleared_leaves_nothing_and_a_late_submission_stays_held(
    site: KubernetesSite, backend: Kubernetes
) -> None:
    uid = await started(site, backend)
    await backend.stop(NAME, uid)
    await seen(backend, STOPPED)
    assert isinstance(await backend.clear(NAME, uid), Accepted)
    await until(lambda: not jobs(site), "all Jobs of the run to go")
    assert await backend.clear(NAME, uid) == Absent()
    late = await submitted(backend)
    assert await backend.release(submission(NAME, roles=ROLES), uid) == Absent(), "it means the one that is gone"
    assert await backend.stop(NAME, uid) == Absent()
    assert await backend.clear(NAME, uid) == Absent()
    assert list(jobs(site)) == [FIRST]
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    assert [(one.run.uid, one.owner) for one in listing.held] == [(late, OWNER)]
    assert isinstance(await backend.clear(NAME, late), Accepted)
    assert site.pods(NAME) == []


async def test_a_foreign_job_is_neither_released_nor_stopped_nor_cleared(
    site: KubernetesSite, backend: Kubernetes
) -> None:
    site.put(NAME, Owner(federation="other", job="u", cluster="c"))
    before = jobs(site)[FIRST]["spec"]
    for asked in (
        backend.release(submission(NAME), "a-uid"),
        backend.stop(NAME, "a-uid"),
        backend.clear(NAME, "a-uid"),
    ):
        assert await asked == Absent()
    assert jobs(site)[FIRST]["spec"] == before


async def test_a_clear_that_is_refused(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    site.cluster.faults.plan(verb="delete", resource="jobs", status=403, times=1)
    assert isinstance(await backend.clear(NAME, uid), Refused)
    assert isinstance(await backend.clear(NAME, uid), Accepted)


@pytest.mark.parametrize(("status", "answer"), [(404, Refused), (409, InDoubt)])
async def test_what_a_webhook_says_no_to_is_neither_gone_nor_another_run_of_the_name(
    site: KubernetesSite, backend: Kubernetes, status: int, answer: type[Refused | InDoubt]
) -> None:
    """It is there still: what is taken for gone is never cleared."""
    uid = await submitted(backend)
    for verb, ask in (("patch", backend.stop), ("delete", backend.clear)):
        site.cluster.faults.plan(verb=verb, resource="jobs", status=status, times=1)
        assert isinstance(await ask(NAME, uid), answer)
        assert isinstance(await ask(NAME, uid), Accepted)


# ------------------------------------------------------------------------------------------------------------------ ends


async def test_it_runs_when_all_roles_run(site: KubernetesSite, backend: Kubernetes) -> None:
    uid = await submitted(backend)
    await backend.release(submission(NAME, roles=ROLES), uid)
    await until(lambda: len(site.pods(NAME)) == 2 * ROLES, "all pods")
    *most, last = site.pods(NAME)
    for pod in most:
        site.cluster.bind(pod["metadata"]["name"], "n1")
    waiting = await seen(backend, WAITING)
    await until(lambda: all(p["status"]["phase"] == "Running" for p in site.pods(NAME) if p["spec"].get("nodeName")))
    waiting = await seen(backend, WAITING)
    assert waiting.placed
    site.cluster.bind(last["metadata"]["name"], "n1")
    running = await seen(backend, RUNNING)
    assert running.started_ms > 0
    assert await backend.describe(NAME) == Described(run=running, owner=OWNER)


async def test_where_no_role_decides_all_must_succeed(site: KubernetesSite, backend: Kubernetes) -> None:
    await begun(site, backend, dict.fromkeys(("worker", "ps", "chief"), -1))
    for of_job in JOBS[:2]:
        end(site, of_job, "Succeeded")
    await until(lambda: jobs(site)[JOBS[1]]["status"].get("completionTime"), "a part to be complete")
    assert (await seen(backend, RUNNING)).uid
    end(site, JOBS[2], "Succeeded")
    await seen(backend, SUCCEEDED)


async def test_with_the_first_role_that_fails_the_others_end(site: KubernetesSite, backend: Kubernetes) -> None:
    await started(site, backend)
    end(site, JOBS[1], "Failed", count=1)
    await seen(backend, FAILED)
    assert not site.alive(NAME)
    assert jobs(site)[FIRST]["spec"]["suspend"]
    assert not jobs(site)[JOBS[1]]["spec"].get("suspend"), "what is over is left as it is"
    changes = site.cluster.faults.plan(verb="patch", resource="jobs", times=0)
    await seen(backend, FAILED)
    assert changes.hits == 0, "and is told once"


async def test_others_that_cannot_be_ended_are_listed_all_the_same(site: KubernetesSite, backend: Kubernetes) -> None:
    await started(site, backend)
    refused = site.cluster.faults.plan(verb="patch", resource="jobs", status=403, times=0)
    end(site, JOBS[1], "Failed", count=1)
    await seen(backend, STOPPING)
    await until_listed(backend, lambda: refused.hits)
    site.cluster.faults.lift(refused)
    await seen(backend, FAILED)


@pytest.mark.parametrize("succeeded", [None, 2])
async def test_a_role_that_decides_ends_the_others(
    site: KubernetesSite, backend: Kubernetes, succeeded: int | None
) -> None:
    """By default each does, with all of its instances. As it was: workers that all succeeded waited for a parameter
    server that never ends."""
    await begun(site, backend, {"worker": succeeded, "ps": -1})
    end(site, FIRST, "Succeeded")
    await seen(backend, SUCCEEDED)
    assert not site.alive(NAME)
    assert not jobs(site)[FIRST]["spec"].get("suspend"), "what is over is left as it is"


async def test_a_job_that_somebody_suspends_is_not_over(site: KubernetesSite, backend: Kubernetes) -> None:
    """He may let it go on: it must not count as gone."""
    await started(site, backend, roles=1)
    site.cluster.patch("Job", FIRST, {"spec": {"suspend": True}})
    await until(lambda: not site.pods(NAME), "its pods to go")
    await seen(backend, WAITING)
    site.cluster.patch("Job", FIRST, {"spec": {"suspend": False}})
    await until(lambda: len(site.pods(NAME)) == 2, "other pods")
    site.start(NAME)
    await seen(backend, RUNNING)

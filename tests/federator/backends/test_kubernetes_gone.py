"""On Kubernetes: when nothing of a run is there any more, and what is left of another run of its name."""

from __future__ import annotations

import pytest

from services.federator.backends import RUNNING, WAITING, Accepted, Described, Listing
from services.federator.backends.gangs import MANAGED, MANAGER, NAME, Placing, job_names, objects, owned
from services.federator.backends.kubernetes import Kubernetes
from services.kubernetes.gang_jobs import CONTROLLER
from services.simulator.faults import Fault
from tests.federator.backends.sites import OWNER, KubernetesSite, job, submission
from tests.waiting import answered, until

RUN, ROLES = "train", 2
FIRST, OTHERS = job_names(RUN, OWNER)
POD = {"containers": [{"name": "app", "image": "i"}], "nodeName": "n1", "restartPolicy": "Never"}


async def released(site: KubernetesSite, backend: Kubernetes) -> str:
    given = submission(RUN, roles=ROLES)
    answer = await backend.submit(given)
    assert isinstance(answer, Accepted)
    assert isinstance(await backend.release(given, answer.uid), Accepted)
    unbound = lambda: sum("nodeName" not in pod["spec"] for pod in site.pods(RUN))  # noqa: E731
    await until(lambda: unbound() == 2 * ROLES, "all pods")
    return answer.uid


async def seen(backend: Kubernetes, state: str) -> None:
    async def look() -> object:
        now = await backend.observe()
        assert isinstance(now, Listing)
        return any(run.name == RUN and run.state == state for run in now.runs)

    await answered(look, f"a run that is {state}")


def left(site: KubernetesSite, name: str, phase: str, **labels: str) -> None:
    """A pod that somebody kept of a run of this name."""
    metadata = {"name": name, "labels": {MANAGED: MANAGER, **labels}, "annotations": {NAME: RUN}}
    site.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD})
    site.cluster.patch("Pod", name, {"status": {"phase": phase}}, subresource="status")


async def test_it_is_gone_when_its_jobs_and_pods_are(site: KubernetesSite, backend: Kubernetes) -> None:
    """R20: whatever has its name now, and whatever else runs there."""
    uid = await released(site, backend)
    site.cluster.delete("Job", FIRST)
    await until(lambda: not [*site.cluster.list("Job")] and not site.pods(RUN), "it to go")
    assert await backend.is_gone(RUN, uid)
    for phase in ("Running", "Failed"):
        left(site, "left", phase)
        assert await backend.is_gone(RUN, uid) is (phase == "Failed")
        assert await backend.is_gone("another", uid)
        site.cluster.delete("Pod", "left", gracePeriodSeconds=0)
    assert isinstance(await backend.submit(submission(RUN, roles=ROLES)), Accepted)
    assert await backend.is_gone(RUN, uid), "a late submission is another run"


async def test_it_is_gone_though_another_run_has_its_name_and_runs(site: KubernetesSite, backend: Kubernetes) -> None:
    """As it was: it was deleted, another federation took the name, and its pods counted as those of the one before, which
    stayed possibly running for as long."""
    await released(site, backend)
    assert await backend.is_gone(RUN, "another")
    left(site, "left", "Running", **{CONTROLLER: "another"})
    assert await backend.is_gone(RUN, "another") is False


async def test_it_is_not_gone_while_other_jobs_of_it_go_on(site: KubernetesSite, backend: Kubernetes) -> None:
    """Somebody deleted the first alone, as ``kubectl delete --cascade=orphan`` does."""
    for other in objects(job(RUN, roles=ROLES), Placing()).others:
        alone = owned(other, FIRST, "uid-of-the-first")
        del alone["metadata"]["ownerReferences"]
        site.cluster.create(alone)
    assert await backend.is_gone(RUN, "uid-of-the-first") is False
    assert await backend.is_gone(RUN, "another")


@pytest.mark.parametrize(("verb", "resource"), [("get", "jobs"), ("list", "jobs"), ("list", "pods")])
async def test_what_a_cluster_does_not_say_is_not_gone(
    site: KubernetesSite, backend: Kubernetes, verb: str, resource: str
) -> None:
    assert await backend.is_gone(RUN, "a-uid")
    site.faults.planned.insert(0, Fault(verb=verb, resource=resource, status=403))
    assert await backend.is_gone(RUN, "a-uid") is False


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
async def test_pods_of_an_earlier_run_of_its_name_are_not_its_own(
    site: KubernetesSite, backend: Kubernetes, phase: str
) -> None:
    """Somebody kept them to read their logs. As it was: they counted by the name of their Job, so that a run counted as
    running without all of its own pods, or, for one that had failed, never as running."""
    earlier = {CONTROLLER: "28980940-a33c-413a-8fdb-f15073181451", "batch.kubernetes.io/job-name": FIRST}
    left(site, f"{FIRST}-0-old01", phase, **earlier)
    await released(site, backend)
    *most, last = [pod["metadata"]["name"] for pod in site.pods(RUN) if not pod["spec"].get("nodeName")]
    for name in most:
        site.cluster.bind(name, "n1")
    await until(lambda: sum(pod["status"]["phase"] == "Running" for pod in site.pods(RUN)) >= len(most), "most to run")
    await seen(backend, WAITING)
    site.cluster.bind(last, "n1")
    await seen(backend, RUNNING)
    described = await backend.describe(RUN)
    assert isinstance(described, Described)
    assert described.run.state == RUNNING

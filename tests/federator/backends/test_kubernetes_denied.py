"""What a Kubernetes cluster denies for good."""

from __future__ import annotations

from typing import Any

import pytest

from services.federator.backends import Accepted, Refused, Submission
from services.federator.backends.gangs import HELD, PHASE, job_names
from services.federator.backends.kubernetes import Kubernetes
from services.federator.specialize import to_yaml
from services.kubernetes.errors import TOO_LARGE
from services.simulator.store import Collection, Entry
from tests.federator.backends.sites import OWNER, KubernetesSite, job, submission
from tests.waiting import until

NAME, ROLES = "train", 2
FIRST, OTHERS = job_names(NAME, OWNER)


@pytest.mark.parametrize("denied", [FIRST, f"{OTHERS}-1"])
async def test_a_release_that_an_admission_policy_denies_is_refused(
    site: KubernetesSite, backend: Kubernetes, denied: str
) -> None:
    """As it was: 422 meant that somebody else had released or stopped it. The log had it released, the cluster held it,
    and nobody tried again."""
    answer = await backend.submit(submission(NAME, roles=ROLES))
    assert isinstance(answer, Accepted)
    message = "ValidatingAdmissionPolicy 'office-hours' denied request"
    policy = site.cluster.faults.plan(verb="patch", resource="jobs", name=denied, status=422, message=message, times=0)
    refused = await backend.release(submission(NAME, roles=ROLES), answer.uid)
    assert isinstance(refused, Refused)
    assert "office-hours" in refused.message
    held = {job["metadata"]["name"]: job for job in site.cluster.list("Job")}
    assert held[FIRST]["spec"]["suspend"], "without it nothing of the gang runs"
    assert held[denied]["metadata"]["annotations"][PHASE] == HELD
    site.cluster.faults.lift(policy)
    assert await backend.release(submission(NAME, roles=ROLES), answer.uid) == Accepted(uid=answer.uid)


async def test_what_etcd_never_takes_is_refused(site: KubernetesSite, backend: Kubernetes) -> None:
    """As it was: a 500 is in doubt. The same bytes were sent for ever, also of a job that was cancelled."""
    answer = await backend.submit(submission(NAME, roles=ROLES))
    assert isinstance(answer, Accepted)
    site.cluster.faults.plan(verb="create", status=500, message=TOO_LARGE, times=0)
    for refused in (
        await backend.submit(submission("larger", roles=ROLES)),
        await backend.release(submission(NAME, roles=ROLES), answer.uid),
    ):
        assert isinstance(refused, Refused)
        assert refused.of_content, "no attempt before can have been taken either"


@pytest.mark.parametrize("role", ["worker", "ps"])
async def test_a_cluster_that_leaves_the_success_policy_out_is_refused(
    site: KubernetesSite, backend: Kubernetes, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """So does Kubernetes 1.30, without a word. As it was: the run went on when enough had succeeded, and failed with the
    first of the others that did."""
    described = job(NAME, roles=ROLES)
    described["taskRoles"][role]["completion"] = {"minSucceededInstances": 1}
    given = Submission(name=NAME, body=to_yaml(described).encode())
    create = site.cluster.api.create

    def without(collection: Collection, namespace: str, obj: dict[str, Any], **how: Any) -> Entry:
        if collection.resource.kind == "Job":
            obj["spec"].pop("successPolicy", None)
        return create(collection, namespace, obj, **how)

    with monkeypatch.context() as older:
        older.setattr(site.cluster.api, "create", without)
        answer = await backend.submit(given)
        assert isinstance(answer, Accepted)
        refused = await backend.release(given, answer.uid)
    assert isinstance(refused, Refused)
    assert refused.of_content
    assert "Kubernetes 1.31" in refused.message
    (first,) = (one for one in site.cluster.list("Job") if one["metadata"]["name"] == FIRST)
    assert first["spec"]["suspend"], "without it nothing of the gang runs"
    assert await backend.clear(NAME, answer.uid) == Accepted(uid=answer.uid)
    await until(lambda: not [*site.cluster.list("Job")], "the others to go with the first")
    answer = await backend.submit(given)
    assert isinstance(answer, Accepted)
    assert await backend.release(given, answer.uid) == Accepted(uid=answer.uid)

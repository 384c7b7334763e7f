"""What a Kubernetes cluster denies for good."""

from __future__ import annotations

import pytest

from services.federator.backends import Accepted, Refused
from services.federator.backends.gangs import HELD, PHASE, job_names
from services.federator.backends.kubernetes import Kubernetes
from services.kubernetes.errors import TOO_LARGE
from tests.federator.backends.sites import OWNER, KubernetesSite, submission

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

"""Refusals in the API server's form, whole: what a client reads of them besides code and reason."""

from __future__ import annotations

from typing import Any

import pytest

from services.simulator import errors
from services.simulator.errors import ApiError
from services.simulator.resources import Resource

PODS = Resource("", "v1", "pods", "Pod")
JOBS = Resource("batch", "v1", "jobs", "Job")


@pytest.mark.parametrize(
    ("error", "message", "details"),
    [
        (errors.not_found(PODS, "a"), 'pods "a" not found', {"name": "a", "kind": "pods"}),
        (errors.not_found(JOBS, "a"), 'jobs.batch "a" not found', {"name": "a", "group": "batch", "kind": "jobs"}),
        (
            errors.conflict(PODS, "a", "it is bound", "binding"),
            'Operation cannot be fulfilled on pods/binding "a": it is bound',
            {"name": "a", "kind": "pods/binding"},
        ),
        (
            errors.invalid(JOBS, "", [("spec.x", "FieldValueInvalid", "no"), ("spec.y", "FieldValueRequired", "yes")]),
            'Job.batch "" is invalid: [spec.x: no, spec.y: yes]',
            {
                "group": "batch",
                "kind": "Job",
                "causes": [
                    {"reason": "FieldValueInvalid", "message": "no", "field": "spec.x"},
                    {"reason": "FieldValueRequired", "message": "yes", "field": "spec.y"},
                ],
            },
        ),
        (errors.method_not_allowed(), "the server does not allow this method on the requested resource", {}),
        (errors.bad_request("no"), "no", None),
        (ApiError(429, "TooManyRequests", "wait", retry_after_s=3), "wait", {"retryAfterSeconds": 3}),
    ],
)
def test_a_refusal_says_what_it_is_about(error: ApiError, message: str, details: dict[str, Any] | None) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    expected = status | {"reason": error.reason, "code": error.code}
    assert error.status == (expected if details is None else expected | {"details": details})


@pytest.mark.parametrize(("which", "might"), [("UID", "deleted and then recreated"), ("ResourceVersion", "modified")])
def test_a_deletion_that_meant_another_object_says_why_it_may_be_another(which: str, might: str) -> None:
    error = errors.deletion_precondition(JOBS, "a", which, "1", "2")
    assert error.message.endswith(f"{which} in record (2). The object might have been {might}")


@pytest.mark.parametrize(
    ("metadata", "about", "told"),
    [
        ({"name": "a", "namespace": "team"}, "Pod team/a", "no (namespace team)"),
        ({"name": "a"}, "Pod a", "no"),
        ({"name": None, "namespace": None}, "Pod ", "no"),
        (None, "Pod ", "no"),
    ],
)
def test_whose_mistake_it_is(metadata: dict[str, Any] | None, about: str, told: str) -> None:
    plain = ApiError(400, "", "no")
    assert (plain.about, plain.told, "reason" in plain.status) == ("", "no", False)
    error = plain.of({"kind": "Pod", "metadata": metadata})
    assert (error.about, error.told) == (about, told)

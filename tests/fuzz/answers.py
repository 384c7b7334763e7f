"""What servers answer, as `targets` has the others: an API server's discovery, single objects and Jobs; OpenPAI's lists.

A proxy, or something else that listens there, may have answered in their place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from events.wire import UNDECODABLE
from services.federator.backends import kubernetes, openpai
from services.ingest.decoding import KINDS
from services.kubernetes import client, discovery, gang_jobs, transport
from services.kubernetes.errors import Unreachable
from tests.fuzz.generate import encoded

MOMENTS = ("2026-11-23T21:00:00Z", "0001-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59")


def served(data: bytes) -> None:
    """What is served, or none of JSON's; of each kind it says yes or no."""
    try:
        found = discovery.served(data)
    except UNDECODABLE:
        return
    for kind in KINDS:
        assert found.has(kind.resource) in (True, False)
        assert found.has(kind.resource, "status") in (True, False)


def object_(data: bytes) -> None:
    """An object as the binder reads it back, or Unreachable that says what was asked."""
    for decoder in (client._page_decoder, client._pod_decoder, client._group_decoder, client._identified_decoder):
        try:
            found: Any = transport.decoded(decoder, "get it", data)
        except Unreachable as error:
            assert str(error).startswith("get it: ")
            continue
        msgspec.json.encode(found)


def jobs(data: bytes) -> None:
    """Jobs and their pods as the runs that they are, or Unreachable."""
    listed, pods = [], []
    try:
        listed = transport.decoded(gang_jobs._jobs_decoder, "list jobs", data).items or []
    except Unreachable as error:
        assert str(error).startswith("list jobs: ")
    try:
        pods = transport.decoded(gang_jobs._pods_decoder, "list pods", data).items or []
    except Unreachable as error:
        assert str(error).startswith("list pods: ")
    for found in kubernetes._found(listed, pods):
        msgspec.json.encode(kubernetes._run(kubernetes._name(found.first.metadata), found))
    for pod in pods:
        assert isinstance(pod.started_ms, int)
        assert pod.is_over in (True, False)


def openpai_s(data: bytes) -> None:
    """Jobs, one job, an owner or an error of OpenPAI's, or none of them; a run can go to the log."""
    answer = openpai._Answer(status=200, body=data, clock_ms=1)
    for decode in (openpai._decode_list, openpai._decode_detail):
        try:
            found: Any = decode(data)
        except UNDECODABLE:
            continue
        for job in found if isinstance(found, list) else [found.job_status]:
            msgspec.json.encode(openpai._run("a", job))
    openpai._owner(answer)
    openpai._said(answer)


# ---------------------------------------------------------------------------------------------------------------- seeds


def discoveries() -> list[bytes]:
    resources = [{"resource": "podgroups", "subresources": [{"subresource": "status"}]}, {"resource": "jobs"}]
    aggregated = {
        "kind": "APIGroupDiscoveryList",
        "items": [{"metadata": {"name": "g.io"}, "versions": [{"version": "v1", "resources": resources}]}],
    }
    older = {"kind": "APIGroupList", "groups": [{"name": "g.io", "versions": [{"version": "v1"}]}]}
    return [encoded(aggregated), encoded(older), encoded({"items": None, "groups": [{"versions": None}]})]


def jobs_listed() -> list[bytes]:
    metadata = {"name": "a", "namespace": "ml", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}}
    job = {"metadata": metadata, "spec": {"suspend": True}, "status": {"conditions": [{"type": "Complete"}]}}
    found = [encoded(job), encoded({"metadata": {}, "items": [job]})]
    for moment in MOMENTS:
        running = {"state": {"running": {"startedAt": moment}}}
        pod = {
            "metadata": metadata | {"labels": {gang_jobs.CONTROLLER: "u"}},
            "status": {"phase": "Running", "containerStatuses": [running, {"state": None}]},
        }
        found.append(encoded({"metadata": {"continue": ""}, "items": [pod]}))
    return found


def openpai_answers() -> list[bytes]:
    job = {"username": "u", "state": "RUNNING", "subState": "AttemptRunning", "name": "a", "retries": 0}
    started = job | {"launchedTime": 1_700_000_000_000, "completedTime": None}
    return [
        encoded([job, started]),
        encoded({"name": "a", "jobStatus": started}),
        encoded({"code": "NoJobError", "message": "none"}),
        b"extras:\n  muster.dev/owner: {federation: f, job: u, cluster: c}\n",
    ]

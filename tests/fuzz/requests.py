"""What clients send, as `targets` has the others: requests to the federator, to the simulated API server and OpenPAI.

Two of the servers are the simulator's: a traceback there would pass for a bug of Muster's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from events.micro import Unfit
from services.federator import requests
from services.federator.service.handlers import _asked
from services.simulator.api import PATCHES, Api
from services.simulator.errors import ApiError
from services.simulator.openpai import jobs, server
from services.simulator.server import Call
from services.simulator.store import Collection, Entry, Store
from services.simulator.watches import View
from tests.fuzz.generate import encoded
from tests.fuzz.seeds import kubernetes_objects

ASKED = (requests.Submit, requests.Named, requests.Listed, requests.GiveUp)
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "8"}}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p0", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}


def asked(data: bytes) -> None:
    """A request that can be written again, or Unfit that names its fields."""
    for kind in ASKED:
        try:
            found = _asked(data, kind)
        except Unfit as error:
            assert error.code == 400
            assert error.message.startswith(f"expected {', '.join(kind.__struct_encode_fields__)} as JSON: ")
        else:
            assert msgspec.json.decode(msgspec.json.encode(found), type=kind) == found


def written(data: bytes) -> None:
    """An object that is made, one that is patched in every way, a binding and an eviction: or a refusal."""
    api = Api(Store(100), 0)
    for known in (NODE, POD):
        api.apply_new(known)
    for collection, key in ((api.nodes, ("", "n0")), (api.pods, ("default", "p0"))):
        call = Call("", View(collection, collection.resource), "", "", {}, "", data)
        _done(lambda to, of: api.create(to, "", of.object()), collection, call)
        for media_type in PATCHES:
            for part in ("", "status"):
                _done(partial(_patched, api, key, media_type, part), collection, call)
    _done(lambda _, of: api.evict("default", "p0", of.formed("policy/v1", "Eviction")), api.pods, call)
    _done(lambda _, of: api.bind("default", "p0", of.formed("v1", "Binding")), api.pods, call)


def _patched(api: Api, key: tuple[str, str], media_type: str, part: str, collection: Collection, call: Call) -> Entry:
    return api.patch(collection, *key, call.json(), media_type, part)


def _done(attempt: Callable[[Collection, Call], object], collection: Collection, call: Call) -> None:
    """What is stored then is JSON."""
    try:
        attempt(collection, call)
    except ApiError as error:
        assert 400 <= error.code < 600
        assert error.body
    for entry in collection.entries.values():
        msgspec.json.encode(entry.object)


def openpai_asked(data: bytes) -> None:
    """A job that is submitted, and one that is to stop or start, or a refusal with a status of HTTP."""
    cluster = jobs.Cluster(lambda: 1, {"token": "u"})
    call = server.Call("stop", media_type="application/json", body=data)
    assert isinstance(server._named(data), str)
    for attempt in (
        partial(cluster.submit, "u", data.decode("utf-8", "replace")),
        partial(server._execution_type, call),
    ):
        try:
            attempt()
        except jobs.Refusal as refusal:
            assert 400 <= refusal.status < 600


# ---------------------------------------------------------------------------------------------------------------- seeds


def asks() -> list[bytes]:
    given_up = {"name": "a", "cluster": "v100", "by": "me", "reason": "gone"}
    return [encoded(one) for one in ({"document": "name: a"}, {"name": "a"}, {"offset": 3}, given_up)]


def writes() -> list[bytes]:
    """Objects, and what is done to them."""
    operations = [
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "x"},
        {"op": "replace", "path": "/spec/containers/0/name", "value": "d"},
        {"op": "remove", "path": "/metadata/labels/app"},
        {"op": "test", "path": "/metadata/name", "value": "p0"},
    ]
    containers = [{"name": "c", "$patch": "delete"}, {"name": "d", "ports": [{"containerPort": 1}]}]
    patch = {"metadata": {"labels": {"a": None}, "$deleteFromPrimitiveList/finalizers": ["x"]}}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "$setElementOrder/conditions": [{"type": "Ready"}]}
    target = {"target": {"kind": "Node", "name": "n0"}, "metadata": {"uid": "u", "resourceVersion": "7"}}
    options = {"metadata": {"name": "p0"}, "deleteOptions": {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 1}}
    whole = [NODE, POD, operations, {**patch, "spec": {"containers": containers}, "status": status}, target, options]
    return [encoded(one) for one in (*whole, *kubernetes_objects()[:8])]


def openpai_asks() -> list[bytes]:
    from tests.federator.jobs import EXAMPLE

    return [b'{"value": "STOP"}', b'{"value": "START"}', EXAMPLE.encode()]

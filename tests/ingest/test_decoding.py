"""Lists and watches, as they come from the API server."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode

from services.ingest.decoding import KINDS, POD, Kind, Malformed, Unreadable, WatchEnded
from services.kubernetes.objects import PodGroup
from tests.manifests import pod, pod_group

GROUP_KINDS = [kind for kind in KINDS if kind.type is PodGroup]


def test_a_list_of_nothing_may_be_null() -> None:
    """As Go writes a slice that was never made."""
    assert POD.page(b'{"metadata":{"resourceVersion":"7"},"items":null}') == ("7", [])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.api_version + kind.name)
def test_the_end_of_a_watch_is_no_object_of_any_kind(kind: Kind[Any]) -> None:
    status = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(WatchEnded, match="410 Expired: too old"):
        kind.line(encode({"type": "ERROR", "object": status}))


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: kind.resource.api_version)
def test_a_pod_group_is_of_the_version_that_was_asked_for(kind: Kind[PodGroup]) -> None:
    """Items of a list do not say theirs."""
    group = {name: value for name, value in pod_group("g", 2).items() if name not in ("apiVersion", "kind")}
    version, items = kind.page(encode({"metadata": {"resourceVersion": "7"}, "items": [group]}))
    odd = kind.page(encode({"metadata": {"resourceVersion": "7"}, "items": [group, 1]}))[1]
    what, seen = kind.line(encode({"type": "ADDED", "object": group}))
    assert (version, what) == ("7", "ADDED")
    found = [one.api_version for one in (items[0], odd[0], seen) if isinstance(one, PodGroup)]
    assert found == [kind.resource.api_version] * 3


def test_an_object_of_a_watch_that_fits_no_type_costs_itself_only() -> None:
    """It is known by its metadata: nobody else's watch, and no other line of this one, ends for it."""
    odd = pod("p") | {"spec": {"priority": "high"}}
    odd["metadata"] |= {"uid": "u", "resourceVersion": "9"}
    happened, seen = POD.line(encode({"type": "MODIFIED", "object": odd}))
    assert happened == "MODIFIED"
    assert isinstance(seen, Malformed)
    assert (seen.metadata.name, seen.metadata.uid, seen.metadata.resource_version) == ("p", "u", "9")
    assert (seen.rejected.kind, seen.rejected.name, seen.rejected.field) == ("Pod", "p", "spec.priority")


@pytest.mark.parametrize("items", [{}, {"items": None}, {"items": [{"metadata": {"name": 1}}]}])
def test_a_list_without_a_resource_version_is_none(items: dict[str, object]) -> None:
    """Such as a Status answered with 200. As it was: all pods were taken for deleted, and none was believed any more."""
    with pytest.raises(Unreadable, match="list pods: expected a list of objects, with a resourceVersion"):
        POD.page(encode({"kind": "Status", "metadata": {}, "status": "Failure", **items}))


@pytest.mark.parametrize(
    ("status", "expired"),
    [
        ({"reason": "Expired"}, True),
        ({"reason": "Gone"}, True),
        ({"code": 410}, True),
        ({"code": 409, "reason": "Conflict"}, False),
        ({"code": 500, "reason": "InternalError"}, False),
    ],
)
def test_a_resource_version_is_too_old_by_code_or_by_reason(status: dict[str, object], expired: bool) -> None:
    gone = {"kind": "Status", "metadata": {}, "message": "no", **status}
    with pytest.raises(WatchEnded) as ended:
        POD.line(encode({"type": "ERROR", "object": gone}))
    assert ended.value.expired == expired


def test_a_page_that_is_no_json_is_unreadable() -> None:
    """As a proxy's own, answered with 200."""
    with pytest.raises(Unreadable, match="list pods: expected a list of objects: JSON"):
        POD.page(b"<html>a proxy's own</html>")


def test_an_object_that_is_not_utf_8_costs_itself_only() -> None:
    odd = b'{"metadata": {"name": "odd", "uid": "u"}, "spec": {"nodeName": "\xff"}}'
    _, [seen, other] = POD.page(
        b'{"metadata": {"resourceVersion": "7"}, "items": [' + odd + b"," + encode(pod("p")) + b"]}"
    )
    assert isinstance(seen, Malformed)
    assert (seen.rejected.name, seen.rejected.field) == ("odd", "")
    assert seen.rejected.expected.startswith("JSON in UTF-8: ")
    assert other.metadata.name == "p"


def test_what_a_rejection_expects_is_said_without_the_decoders_marks() -> None:
    odd = pod("p")
    odd["spec"]["priority"] = "high"
    [malformed] = POD.page(encode({"metadata": {"resourceVersion": "1"}, "items": [odd]}))[1]
    assert isinstance(malformed, Malformed)
    assert (malformed.rejected.field, malformed.rejected.expected) == ("spec.priority", "int | null, got str")


@pytest.mark.parametrize(
    ("spec", "field", "expected"),
    [
        (b'{"nodeSelector": {"zone": "a", "gpu": true}}', "spec.nodeSelector[gpu]", "str, got bool"),
        (
            b'{"containers": [{}, {"resources": {"requests": {"cpu": "1", "memory": []}}}]}',
            "spec.containers[1].resources.requests[memory]",
            "int | float | str, got array",
        ),
        (b'{"tolerations": [{"key": "a"}], "volumes": 1}', "spec.volumes", "array | null, got int"),
        (
            b'{"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}',
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference",
            "a value",
        ),
        (b'{"nodeSelector": {"a": 1}, "nodeSelector": {}}', "spec.nodeSelector[...]", "str, got int"),
        (b'{"nodeSelector": {"a": 1}, "nodeSelector": 7}', "spec.nodeSelector[...]", "str, got int"),
    ],
)
def test_a_rejection_names_the_key_of_a_map_and_the_field_that_is_missing(
    spec: bytes, field: str, expected: str
) -> None:
    """As it was: ``nodeSelector[...]``, and of what was missing "expected Object missing required field"."""
    _, malformed = POD.line(b'{"type": "ADDED", "object": {"metadata": {"name": "p"}, "spec": ' + spec + b"}}")
    assert isinstance(malformed, Malformed)
    assert (malformed.rejected.field, malformed.rejected.expected) == (field, expected)

"""What ingest reads of a cluster: one odd object costs nothing but itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import events as ev
from events.objects import MAX_QUANTITY
from services.ingest.decoding import KINDS, NODE, POD, Malformed, Unreadable
from services.ingest.differ import Ingest
from services.ingest.rejection import Rejection
from services.ingest.requests import pod_requests
from services.kubernetes import nesting
from services.kubernetes.objects import Pod
from tests.fuzz import examples
from tests.fuzz.generate import DEEP, encoded, jsons, scalars, spoiled, texts
from tests.fuzz.seeds import kubernetes_objects
from tests.ingest.objects import metadata

POD_GROUP = next(kind for kind in KINDS if kind.resource.path == "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
READ = {kind.name: kind for kind in (NODE, POD, POD_GROUP)}


def good(name: str) -> dict[str, Any]:
    spec = {"schedulerName": "muster", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return {"metadata": metadata(name, "default"), "spec": spec}


KOORDINATOR = {
    "name": "g",
    "min-available": "2",
    "waiting-time": "30s",
    "mode": "Strict",
    "match-policy": "once-satisfied",
    "groups": '["default/g"]',
}


def declaring(labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    pod = good("declaring")
    return {**pod, "kind": "Pod", "metadata": {**pod["metadata"], "labels": labels, "annotations": annotations}}


DECLARING = [
    declaring({"pod-group/name": "g", "pod-group/min-available": "2"}, {}),
    declaring({}, {f"gang.scheduling.koordinator.sh/{name}": value for name, value in KOORDINATOR.items()}),
]
"""What is wrong there is told as it stands: of the manifests' objects nothing ever is."""


def page(*objects: Any) -> bytes:
    return encoded({"metadata": {"resourceVersion": "7"}, "items": list(objects)})


@examples(80)
@given(spoiled(kubernetes_objects(), jsons))
def test_one_odd_object_in_a_page_leaves_the_others(odd: Any) -> None:
    version, objects = POD.page(page(good("before"), odd, good("behind")))
    before, _, behind = objects
    core = Ingest(["muster"])
    facts = [fact for seen in objects for fact in core.observe(seen)]
    assert version == "7"
    assert (before, behind) == tuple(POD.page(page(good("before"), good("behind")))[1])
    assert {"before", "behind"} <= {fact.name for fact in facts if type(fact) is ev.PodObserved}


@examples(50)
@given(
    spoiled([obj for obj in kubernetes_objects() if obj["kind"] in READ], jsons)
    | spoiled(DECLARING, texts | st.text(min_size=101))
)
def test_what_is_rejected_names_what_was_expected(odd: Any) -> None:
    for name, kind in READ.items():
        (seen,) = kind.page(page(odd))[1]
        for fact in Ingest(["muster"]).observe(seen):
            if type(fact) is ev.DeclarationRejected:
                assert fact.kind == name
                assert fact.expected
                assert len(fact.value) <= 100
                assert fact.name == seen.metadata.name


@pytest.mark.parametrize("field", ["junk", "spec", "status"])
@pytest.mark.parametrize("nested", [b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP])
def test_what_is_nested_too_deeply_costs_no_page(field: str, nested: bytes) -> None:
    deep = msgspec.Raw(nested)
    odd = {"metadata": metadata("odd", "default"), field: {"deep": deep, "minMember": deep}}
    first, second = POD_GROUP.page(page(odd, {"metadata": metadata("g"), "spec": {"minMember": 2}}))[1]
    assert (first.metadata.name, second.spec.min_member) == ("odd", 2)
    happened, seen = POD_GROUP.line(encoded({"type": "ADDED", "object": odd}))
    assert (happened, seen.metadata.name) == ("ADDED", "odd")


@given(jsons)
def test_what_is_not_too_deep_is_left_as_it_is(document: Any) -> None:
    text = encoded(document)
    assert nesting.pruned(text) == text


def test_a_name_that_is_not_utf_8_is_rejected_with_its_object() -> None:
    (seen,) = POD.page(b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a\xff","uid":"u"}}]}')[1]
    assert isinstance(seen, Malformed)
    assert (seen.metadata.name, seen.metadata.uid) == ("a\ufffd", "u")
    assert "UTF-8" in seen.rejected.expected


@pytest.mark.parametrize("version", ["9" * 5_000, "²", "١", "-1", "", "x"])
def test_a_resource_version_that_is_none_is_taken_as_it_comes(version: str) -> None:
    core = Ingest(["muster"])
    obj = good("p")
    obj["metadata"]["resourceVersion"] = version
    (seen,) = POD.page(page(obj))[1]
    assert [type(fact) for fact in core.observe(seen)] == [ev.SchedulingClassObserved, ev.PodObserved]
    assert core.observe(seen) == []


@pytest.mark.parametrize(("field", "value"), [("priority", 2**31), ("priority", -(2**40)), ("nodeName", 7)])
def test_numbers_that_kubernetes_types_do_not_hold_are_rejected(field: str, value: Any) -> None:
    obj = good("p")
    obj["spec"][field] = value
    (seen,) = POD.page(page(obj))[1]
    (fact,) = Ingest(["muster"]).observe(seen)
    assert isinstance(fact, ev.DeclarationRejected)
    assert fact.field == f"spec.{field}"


def test_an_object_without_a_uid_is_rejected() -> None:
    obj = good("p")
    del obj["metadata"]["uid"]
    (seen,) = POD.page(page(obj))[1]
    (fact,) = Ingest(["muster"]).observe(seen)
    assert isinstance(fact, ev.DeclarationRejected)
    assert (fact.name, fact.field, fact.expected) == ("p", "metadata.uid", "a UID")


@given(st.binary(max_size=40))
def test_a_page_that_is_no_list_says_so(data: bytes) -> None:
    with pytest.raises(Unreadable, match="list pods: "):
        POD.page(b"!" + data)


# ------------------------------------------------------------------------------------------------ requests and labels

amounts = st.dictionaries(texts, scalars.filter(lambda value: type(value) in (str, int, float)), max_size=3)
containers = st.lists(
    st.fixed_dictionaries({"name": texts, "resources": st.fixed_dictionaries({"requests": amounts})}), max_size=3
)


@examples(50)
@given(containers, containers, amounts, amounts, st.none() | amounts, st.sampled_from([36, 37]))
def test_requests_are_whole_and_bounded_or_a_problem_says_which(
    main: Any, init: Any, overhead: Any, level: Any, told: Any, minor: int
) -> None:
    spec = {"containers": main, "initContainers": init, "overhead": overhead, "resources": {"requests": level}}
    status = {"containerStatuses": init, "initContainerStatuses": main, "allocatedResources": told}
    status["resources"] = None if told is None else {"requests": level}
    try:
        pod = msgspec.json.decode(encoded({"metadata": {}, "spec": spec, "status": status}), type=Pod)
    except msgspec.ValidationError:
        return  # a number beyond what JSON's decoder holds
    problems: list[Rejection] = []
    found = pod_requests(pod, problems, minor)
    assert all(type(count) is int and 0 < count <= MAX_QUANTITY for count in found.values())
    assert all(problem.field and problem.expected for problem in problems)
    assert found["pods"] == 1 or problems


GENERATIONS = {
    "scheduling.x-k8s.io/pod-group": "",
    "pod-group.scheduling.x-k8s.io/name": "pod-group.scheduling.x-k8s.io/min-available",
    "pod-group.scheduling.sigs.k8s.io/name": "pod-group.scheduling.sigs.k8s.io/min-available",
    "pod-group/name": "pod-group/min-available",
}
labels = st.dictionaries(
    st.sampled_from([name for row in GENERATIONS.items() for name in row if name]), texts, max_size=4
)


@examples(60)
@given(labels, labels)
def test_a_pod_is_of_a_gang_with_a_minimum_or_is_rejected(said: dict[str, str], annotated: dict[str, str]) -> None:
    obj = good("p")
    obj["metadata"] |= {"labels": said, "annotations": annotated}
    facts = Ingest(["muster"]).observe(POD.page(page(obj))[1][0])
    rejected = [fact for fact in facts if type(fact) is ev.DeclarationRejected]
    observed = [fact for fact in facts if type(fact) is ev.PodObserved]
    assert all(fact.expected and len(fact.value) <= 100 for fact in rejected)
    assert len(rejected) + len(observed) == 1
    if observed and observed[0].gang is not None:
        declared = observed[0].gang.declared
        assert declared is None or 1 <= declared.min_member < 2**31
    elif observed:
        assert not any(said.get(name) for name in GENERATIONS)

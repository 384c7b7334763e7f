"""Patches: the examples of RFC 7386, and what strategic merge does otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.patches import PatchError, json_patch, merge, strategic

keys = st.sampled_from(["a", "b", "containers", "finalizers"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_does_as_rfc_7386_says(old: Any, patch: Any, new: Any) -> None:
    assert merge(old, patch) == new


@given(objects, objects)
def test_patches_leave_the_old_object_alone_and_say_it_once(old: Any, patch: Any) -> None:
    before = copy.deepcopy(old)
    merged = merge(old, patch)
    assert old == before
    assert merge(merged, patch) == merged


@given(objects, objects)
def test_a_strategic_merge_leaves_the_old_object_alone(old: Any, patch: Any) -> None:
    before = copy.deepcopy(old)
    try:
        merged = strategic(old, patch)
    except PatchError:
        return  # lists of things that have no merge key
    finally:
        assert old == before
    assert isinstance(merged, dict)


def test_strategic_merge_joins_lists_by_their_key() -> None:
    old = {"conditions": [{"type": "A", "status": "True", "reason": "x"}, {"type": "B", "status": "True"}]}
    patch = {"conditions": [{"type": "B", "$patch": "delete"}, {"type": "A", "status": "False"}, {"type": "C"}]}
    assert strategic(old, patch) == {"conditions": [{"type": "A", "status": "False", "reason": "x"}, {"type": "C"}]}
    assert strategic(old, {"conditions": [{"$patch": "replace"}, {"type": "C"}]}) == {"conditions": [{"type": "C"}]}
    assert strategic({"taints": [1]}, {"taints": [2]}) == {"taints": [2]}
    assert strategic({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}) == {"finalizers": ["a", "b"]}
    assert strategic({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {
        "finalizers": ["b"]
    }
    assert strategic({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 1}}) == {"a": {"c": 1}}
    assert strategic({"a": {"b": 1}}, {"a": {"$patch": "delete"}}) == {}
    with pytest.raises(PatchError, match="merge key: type"):
        strategic(old, {"conditions": [{"status": "x"}]})


@pytest.mark.parametrize(
    ("operation", "new"),
    [
        ({"op": "add", "path": "/l/1", "value": 9}, {"l": [1, 9, 2], "d": {"a/b": 1}}),
        ({"op": "add", "path": "/l/-", "value": 9}, {"l": [1, 2, 9], "d": {"a/b": 1}}),
        ({"op": "add", "path": "/d/n", "value": 9}, {"l": [1, 2], "d": {"a/b": 1, "n": 9}}),
        ({"op": "replace", "path": "/d/a~1b", "value": 9}, {"l": [1, 2], "d": {"a/b": 9}}),
        ({"op": "remove", "path": "/l/0"}, {"l": [2], "d": {"a/b": 1}}),
        ({"op": "test", "path": "/l/0", "value": 1}, {"l": [1, 2], "d": {"a/b": 1}}),
    ],
)
def test_json_patch_edits_places(operation: Any, new: Any) -> None:
    assert json_patch({"l": [1, 2], "d": {"a/b": 1}}, [operation]) == new


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        [{"op": "move", "path": "/a", "from": "/b"}],
        [{"op": "replace", "path": "/none/x", "value": 1}],
        [{"op": "remove", "path": "/l/7"}],
        [{"op": "add", "path": "/l/x", "value": 1}],
        [{"op": "add", "path": "/l/0/x/y", "value": 1}],
        [{"op": "test", "path": "/l/0", "value": 2}],
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operations: Any) -> None:
    with pytest.raises(PatchError):
        json_patch({"l": [1, 2]}, operations)

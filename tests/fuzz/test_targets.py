"""Every decoder of bytes: with samples after something happened to them, with documents that are wrong, with anything."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import examples
from tests.fuzz.generate import RAW, TEXTS, encoded, mangled, spoiled
from tests.fuzz.seeds import kubernetes_objects
from tests.fuzz.targets import TARGETS

OBJECTS = ("page", "line")
"""Targets whose documents are worth spoiling as documents."""


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    return tuple(TARGETS[name].seeds())


@pytest.mark.parametrize("name", TARGETS)
def test_samples_and_what_encoders_do_not_write(name: str) -> None:
    for data in (*seeds(name), *map(bytes, RAW), *(text.encode() for text in TEXTS)):
        TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
@examples(30)
@given(data=st.data())
def test_any_bytes(name: str, data: st.DataObject) -> None:
    TARGETS[name].check(data.draw(mangled(seeds(name)) | st.binary(max_size=64), label="bytes"))


@pytest.mark.parametrize("name", OBJECTS)
@examples(40)
@given(data=st.data())
def test_spoiled_objects(name: str, data: st.DataObject) -> None:
    obj = data.draw(spoiled(kubernetes_objects()), label="object")
    document = (
        {"metadata": {"resourceVersion": "1"}, "items": [obj]} if name == "page" else {"type": "ADDED", "object": obj}
    )
    TARGETS[name].check(encoded(document))

"""Bad input: documents that were good before something happened to them, and bytes that never were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

Json = Any
Draw = Callable[[st.SearchStrategy[Any]], Any]

DEEP = 5_000
"""More levels than msgspec goes down."""
NAME = "a" * 253
"""Kubernetes' longest."""

TEXTS = (
    *(
        "",
        " ",
        "-",
        "*",
        ">",
        ".",
        "/",
        "%",
        "%2",
        "%zz",
        "a.b",
        "a/b/c",
        "a b",
        "a\nb",
        "a\r\nb",
        "\0",
        "a\0b",
        "ü",
        "١",
        "𝒳",
    ),
    *(
        "\u2028",
        "\ufeff",
        "null",
        "true",
        "NaN",
        "Infinity",
        "-0",
        "+1",
        "1_0",
        "0x10",
        "1e3",
        "1e999999999",
        "1e-999999999",
    ),
    *(
        "100m",
        "1.5",
        ".5",
        "5.",
        "2Gi",
        "1Ei",
        "-1",
        "9007199254740993",
        "4503599627370497",
        "9" * 30,
        "9" * 256,
        "9" * 5_000,
    ),
    *(
        NAME,
        "a" * 254,
        "a." * 126 + "a",
        "x" * 70_000,
        "$patch",
        "__proto__",
        "{}",
        "[",
        '"',
        "'",
        "\\",
        "{0}",
        "[red]",
        "%s",
    ),
    *("2026-01-02T03:04:05Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59", "2026-13-45", "24:00"),
)
"""Texts that somebody takes for something."""
SCALARS = (
    *(None, True, False, 0, 1, -1, 7, 0.5, -0.0, 1e22, 1e308, 5e-324, -1.5),
    *(
        2**31 - 1,
        2**31,
        -(2**31) - 1,
        2**52,
        2**52 + 1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        10**400,
    ),
)
RAW = tuple(
    map(
        msgspec.Raw,
        (
            *(b"-0", b"1E5", b"1e400", b"1e-400", b"9" * 5_000, b"0." + b"1" * 5_000, b"01", b"+1", b".5", b"5."),
            *(
                b"NaN",
                b"-Infinity",
                b"nul",
                b"",
                b'"',
                b"'a'",
                b'"\xff"',
                b'"\xed\xa0\x80"',
                b'"\\ud800"',
                b'"\\u0000"',
                b'"\n"',
            ),
            *(b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"[" * 900 + b"]" * 900, b"[" * DEEP),
            *(b'{"a":1,"a":2}', b'{"":0}', b"{1:2}", b"[1,]", b"[,]", b"{,}", b'{"a"}', b"/**/", b"1 1"),
        ),
    )
)
"""What an encoder does not write."""

texts = st.sampled_from(TEXTS) | st.text(max_size=20)
scalars = st.sampled_from(SCALARS) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
jsons = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
"""Any JSON that can be decoded again."""
odd = st.sampled_from(RAW) | jsons


def encoded(document: Json) -> bytes:
    """As JSON; with integers of any size, and as it stands what is raw."""
    if isinstance(document, dict):
        return b"{" + b",".join(msgspec.json.encode(key) + b":" + encoded(document[key]) for key in document) + b"}"
    if isinstance(document, list):
        return b"[" + b",".join(map(encoded, document)) + b"]"
    return str(document).encode() if type(document) is int else msgspec.json.encode(document)


# ----------------------------------------------------------------------------------------------------- spoiled documents


@st.composite
def spoiled(draw: Draw, documents: Sequence[Json], values: st.SearchStrategy[Any] = odd, most: int = 3) -> Json:
    """One of the documents with up to `most` things wrong: parts that are gone, of another type, said twice, misnamed."""
    document = copy.deepcopy(draw(st.sampled_from(list(documents))))
    for _ in range(draw(st.integers(1, most))):
        document = _spoil(draw, document, values)
    return document


def _spoil(draw: Draw, document: Json, values: st.SearchStrategy[Any]) -> Json:
    places = list(_places(document))
    if not places:
        return draw(values)
    parent, key = draw(st.sampled_from(places))
    match draw(st.sampled_from(("value", "value", "value", "gone", "renamed", "added", "inside", "twice"))):
        case "value":
            parent[key] = draw(values)
        case "gone":
            del parent[key]
        case "renamed" if isinstance(parent, dict):
            parent[draw(texts)] = parent.pop(key)
        case "added" if isinstance(parent, dict):
            parent[draw(texts)] = draw(values)
        case "inside":
            parent[key] = draw(st.sampled_from([[parent[key]], {"a": parent[key]}, [parent[key], parent[key]]]))
        case _ if isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        case _:
            parent[key] = None
    return document


def _places(document: Json) -> Iterator[tuple[Any, Any]]:
    """Every part of it, by what holds it and under which key."""
    children: list[Any] = []
    if isinstance(document, dict):
        children = list(document)
    elif isinstance(document, list):
        children = list(range(len(document)))
    for key in children:
        yield document, key
        yield from _places(document[key])


# ------------------------------------------------------------------------------------------------------------ any bytes


@st.composite
def mangled(draw: Draw, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after something happened to its bytes."""
    data = bytearray(draw(st.sampled_from(list(seeds))))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 64)))
        match draw(st.sampled_from(("cut", "flipped", "gone", "twice", "put in", "spliced"))):
            case "cut":
                del data[start:]
            case "flipped" if data:
                data[start - 1] ^= 1 << draw(st.integers(0, 7))
            case "gone":
                del data[start:end]
            case "twice":
                data[start:start] = data[start:end]
            case "spliced":
                other = draw(st.sampled_from(list(seeds)))
                data[start:] = other[draw(st.integers(0, len(other))) :]
            case _:
                data[start:start] = draw(st.binary(max_size=8) | st.sampled_from([bytes(raw) for raw in RAW]))
    return bytes(data)

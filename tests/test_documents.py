"""JSON is read as JSON: what comes of it is what YAML says of the same text, where YAML can say it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services import documents
from services.documents import NotYaml, load_all, load_each

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.text("aé'\"\\:{}\n~<=1.-", max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab<=:1\n", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def as_yaml(text: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_as_json", lambda *_: None)
        return load_all(text)


@given(st.dictionaries(st.text("ab<=:1\n", max_size=3), VALUES, max_size=3), st.booleans())
def test_json_says_what_yaml_would(value: dict[str, Any], indented: bool) -> None:
    text = json.dumps(value, indent=2 if indented else None, ensure_ascii=not indented)
    assert load_all(text) == as_yaml(text) == [value]


def test_json_is_not_read_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes of a large cluster took minutes."""
    monkeypatch.setattr(documents.yaml, "load_all", lambda *_: pytest.fail("read as YAML"))
    assert load_all('\n{"items": [{"cpu": 1, "share": 0.5, "name": "1e3"}]}\n') == [
        {"items": [{"cpu": 1, "share": 0.5, "name": "1e3"}]}
    ]


def test_a_character_in_two_halves_is_one() -> None:
    """As Python and jq -a write an emoji; libyaml refuses it, and with it all nodes of the list."""
    assert load_all('{"a": "\\ud83d\\ude00 \\\\ud83d"}') == [{"a": "\U0001f600 \\ud83d"}]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": "\\ude00\\ud83d"}',
        '{"a": "\\\\ud83d\\ude00"}',
        '{"a": NaN}',
        '{"a": 01}',
        '{"a": "\\ud800"}',
        '{"a": 1}\n---\n{"b": 2}',
        "{a: 1}",
        '{"a":' * 200 + "1" + "}" * 200,
        '{"a":' * 3_000 + "1" + "}" * 3_000,
        '{"a": 99999999999999999999}',
        '{"a": 1',
    ],
)
def test_what_is_no_json_or_no_good_is_what_yaml_says_of_it(text: str) -> None:
    said = []
    for read in (load_all, as_yaml):
        try:
            said.append(read(text))
        except NotYaml as error:
            said.append((str(error), error.line))
    assert said[0] == said[1]


def test_json_of_more_levels_than_python_calls_functions_is_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python reads it from 3.12 on: `muster simulate` ended with a traceback."""
    deep: Any = 1
    for _ in range(3_000):
        deep = {"a": deep}
    monkeypatch.setattr(documents.json, "loads", lambda *_, **__: deep)
    with pytest.raises(NotYaml, match="nested deeper than 100 levels"):
        load_all('{"a": 1}')


NUMBERS = {
    **{"1e+06": 1_000_000, "1e3": 1_000, "129e6": 129_000_000, "2.0": 2, "1.e2": 100, "-1E2": -100, "08": 8},
    **{".5": 0.5, "1e-7": 1e-7, "1.5e300": 1.5e300, "0x1f": 31, "0755": 493, "1_000": 1_000, "-3": -3, "+4": 4, "0": 0},
    **{"0o644": 420, "-0o7": -7, "0o8": "0o8", "0o": "0o"},
    **{text: text for text in ("1:30", "12:30:45", "123e456", "1e", "e5", "1.2.3", "=", "2026-01-02", "0x")},
}
"""As sigs.k8s.io/yaml reads them, which `kubectl` uses."""


def test_a_long_number_to_the_base_of_60_is_not_reckoned_out() -> None:
    """As it was: one of 256 KiB took seconds, in which the federator did nothing else."""
    assert load_all("1:30") == [90]
    with pytest.raises(NotYaml, match="expected integers of 64 bits, found one of 1001 characters"):
        load_all("-1" + ":59" * 333)
    with pytest.raises(NotYaml, match=r"expected integers of 64 bits, found one of \d+$"):
        load_all("1" + ":59" * 333)


@pytest.mark.parametrize(
    ("written", "read"),
    [("y", True), ("Y", True), ("n", False), ("N", False), ("yes", True), ("off", False), ("yY", "yY"), ("'y'", "y")],
)
def test_booleans_of_manifests_are_those_of_kubectl(written: str, read: object) -> None:
    """A label ``x: y`` that no cluster takes was taken, and ``hostNetwork: y`` was refused."""
    assert list(load_each(f"a: {written}")) == [{"a": read}]
    assert list(load_each("y: 1")) == [{"true": 1}], "a key is a string, as of a boolean"


def test_numbers_of_manifests_are_those_of_kubectl() -> None:
    """Helm writes ``value: 1e+06`` of a million, which was a string; ``window: 1:30`` was 90, ``- =`` no YAML."""
    (found,) = load_each("\n".join(f"- {text}" for text in NUMBERS))
    assert [(value, type(value)) for value in found] == [(value, type(value)) for value in NUMBERS.values()]
    assert list(load_each('{"a": 1e6, "b": 2.0, "c": 0.5}')) == [{"a": 1_000_000, "b": 2, "c": 0.5}]
    assert list(load_each('a: "1e3"\n=: !!str 1e3\n')) == [{"a": "1e3", "=": "1e3"}]


@pytest.mark.parametrize("place", ['{{"a": [{}]}}', "a: [{}]"], ids=["JSON", "YAML"])
@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("1" + "0" * 30, 1e30),
        ("-9223372036854775809", -9.223372036854776e18),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 1.8446744073709552e19),
        ("9" * 5_000, "9" * 5_000),
        ("1e1000", "1e1000"),
        ("-1.5e400", "-1.5e400"),
    ],
)
def test_what_no_integer_or_float_holds_is_what_kubectl_makes_of_it(place: str, number: str, found: Any) -> None:
    """An integer of more bits cost the whole document, perhaps a list of all nodes; a float that no double holds was
    read as nothing at all, if it stood in JSON, and a gang had no minimum."""
    assert list(load_each(place.format(number))) == [{"a": [found]}]


@pytest.mark.parametrize("text", ['{"a": 1e400}', "a: 1.0e+400", "a: .inf", "a: -.inf", "a: .nan"])
def test_a_number_that_json_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(NotYaml, match=r"expected what JSON can say, found float '(-?inf|nan)'"):
        load_all(text)

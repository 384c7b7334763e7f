"""Quantities against exact fractions, and what is not one."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.objects import MAX_QUANTITY
from services.ingest.quantities import NANO, BadQuantity, counted, nano

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
digits = st.text("0123456789", min_size=1, max_size=12)
numbers = st.one_of(digits, st.builds("{}.{}".format, digits, st.one_of(st.just(""), digits)), digits.map(".{}".format))
exponents = st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 40))


def exactly(number: str) -> Fraction:
    whole, _, part = number.partition(".")
    return Fraction(int(whole + part or "0"), 10 ** len(part))


@given(numbers, st.sampled_from(sorted(SUFFIXES)), st.sampled_from(["", "+", "-"]))
def test_a_number_with_a_suffix_is_exact_to_a_billionth_away_from_zero(number: str, suffix: str, sign: str) -> None:
    expected = ceil(exactly(number) * SUFFIXES[suffix] * NANO)
    assert nano(f"{sign}{number}{suffix}") == (-expected if sign == "-" else expected)


@given(numbers, exponents)
def test_a_number_with_an_exponent(number: str, exponent: str) -> None:
    assert nano(number + exponent) == ceil(exactly(number) * Fraction(10) ** int(exponent[1:]) * NANO)


@given(st.integers(0, MAX_QUANTITY * NANO))
def test_counts_are_rounded_up(amount: int) -> None:
    assert counted(amount, "memory") == ceil(Fraction(amount, NANO))
    assert counted(amount // 1000, "cpu") == ceil(Fraction(amount // 1000 * 1000, NANO))


@pytest.mark.parametrize(
    ("text", "milli", "units"),
    [
        ("500m", 500, 1),
        ("1.5", 1500, 2),
        ("0.1m", 1, 1),
        ("1n", 1, 1),
        ("2Gi", 2**31 * 1000, 2**31),
        ("1e3", 10**6, 1000),
    ],
)
def test_quantities_are_rounded_up_to_the_unit_of_their_resource(text: str, milli: int, units: int) -> None:
    assert (counted(nano(text), "cpu"), counted(nano(text), "memory")) == (milli, units)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "abc",
        "1K",
        "1ki",
        "1KiB",
        "1e",
        "1e1.5",
        "1Ee3",
        "--1",
        "+-1",
        "1,5",
        ".",
        "m",
        "0x10",
        "١",
        "1_0",
    ],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(BadQuantity) as bad:
        nano(text)
    assert repr(text) in str(bad.value)
    assert "expected a quantity such as" in str(bad.value)


@given(st.text("0123456789.eEinumkKMGTP+-", max_size=12))
def test_whatever_the_grammar_allows_is_read_and_nothing_else(text: str) -> None:
    number = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
    suffix = r"(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)"
    if re.fullmatch(f"[+-]?{number}{suffix}", text):
        assert isinstance(nano(text), int)
    else:
        with pytest.raises(BadQuantity):
            nano(text)


@pytest.mark.parametrize("text", ["-1", "-90m", "-1n", "8E", "1e20", "1e999999999", str(MAX_QUANTITY + 1), "9" * 256])
def test_what_cannot_be_counted_with(text: str) -> None:
    amount = nano(text)
    for resource, unit in (("memory", ""), ("cpu", " thousandths")):
        with pytest.raises(BadQuantity) as bad:
            counted(amount, resource)
        assert bad.value.expected == f"from 0 to {MAX_QUANTITY}{unit}"


def test_the_largest_and_the_smallest() -> None:
    assert counted(nano(str(MAX_QUANTITY)), "memory") == MAX_QUANTITY
    assert counted(nano("1e-999999999"), "memory") == 1
    assert nano("0e999999999") == 0
    with pytest.raises(BadQuantity):
        nano("1" * 257)

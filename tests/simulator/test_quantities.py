"""Quantities as Kubernetes reads them, compared with the official client; requests of a whole pod."""

from __future__ import annotations

from decimal import ROUND_CEILING
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from services.simulator.quantities import amounts, milli, pod_requests, told

numbers = st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,6})?", fullmatch=True)
suffixes = st.sampled_from(["", "m", "u", "n", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])


@given(numbers, suffixes)
def test_quantities_are_those_of_the_official_client(number: str, suffix: str) -> None:
    exact = parse_quantity(number + suffix) * 1000
    # The client computes with 28 digits; what it rounds away is no difference that matters here.
    assert abs(milli(number + suffix) - int(exact.to_integral_value(ROUND_CEILING))) <= abs(exact) / 10**20 + 1


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [
        *(("1", 1000), ("1500m", 1500), ("0.5", 500), ("1u", 1), ("1n", 1), ("1000000001n", 1001)),
        *(("2e3", 2_000_000), ("1E3", 1_000_000), ("1E", 10**21), ("1Ei", 1000 << 60)),
    ],
)
def test_quantities_round_up_to_thousandths(quantity: str, thousandths: int) -> None:
    assert milli(quantity) == thousandths


@pytest.mark.parametrize("exponent", ["999", "99999999", "999999999", "9" * 400])
def test_an_exponent_of_many_digits_costs_nothing(exponent: str) -> None:
    """As it was: `muster simulate` ended with a traceback, or filled the memory."""
    assert milli(f"1e{exponent}") == 10**102
    assert milli(f"1e-{exponent}") == 1


@pytest.mark.parametrize("quantity", ["", "4x", "1 Gi", "--1", "0x10", None, "Gi"])
def test_what_is_no_quantity_is_named(quantity: object) -> None:
    with pytest.raises(ValueError, match="expected a number with a suffix"):
        milli(quantity)
    assert amounts({"cpu": quantity}) == {"cpu": 0}


@pytest.mark.parametrize(
    ("thousandths", "said", "binary"),
    [
        *((0, "0", "0"), (1, "1m", "1m"), (1500, "1500m", "1500m"), (1025_000, "1025", "1025")),
        *((1000 << n * 10, str(1 << n * 10), f"1{suffix}i") for n, suffix in enumerate("KMGTPE", 1)),
        (1_536_000 << 10, "1572864", "1536Ki"),
    ],
)
def test_an_amount_is_told_as_a_quantity(thousandths: int, said: str, binary: str) -> None:
    assert (told(thousandths), told(thousandths, binary=True)) == (said, binary)
    assert milli(said) == milli(binary) == thousandths


def test_what_only_one_init_container_asks_for_is_asked_for() -> None:
    first, second = ({"resources": {"requests": {name: "2"}}} for name in ("gpu", "nic"))
    asked = {"gpu": 2000, "nic": 2000, "cpu": 1000, "pods": 1000}
    assert pod_requests({"containers": [container("1")], "initContainers": [first, second]}) == asked
    assert pod_requests({"containers": [container("1")], "initContainers": [second, first]}) == asked


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("2")]}, 3000),
        ({"containers": [container("1")], "initContainers": [container("5"), container("2")]}, 5000),
        ({"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}, 3000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", restartPolicy="Always"), container("4"), container("1")],
            },
            6000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}}, 7000),
    ],
)
def test_a_pods_requests_are_kubernetes(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests(spec) == {"cpu": cpu, "pods": 1000}

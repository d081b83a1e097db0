"""Kubernetes quantities."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as library_parse_quantity

from agent.core.quantity import (
    InvalidQuantityError,
    canonical_quantity,
    has_unit,
    is_binary,
    parse_quantity,
    whole_value,
)

# The library multiplies with 28 digits, so longer numbers are compared by value in the table below.
numbers = st.from_regex(r"\A[+-]?([0-9]{1,6}(\.[0-9]{0,4})?|\.[0-9]{1,4})\Z")
suffixes = st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
exponents = st.integers(-12, 12).map(lambda power: f"e{power}")


@given(number=numbers, suffix=suffixes | exponents)
def test_a_quantity_has_the_value_that_the_kubernetes_library_gives_it(number, suffix):
    text = number + suffix
    assert parse_quantity(text) == library_parse_quantity(text)


@given(number=numbers, suffix=suffixes | exponents)
def test_the_canonical_spelling_is_a_fixed_point_of_the_same_value_to_a_billionth(number, suffix):
    text = number + suffix
    canonical = canonical_quantity(text)
    capped = max(min(parse_quantity(text), Decimal(2**63 - 1)), -Decimal(2**63 - 1))
    assert canonical_quantity(canonical) == canonical
    assert abs(parse_quantity(canonical) - capped) < Decimal("1e-9")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80Gi", 85899345920),
        ("80G", 80_000_000_000),
        ("80", 80),
        (80, 80),
        ("79.6Gi", Decimal("85469849190.4")),
        ("512m", Decimal("0.512")),
        ("-1", -1),
        ("8e1", 80),
        ("1E", 10**18),
        ("1E3", 1000),
        ("12345678901234567890.123456789Ki", Decimal("12641975194864197519486.419751936")),
    ],
    ids=str,
)
def test_values_are_exact(text, expected):
    assert parse_quantity(text) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("80GB", "'80GB' is not a quantity: write 80G"),
        ("80GiB", "'80GiB' is not a quantity: write 80Gi"),
        ("80 gi", "'80 gi' is not a quantity: write 80Gi"),
        ("80KB", "'80KB' is not a quantity: write 80k"),
        ("eighty", "'eighty' is not a quantity such as 80Gi"),
        ("", "'' is not a quantity such as 80Gi"),
        ("1e9999", "'1e9999' is not a quantity such as 80Gi"),
        ("٨٠Gi", "'٨٠Gi' is not a quantity such as 80Gi"),
        (2.21, "2.21 is a float; write a quantity such as 80Gi, a fraction in quotes"),
        (True, "True is a bool; write a quantity such as 80Gi, a fraction in quotes"),
        (None, "None is a NoneType; write a quantity such as 80Gi, a fraction in quotes"),
        ("1" * 100, "'11111111111111111111'… is 100 characters long, which no quantity is"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_quantity_is_refused_with_what_to_write(value, message):
    with pytest.raises(InvalidQuantityError) as refused:
        parse_quantity(value)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "whole"), [("80Gi", 85899345920), ("3.35", 4), ("-1.5", -1), ("999m", 1), ("0", 0)], ids=str
)
def test_a_whole_value_is_the_next_integer_up(text, whole):
    assert whole_value(text) == whole


@pytest.mark.parametrize(
    ("text", "unit", "binary"),
    [("80Gi", True, True), ("80G", True, False), ("80", False, False), ("8e1", False, False)],
    ids=str,
)
def test_a_unit_is_told_from_a_bare_number(text, unit, binary):
    assert (has_unit(text), is_binary(text)) == (unit, binary)

"""Valid values that findings list, and lengths as vLLM reads them."""

from __future__ import annotations

import pytest

from parc.backends.shared.valid_values import nearest_multiples, nearest_value
from parc.backends.vllm.launch_files.import_rest import parse_length
from parc.compiler.ir.divisors import divisors


@pytest.mark.parametrize("number", [*range(1, 40), 64, 97, 3600])
def test_all_divisors_are_listed_in_order(number: int) -> None:
    expected = [one for one in range(1, number + 1) if not number % one]
    assert list(divisors(number)) == expected
    for most in (0, 1, 6, 64):
        assert list(divisors(number, most)) == [one for one in expected if one <= most]


def test_divisors_of_a_huge_number_are_limited_before_they_are_searched() -> None:
    assert divisors(10**30, 8) == (1, 2, 4, 5, 8)


@pytest.mark.parametrize(
    ("values", "to", "expected"),
    [([1, 2, 4, 8], 5, 4), ([1, 2, 4, 8], 6, 8), ([2, 4], 3, 4), ([], 3, None), ([7], 1, 7)],
)
def test_the_nearest_value_is_the_larger_one_on_a_tie(
    values: list[int], to: int, expected: int | None
) -> None:
    assert nearest_value(values, to) == expected


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [(7, 4, (4, 8)), (8, 4, (8, 8)), (9, 4, (8, 12)), (1, 4, (4, 4)), (4, 1, (4, 4))],
)
def test_multiples_around_a_value(value: int, step: int, expected: tuple[int, int]) -> None:
    assert nearest_multiples(value, step) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("32768", 32768), ("32k", 32_000), ("32K", 32_768), ("1.5k", 1500), ("2m", 2_000_000)),
        *(("2M", 2 * 2**20), ("1g", 10**9), ("1G", 2**30), ("0.25g", 250_000_000)),
        *(("1.5K", None), ("1.5", None), ("k", None), ("-1", None), ("1t", None), ("", None)),
    ],
)
def test_a_length_has_a_decimal_or_a_binary_suffix(text: str, expected: int | None) -> None:
    assert parse_length(text) == expected

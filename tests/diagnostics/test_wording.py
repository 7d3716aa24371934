"""Numbers in messages: counts with their word, and lists of valid values."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics.wording import format_count, format_values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((), "none"),
        ((4,), "4"),
        ((1, 2, 3, 4), "1, 2, 3, 4"),
        (range(1, 9), "1 to 8"),
        ((1, 2, 4, 8, 16), "1, 2, 4, 8, 16"),
        ((*range(1, 9), 10, 12), "1 to 8, 10, 12"),
        (range(2, 60, 2), "2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ..., 58"),
    ],
)
def test_all_values_are_listed_or_the_gap_is_shown(values: tuple[int, ...], text: str) -> None:
    assert format_values(values) == text


def test_a_single_thing_has_no_plural() -> None:
    assert [format_count(n, "host") for n in (0, 1, 1024)] == ["0 hosts", "1 host", "1,024 hosts"]

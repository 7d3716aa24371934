"""Flags of the table, and flags that a user may add, are accepted by Megatron's parsers."""

from __future__ import annotations

import pytest

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.derived_model import format_pattern
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags
from parc.backends.megatron.capabilities import DEFAULT_VERSION, VERSIONS
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.field_table import flag_table


def test_every_flag_is_emitted_for_exactly_the_versions_that_have_it() -> None:
    for row in flag_table(PACKAGE).rows:
        for version in VERSIONS:
            assert (row.setting in flags_of(version)) == row.exists_in(version), (
                row.setting,
                version,
            )


def test_every_known_flag_has_a_spelling_and_a_range_of_versions() -> None:
    assert len(rows_of_known_flags(PACKAGE)) > 800
    for flag, row in rows_of_known_flags(PACKAGE).items():
        assert flag.startswith("-")
        assert row.get("since", VERSIONS[0]) in VERSIONS
        assert row.get("until", VERSIONS[-1]) in VERSIONS


def test_the_replacement_of_a_removed_flag_is_a_current_flag() -> None:
    assert list(removed_flags()) == sorted(removed_flags())
    for flag, row in removed_flags().items():
        assert "instead" not in row or row["instead"].split()[0] in flags_of(DEFAULT_VERSION), flag


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ((False,) * 3 + (True,) * 58, "([0]*3+[1]*58)"),
        ((False, True) * 12, "([0]*1+[1]*1)*12"),
        ((False,) + (True,) * 26, "([0]*1+[1]*26)"),
    ],
)
def test_a_pattern_of_expert_layers_is_a_list_expression(
    pattern: tuple[bool, ...], text: str
) -> None:
    assert format_pattern(pattern) == text
    assert tuple(bool(entry) for entry in eval(text)) == pattern

"""Tests of the strategy matrix of the README and of the rules from the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from parc.backends.base import Framework
from parc.backends.registry import (
    built_in_backends,
    built_in_wrappers,
    framework,
    wrapped_framework,
)
from parc.backends.shared.strategies import STRATEGIES, strategy_rules
from parc.compiler.report.text.backend_tables import (
    replace_strategy_matrix,
    strategy_matrix_markdown,
    strategy_matrix_text,
)

ROOT = Path(__file__).parent.parent.parent


def test_the_matrix_of_the_readme_is_current() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert replace_strategy_matrix(text) == text, "run make docs"


def test_a_text_without_the_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not contain the markers"):
        replace_strategy_matrix("# nothing\n")


TARGETS = (
    *(framework(one.name) for one in built_in_backends("framework")),
    *(wrapped_framework(*pair) for pair in built_in_wrappers()),
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_every_strategy_that_a_framework_does_not_support_has_a_rule(
    target: Framework,
) -> None:
    supported, known = target.strategies, {one.name for one in STRATEGIES}
    assert set(supported) <= known
    assert len(strategy_rules(target.name, supported)) == len(known) - len(supported)


def test_both_tables_have_one_row_per_strategy() -> None:
    assert strategy_matrix_markdown().count("\n") == len(STRATEGIES) + 2
    assert all(one.title in strategy_matrix_text() for one in STRATEGIES)

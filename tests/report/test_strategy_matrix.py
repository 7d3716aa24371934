"""Tests of the table in docs/strategies.md, and of the rules from the same table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parc.backends.base import Framework
from parc.backends.built_in import BUILT_IN
from parc.backends.registry import (
    built_in_backends,
    framework,
    wrapped_framework,
)
from parc.backends.shared.strategies import STRATEGIES, strategy_rules
from parc.compiler.report.text.backend_tables import (
    replace_strategy_matrix,
    strategy_matrix_markdown,
    strategy_matrix_text,
)
from tests.placement.placement_plans import layout

ROOT = Path(__file__).parent.parent.parent


def test_the_page_of_strategies_is_current() -> None:
    text = (ROOT / "docs/strategies.md").read_text("utf-8")
    assert replace_strategy_matrix(text) == text, "run make docs"


def test_a_text_without_the_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not contain the markers"):
        replace_strategy_matrix("# nothing\n")


TARGETS = (
    *(framework(one.name) for one in built_in_backends("framework")),
    *(
        wrapped_framework(wrapper.name, wrapped.framework)
        for wrapper in BUILT_IN
        for wrapped in wrapper.wrapped_frameworks
    ),
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


DDP = {"dp_replicate": 8, "dp_shard": 1, "zero_stage": 0}
USED = [
    ({**DDP, "dp_replicate": 1}, set()),
    (DDP, {"dp"}),
    ({"dp_shard": 8, "zero_stage": 0}, {"dp"}),
    ({"dp_shard": 8, "zero_stage": 1}, {"dp", "zero-1"}),
    ({"dp_shard": 8, "zero_stage": 3}, {"dp", "zero-3"}),
    ({"dp_replicate": 2, "dp_shard": 4, "zero_stage": 2}, {"dp", "zero-2", "hsdp"}),
    ({"dp_shard": 1, "zero_stage": 1}, set()),
    ({"cp": 2, "dp_shard": 1, "zero_stage": 1}, {"cp-p2p", "zero-1"}),
    ({"tp": 2, "sequence_parallel": False}, {"tp"}),
    ({"tp": 2, "sequence_parallel": True}, {"tp", "sp"}),
    ({"tp": 1, "sequence_parallel": True}, set()),
    ({"cp": 2, "cp_comm": "a2a", "zero_stage": 0}, {"cp-a2a"}),
    ({"cp": 1, "cp_comm": "a2a"}, set()),
    ({"pp": 2}, {"1f1b"}),
    ({"pp": 2, "schedule": "gpipe"}, {"gpipe"}),
    ({"pp": 1, "schedule": "gpipe"}, set()),
    ({"ep": 2}, {"ep"}),
    ({"ep": 2, "etp": 2}, {"ep", "etp"}),
    ({"ep": 1, "etp": 2}, set()),
]


@pytest.mark.parametrize(("changes", "expected"), USED)
def test_a_layout_uses_a_strategy_if_its_groups_have_two_ranks(
    changes: dict[str, Any], expected: set[str]
) -> None:
    made = replace(layout(tp=1), **{"zero_stage": 0, **changes})
    assert {one.name for one in STRATEGIES if one.uses(made)} == expected

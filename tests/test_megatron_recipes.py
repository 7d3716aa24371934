"""Table of published Megatron recipes, and the comparison with PARC's flags."""

from __future__ import annotations

from pathlib import Path

from benchmarks.megatron_recipes import (
    compare_recipe,
    read_reasons,
    read_recipes,
    read_tree,
    recipe_page,
    split_flags,
)
from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.field_table import flag_table

PAGE = Path(__file__).parents[1] / "docs" / "megatron-recipes.md"


def test_the_page_is_that_of_the_table_and_each_difference_has_a_reason() -> None:
    recipes = tuple(read_recipes())
    assert len(recipes) >= 12
    assert recipe_page(recipes, read_reasons()) == PAGE.read_text("utf-8")


def test_a_changed_flag_of_a_recipe_is_a_difference() -> None:
    (recipe,) = read_recipes(("llama-3-8b-h100-fp8-script",))
    names = {one.flag for one in compare_recipe(recipe)}
    assert "--cross-entropy-loss-fusion" not in names
    assert "--fp8-amax-history-len" not in names
    flags = {**recipe.flags, "--fp8-amax-history-len": ("16",)}
    changed = type(recipe)(recipe.name, recipe.source, flags, recipe.plan)
    (found,) = (one for one in compare_recipe(changed) if one.flag not in names)
    assert (found.flag, found.theirs, found.ours) == ("--fp8-amax-history-len", "16", "1024")


def test_every_flag_of_the_table_is_a_flag_of_megatron() -> None:
    known = rows_of_known_flags(PACKAGE).keys()
    entries = read_tree()["recipes"].values()
    written = {flag for entry in entries for flag in split_flags(entry["flags"])}
    assert len(written) > 100
    assert {*written, *read_reasons()} - known == set()


def test_a_flag_that_launch_args_accepts_is_not_fixed_by_the_plan() -> None:
    fixed = {row.setting for row in flag_table(PACKAGE).rows if not row.free}
    accepted = {flag for flag, why in read_reasons().items() if "launch.args accepts" in why}
    assert len(accepted) > 15
    assert accepted & fixed == set()

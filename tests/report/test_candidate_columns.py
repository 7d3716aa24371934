"""Columns of candidates: no field of a layout is missing, and no two rows look equal."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parc.compiler.cli import main
from parc.compiler.ir import Layout, ServingLayout, ServingPlan
from parc.compiler.report.text.candidate_columns import (
    SERVING_COLUMNS,
    TRAINING_COLUMNS,
    shown_columns,
)
from parc.compiler.report.text.search_table import candidate_table, search_document
from parc.compiler.report.text.serving_tables import serving_candidate_table
from parc.compiler.search import rank_layouts, search_serving_layouts
from tests.compiled import Spec, changed, example, plan_of

OFFLOAD: Spec = {
    "parc": 1,
    "name": "offload",
    "model": "llama-3.1-8b",
    "cluster": {"node": {"base": "hgx-h100", "gpus_per_node": 2}, "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "emit": ["deepspeed"],
}
FSDP: dict[str, Any] = {"emit": ["fsdp"], "cluster": {"node": "hgx-h100", "nodes": 1}}
MOE: dict[str, Any] = {
    **{"emit": ["megatron"], "model": "mixtral-8x7b", "job.global_batch": 256},
    "cluster": {"node": "hgx-h100", "nodes": 4},
}
CONTEXT: dict[str, Any] = {
    **{"emit": ["megatron"], "job.sequence_length": 65_536, "job.global_batch": 16},
    "cluster": {"node": "hgx-h100", "nodes": 4},
}


def test_the_columns_show_every_field_of_a_layout() -> None:
    for layout, columns in ((Layout, TRAINING_COLUMNS), (ServingLayout, SERVING_COLUMNS)):
        named = {name for one in columns for name in one.fields}
        assert named == {one.name for one in fields(layout)}


@pytest.mark.parametrize("edits", [{}, FSDP, MOE, CONTEXT], ids=["offload", "fsdp", "moe", "cp"])
def test_no_two_candidates_look_equal_and_columns_do_not_depend_on_their_number(
    edits: dict[str, Any],
) -> None:
    plan = plan_of(changed(OFFLOAD, edits))
    head, rows = candidate_table(plan, 20)
    layout = slice(1, head.index("step"))
    assert len(rows) > 5
    assert len({row[layout] for row in rows}) == len(rows)
    assert candidate_table(plan, 1) == (head, rows[:1])
    records = search_document(plan, 20)["candidates"]
    cells = {tuple(one[column.name] for column in TRAINING_COLUMNS) for one in records}
    assert len(cells) == len(records)


def test_services_that_differ_only_in_stages_get_a_column() -> None:
    layouts = [ServingLayout(pp=2, stages=stages) for stages in ((16, 16), (15, 17))]
    assert "stages" in [one.name for one in shown_columns(SERVING_COLUMNS, layouts)]
    assert "stages" not in [one.name for one in shown_columns(SERVING_COLUMNS, layouts[:1])]


def test_services_have_one_row_per_layout() -> None:
    plan = example("qwen3-30b-a3b-serve-sglang")
    assert isinstance(plan, ServingPlan)
    ranked = plan.search.ranked
    head, rows = serving_candidate_table(ranked, len(ranked))
    assert len({row[1 : head.index("ttft")] for row in rows}) == len(rows) > 1


def test_top_says_how_many_candidates_are_stored(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "parc: 1\nname: many\nmodel: qwen3-8b\ncluster: {node: hgx-h100, nodes: 1}\n"
        "job: {sequence_length: 4096, global_batch: 64}\nemit: [fsdp]\n"
    )
    line = "many: 25 candidates of 168 layouts; only the best 20 are stored"
    for style in ("table", "csv", "json"):
        shown = CliRunner().invoke(main, ["search", str(spec), "--top", "25", "--format", style])
        assert line in (shown.stdout if style == "table" else shown.stderr)
    few = CliRunner().invoke(main, ["search", str(spec), "--top", "20", "--format", "csv"])
    assert "stored" not in few.stderr
    shown = CliRunner().invoke(main, ["search", "--help"])
    most = f"at most {rank_layouts.KEPT} layouts for training, {search_serving_layouts.KEPT} for"
    assert most in " ".join(shown.stdout.split())

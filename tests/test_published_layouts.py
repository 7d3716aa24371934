"""Table of published layouts, and the evaluation of some of them."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.published_layouts import comparison_page
from benchmarks.published_reasons import reason
from benchmarks.published_rows import PublishedLayout, compare_with_choice, read_table
from parc.compiler.catalog.library import Library

ROWS = {row.id: row for row in read_table()}


def published(name: str, **pins: object) -> PublishedLayout:
    """Return the result for a row of the table, with ``pins`` changed."""
    row = ROWS[name]
    return replace(row, pins=dict(pins)) if pins else row


def test_every_row_has_a_source_and_catalog_names() -> None:
    library = Library(None)
    hosts = {*library.names("clusters"), *library.names("nodes")}
    models = set(library.names("models"))
    assert len(ROWS) == len(read_table()) > 100
    assert all(row.source and row.hosts in hosts and row.model in models for row in ROWS.values())


def test_pins_are_read_like_those_of_a_spec() -> None:
    pins = ROWS["deepseek-v3-1024gpu-h100-bf16"].pins
    assert pins["recompute"] == {"granularity": "selective", "modules": ["mla_up_proj", "mlp"]}
    assert (pins["tp"], pins["ep"], pins["pipeline_layout"]) == (2, 64, "Et|(tt|)*30mL")
    assert ROWS["mt-nlg-530b-280"].pins["recompute"]["method"] == "uniform"


def test_a_row_states_its_expert_dispatcher() -> None:
    row = ROWS["deepseek-v3-256gpu-gb300-fp8mx"]
    assert row.dispatch == {"moe_dispatcher": "hybridep", "moe_overlap": True}
    assert ROWS["llama3-405b-8k"].dispatch == {}
    found = compare_with_choice(row)
    assert found.pick is not None
    assert found.pick.problem.job.deduplicates_dispatch


def test_the_published_layout_is_evaluated() -> None:
    found = compare_with_choice(published("gpt3-175b-512-fp8"))
    layout = found.layout
    assert layout is not None
    assert (layout.tp, layout.pp, layout.vpp, layout.dp, layout.micro_batch) == (4, 8, 6, 16, 1)
    assert found.fits


def test_a_layout_that_does_not_fit_is_evaluated_with_enough_memory_at_the_same_speed() -> None:
    free = compare_with_choice(published("llama3-70b-64gpu-h100-fp8cs"))
    assert free.pick is not None
    chosen = free.pick.layout
    pins = {"tp": chosen.tp, "cp": chosen.cp, "pp": chosen.pp, "vpp": chosen.vpp}
    same = compare_with_choice(published("llama3-70b-64gpu-h100-fp8cs", **pins, micro_batch=1))
    big = compare_with_choice(
        published("llama3-70b-64gpu-h100-fp8cs", tp=1, cp=1, pp=1, micro_batch=1, recompute="none")
    )
    assert same.fits
    assert same.difference < 0.06
    assert not big.fits
    assert big.estimate is not None
    assert "predicted not to fit" in reason(big)
    lacking = comparison_page([big]).split("## Predicted not to fit")[1].split("##")[0]
    assert "`llama3-70b-64gpu-h100-fp8cs`" in lacking
    compute = big.estimate.time.compute_seconds / free.pick.estimate.time.compute_seconds
    assert 0.8 < compute < 1.1


def test_a_layout_that_violates_a_rule_is_listed_with_the_rule() -> None:
    found = compare_with_choice(published("qwen3-235b-a22b-64gpu-gb200-fp8cs"))
    assert found.layout is None
    assert (
        "D10 64 ranks are not divisible by the expert mesh pp 8 x ep 32 x etp 1 = 256"
        in comparison_page([found])
    )


def test_the_reason_names_the_most_expensive_term() -> None:
    found = compare_with_choice(published("mt-nlg-530b-350"))
    assert "recompute" in reason(found).split(":")[1].split(",")[0]
    assert "mt-nlg-530b-350" in comparison_page([found]).split("more than 5 % faster")[1]

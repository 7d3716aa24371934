"""Verdicts on systems of the literature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.published_layouts import main
from benchmarks.published_rows import read_table
from benchmarks.published_systems import (
    CONVENTIONS,
    counted_flops,
    evaluate,
    read_systems,
    systems_page,
)
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Model
from parc.compiler.resolve.resolve_model import resolve_model

ROWS = {row.id: row for row in read_table()}
SYSTEMS = {system.id: system for system in read_systems()[0]}


def model(name: str) -> Model:
    found = resolve_model(name, Library(None), Sink())
    assert found is not None
    return found


def test_every_system_has_a_row_and_a_published_figure() -> None:
    for system in SYSTEMS.values():
        row = ROWS[system.id]
        assert system.flops in CONVENTIONS
        assert bool(system.figure) != (row.measured_seconds is not None), system.id
        assert bool(system.flops) == ("TFLOP/s" in system.figure), system.id


def test_hardware_flops_are_those_of_the_formula_of_megatron() -> None:
    """arXiv:2104.04473, section 5.1: 96 B s l h^2 (1 + s / (6 h) + V / (16 l h))."""
    gpt = model("megatron-1t")
    batch, sequence, layers, hidden = 3072, 2048, gpt.layers, gpt.hidden
    formula = 96.0 * batch * sequence * layers * hidden**2
    formula *= 1 + sequence / (6 * hidden) + gpt.vocab / (16 * layers * hidden)
    counted = counted_flops(gpt, batch * sequence, sequence, "hardware")
    assert counted == pytest.approx(formula, rel=1e-3)


def test_full_attention_counts_twice_the_causal_core_and_recompute_a_third_more() -> None:
    llama = model("llama-3.1-405b")
    causal, full, hardware = (
        counted_flops(llama, 131072, 131072, word) for word in ("causal", "full", "hardware")
    )
    core = 6 * llama.layers * 131072 * 2 * llama.hidden * 131072 / 2
    assert full - causal == pytest.approx(core)
    assert hardware / full == pytest.approx(4 / 3, rel=0.01)
    with pytest.raises(ValueError, match="unknown FLOP convention"):
        counted_flops(llama, 1, 1, "half")


def test_tokens_per_second_are_converted_to_a_step_time() -> None:
    found = evaluate(replace(SYSTEMS["deepseek-v3-2048"], check={}), ROWS["deepseek-v3-2048"])
    days = 1e12 / (15360 * 4096) * found.published_seconds / 86400
    assert days == pytest.approx(3.66, rel=0.01)  # 180,000 GPU hours on 2,048 GPUs


def test_a_run_from_before_flash_attention_is_predicted_with_the_kernels_of_its_time() -> None:
    system, row = SYSTEMS["korthikanti-22b"], ROWS["korthikanti-22b"]
    modern = evaluate(replace(system, stack=""), row)
    assert evaluate(system, row).time.total_seconds > modern.time.total_seconds


def test_sharded_gradients_free_memory_and_cost_no_time_in_a_pipeline() -> None:
    system, row = SYSTEMS["llama3-405b-8k"], ROWS["llama3-405b-8k"]
    sharded, whole = evaluate(system, row), evaluate(replace(system, zero=1), row)
    assert sharded.peak.gradients_bytes < whole.peak.gradients_bytes
    assert sharded.time == whole.time
    assert not sharded.missing_bytes
    assert whole.missing_bytes
    text = systems_page([whole], {"PaLM": "no TPU"})
    assert f"no, {whole.missing_bytes / 2**30:.1f} GiB too many" in text
    assert "| no TPU |" in text


def test_unstated_recompute_is_the_cheapest_that_fits_without_headroom() -> None:
    system, row = SYSTEMS["grok-1"], ROWS["grok-1"]
    assert "recompute" not in row.pins
    found = evaluate(system, row)
    assert found.layout.recompute.granularity == "none"
    assert found.peak.low_bytes < found.device_bytes < found.peak.high_bytes


def test_the_cause_of_a_large_difference_is_tested() -> None:
    found = evaluate(SYSTEMS["falcon-180b"], ROWS["falcon-180b"])
    assert found.checked is not None
    assert found.checked.time.total_seconds < found.time.total_seconds
    assert f"the difference is {100 * found.checked.difference:+.1f} %" in systems_page([found], {})


def test_the_program_writes_the_section_on_systems(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    assert main(["--systems", "--only", "korthikanti-22b", "--output", str(file)]) == 0
    assert "Megatron 22B" in file.read_text("utf-8")

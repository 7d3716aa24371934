"""Memory model against published readings, by counter."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import mean, median

import pytest

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.memory.fits import device_bytes, predict_fits
from benchmarks.accuracy.memory.rows import (
    PATH,
    Reading,
    layout_of,
    model_of,
    read_out_of_memory,
    read_readings,
    words_of,
)
from benchmarks.accuracy.memory.section import (
    fitted_spread,
    held_out_coverage,
    section,
    static_error,
)
from benchmarks.accuracy.memory.sources import draw_locked_readings
from benchmarks.accuracy.memory.static_records import Record, read_records
from benchmarks.accuracy.memory.static_tensors import parameters
from benchmarks.accuracy.sources import LOCKED
from parc.compiler.ir import Layout, Model, ModelChunk
from parc.compiler.ir.estimate import DYNAMIC_SPREAD

EXACT = {
    "gpt-gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset": 2,
    "gpt-gpt3_mcore_te_tp1_pp4_vp1": 3,
    "gpt-gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_untied": 2,
    "gpt-gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_tunable_overlap": 2,
    "gpt-gpt3_mcore_te_tp2_pp1_resume_torch_dist_multi_dist_optimizer_instances": 1,
    "gpt-gpt3_mcore_te_tp2_pp2_cp2": 2,
    "gpt-gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion": 2,
    "gpt-gpt3_mcore_te_tp2_pp2_mla": 1,
    "gpt-gpt3_mcore_te_tp4_pp1_dist_optimizer_overlap_grad_reduce_param_gather": 3,
    "gpt-gpt3_mcore_te_tp4_pp1_resume_torch_dist_qk_layernorm_test_mode": 3,
    "gpt-gpt3_mcore_te_tp4_pp2_frozen_resume_torch_dist_reshard_8x1xNone": 1,
    "gpt-gpt3_mcore_tp1_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather": 4,
    "gpt-gpt3_mcore_tp1_pp2": 1,
    "gpt-gpt3_mcore_tp1_pp4": 1,
    "moe-gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed": 2,
    "moe-gpt3_mcore_te_tp2_pp2_ep4_etp1_selective_recompute_experimental": 1,
}
"""Number of records that match to the byte by functional test; each ran with two images on up to
three GPU generations."""
LIMITS = {
    "AutoModel": (0.02, 1.0),
    "DeepSpeed users": (0.09, 0.5),
    "ColossalAI Lightning": (0.03, 1.0),
    "FlagPerf": (0.125, 0.35),
    "FlagPerf 2023": (0.11, 0.15),
    "Isambard": (0.04, 1.0),
    "KempnerForge": (0.035, 0.65),
    "Lightning Thunder": (0.03, 1.0),
    "LitGPT": (0.025, 1.0),
    "Megatron 2023": (0.02, 1.0),
    "Megatron CI": (0.01, 1.0),
    "Megatron CI 2026": (0.015, 0.92),
    "Megatron CI GB200": (0.015, 1.0),
    "Megatron-FSDP CI": (0.01, 1.0),
    "Megatron documents": (0.04, 0.65),
    "Megatron release tests": (0.03, 1.0),
    "Megatron users": (0.02, 0.8),
    "Megatron users 2": (0.045, 0.65),
    # Two readings of the sixth test with unseen runs are among them; without these, 0.02.
    "Megatron-Bridge": (0.03, 0.85),
    "Together AI": (0.09, 0.0),
    "VocabularyParallelism": (0.03, 0.75),
    "ms-swift": (0.05, 0.85),
    "ms-swift fp8": (0.075, 0.0),
    "nanotron": (0.085, 0.45),
    "nanotron 2024-07": (0.01, 1.0),
    "prime-rl": (0.15, 0.0),
    "torchao": (0.03, 0.9),
    "torchtitan": (0.04, 1.0),
    "torchtitan 2024-03": (0.065, 0.5),
    "torchtitan 2025": (0.05, 0.6),
    "torchtitan 2025 PRs": (0.03, 0.7),
    "torchtitan commits": (0.03, 0.8),
    "torchtitan issues": (0.055, 0.65),
    "torchtitan users": (0.04, 0.6),
    "torchtitan users and authors": (0.085, 0.4),
    "torchtune": (0.04, 0.75),
}
"""Limits by group: (largest median error, smallest share within 7 %)."""


@cache
def readings() -> tuple[Reading, ...]:
    """Return the readings of sources that are not locked; no test may depend on the others."""
    return tuple(reading for reading in read_readings() if not reading.locked)


@cache
def records() -> tuple[Record, ...]:
    return tuple(read_records())


def of(group: str) -> list[Reading]:
    """Return the readings of one group."""
    return [reading for reading in readings() if reading.group == group]


@pytest.mark.parametrize("group", LIMITS)
def test_a_group_of_readings_is_within_its_limits(group: str) -> None:
    errors = [abs(reading.error) for reading in of(group)]
    largest_median, share = LIMITS[group]
    assert median(errors) <= largest_median
    assert sum(error <= 0.07 for error in errors) >= share * len(errors)


def test_every_group_of_readings_has_limits() -> None:
    assert {reading.group for reading in readings()} == LIMITS.keys()


def test_83_percent_of_the_readings_are_within_seven_percent_and_half_within_two() -> None:
    errors = [abs(reading.error) for reading in readings()]
    assert median(errors) < 0.0205
    assert sum(error <= 0.07 for error in errors) >= 0.83 * len(errors)


@pytest.mark.parametrize(
    ("run", "largest"),
    [
        ("8experts_etp1_ep4", 0.005),
        ("8experts2parallel_dist_optimizer", 0.01),
        ("mixtral_8x22b", 0.01),
        ("no_mtp_no_a2a_ovlp_fine_grained", 0.01),
        ("etp1_fine_grained", 0.03),
    ],
)
def test_peaks_of_models_with_experts_follow_from_their_tensors(run: str, largest: float) -> None:
    (reading,) = [reading for reading in of("Megatron CI") if run in reading.name]
    assert abs(reading.error) <= largest


def test_bytes_between_steps_are_parameters_and_workspaces() -> None:
    blind = [*of("Megatron CI 2026"), *of("Megatron CI GB200")]
    known = [reading for reading in readings() if reading.static_bytes and reading not in blind]
    errors = [abs(static_error(reading)) for reading in known]
    assert len(errors) >= 25
    assert median(errors) <= 0.007
    assert max(errors) <= 0.07
    assert median(abs(static_error(reading)) for reading in blind) <= 0.007


@pytest.mark.parametrize("run", ["8experts_etp1_ep4", "fine_grained", "no_mtp"])
def test_static_bytes_of_small_models_with_experts_are_within_one_percent(run: str) -> None:
    errors = [static_error(reading) for reading in of("Megatron CI") if run in reading.name]
    assert errors
    assert max(map(abs, errors)) <= 0.01


@pytest.mark.parametrize("run", ["15b_8t_release", "te_tp2_pp2_mla-h100"])
def test_bytes_of_a_run_without_parameters_are_its_workspaces(run: str) -> None:
    (reading,) = [reading for reading in readings() if run in reading.name]
    beside = reading.static_bytes - reading.stage.static_bytes
    assert beside == pytest.approx(reading.stage.workspace_bytes, abs=20 * 2**20)


def test_megatron_records_between_two_steps_match_to_the_byte() -> None:
    is_exact = [record.name for record in records() if record.is_exact]
    assert Counter(name.split("-h100")[0] for name in is_exact) == EXACT


def test_with_expandable_segments_the_allocator_adds_no_bytes() -> None:
    expanding = [record for record in records() if record.expands]
    assert len(expanding) == 10
    assert all(record.is_exact for record in expanding)


def test_other_records_differ_by_remainders_that_the_allocator_does_not_split() -> None:
    rest = [record for record in records() if not record.is_exact]
    assert sum(record.differs_by_remainders for record in rest) >= 54
    assert median(abs(record.error) for record in rest) <= 0.003
    assert max(abs(record.error) for record in rest) <= 0.009


def test_the_tensors_of_a_record_are_the_parameters_of_its_stage() -> None:
    (stage,) = {
        reading.stage.weights_bytes
        for reading in of("Megatron CI")
        if "tunable_overlap" in reading.name
    }
    split = (
        ModelChunk(9, 1, False, 0, False),
        ModelChunk(10, 1, False, 0, False),
        ModelChunk(11, 1, False, 0, True),
    )
    model, layout = row_of("torch_dist_tunable_overlap")
    assert 2 * sum(sum(parameters(model, layout, chunk).dense) for chunk in split) == stage


def row_of(part: str) -> tuple[Model, Layout]:
    """Return model and layout of the reading whose name contains ``part``."""
    with PATH.open(encoding="utf-8", newline="") as lines:
        (row,) = [row for row in csv.DictReader(lines) if part in row["id"]]
    words = words_of(row["layout"])
    model = model_of(words_of(row["model"]), words)
    return model, layout_of(words, model)


def test_four_readings_of_five_are_inside_their_intervals() -> None:
    inside: dict[str, list[bool]] = {}
    for reading in readings():
        inside.setdefault(reading.document, []).append(reading.is_inside)
    assert 0.75 <= mean(map(mean, inside.values())) <= 0.9


def test_the_spread_is_at_least_the_one_that_the_readings_need() -> None:
    assert DYNAMIC_SPREAD - 0.03 <= fitted_spread(readings()) <= DYNAMIC_SPREAD
    assert 0.75 <= held_out_coverage(readings()) <= 0.9


def test_a_reading_is_inside_an_interval_that_contains_its_prediction() -> None:
    for reading in readings():
        exact = replace(reading, measured_bytes=round(reading.predicted_bytes))
        assert exact.is_inside
        assert not replace(exact, measured_bytes=4 * exact.measured_bytes).is_inside


def test_locked_readings_were_drawn_by_source_and_kind() -> None:
    kinds = [(f"source {index}", ("allocated", "dense")) for index in range(9)]
    drawn = draw_locked_readings([*kinds, *kinds[:3]])
    assert len(drawn) == 3
    assert drawn == draw_locked_readings(kinds)
    known = sorted(LOCKED)[0]
    assert known in draw_locked_readings([*kinds[:2], (known, ("allocated", "dense"))])


def test_the_section_lists_every_group() -> None:
    text = section()
    assert text.startswith("## Memory\n")
    assert all(f"| {group} |" in text for group in LIMITS)
    assert "| **locked** |" in text


def test_no_layout_that_ran_out_of_memory_is_predicted_to_fit_with_its_whole_interval() -> None:
    found = [row for row in read_out_of_memory() if not row.locked]
    assert [row.name for row in found if row.surely_fits] == []
    assert len(found) == 6
    assert all(row.might_fit for row in found if row.surely_fits)


def test_trained_runs_fit_and_runs_out_of_memory_do_not() -> None:
    found = list(predict_fits(load(None).cases))
    assert len(found) > 200
    assert [prediction.case.run.id for prediction in found if not prediction.is_correct] == []


def test_a_cluster_may_state_the_memory_of_its_gpus() -> None:
    case = next(case for case in load(None).cases if "HBM" not in case.run.cluster)
    assert device_bytes(case) == case.problem.cluster.gpu.memory_bytes
    larger = replace(case, run=replace(case.run, cluster="Meta H100 (96GB HBM2e, 500W)"))
    assert device_bytes(larger) == 96e9

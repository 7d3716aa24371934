"""Accumulation, reduction and overlap of gradients; pipeline hops against the simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.hardware_classes import class_row
from parc.backends.registry import framework
from parc.compiler.cost.kernels.collective_time import CollectiveFit, InterDomainNetwork
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.simulation import StageCosts, StageSeconds, simulate_schedule
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import Links
from parc.compiler.cost.step.gradient_sums import (
    gradient_accumulation_seconds,
    gradient_sum_bytes,
)
from parc.compiler.cost.step.gradients import (
    ALWAYS_EXPOSED,
    _gradient_reduce_seconds,
    _traffic_per_round,
    data_parallel_bytes,
    exchanges_per_micro_batch,
    exposed_seconds,
    exposed_seconds_of_step,
    gathered_bytes,
    gradient_overlap_fraction,
    largest_stage_parameters,
)
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.stage_time import recompute_seconds
from parc.compiler.cost.step.step_time import (
    exposed_hops,
    stage_boundary_bytes,
    stage_boundary_seconds,
)
from parc.compiler.ir import DENSE, Layout, Plan, Recompute
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.cost.memory.test_static_memory import plan_of
from tests.generations import efficiency_row

SECONDS = st.floats(0.0, 1e4)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(
        model="llama-3-8b",
        cluster={"node": "dgx-a100", "nodes": 2},
        job={"sequence_length": 8192, "global_batch": 64},
        layout={"tp": 2, "pp": 2, "cp": 1, "vpp": 1, "micro_batch": 1},
    )


def priced(plan: Plan, hardware: str = "") -> CostModel:
    """Return the memo of the plan's problem, with the factors of ``hardware`` if it is given."""
    row = class_row(hardware) if hardware else None
    return cost_model_for(plan.problem, framework("megatron"), row)


def without_sequence_parallel(plan: Plan) -> Layout:
    return replace(plan.layout, sequence_parallel=False)


def test_a_weight_gradient_is_added_to_the_sum_by_the_gemm_that_computes_it(plan: Plan) -> None:
    cost_model = priced(plan)
    assert gradient_accumulation_seconds(cost_model, plan.layout, 1e9) == 0.0
    assert gradient_sum_bytes(cost_model, plan.layout) == 8
    job = replace(plan.problem.job, gradient_precision="bf16")
    short = cost_model_for(replace(plan.problem, job=job), framework("megatron"))
    assert gradient_sum_bytes(short, plan.layout) == 4
    for size in (1, 4):
        layout = replace(plan.layout, micro_batch=size)
        one, other = layer_time(short, layout, DENSE), layer_time(cost_model, layout, DENSE)
        assert one.backward < other.backward
        assert one.forward == other.forward


def test_megatron_of_2021_accumulates_in_a_separate_kernel(plan: Plan) -> None:
    cost_model, layout = priced(plan, "ampere/unfused"), plan.layout
    rate = plan.problem.cluster.gpu.memory_gb_per_s * 1e9
    apart = gradient_accumulation_seconds(cost_model, layout, 1e9)
    assert apart == pytest.approx(cost_model.efficiency.accumulate * 10e9 / rate)
    assert gradient_sum_bytes(cost_model, layout) == 2
    # Megatron-LM 3.0 fuses the accumulation, and overlaps communication.
    newer = replace(cost_model.efficiency, separate_sums=False, overlaps_gradients=True)
    cost_model.efficiency = newer
    assert gradient_accumulation_seconds(cost_model, layout, 1e9) == 0.0
    assert gradient_sum_bytes(cost_model, layout) == 8
    assert gradient_overlap_fraction(cost_model) == cost_model.efficiency.dp_overlap


def test_a_separate_kernel_accumulates_fp16_as_fast_as_bf16(plan: Plan) -> None:
    half = replace(plan.problem, job=replace(plan.problem.job, precision="fp16"))
    layout = without_sequence_parallel(plan)
    one = priced(plan, "ampere/bigscience")
    other = cost_model_for(half, framework("megatron"), class_row("ampere/bigscience"))
    assert gradient_accumulation_seconds(one, layout, 1e9) == gradient_accumulation_seconds(
        other, layout, 1e9
    )


def test_stacks_of_2021_hide_no_gradients(plan: Plan) -> None:
    old, new = priced(plan, "ampere/unfused"), priced(plan)
    assert gradient_overlap_fraction(new) == new.efficiency.dp_overlap > 0
    assert gradient_overlap_fraction(old) == 0.0
    assert exposed_seconds(1.0, 0.05, gradient_overlap_fraction(old) * 100.0) == 1.0


def test_sharded_gradients_are_reduced_and_not_accumulated(plan: Plan) -> None:
    assert (
        gradient_accumulation_seconds(priced(plan), replace(plan.layout, zero_stage=3), 1e9) == 0.0
    )
    assert gradient_sum_bytes(priced(plan), replace(plan.layout, zero_stage=3)) == 2


def test_separate_accumulation_is_part_of_the_backward_pass_for_any_number_of_tokens(
    plan: Plan,
) -> None:
    plain, heavy = priced(plan, "ampere/unfused"), priced(plan, "ampere/unfused")
    heavy.efficiency = replace(plain.efficiency, accumulate=plain.efficiency.accumulate + 50)
    for size in (1, 4):
        layout = replace(without_sequence_parallel(plan), micro_batch=size)
        one, other = layer_time(plain, layout, DENSE), layer_time(heavy, layout, DENSE)
        parameters = sum(plain.layer_parameters(DENSE, layout))
        more = (
            gradient_accumulation_seconds(heavy, layout, parameters)
            * 50
            / heavy.efficiency.accumulate
        )
        assert other.backward - one.backward == pytest.approx(more, rel=1e-3)
        assert other.forward == one.forward


@given(SECONDS, SECONDS)
def test_exposed_time_is_between_perfect_overlap_and_none(traffic: float, window: float) -> None:
    exposed = exposed_seconds(traffic, 0.0, window)
    slack = 1e-9 * (traffic + window)
    assert max(0.0, traffic - window) - slack <= exposed <= traffic + slack


@given(SECONDS, SECONDS, SECONDS)
def test_more_computation_never_exposes_more(traffic: float, less: float, more: float) -> None:
    small, large = sorted((less, more))
    slack = 1e-9 * (traffic + large)
    assert exposed_seconds(traffic, 0.0, large) <= exposed_seconds(traffic, 0.0, small) + slack


def test_a_part_of_the_traffic_is_always_exposed() -> None:
    assert exposed_seconds(1.0, 0.05, 1e9) == 0.05


@pytest.mark.parametrize(
    ("pp", "vpp", "micro_batches"),
    [(2, 1, 8), (4, 1, 16), (8, 1, 8), (8, 1, 30), (4, 1, 2), (2, 4, 8), (4, 2, 16), (8, 3, 24)],
)
def test_exposed_hops_are_those_of_the_simulated_schedule(
    pp: int, vpp: int, micro_batches: int
) -> None:
    table = SCHEDULES["interleaved" if vpp > 1 else "1f1b"].table(
        PipelineShape(pp, micro_batches, vpp)
    )
    stages = (StageSeconds(1.0, 1.0, 1.0),) * table.depth
    hop = 1 / 64
    near, far = (
        simulate_schedule(table, StageCosts(stages)),
        simulate_schedule(table, StageCosts(stages, hop)),
    )
    hops = (far.makespan_seconds - near.makespan_seconds) / hop
    assert exposed_hops(pp, vpp, micro_batches) == pytest.approx(hops)


def test_stacks_without_sequence_parallelism_send_parts_and_gather_them_on_arrival(
    plan: Plan,
) -> None:
    layout = without_sequence_parallel(plan)
    old, new = priced(plan, "ampere/unfused"), priced(plan)
    assert stage_boundary_bytes(old, layout) == stage_boundary_bytes(new, layout) / layout.tp
    sent = old.links.message_seconds(
        stage_boundary_bytes(old, layout), old.group_spans(layout).pp_stride
    )
    gathered = old.links.collective_seconds(
        "all_gather", stage_boundary_bytes(new, layout), old.group_spans(layout).tp
    )
    assert stage_boundary_seconds(old, layout) == pytest.approx(
        old.efficiency.pp * (sent + gathered)
    )
    assert stage_boundary_bytes(old, plan.layout) == stage_boundary_bytes(new, plan.layout)


def test_a_hardware_class_without_runs_is_that_of_another_generation() -> None:
    row = efficiency_row("ada/transformer-engine")
    measured = efficiency_row("hopper/transformer-engine")
    assert row == replace(measured, gpu_sources=(), measured_launches=False) != measured
    older = class_row("volta/bigscience")
    assert older == replace(class_row("ampere/bigscience"), gpu_sources=())


def test_collectives_longer_than_the_weight_gradients_are_exposed_more(plan: Plan) -> None:
    cost_model = priced(plan)
    near = layer_time(cost_model, plan.layout, DENSE).tp
    slow = priced(plan)
    slow.links = replace(slow.links, domain=1)
    far = layer_time(slow, plan.layout, DENSE).tp
    groups = cost_model.group_spans(plan.layout).tp
    spread = slow.group_spans(plan.layout).tp
    assert (groups.domains, spread.domains) == (1, 2)
    nbytes = 2 * 8192 * plan.problem.model.hidden
    ratio = slow.links.collective_seconds(
        "all_gather", nbytes, spread
    ) / cost_model.links.collective_seconds("all_gather", nbytes, groups)
    assert far > 1.1 * ratio * near


def test_backward_all_reduces_hide_behind_weight_gradients_without_sequence_parallelism(
    plan: Plan,
) -> None:
    layout, slow = without_sequence_parallel(plan), priced(plan)
    near = layer_time(priced(plan), layout, DENSE)
    assert near.tp_forward > near.tp_backward == 0.0
    slow.links = replace(slow.links, domain=1)
    far = layer_time(slow, layout, DENSE)
    assert far.tp_forward > far.tp_backward > 0.0


def test_recompute_repeats_the_core_or_the_whole_forward_pass(plan: Plan) -> None:
    cost_model = priced(plan)
    layer = layer_time(cost_model, plan.layout, DENSE)
    core = replace(plan.layout, recompute=Recompute.selective(("core_attn",)))
    assert recompute_seconds(cost_model, core, layer, DENSE) == layer.core > 0
    full = replace(plan.layout, recompute=Recompute("full", (), "uniform", 1))
    again = recompute_seconds(cost_model, full, layer, DENSE)
    assert again == pytest.approx(layer.forward + layer.tp_forward)


@pytest.mark.parametrize(
    ("name", "stage", "pp", "expected"),
    [
        *(("megatron", 0, 1, False), ("megatron", 1, 1, False), ("megatron", 1, 2, False)),
        *(("deepspeed", 1, 1, False), ("deepspeed", 2, 1, True), ("deepspeed", 3, 1, True)),
        *(("fsdp", 2, 1, True), ("fsdp", 3, 1, True), ("fsdp", 0, 1, False)),
        *(("torchtitan", 2, 2, False), ("torchtitan", 3, 2, True), ("torchtitan", 2, 1, True)),
    ],
)
def test_stages_2_and_3_exchange_with_every_micro_batch_unless_a_pipeline_keeps_gradients(
    plan: Plan, name: str, stage: int, pp: int, expected: bool
) -> None:
    cost_model = cost_model_for(plan.problem, framework(name))
    layout = replace(plan.layout, zero_stage=stage, pp=pp)
    assert exchanges_per_micro_batch(cost_model, layout) is expected


def test_zero_1_scatters_gradients_and_gathers_16_bit_weights(plan: Plan) -> None:
    # An all-reduce of 4 bytes sends 8 (n - 1) / n per parameter, scatter and gather 4 and 2.
    cost_model = priced(plan)
    cost_model.links = Links(
        1,
        {
            each: CollectiveFit(each, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0)
            for each in ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
        },
        InterDomainNetwork(1.0, 0.0),
    )
    whole, sharded = (
        _gradient_reduce_seconds(cost_model, replace(plan.layout, zero_stage=stage))
        for stage in (0, 1)
    )
    assert whole > 0
    assert sharded == pytest.approx(whole * 6 / 8)


@pytest.mark.parametrize(
    ("node", "precision", "recipe", "sent"),
    [
        ("dgx-h100", "bf16", "tensorwise", 2.0),
        ("dgx-h100", "fp8", "tensorwise", 1.0),
        # 16-bit weights stay the parameters, or are gathered in place of their quantized copies.
        ("dgx-h100", "fp8", "blockwise", 2.0),
        ("dgx-b200", "mxfp8", "tensorwise", 2.0),
        ("dgx-b200", "nvfp4", "tensorwise", 0.5),
    ],
)
def test_weights_are_gathered_in_the_precision_in_which_they_are_stored(
    node: str, precision: str, recipe: str, sent: float
) -> None:
    job = {"sequence_length": 4096, "global_batch": 64, "precision": precision}
    if precision == "fp8":
        job["fp8_recipe"] = recipe
    low = plan_of(
        model="llama-3.2-1b",
        cluster={"node": node, "nodes": 1},
        job=job,
        layout={"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1, "zero_stage": 1},
    )
    cost_model = priced(low)
    parameters = largest_stage_parameters(cost_model, low.layout)[0]
    table = cost_model.framework.padded_vocab(low.problem, 1) * low.problem.model.hidden
    tables = table if low.problem.model.tied_embeddings else 2 * table
    expected = sent * (parameters - tables) + 2 * tables
    assert gathered_bytes(cost_model, low.layout) == (pytest.approx(expected), 0.0)
    exchanged = data_parallel_bytes(cost_model, low.layout)[0]
    assert exchanged == pytest.approx(low.problem.job.gradient_bytes * parameters + expected)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_part_of_the_gradient_traffic_is_always_exposed(plan: Plan, stage: int) -> None:
    layout = replace(plan.layout, zero_stage=stage)
    seconds, least = _traffic_per_round(priced(plan), layout)
    assert 0 < least < seconds
    assert stage == 3 or least == pytest.approx(seconds * ALWAYS_EXPOSED)


def test_interleaving_hides_more_gradient_traffic_and_at_most_all_but_the_last_chunk() -> None:
    traffic, window = (3.0, 0.15, 0.0), 1.0
    plain = exposed_seconds_of_step(traffic, window, 1, (8, 1, 64))
    few, many = (exposed_seconds_of_step(traffic, window, 1, (8, v, 64)) for v in (2, 8))
    assert 0 < many < few < plain
    # With traffic far below the window, only the bucket of the last chunk is exposed.
    assert exposed_seconds_of_step((0.1, 0.005, 0.0), 1.0, 1, (8, 4, 64)) == pytest.approx(
        0.005 / 4
    )


def test_interleaving_does_not_change_rounds_of_every_micro_batch() -> None:
    traffic = (3.0, 0.15, 0.2)
    assert exposed_seconds_of_step(traffic, 1.0, 4, (8, 4, 4)) == exposed_seconds_of_step(
        traffic, 1.0, 4, (8, 1, 4)
    )

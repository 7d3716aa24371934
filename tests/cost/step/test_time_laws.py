"""Laws of step times: faster hardware and shorter formats."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.counts.launches import COLLECTIVE_LAUNCHES
from parc.compiler.cost.kernels.gemm import OUTPUT_BYTES
from parc.compiler.cost.kernels.layer_kernels import (
    ForwardBackward,
    GemmShape,
    gemm_forward_backward_seconds,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.launch_time import collective_launch_seconds
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import DENSE, Layout, Precision, Problem
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import Spec, changed, plan_of

SMALL: Spec = {
    "parc": 1,
    "name": "laws",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "layout": {"tp": 4, "cp": 2, "pp": 1, "micro_batch": 1, "cuda_graphs": False},
}
MEGATRON = framework("megatron")
ROUNDING = 1 + 1e-9


def seconds(problem: Problem, layout: Layout) -> float:
    return step_time(cost_model_for(problem, MEGATRON), layout).total_seconds


def with_one_rate_higher(problem: Problem) -> dict[str, Problem]:
    """Return copies of the problem, each with one rate of the hardware 1.5 times as high."""
    cluster, gpu, node = problem.cluster, problem.cluster.gpu, problem.cluster.node
    peaks = tuple((name, 1.5 * rate) for name, rate in gpu.peak_tflops)
    found = {
        "memory": replace(cluster, gpu=replace(gpu, memory_gb_per_s=1.5 * gpu.memory_gb_per_s)),
        "arithmetic": replace(cluster, gpu=replace(gpu, peak_tflops=peaks)),
        "links": replace(cluster, node=replace(node, link_gb_per_s=1.5 * node.link_gb_per_s)),
    }
    problems = {name: replace(problem, cluster=one) for name, one in found.items()}
    problems["gradients"] = replace(problem, job=replace(problem.job, gradient_precision="bf16"))
    return problems


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_faster_hardware_and_shorter_gradients_never_make_a_step_longer(
    sequence_parallel: bool,
) -> None:
    """Short sequences too, with which launches take longer than the kernels."""
    plan = plan_of(SMALL)
    layout = replace(plan.layout, sequence_parallel=sequence_parallel)
    for length, tp in product((256, 512, 1024, 2048, 8192), (1, 2, 4)):
        problem = replace(plan.problem, job=replace(plan.problem.job, sequence_length=length))
        one = replace(layout, tp=tp, dp_shard=layout.dp_shard * layout.tp // tp)
        before = seconds(problem, one)
        for name, faster in with_one_rate_higher(problem).items():
            assert seconds(faster, one) <= before * ROUNDING, (name, length, tp)


def gemm_seconds(cost_model: CostModel, shape: GemmShape) -> ForwardBackward:
    return cost_model.step_gemm_seconds(
        lambda fit: gemm_forward_backward_seconds(fit, [shape], OUTPUT_BYTES)
    )


NODES_WITH_8_BIT = ("dgx-h100", "hgx-h20", "mi300x-8", "gb200-nvl72", "hgx-b300")


@pytest.mark.parametrize("node", NODES_WITH_8_BIT)
def test_a_shorter_format_saves_at_most_the_ratio_of_the_peak_rates(node: str) -> None:
    plan = plan_of(changed(SMALL, {"cluster.node": node, "layout.tp": 2, "layout.cp": 1}))
    peaks = dict(plan.problem.cluster.gpu.peak_tflops)
    wide = cost_model_for(plan.problem, MEGATRON)
    precisions: tuple[Precision, ...] = ("fp8", "mxfp8", "nvfp4")
    for precision in set(precisions) & peaks.keys():
        job = replace(plan.problem.job, precision=precision)
        narrow = cost_model_for(replace(plan.problem, job=job), MEGATRON)
        ratio = peaks[precision] / peaks["bf16"]
        for tokens, width in product((256, 4096, 32768), (1024, 8192, 28672)):
            shape = (float(tokens), float(width), 8192.0)
            slow, fast = gemm_seconds(wide, shape), gemm_seconds(narrow, shape)
            assert fast.forward * ratio * ROUNDING >= slow.forward
            assert fast.backward * ratio * ROUNDING >= slow.backward


def test_the_host_also_launches_collectives() -> None:
    plan = plan_of(changed(SMALL, {"layout.cp": 1}))
    cost_model = cost_model_for(plan.problem, MEGATRON)
    unit = cost_model.efficiency.launch_seconds
    layout = replace(plan.layout, sequence_parallel=False)
    # One all-reduce after attention and one after the MLP, in each pass.
    calls = collective_launch_seconds(cost_model, layout, DENSE)
    assert calls.forward == calls.backward == 2 * COLLECTIVE_LAUNCHES["all_reduce"] * unit
    # Sequence parallelism gathers and scatters instead, and gathers inputs again.
    calls = collective_launch_seconds(cost_model, plan.layout, DENSE)
    gather, scatter = COLLECTIVE_LAUNCHES["all_gather"], COLLECTIVE_LAUNCHES["reduce_scatter"]
    assert calls.forward == pytest.approx(2 * (gather + scatter) * unit)
    assert calls.backward == pytest.approx(2 * (2 * gather + scatter) * unit)
    for other in (replace(layout, tp=1), replace(layout, cuda_graphs=True)):
        assert collective_launch_seconds(cost_model, other, DENSE).total == 0.0

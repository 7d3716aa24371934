"""Megatron's fused softmax and the separate kernels that replace it."""

from dataclasses import replace

import pytest

from parc.compiler.cost.kernels.layer_kernels import (
    SEPARATE_SOFTMAX_BYTES,
    STREAM_SHARE,
    has_fused_softmax,
    unfused_attention_core_seconds,
)
from parc.compiler.resolve.resolve_kernels import kernel_fit_of_gpu
from tests.cost.memory.test_static_memory import plan_of


@pytest.mark.parametrize(
    ("matrices", "sequence", "expected"),
    [(4, 2048, True), (6, 2048, False), (0.5, 2048, False), (8, 16, False), (8, 4096, False)],
)
def test_the_fused_softmax_needs_four_matrices_and_at_most_2048_columns(
    matrices: float, sequence: int, expected: bool
) -> None:
    assert has_fused_softmax(matrices, sequence) is expected


def test_separate_softmax_kernels_add_their_traffic() -> None:
    plan = plan_of(
        model="gpt3-175b",
        cluster={"node": "dgx-a100", "nodes": 16},
        job={"sequence_length": 2048, "global_batch": 96},
    )
    fit = kernel_fit_of_gpu("a100-sxm-80gb")
    model = plan.problem.model
    layout = replace(plan.layout, tp=8, cp=1, micro_batch=1)
    assert model.attention.heads == 96
    # 96 heads / 48 ranks are 2 matrices, which the fused kernel does not accept; 96 / 24 are 4.
    fused = unfused_attention_core_seconds(fit, model, replace(layout, tp=24), 2048).forward
    split = unfused_attention_core_seconds(fit, model, replace(layout, tp=48), 2048).forward
    rate = fit.gemm_fit("bf16").bytes_per_second * STREAM_SHARE
    more = SEPARATE_SOFTMAX_BYTES * 2 * 2048**2 / rate
    assert split - fused / 2 == pytest.approx(more, rel=0.2)

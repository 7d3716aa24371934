"""Megatron's fused softmax and the separate kernels that replace it."""

from dataclasses import replace

import pytest

from parc.backends.megatron.traffic import FUSED_SOFTMAX, MEGATRON_TRAFFIC
from parc.compiler.cost.kernels.layer_kernels import (
    STREAM_SHARE,
    unfused_attention_core_seconds,
)
from parc.compiler.ir import FUSED_KERNELS, PassBytes
from parc.compiler.ir.program_traffic import SEPARATE_SCORES
from tests.cost.memory.test_static_memory import plan_of
from tests.kernel_fits import kernel_fit_of_gpu


@pytest.mark.parametrize(
    ("matrices", "sequence", "expected"),
    [(4, 2048, True), (6, 2048, False), (0.5, 2048, False), (8, 16, False), (8, 4096, False)],
)
def test_the_fused_softmax_needs_four_matrices_and_at_most_2048_columns(
    matrices: float, sequence: int, expected: bool
) -> None:
    assert FUSED_SOFTMAX.accepts(matrices, sequence) is expected


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
    fused, split = (
        unfused_attention_core_seconds(
            fit, model, replace(layout, tp=tp), 2048, MEGATRON_TRAFFIC
        ).forward
        for tp in (24, 48)
    )
    rate = fit.gemm_fit("bf16").bytes_per_second * STREAM_SHARE
    more = (SEPARATE_SCORES.forward - FUSED_SOFTMAX.moved.forward) * 2 * 2048**2 / rate
    assert split - fused / 2 == pytest.approx(more, rel=0.2)


def test_only_a_program_that_declares_the_kernel_uses_it() -> None:
    scores = PassBytes(1.0, 2.0)
    assert MEGATRON_TRAFFIC.score_bytes(4, 2048) == FUSED_SOFTMAX.moved
    assert FUSED_KERNELS.score_bytes(4, 2048) == SEPARATE_SCORES
    assert replace(MEGATRON_TRAFFIC, scores=scores).score_bytes(4, 2048) == scores

"""Memory traffic of the kernels of TransformerEngine and Megatron-Core."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import FUSED_KERNELS, FusedSoftmax, PassBytes

FUSED_SOFTMAX = FusedSoftmax(moved=PassBytes(12.0, 17.0), block=4, columns=(17, 2048))
"""Fused softmax of Megatron (megatron/model/fused_softmax.py, FusedScaleMaskSoftmax), which it uses
if there is no FlashAttention. Bytes per 16-bit score, forward: the first product writes the score
(2); softmax reads it, except if it is masked, and writes it (3); dropout reads and writes it, with
a mask (5); the second product reads it (2). Backward: a product writes the gradient of the score
(2); dropout (5); softmax reads this gradient and its own output, except if the score is masked, and
writes (4); two products read the result (4); one product reads the output of dropout (2)."""
MEGATRON_TRAFFIC = replace(FUSED_KERNELS, fused_softmax=FUSED_SOFTMAX)
"""Traffic of Megatron's layers."""

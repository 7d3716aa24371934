"""Casts and slower GEMMs that scaled operands of 8-bit and 4-bit multiplications cost."""

from __future__ import annotations

from parc.compiler.cost.kernels.layer_kernels import ForwardBackward, GemmShape
from parc.compiler.ir import Job
from parc.compiler.ir.frozen import frozen


@frozen
class Scaling:
    """Recipe for scaling and quantizing the operands of matrix multiplications."""

    cast_bytes: float
    """Bytes moved per element of an operand that is quantized for two multiplications."""
    gathered_bytes: float = 1.0
    """Bytes per element of a tensor-parallel all-gather, which sends quantized operands
    (Transformer Engine, module/layernorm_linear.py and linear.py; torchao for scales per tensor).
    Sums of a reduce-scatter keep 16 bit."""
    gemm_factor: float = 1.0
    """Time of a multiplication, divided by that of the fitted 8-bit kernel with one scale per
    tensor."""
    cast_kernels: int = 1
    """Kernels that quantize the input of one of several experts in a grouped layer of Transformer
    Engine (pytorch/csrc/extensions/cast.cpp, ``split_quantize``, and quantizer.cpp); 0 if one
    kernel quantizes the inputs of all experts."""


ROWWISE_CAST_BYTES = 20.0
"""Bytes moved per operand element that is quantized with one scale per row and column. Measured on
one H100 with torchtitan 0.2.2 and torch 2.11: the kernels of four layers of Llama 3 8B take 33 ms
longer per step of 16,384 tokens than with one scale per tensor (predicted: 34 ms), and their
multiplications take the same time. Eight H100 lose as much per token: 6,412 instead of 7,186
tokens/s (torchtitan, commit 7a04053).
"""
MXFP8_GEMM = 1.1
"""Time of a multiplication in mxfp8, divided by the time with one scale per tensor. In four pairs
of published runs on Blackwell that differ only in the recipe, mxfp8 steps are 4 to 6 % longer."""
FOUR_BIT = 0.9
"""Step-level efficiency factor of 4-bit multiplications, divided by that of 8-bit multiplications.
Fitted to 8 published runs of dense models."""
NONE = Scaling(0.0, 2.0, cast_kernels=0)
"""16-bit operands, which are not scaled."""
# A cast reads 16 bit (2) and writes 8 bit along the rows and along the columns (1 + 1), because the
# multiplications of the forward and of the backward pass read an operand in different directions
# (Transformer Engine, common/recipe; torchao, float8/config.py).
SCALINGS = {
    # Scales come from earlier steps, so that one kernel suffices, even for several operands.
    "delayed": Scaling(4.0, cast_kernels=0),
    # One scale per tensor from present values: the operand is first read for its maximum. Four
    # kernels clear the maximum, find it, compute the scale, and cast.
    "fp8": Scaling(6.0, cast_kernels=4),
    # One scale per row or column; torchao gathers the operand in 16 bit (float8/config.py,
    # Float8LinearConfig).
    "rowwise": Scaling(ROWWISE_CAST_BYTES, 2.0),
    # fp32 scales of blocks of 128 elements.
    "blockwise": Scaling(4.06),
    # 8-bit scales of blocks of 32 elements.
    "mxfp8": Scaling(4.06, 1.03, MXFP8_GEMM),
    # One scale per tensor, which needs a first read, and 8-bit scales of blocks of 16 elements.
    "nvfp4": Scaling(5.13, 0.5625, FOUR_BIT, cast_kernels=2),
}
"""Name of a recipe -> its costs. A precision of a job names its recipe; ``fp8`` scales tensors by
their present values, as in the programs of all frameworks."""


def scaling_of_job(job: Job) -> str:
    """Return the key of ``SCALINGS`` for a training job.

    The result is the name of a 16-bit format if operands are not scaled.
    """
    scaled = job.precision == "fp8" and job.fp8_recipe != "tensorwise"
    return job.fp8_recipe if scaled else job.precision


def cast_bytes(shapes: list[GemmShape], scaling: Scaling) -> ForwardBackward:
    """Return the bytes that quantize operands of multiplications with (m, n, k) ``shapes``.

    The forward pass quantizes the inputs A[m, k], the backward pass the gradients of C[m, n].
    Weights are quantized once per step, which is not counted.
    """
    each = scaling.cast_bytes
    return ForwardBackward(
        each * sum(m * k for m, _, k in shapes), each * sum(m * n for m, n, _ in shapes)
    )

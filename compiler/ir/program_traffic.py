"""Memory traffic of a training program's element-wise kernels: bytes per element and pass."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir.frozen import frozen


class PassBytes(NamedTuple):
    """Bytes that kernels read and write per element in the forward and in the backward pass."""

    forward: float
    backward: float


@frozen
class FusedSoftmax:
    """Kernel that fuses scale, mask and softmax of attention scores that are in memory."""

    moved: PassBytes
    """Bytes per score that the attention core moves if it uses this kernel."""
    block: int
    """Divisor of the number of rows and of the number of score matrices that the kernel needs."""
    columns: tuple[int, int]
    """Least and largest number of columns that the kernel accepts."""

    def accepts(self, matrices: float, sequence: int) -> bool:
        """Return True if the kernel accepts the scores of one layer and micro-batch.

        ``matrices`` is the number of score matrices of a rank (micro-batch x heads), each with
        ``sequence`` rows and columns.
        """
        least, largest = self.columns
        is_aligned = matrices % self.block == 0 and sequence % self.block == 0
        return is_aligned and least <= sequence <= largest


SEPARATE_SCORES = PassBytes(45.0, 61.0)
"""Bytes moved per 16-bit attention score if no kernel fuses any part of the core. Forward: the
first product writes the score (2); a copy to fp32 (6), the scale (8), the mask (8), softmax in fp32
(8) and a copy to 16 bit (6); dropout reads and writes, with a mask (5); the second product reads
(2). Backward: a product writes the gradient (2); dropout (5); both copies (12), softmax (12), the
mask, which copies the gradient first (16), and the scale (8); two products read the result (4);
one product reads the output of dropout (2)."""


@frozen
class UnitCopies:
    """Bytes that a rank moves on its own GPU to gather and reduce sharded weights, per micro-batch.

    They are in addition to the collectives. "Whole" counts all weights of a unit, "shard" the part
    that the rank stores.
    """

    gather_shard: float
    """Conversion of the rank's shard to the format in which it is gathered."""
    gather_whole: float
    """Copy of the gathered weights into their tensors; on a single rank, the gather itself."""
    gather_frozen: float
    """Value of ``gather_shard`` for frozen weights, which are stored in the gathered format."""
    reduce_whole: float
    """Copy of the gradients into the input of the reduce-scatter, with conversion."""
    reduce_alone: float
    """Copy that replaces the reduce-scatter on a single rank."""


class InputExchanges(NamedTuple):
    """Number of all-reduces of the gradient of a sub-layer's input, without sequence parallelism.

    There is one per sub-layer, unless a program exchanges the gradient of the input of each matrix
    that it splits by columns.
    """

    mixer: int
    """Number per attention or recurrence: 3 with separate matrices of queries, keys and values."""
    gated: int
    """Number per gated MLP: 2 with separate matrices of the gate and of what it multiplies."""


@frozen
class RoutedBytes:
    """Bytes per element of routed tokens that kernels of permutations and weights move.

    A routed token has one copy per selected expert.
    """

    alone: PassBytes
    """Without expert parallelism."""
    exchanged: PassBytes | None = None
    """With an all-to-all; None if the program has no expert parallelism."""
    sent_once: PassBytes | None = None
    """With a library that sends a token once per NVLink domain; None if the program uses none."""


@frozen
class ProgramTraffic:
    """Bytes that a training program's element-wise kernels move per element."""

    norm: PassBytes
    """Per element of the residual stream and norm."""
    head_norm: PassBytes
    """Per element of queries and keys, if the model normalizes them."""
    residual: PassBytes
    """Per element of the residual stream and addition. The backward pass includes the sums of the
    gradients of an input with several readers."""
    rotation: PassBytes
    """Per element of queries and keys, including copies between memory layouts."""
    gated: PassBytes
    """Per element of the MLP's width, if the activation is gated."""
    plain: PassBytes
    """The same, if the activation is not gated."""
    logit_bytes: float
    """Per logit, in both passes of the loss together."""
    cast: PassBytes
    """Per weight and micro-batch: conversion of the weights and of their gradients."""
    adapter_cast: PassBytes = PassBytes(0.0, 0.0)
    """Per element of the input of a LoRA adapter: conversion of the input and of its gradient, if
    the adapter has another format than the frozen layer."""
    scores: PassBytes | None = None
    """Per attention score and layer, if the program writes the scores of all heads to memory; None
    if a fused kernel computes attention."""
    unfused_scores: PassBytes = SEPARATE_SCORES
    """The same on GPUs for which the software stack has no fused attention kernel, if ``scores`` is
    None and ``fused_softmax`` does not accept the shape."""
    fused_softmax: FusedSoftmax | None = None
    """Kernel that the program then uses for scale, mask and softmax; None if there is none."""
    routed: RoutedBytes | None = None
    """Kernels that permute and weight routed tokens, unless the software stack fuses them; None if
    their number is that of Megatron's."""
    sum_bytes: float = 0.0
    """Per stored gradient and micro-batch: addition to the sum of the step by a separate kernel. A
    step of one micro-batch has no such kernel."""
    exchange_copies: float = 0.0
    """Per byte of a tensor-parallel all-gather or reduce-scatter along the sequence: copies that
    bring the tokens of each sequence of a micro-batch together, and apart again."""
    input_exchanges: InputExchanges = InputExchanges(1, 1)
    """All-reduces of gradients of inputs under tensor parallelism."""
    separate_launches: bool = False
    """True if the host launches each operator of a layer separately."""
    copies: UnitCopies | None = None
    """Copies of sharded weights and gradients (ZeRO stages 2 and 3); None if there are none."""
    replicated: ProgramTraffic | None = None
    """Traffic of the program at ZeRO stage 0; None if it is the same."""

    def score_bytes(self, matrices: float, sequence: int) -> PassBytes:
        """Return the bytes moved per attention score by a core without a fused attention kernel.

        ``matrices`` is the number of score matrices of a rank, each with ``sequence`` rows and
        columns.
        """
        if self.scores is not None:
            return self.scores
        kernel = self.fused_softmax
        accepted = kernel is not None and kernel.accepts(matrices, sequence)
        return kernel.moved if kernel is not None and accepted else self.unfused_scores


FUSED_KERNELS = ProgramTraffic(
    norm=PassBytes(4.0, 8.0),
    head_norm=PassBytes(4.0, 8.0),
    residual=PassBytes(6.0, 12.0),
    rotation=PassBytes(4.0, 8.0),
    gated=PassBytes(6.0, 12.0),
    plain=PassBytes(4.0, 8.0),
    logit_bytes=18.0,
    cast=PassBytes(0.0, 0.0),
)
"""Traffic of programs whose backend states no other: fused 16-bit kernels, which read their inputs
and write their output once, and move twice these bytes in the backward pass."""

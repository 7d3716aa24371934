"""Memory traffic of a training program's element-wise kernels: bytes per element and pass."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir.frozen import frozen


class PassBytes(NamedTuple):
    """Bytes that kernels read and write per element in the forward and in the backward pass."""

    forward: float
    backward: float


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
    reduce_whole: float
    """Copy of the gradients into the input of the reduce-scatter, with conversion."""
    reduce_alone: float
    """Copy that replaces the reduce-scatter on a single rank."""


class InputExchanges(NamedTuple):
    """All-reduces of the gradient of the input of a sub-layer, without sequence parallelism.

    There is one per sub-layer, unless a program exchanges the gradient of the input of each matrix
    that it splits by columns.
    """

    mixer: int
    """Number per attention or recurrence: 3 with separate matrices of queries, keys and values."""
    gated: int
    """Number per gated MLP: 2 with separate matrices of the gate and of what it multiplies."""


@frozen
class ProgramTraffic:
    """Bytes that a training program's element-wise kernels move per element."""

    norm: PassBytes
    """Per element of the residual stream and norm."""
    head_norm: PassBytes
    """Per element of queries and keys, if the model normalizes them; 0 if this is fused with the
    rotation."""
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
    scores: PassBytes | None = None
    """Per attention score and layer, if the program writes the scores of all heads to memory; None
    if a fused kernel computes attention."""
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


FUSED_KERNELS = ProgramTraffic(
    norm=PassBytes(4.0, 8.0),
    head_norm=PassBytes(0.0, 0.0),
    residual=PassBytes(6.0, 12.0),
    rotation=PassBytes(4.0, 8.0),
    gated=PassBytes(6.0, 12.0),
    plain=PassBytes(4.0, 8.0),
    logit_bytes=18.0,
    cast=PassBytes(0.0, 0.0),
)
"""Traffic of programs whose backend states no other: fused 16-bit kernels, which read their inputs
and write their output once, and move twice these bytes in the backward pass."""

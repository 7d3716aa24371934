"""Collectives of tensor parallelism in one layer; time and traffic are both derived from them.

Megatron's scheme (Korthikanti et al. 2022, arXiv:2205.05198): collectives of 2 T h bytes around
mixer and MLP, with T tokens in the rank's context-parallel part and hidden size h.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.kernels.collective_time import Operation, ring_passes
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import LayerKind, Layout


@dataclass(frozen=True, slots=True)
class Exchange:
    """Repeated collective of one layer and micro-batch."""

    operation: Operation
    nbytes: float
    """Whole message, as ``Links.seconds`` defines it."""
    forward: int
    """Number of calls in the forward pass."""
    backward: int


def dense_exchanges(pricing: Pricing, layout: Layout, kind: LayerKind) -> tuple[Exchange, ...]:
    """Return the collectives of one layer over the tensor-parallel group.

    With sequence parallelism, mixer and MLP each gather their input and scatter their output; the
    backward pass does the same and gathers the input again for the weight gradient. Without
    sequence parallelism, each of the two has one all-reduce in the forward and one in the backward
    pass. A routed MLP has none of these collectives.
    """
    if layout.tp == 1:
        return ()
    nbytes = message_bytes(pricing, layout)
    # Routed experts exchange tokens over the expert group instead.
    blocks = kind.sub_layers - kind.routed
    if not layout.sequence_parallel:
        return (Exchange("all_reduce", nbytes, blocks, blocks),)
    return (
        Exchange("all_gather", nbytes, blocks, 2 * blocks),
        Exchange("reduce_scatter", nbytes, blocks, blocks),
    )


def expert_exchanges(pricing: Pricing, layout: Layout, kind: LayerKind) -> tuple[Exchange, ...]:
    """Return the collectives of one routed layer over the tensor-parallel group of the experts."""
    experts = pricing.problem.model.experts
    if layout.tp == 1 or layout.etp == 1 or not kind.routed or experts is None:
        return ()
    # Each rank contributes its 1/tp of the tokens, one row per selected expert, to the etp ranks.
    visits = message_bytes(pricing, layout) / layout.tp * experts.top_k * layout.etp
    return (Exchange("all_gather", visits, 1, 1), Exchange("reduce_scatter", visits, 1, 1))


def message_bytes(pricing: Pricing, layout: Layout) -> float:
    """Return the bytes of one micro-batch's hidden states in a tensor-parallel group, in 16 bit."""
    problem = pricing.problem
    return 2 * layout.tokens(problem.job.sequence_length) * problem.model.hidden


def forward_backward_seconds(
    pricing: Pricing, exchanges: tuple[Exchange, ...], group: GroupSpan
) -> tuple[float, float]:
    """Return the (forward, backward) times in seconds of ``exchanges``, without overlap."""
    forward = backward = 0.0
    for one in exchanges:
        seconds = pricing.links.seconds(one.operation, one.nbytes, group)
        forward += one.forward * seconds
        backward += one.backward * seconds
    return forward, backward


def sent_bytes(exchanges: tuple[Exchange, ...], ranks: int) -> float:
    """Return the bytes that one of ``ranks`` ranks sends for ``exchanges`` in ring algorithms.

    The forward and the backward pass are counted.
    """
    passes = (
        (one.forward + one.backward) * ring_passes(one.operation) * one.nbytes for one in exchanges
    )
    return sum(passes) * (ranks - 1) / ranks

"""Collectives of tensor parallelism in one layer, with their time and their traffic.

Megatron's scheme (Korthikanti et al. 2022, arXiv:2205.05198): collectives of 2 T h bytes around
mixer and MLP, with T tokens in the rank's context-parallel part and hidden size h.
"""

from __future__ import annotations

from parc.compiler.cost.kernels.collective_time import Operation, ring_passes
from parc.compiler.cost.kernels.layer_kernels import NOTHING, ForwardBackward
from parc.compiler.cost.memory.peak import memory_model_at_zero_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.ir import LayerKind, Layout
from parc.compiler.ir.frozen import frozen


@frozen
class LayerCollective:
    """Collective that one layer calls one or more times per micro-batch."""

    operation: Operation
    nbytes: float
    """Size of the whole message in bytes, before it is divided among the ranks."""
    forward: int
    """Number of calls in the forward pass."""
    backward: int


def dense_collectives(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> tuple[LayerCollective, ...]:
    """Return the collectives of mixer and dense MLP in one layer over the tensor-parallel group.

    Collectives of routed experts are not included; see ``expert_collectives``.
    """
    # With sequence parallelism, mixer and MLP each gather their input and scatter their output, and
    # the backward pass does the same. Programs that do not save the gathered input gather it again
    # for the weight gradient. Without sequence parallelism, each of the two has one all-reduce per
    # pass, or several in the backward pass (``InputExchanges``).
    if layout.tp == 1:
        return ()
    nbytes = hidden_state_bytes(cost_model, layout)
    if not layout.sequence_parallel:
        # Every rank has all tokens, and a part of each expert: experts are added up like an MLP.
        blocks = kind.sub_layers - (kind.routed and layout.etp < layout.tp)
        more = _more_input_exchanges(cost_model, layout, kind)
        return (LayerCollective("all_reduce", nbytes, blocks, blocks + more),)
    # Routed experts exchange tokens over the expert group instead.
    blocks = kind.sub_layers - kind.routed
    # Hidden states and gradients are quantized before they are gathered.
    gathered = nbytes * cost_model.scaling.gathered_bytes / 2
    again = memory_model_at_zero_stage(cost_model, layout.zero_stage).gathers_again
    return (
        LayerCollective("all_gather", gathered, blocks, (1 + again) * blocks),
        LayerCollective("reduce_scatter", nbytes, blocks, blocks),
    )


def _more_input_exchanges(cost_model: CostModel, layout: Layout, kind: LayerKind) -> int:
    """Return the number of all-reduces of gradients of inputs beyond one per sub-layer."""
    numbers = cost_model.traffic(layout).input_exchanges
    more = numbers.mixer - 1 if kind.mixer != "none" else 0
    gated = kind.mlp == "dense" and cost_model.problem.model.with_shapes_of(kind).ffn.gated
    return more + (numbers.gated - 1 if gated else 0)


def exchange_copy_bytes(cost_model: CostModel, layout: Layout, kind: LayerKind) -> ForwardBackward:
    """Return the bytes that a rank copies to order the sequences of gathered and scattered tensors.

    A micro-batch of one sequence needs no copies.
    """
    copied = cost_model.traffic(layout).exchange_copies
    if not copied or layout.micro_batch == 1:
        return NOTHING
    exchanges = dense_collectives(cost_model, layout, kind)
    moved = [one for one in exchanges if one.operation in ("all_gather", "reduce_scatter")]
    return ForwardBackward(
        copied * sum(one.forward * one.nbytes for one in moved),
        copied * sum(one.backward * one.nbytes for one in moved),
    )


def expert_collectives(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> tuple[LayerCollective, ...]:
    """Return the collectives that the experts of one layer run over their tensor-parallel group."""
    model = cost_model.problem.model
    experts = model.experts
    if layout.tp == 1 or layout.etp == 1 or not kind.routed or experts is None:
        return ()
    if not layout.sequence_parallel and layout.etp == layout.tp:
        return ()  # dense_collectives counts one all-reduce per pass instead
    # Each rank contributes its 1/tp of the tokens, one row per selected expert, to the etp ranks.
    visits = hidden_state_bytes(cost_model, layout) / layout.tp * experts.top_k * layout.etp
    visits *= model.expert_input_width / model.hidden
    return (
        LayerCollective("all_gather", visits, 1, 1),
        LayerCollective("reduce_scatter", visits, 1, 1),
    )


def hidden_state_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the 16-bit bytes of one micro-batch's hidden states in a tensor-parallel group."""
    problem = cost_model.problem
    return 2 * layout.tokens(problem.job.sequence_length) * problem.model.hidden


def collective_forward_backward_seconds(
    cost_model: CostModel, exchanges: tuple[LayerCollective, ...], group: GroupSpan
) -> ForwardBackward:
    """Return the seconds of the collectives ``exchanges``, without overlap.

    ``group`` is the process group of these collectives.
    """
    forward = backward = 0.0
    for one in exchanges:
        seconds = cost_model.links.collective_seconds(one.operation, one.nbytes, group)
        forward += one.forward * seconds
        backward += one.backward * seconds
    return ForwardBackward(forward, backward)


def sent_bytes(exchanges: tuple[LayerCollective, ...], ranks: int) -> float:
    """Return the bytes that one of ``ranks`` ranks sends in the collectives ``exchanges``.

    Each collective is assumed to run as a ring. The bytes of forward and backward pass are added.
    """
    passes = (
        (one.forward + one.backward) * ring_passes(one.operation) * one.nbytes for one in exchanges
    )
    return sum(passes) * (ranks - 1) / ranks

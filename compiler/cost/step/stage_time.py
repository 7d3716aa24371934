"""Time of one micro-batch on a pipeline rank or on one of its model chunks."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.cost.counts.flops import layer_flops
from parc.compiler.cost.memory.activations import OPERATORS
from parc.compiler.cost.schedules.simulation import StageSeconds
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents, recomputed_layers
from parc.compiler.cost.step.layer_time import LayerTime, layer_time, output_head_seconds
from parc.compiler.ir import LayerKind, Layout, ModelChunk


class StageTime(NamedTuple):
    """Time of one micro-batch on one pipeline rank in seconds, forward plus backward, by term."""

    compute: float
    recompute: float
    tp: float
    cp: float
    ep: float

    @property
    def total(self) -> float:
        """Return the sum of all terms in seconds."""
        return self.compute + self.recompute + self.tp + self.cp + self.ep


def stage_time(
    cost_model: CostModel,
    layout: Layout,
    load: StageContents,
    chunks: tuple[ModelChunk, ...],
    layers: dict[LayerKind, LayerTime],
) -> StageTime:
    """Return the time in seconds of one micro-batch on a pipeline rank, by term.

    ``load`` contains the layers and other modules of the virtual stages ``chunks`` of the rank,
    ``layers`` the time of one layer of each type.
    """
    compute = recompute = tp = cp = ep = 0.0
    model = cost_model.problem.model
    again = recomputed_layers(model, layout.recompute, load, chunks)
    for kind, count in load.layers_by_kind(model).items():
        layer = layers[kind]
        compute += count * layer.compute
        recompute += again[kind] * recompute_seconds(cost_model, layout, layer, kind)
        tp += count * layer.tp
        cp += count * layer.cp
        ep += count * layer.ep
    if load.loss:
        compute += output_head_seconds(cost_model, layout)
    if load.mtp_layers:
        compute += load.mtp_layers * output_head_seconds(cost_model, layout)
    return StageTime(compute, recompute, tp, cp, ep)


def cached_layer_time(cost_model: CostModel, layout: Layout, kind: LayerKind) -> LayerTime:
    """Return the times of one layer of type ``kind``, by term.

    The times are computed once for all layouts with equal inputs. The cache key therefore contains
    every quantity of the layout on which the times depend.
    """
    groups = cost_model.group_spans(layout)
    context = (layout.tp, layout.cp, layout.cp_comm, layout.cp_a2a, layout.micro_batch)
    state = (layout.sequence_parallel, layout.zero_stage, layout.cuda_graphs)
    # The parts of a layer that CUDA graphs contain depend on ep, even without experts in the layer.
    by_ep = kind.routed or layout.cuda_graphs
    experts = (layout.ep, layout.etp, groups.ep, groups.etp) if by_ep else ()
    shared = (groups.gtp, groups.egtp)
    key = ("time", kind, context, state, groups.tp, groups.cp_stride, experts, shared)
    return cost_model.cached(key, lambda: layer_time(cost_model, layout, kind))


def chunk_seconds(cost_model: CostModel, layout: Layout) -> tuple[StageSeconds, ...]:
    """Return the times of one micro-batch on each model chunk of ``layout``.

    The first chunks of all pipeline ranks come first, then the second chunks, and so on.
    """
    distinct = cost_model.distinct_chunks(layout.split)
    seconds = [
        _seconds_of_chunk(cost_model, layout, chunk, load)
        for chunk, load in zip(distinct.chunks, distinct.contents, strict=True)
    ]
    return tuple(seconds[index] for index in distinct.order)


def _seconds_of_chunk(
    cost_model: CostModel, layout: Layout, chunk: ModelChunk, load: StageContents
) -> StageSeconds:
    """Return the times in seconds of forward, input gradient and weight gradient of one chunk.

    Recomputation counts as part of the input gradient. The remaining time of the backward pass is
    divided equally between the two gradients.
    """
    counts = load.layers_by_kind(cost_model.problem.model)
    layers = {kind: cached_layer_time(cost_model, layout, kind) for kind in counts}
    whole = stage_time(cost_model, layout, load, (chunk,), layers)
    forward = sum(count * layers[kind].forward_pass for kind, count in counts.items())
    heads = int(load.loss) + load.mtp_layers
    # The forward pass of the output projection is one of its three products.
    forward += heads * output_head_seconds(cost_model, layout) / 3 if heads else 0.0
    backward = whole.total - forward
    # A recomputation always precedes the input gradient, which other ranks wait for.
    weight = max(0.0, (backward - whole.recompute) / 2)
    return StageSeconds(forward, backward - weight, weight)


def recompute_seconds(
    cost_model: CostModel, layout: Layout, layer: LayerTime, kind: LayerKind
) -> float:
    """Return the time in seconds of forward work that a recomputed layer repeats.

    Full recompute repeats the forward pass with its communication. Selective recompute repeats the
    attention core, and other modules in proportion to their FLOPs. If the experts are recomputed,
    dispatch and combine are repeated as well. Recompute by operator repeats element-wise kernels
    and some matrix products.
    """
    recompute = layout.recompute
    if recompute.granularity == "none":
        return 0.0
    if recompute.granularity == "full":
        return layer.forward_pass
    if recompute.modules == OPERATORS:
        return layer.operators
    key = ("shares", recompute.modules, kind)
    # The fractions depend only on the model, so that all layouts share them.
    share = cost_model.cached(
        key, lambda: _recomputed_module_fraction(cost_model, recompute.modules, kind)
    )
    again = layer.forward * share + (layer.core if "core_attn" in recompute.modules else 0.0)
    return again + (layer.ep / 2 if "moe" in recompute.modules else 0.0)


def _recomputed_module_fraction(
    cost_model: CostModel, modules: tuple[str, ...], kind: LayerKind
) -> float:
    """Return the fraction of a layer's forward computation that ``modules`` need."""
    return sum(_module_fraction(cost_model, name, kind) for name in modules)


def _module_fraction(cost_model: CostModel, module: str, kind: LayerKind) -> float:
    """Return the fraction of a layer's forward computation that ``module`` needs, by FLOPs.

    The result is 0.03 for modules without matrix products.
    """
    # ``mlp_in`` is an MLP without its last product, which a compiler removes from the recomputation
    # because no gradient needs it; ``attn_out`` is the output projection, ``attn_in`` the others.
    job, model = cost_model.problem.job, cost_model.problem.model
    flops = layer_flops(model, kind, 1.0, job.sequence_length)
    total = flops.total or 1.0
    out = 2 * model.attention.heads * model.attention.head_dim * model.hidden / total
    if module in (("mlp",) if kind.routed else ("moe", "shared_experts")):
        return 0.0
    table = {
        "core_attn": 0.0,  # its seconds are added separately
        "mlp": flops.mlp / total,
        "mlp_in": flops.mlp / total * (2 / 3 if model.ffn.gated else 1 / 2),
        "attn_in": flops.attention_projections / total - out,
        "attn_out": out,
        "moe": (flops.experts + flops.mlp) / total,
        "shared_experts": flops.mlp / total,
        "mla_up_proj": 0.5 * flops.attention_projections / total,
    }
    return table.get(module, 0.03)

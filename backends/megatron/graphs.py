"""CUDA graphs: their contents, and settings that prevent them.

Graphs of layers: Megatron-LM, TransformerConfig.__post_init__, and transformer/cuda_graphs.py
(TECudaGraphHelper): one graph per layer, whose parts ``--cuda-graph-modules`` selects.

Graph of a whole step (``full_iteration``): full_cuda_graph.py. ``validate_args`` requires that the
check for NaN is off. Megatron accepts other settings that a graph cannot contain, because each
needs the host in the middle of the step:

- Experts without a fixed capacity: the host reads how many tokens each of them gets. Published
  runs limit the capacity and drop or stash tokens, which PARC does not plan.
- A pipeline without virtual stages: the host waits for each transfer between stages
  (p2p_communication.py, ``batch_p2p_sync``).
- fp16: each change of the loss scale creates a new tensor (grad_scaler.py, DynamicGradScaler), but
  the graph reads the old one.
"""

from __future__ import annotations

from typing import get_args

from parc.backends.shared.common_rules import Conflict
from parc.compiler.ir import CapturedGraphs, Gpu, LayerPart, Layout, Problem

MODULES: dict[LayerPart, str] = {
    "attention": "attn",
    "mamba": "mamba",
    "mlp": "mlp",
    "router": "moe_router",
    "preparation": "moe_preprocess",
}
"""Part of a layer -> value of ``--cuda-graph-modules``. The module moe_router includes shared
experts, unless they run while tokens are dispatched."""
CONFIRMED_SINCE = (10, 0)
"""Smallest compute capability on which published runs confirm that graphs save time. Almost all
performance recipes of Megatron-Bridge 0.6 for Blackwell capture graphs, and few for H100, where its
own figures for Qwen3-30B-A3B are 42.0 s with graphs and 41.4 s without."""
NO_NAN_CHECK = "--no-check-for-nan-in-loss-and-grad"
"""Flag without which ``validate_args`` rejects a graph of a whole step."""
LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")


def graphs_save_time(gpu: Gpu) -> bool:
    """Return True if the search tries CUDA graphs on ``gpu``; a spec can set them on any GPU."""
    return gpu.vendor == "nvidia" and gpu.compute_capability >= CONFIRMED_SINCE


def captures_step(layout: Layout) -> bool:
    """Return True if one CUDA graph contains the forward and backward passes of a step."""
    return layout.cuda_graphs == "full_iteration"


def captured_graphs(problem: Problem, layout: Layout) -> CapturedGraphs:
    """Return the captured parts of a layer, and the micro-batches that are captured separately."""
    if captures_step(layout):
        count = layout.micro_batches(problem.job.global_batch)
        return CapturedGraphs(frozenset(get_args(LayerPart)), count, per_layer=False)
    # TECudaGraphHelper captures one micro-batch without a pipeline, otherwise all of a step.
    every = layout.pp > 1 or (problem.job.moe_overlap and layout.ep > 1)
    count = layout.micro_batches(problem.job.global_batch) if every else 1
    return CapturedGraphs(captured_parts(problem, layout), count)


def captured_parts(problem: Problem, layout: Layout) -> frozenset[LayerPart]:
    """Return the parts of a layer in its graph. They depend on the expert parallel size."""
    job, model, parts = problem.job, problem.model, set[LayerPart]()
    overlaps = job.moe_overlap and layout.ep > 1
    # TransformerConfig: a single expert is not a mixture of experts. Whether a model with experts
    # has dense layers is read from moe_layer_freq, which is not set for layer patterns.
    has_router = model.experts is not None and model.experts.count > 1
    hides_dense_layers = has_router and bool(model.pattern)
    for kind in model.kinds:
        if kind.mixer != "none":
            # Linear attention is the self_attention of its layer (module attn).
            parts.add("mamba" if kind.mixer == "mamba" else "attention")
        # TransformerConfig: dispatch overlap excludes the module mlp.
        if kind.mlp == "dense" and not overlaps and not hides_dense_layers:
            parts.add("mlp")
        if not kind.routed or not has_router:
            continue
        parts.add("router")
        # An all-to-all of padded tokens copies their number to the host before the permutation.
        if job.deduplicates_dispatch or job.precision not in LOW_PRECISION:
            parts.add("preparation")
        apart = layout.ep > 1 and not job.deduplicates_dispatch and not overlaps
        if model.experts is not None and model.experts.shared_size and not apart:
            parts.add("shared_experts")
    return frozenset(parts)


def graph_conflict(problem: Problem, layout: Layout) -> Conflict | None:
    """Return the setting that prevents CUDA graphs; None if nothing does, or if there are none."""
    recompute, routed = layout.recompute, problem.model.moe_layers > 0
    if not layout.cuda_graphs:
        return None
    if problem.cluster.gpu.vendor != "nvidia":
        return Conflict(f"{problem.cluster.gpu.name} GPUs", "NVIDIA GPUs")
    if layout.offload.activations:
        return Conflict("offloaded activations", "layout.offload.activations: []")
    if captures_step(layout):
        return _conflict_of_step(problem, layout)
    if recompute.granularity == "full":
        return Conflict("full recompute", "recompute none or selective")
    if routed and "moe" in recompute.modules:
        return Conflict("recompute of moe", "recompute modules without moe, such as [moe_act]")
    if routed and "layernorm" in recompute.modules and not _frees_norm_output(problem, layout):
        # transformer_layer.py switches this recompute off, and the norm's output stays allocated.
        return Conflict(
            "recompute of layernorm", "recompute modules without layernorm, such as [moe_act]"
        )
    attention = problem.model.attention
    biased = attention.qkv_bias or attention.output_bias
    if problem.job.moe_overlap and layout.ep > 1 and biased:
        return Conflict("moe_overlap with biases in the attention", "moe_overlap false")
    return None


def _conflict_of_step(problem: Problem, layout: Layout) -> Conflict | None:
    """Return what ``graph_conflict`` returns, for a CUDA graph of a whole step."""
    if problem.model.moe_layers:
        return Conflict("experts, whose numbers of tokens the host reads", "cuda_graphs true")
    if problem.job.precision == "fp16":
        return Conflict("fp16, whose loss scale changes", "precision bf16, or cuda_graphs true")
    if NO_NAN_CHECK in problem.launch.omit:
        return Conflict(f"{NO_NAN_CHECK} in launch.omit", f"launch.omit without {NO_NAN_CHECK}")
    if layout.pp > 1 and layout.vpp == 1:
        return Conflict(
            f"pp {layout.pp} without virtual stages, so the host waits for each transfer",
            "pp 1, vpp above 1, or cuda_graphs true",
        )
    return None


def _frees_norm_output(problem: Problem, layout: Layout) -> bool:
    """Return True if a graph does not contain the output of the norm before the experts."""
    experts, parts = problem.model.experts, captured_parts(problem, layout)
    if experts is None or "preparation" not in parts:
        return False
    if experts.shared_size and "shared_experts" not in parts:
        return False
    return not problem.job.deduplicates_dispatch or bool(experts.latent_size)

"""CUDA graphs of layers with TransformerEngine: their contents, and settings that prevent them.

Source: Megatron-LM, TransformerConfig.__post_init__, and transformer/cuda_graphs.py
(TECudaGraphHelper): one graph per layer, whose parts ``--cuda-graph-modules`` selects. Graphs of a
whole iteration (``full_iteration``) are not planned: they need experts that drop or pad tokens, and
switch the check for NaN off.
"""

from __future__ import annotations

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
LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")


def graphs_save_time(gpu: Gpu) -> bool:
    """Return True if the search tries CUDA graphs on ``gpu``; a spec can set them on any GPU."""
    return gpu.vendor == "nvidia" and gpu.compute_capability >= CONFIRMED_SINCE


def captured_graphs(problem: Problem, layout: Layout) -> CapturedGraphs:
    """Return the parts of a layer in its graph, and the micro-batches with graphs of their own."""
    # TECudaGraphHelper captures one micro-batch without a pipeline, otherwise all of a step.
    every = layout.pp > 1 or (problem.job.moe_overlap and layout.ep > 1)
    count = layout.micro_batches(problem.job.global_batch) if every else 1
    return CapturedGraphs(captured_parts(problem, layout), count)


def captured_parts(problem: Problem, layout: Layout) -> frozenset[LayerPart]:
    """Return the parts of a layer in its graph. They depend on the expert parallel size."""
    job, model, parts = problem.job, problem.model, set[LayerPart]()
    overlaps = job.moe_overlap and layout.ep > 1
    # TransformerConfig: a single expert is no mixture of experts. Whether a model with experts has
    # dense layers is read from moe_layer_freq, which is not set for layer patterns.
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


def graph_conflict(problem: Problem, layout: Layout) -> tuple[str, str]:
    """Return (setting that prevents CUDA graphs, valid settings).

    Both texts are "" if ``layout`` has no CUDA graphs, or if nothing prevents them.
    """
    recompute, routed = layout.recompute, problem.model.moe_layers > 0
    if not layout.cuda_graphs:
        return "", ""
    if problem.cluster.gpu.vendor != "nvidia":
        return f"{problem.cluster.gpu.name} GPUs", "NVIDIA GPUs"
    if recompute.granularity == "full":
        return "full recompute", "recompute none or selective"
    if routed and "moe" in recompute.modules:
        return "recompute of moe", "recompute modules without moe, such as [moe_act]"
    if routed and "layernorm" in recompute.modules and not _frees_norm_output(problem, layout):
        # transformer_layer.py switches this recompute off, and the norm's output stays allocated.
        return "recompute of layernorm", "recompute modules without layernorm, such as [moe_act]"
    if layout.offload.activations:
        return "offloaded activations", "layout.offload.activations: []"
    attention = problem.model.attention
    biased = attention.qkv_bias or attention.output_bias
    if problem.job.moe_overlap and layout.ep > 1 and biased:
        return "moe_overlap with biases in the attention", "moe_overlap false"
    return "", ""


def _frees_norm_output(problem: Problem, layout: Layout) -> bool:
    """Return True if a graph does not contain the output of the norm before the experts."""
    experts, parts = problem.model.experts, captured_parts(problem, layout)
    if experts is None or "preparation" not in parts:
        return False
    if experts.shared_size and "shared_experts" not in parts:
        return False
    return not problem.job.deduplicates_dispatch or bool(experts.latent_size)

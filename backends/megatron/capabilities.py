"""Versions of Megatron-LM that PARC supports, and the strategies that its command line can express.

The keys of ``STRATEGIES`` are the names in ``backends/shared/strategies.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.ir import (
    NO_RECOMPUTE,
    Layout,
    LayoutVariant,
    Model,
    Problem,
    Recompute,
)
from parc.compiler.ir.divisors import divisors

VERSIONS: tuple[str, ...] = ("0.17", "0.18", "0.19", "0.20")
DEFAULT_VERSION = "0.19"
"""Version that PARC uses if the spec sets none: the newest release. Version 0.20 is Megatron-LM's
main branch at commit d98e8a6.
"""

BRIDGE = "megatron-bridge"
"""Name of the backend that configures Megatron-Core through Megatron-Bridge."""
CORE_OF_BRIDGE = {"0.6": "0.19"}
"""Version of Megatron-Bridge -> version of Megatron-Core that was released with it."""

STRATEGIES: dict[str, str] = {
    "dp": "world size / (tp x cp x pp)",
    "zero-1": "--use-distributed-optimizer",
    "zero-2": "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    "zero-3": "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
    "hsdp": "--num-distributed-optimizer-instances",
    "tp": "--tensor-model-parallel-size",
    "sp": "--sequence-parallel",
    "cp-p2p": "--context-parallel-size",
    "cp-all-gather": "--cp-comm-type allgather",
    "cp-a2a": "--cp-comm-type a2a",
    "cp-hierarchical": "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes",
    "1f1b": "--pipeline-model-parallel-size",
    "interleaved": "--num-virtual-stages-per-pipeline-rank",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
    "gtp": "--tensor-parallel-num-weight-shards",
    "egtp": "--expert-tensor-parallel-num-weight-shards",
    "recompute-selective": "--recompute-granularity selective",
    "recompute-full": "--recompute-granularity full",
    "offload-activations": "--fine-grained-activation-offloading",
    "cuda-graphs": "--cuda-graph-impl transformer_engine",
}

FSDP_STAGES = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage that needs Megatron-FSDP -> value of ``--data-parallel-sharding-strategy``. ZeRO-0 is
plain data parallelism, and ZeRO-1 the distributed optimizer."""


def uses_fsdp(layout: Layout) -> bool:
    """Return True if ``layout`` needs Megatron-FSDP."""
    return layout.zero_stage in FSDP_STAGES


def core_version(problem: Problem) -> str:
    """Return the version of Megatron-Core that trains the model of ``problem``."""
    if problem.framework == BRIDGE:
        return CORE_OF_BRIDGE[problem.version(BRIDGE)]
    return problem.version("megatron")


def has_separate_norms(model: Model) -> bool:
    """Return True if a norm of the model is not fused into the linear layer after the norm."""
    return any(sum(model.fused_norms(kind)) < kind.sub_layers for kind in model.kinds)


def recompute_levels(model: Model) -> tuple[Recompute, ...]:
    """Return the recompute settings that the search tries, the fastest first.

    There are up to two selective settings. The first recomputes modules that are limited by memory
    bandwidth and cost little time. The second also recomputes the MLPs and the experts. Of the
    norms, Megatron can recompute only those before experts and before latent attention, because all
    other norms are fused into linear layers.
    """
    light = {"layernorm"} if has_separate_norms(model) else set()
    if model.attention.latent is not None:
        light.add("mla_up_proj")
    # "moe" recomputes the whole expert layer including "moe_act", so the heavy setting leaves
    # moe_act out.
    heavy = light | ({"moe"} if model.moe_layers else set())
    if model.dense_layers:
        heavy = heavy | {"mlp"}
    if model.moe_layers:
        light = light | {"moe_act"}
    levels = [tuple(sorted(names)) for names in (light, heavy) if names]
    # Both sets are equal for some models; dict.fromkeys drops the duplicate and keeps the order.
    selective = (Recompute.selective(names) for names in dict.fromkeys(levels))
    return (NO_RECOMPUTE, *selective, Recompute("full", (), "uniform", 1))


def sharing_variants(problem: Problem, plain: LayoutVariant) -> Iterator[LayoutVariant]:
    """Yield copies of ``plain`` with each pair of gtp and egtp to compare.

    Sharing ranks exchange all weights in every micro-batch, so that they are compared only within
    one NVLink domain: the divisors of its number of GPUs. Experts are whole, or shared by as many
    ranks as the other weights.
    """
    pins, node = problem.pins, problem.cluster.node
    sizes = divisors(max(node.nvlink_domain, node.gpus))
    for gtp in (pins.gtp,) if pins.gtp is not None else sizes:
        shared = {1, gtp} if problem.model.experts else {1}
        for egtp in (pins.egtp,) if pins.egtp is not None else sorted(shared):
            yield replace(plain, gtp=gtp, egtp=egtp)

"""Seconds of one layer and one micro-batch on one rank: compute and the exposed collectives."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.cost.flops import LayerFlops, head_flops, layer_flops
from parc.compiler.cost.pricing import Groups, Pricing
from parc.compiler.ir import Layout

KERNELS = 20
"""Kernels of one layer forward; their host launch is a floor under its time."""
STREAM_BYTES = 24
"""Bytes a token and hidden unit of norms, residuals and activation functions, forward."""
BACKWARD = 2.0
"""Backward over forward, matrix multiplications."""
ATTENTION_BACKWARD = 2.5
"""Backward over forward, fused attention core (FlashAttention-2, arXiv:2307.08691)."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Forward and backward seconds of one layer and micro-batch, by what they are spent on."""

    forward: float
    compute: float
    """Forward and backward."""
    tp: float
    cp: float
    ep: float

    @property
    def total(self) -> float:
        """Compute and exposed communication."""
        return self.compute + self.tp + self.cp + self.ep


def layer_time(pricing: Pricing, layout: Layout, routed: bool) -> LayerTime:
    """One layer; ``routed`` says whether its MLP is a mixture of experts."""
    job, model = pricing.problem.job, pricing.problem.model
    tokens = job.sequence_length * layout.micro_batch / layout.cp
    flops = layer_flops(model, routed, tokens, job.sequence_length)
    groups = pricing.groups(layout)
    matmul = _matmul_seconds(pricing, layout, flops)
    core = flops.attention_core / layout.tp / pricing.attention_rate
    width = layout.tp if layout.sequence_parallel else 1
    stream = STREAM_BYTES * tokens * model.hidden / width / pricing.memory_rate
    floor = KERNELS * pricing.efficiency.kernel_seconds
    forward = max(matmul + core + stream, floor)
    backward = max(BACKWARD * (matmul + stream) + ATTENTION_BACKWARD * core, BACKWARD * floor)
    return LayerTime(
        forward=forward,
        compute=forward + backward,
        tp=_tp_seconds(pricing, layout, groups, routed),
        cp=_cp_seconds(pricing, layout, groups, core),
        ep=_ep_seconds(pricing, layout, groups) if routed else 0.0,
    )


def _matmul_seconds(pricing: Pricing, layout: Layout, flops: LayerFlops) -> float:
    """Forward matrix multiplications of one rank.

    Every expert rank works on the tokens of its whole group, so top-k work is neither divided
    by ep nor multiplied; it is divided by tp through the tokens that a rank brings.
    """
    return (
        (flops.attention_projections + flops.mlp + flops.experts) / layout.tp / pricing.matmul_rate
    )


def _tp_seconds(pricing: Pricing, layout: Layout, groups: Groups, routed: bool) -> float:
    """Ten ring collectives of 2Th a layer (Korthikanti et al. 2022).

    4 all-gathers, 4 reduce-scatters, and the 2 gathers that the backward pass repeats; a routed
    MLP at etp = 1 needs none.
    """
    if layout.tp == 1:
        return 0.0
    job, model = pricing.problem.job, pricing.problem.model
    nbytes = 2 * job.sequence_length * layout.micro_batch / layout.cp * model.hidden
    blocks = 1.0 if routed else 2.0
    seconds = 5 * blocks * pricing.links.ring_seconds(nbytes, groups.tp)
    if routed and layout.etp > 1 and model.experts is not None:
        visits = nbytes / layout.tp * model.experts.top_k * layout.etp
        seconds += 4 * pricing.links.ring_seconds(visits, groups.etp)
    return seconds


def _cp_seconds(pricing: Pricing, layout: Layout, groups: Groups, core: float) -> float:
    """Ring exchange of keys and values, what the attention core does not hide."""
    if layout.cp == 1:
        return 0.0
    job, attention = pricing.problem.job, pricing.problem.model.attention
    tokens = job.sequence_length * layout.micro_batch / layout.cp
    if attention.latent is None:
        width = max(attention.kv_heads, layout.tp) * attention.head_dim / layout.tp
    else:
        latent = attention.latent
        query = latent.qk_nope_dim + latent.qk_rope_dim
        width = attention.heads * (query + latent.v_dim) / 2 / layout.tp
    nbytes = (layout.cp - 1) * 4 * tokens * width
    group = groups.cp
    rate = pricing.links.gb_per_s(group) * 1e9
    forward = nbytes / rate + (layout.cp - 1) * pricing.links.link_latency_seconds
    exposed_forward = max(0.0, forward - core)
    exposed_backward = max(0.0, 2 * forward - ATTENTION_BACKWARD * core)
    return exposed_forward + exposed_backward


def _ep_seconds(pricing: Pricing, layout: Layout, groups: Groups) -> float:
    """Dispatch and combine, forward and backward: 4 all-to-alls of k (T/t) h 2 bytes."""
    job, model = pricing.problem.job, pricing.problem.model
    if layout.ep == 1 or model.experts is None:
        return 0.0
    tokens = job.sequence_length * layout.micro_batch / layout.cp / layout.tp
    nbytes = 2 * tokens * model.hidden * model.experts.top_k
    return 4 * pricing.links.all_to_all_seconds(nbytes, groups.ep)


def head_seconds(pricing: Pricing, layout: Layout) -> float:
    """Output projection and loss of one micro-batch, forward and backward."""
    job, model = pricing.problem.job, pricing.problem.model
    tokens = job.sequence_length * layout.micro_batch / layout.cp
    matmul = 3 * head_flops(model, tokens) / layout.tp / pricing.matmul_rate
    softmax = 12 * tokens * model.vocab / layout.tp / pricing.memory_rate
    return matmul + softmax


def recompute_seconds(pricing: Pricing, layout: Layout, layer: LayerTime, routed: bool) -> float:
    """Forward work done again in the backward pass of one layer.

    Full: the forward with its collectives; selective: the share of the modules' FLOPs, and
    dispatch and combine where the experts run again.
    """
    recompute = layout.recompute
    if recompute.granularity == "none":
        return 0.0
    if recompute.granularity == "full":
        return layer.forward + 0.4 * layer.tp + (layer.cp / 3 + layer.ep / 2)
    again = layer.forward * sum(_share(pricing, name, routed) for name in recompute.modules)
    return again + (layer.ep / 2 if "moe" in recompute.modules else 0.0)


def _share(pricing: Pricing, module: str, routed: bool) -> float:
    """Share of a layer's forward FLOPs that a module has; streaming modules count 3 %."""
    job, model = pricing.problem.job, pricing.problem.model
    flops = layer_flops(model, routed, 1.0, job.sequence_length)
    total = flops.total or 1.0
    if (module in ("moe", "shared_experts") and not routed) or (module == "mlp" and routed):
        return 0.0
    table = {
        "core_attn": flops.attention_core / total,
        "mlp": flops.mlp / total,
        "moe": (flops.experts + flops.mlp) / total,
        "shared_experts": flops.mlp / total,
        "mla_up_proj": 0.5 * flops.attention_projections / total,
    }
    return table.get(module, 0.03)

"""What a routed layer adds on the device: experts, permutation, casts; and its launch."""

from __future__ import annotations

from parc.compiler.cost.kernels.collective_time import collective_seconds
from parc.compiler.cost.kernels.layer_kernels import Seconds, expert_gemms, gemm_pass
from parc.compiler.cost.setup.links import GroupSpan, Links
from parc.compiler.cost.setup.pricing import Groups, Pricing
from parc.compiler.ir import Experts, Layout
from parc.compiler.ir.problem import Job

PASS_BYTES = 4
"""An element of a routed token that one permutation reads and writes, 16 bit."""
PASSES = 4
"""All-to-all: by rank before it and by expert after it, on the way there and on the way back."""
ONCE_PASSES = 2
"""DeepEP and HybridEP: by expert on arrival, and back."""
UNFUSED = 3.0
"""Traffic of permutations made of single PyTorch kernels over fused ones, as with token dropping;
fitted to published runs of both kinds."""
CAST_BYTES = 8
"""An element quantised to 8 or 4 bit: padded for its expert (read, written), then read and written
twice, by row and by column."""
FUSED_CASTS = 0.25
"""What is left of them where the grouped MLP is one kernel: the gradients that arrive."""
FUSED_GEMMS = 0.8
"""Time of such a grouped MLP over that of a kernel a matrix; fitted to published runs."""
LOW_LAUNCH = 1.5
"""Host launch with casts for every expert over that in 16 bit."""


def routed_kernels(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Routed experts of one micro-batch, forward and backward; ``tokens`` are those of a rank."""
    gemms, moved = _gemms(pricing, layout, tokens), routed_bytes(pricing, layout, tokens)
    gpu, row = pricing.problem.cluster.gpu, pricing.efficiency
    factor = pricing.gemm_factor * row.experts * (FUSED_GEMMS if row.fused_experts else 1.0)
    stream = row.stream / (gpu.memory_gb_per_s * 1e9)
    return Seconds(
        factor * gemms.forward + stream * moved.forward,
        factor * gemms.backward + stream * moved.backward,
    )


def _gemms(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Grouped multiplications."""
    shapes = expert_gemms(pricing.problem.model, layout, tokens)
    return pricing.memo(("grouped", *shapes), lambda: gemm_pass(pricing.gemm, shapes))


def routed_bytes(pricing: Pricing, layout: Layout, tokens: float) -> Seconds:
    """Bytes (not seconds), forward and backward: permutations, activation, casts of all visits."""
    job, model, row = pricing.problem.job, pricing.problem.model, pricing.efficiency
    experts = model.experts
    if experts is None:
        return Seconds(0.0, 0.0)
    visits = experts.top_k * tokens / layout.tp * layout.etp
    inner = experts.size / layout.etp
    columns = 2 * inner if model.ffn.gated else inner
    passes = ONCE_PASSES if job.sends_once else PASSES
    permuted = PASS_BYTES * passes * model.hidden * (1.0 if row.fused_routing else UNFUSED)
    activated = 2 * (columns + inner)
    cast = CAST_BYTES if job.low_precision else 0.0
    cast *= FUSED_CASTS if row.fused_experts else 1.0
    return Seconds(
        visits * (permuted + activated + cast * (model.hidden + inner)),
        visits * (permuted + 2 * activated + cast * (model.hidden + columns)),
    )


def routed_launch_seconds(pricing: Pricing) -> float:
    """Host launch of the forward of one routed layer; backward takes twice as long."""
    low = LOW_LAUNCH if pricing.problem.job.low_precision else 1.0
    return pricing.efficiency.routed_seconds * low


HIDDEN = 0.45
"""Share of dispatch and combine that runs beside the computation of another micro-batch: traces of
Qwen3-30B on 16 H100 show 37 % (Megatron-Bridge, expert-parallel overlap); fitted with others."""
BESIDE = 0.5
"""Share of a routed layer's computation that dispatch and combine can hide behind."""


def dispatch_seconds(pricing: Pricing, layout: Layout, groups: Groups, compute: float) -> float:
    """Dispatch and combine of one routed layer, forward and backward, what is exposed.

    ``compute`` is the layer's own time on the device, forward and backward.
    """
    job, model = pricing.problem.job, pricing.problem.model
    if layout.ep == 1 or model.experts is None:
        return 0.0
    tokens = layout.tokens(job.sequence_length) / layout.tp
    nbytes = 2 * tokens * model.hidden
    if job.sends_once:
        once = once_seconds(pricing.links, nbytes, groups.ep, model.experts)
    else:
        once = pricing.links.seconds("all_to_all", nbytes * model.experts.top_k, groups.ep)
    whole = 4 * pricing.efficiency.ep * once
    if not job.moe_overlap:
        return whole
    return whole - min(HIDDEN * whole, BESIDE * compute)


def once_seconds(links: Links, nbytes: float, group: GroupSpan, experts: Experts) -> float:
    """A token goes once to every NVLink domain that has one of its experts, and on from there.

    ``nbytes`` are all tokens of a rank, one copy. DeepEP (github.com/deepseek-ai/DeepEP), and
    HybridEP of the same repository.
    """
    ranks = visited(experts, group.size)
    fit = links.fits["all_to_all"]
    inside = collective_seconds(fit, nbytes * ranks / group.domains, group.local)
    if group.domains == 1:
        return inside
    network = links.network
    outside = nbytes * _domains_away(experts, group) / (network.gb_per_s_per_gpu * 1e9)
    return max(inside, outside) + 2 * network.hop_seconds


def copies_sent(job: Job, experts: Experts, group: GroupSpan) -> float:
    """Copies of a token that leave its rank, over the slowest links that its group spans."""
    if not job.sends_once:
        return experts.top_k * (group.size - 1) / group.size
    if group.domains > 1:
        return _domains_away(experts, group)
    return visited(experts, group.size) * (group.size - 1) / group.size


def _domains_away(experts: Experts, group: GroupSpan) -> float:
    """NVLink domains other than its own that a token goes to."""
    domains = visited(experts, group.domains)
    if experts.groups > 1:
        domains = min(domains, float(experts.group_top_k))
    return domains * (group.domains - 1) / group.domains


def visited(experts: Experts, parts: int) -> float:
    """Of ``parts`` equal parts of the experts, those that one token's top-k experts lie in.

    parts (1 - C(E - E/parts, k) / C(E, k)): k different experts, all sets alike.
    """
    missed = 1.0
    own = experts.count / parts
    for index in range(experts.top_k):
        missed *= max(0.0, experts.count - own - index) / (experts.count - index)
    return parts * (1.0 - missed)

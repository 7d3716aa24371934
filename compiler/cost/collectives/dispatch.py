"""Seconds of expert dispatch and combine: what leaves a rank, and over which links."""

from __future__ import annotations

from parc.compiler.cost.kernels.collective_time import collective_seconds
from parc.compiler.cost.setup.links import GroupSpan, Links
from parc.compiler.cost.setup.pricing import Groups, Pricing
from parc.compiler.ir import Experts, Layout
from parc.compiler.ir.problem import Job

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
    if job.deduplicates_dispatch:
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
    if not job.deduplicates_dispatch:
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

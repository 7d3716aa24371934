"""Time of routed experts in a layer: kernels, host launch, dispatch and combine."""

from __future__ import annotations

import math

from parc.compiler.cost.kernels.collective_time import collective_seconds
from parc.compiler.cost.kernels.layer_kernels import (
    NOTHING,
    ForwardBackward,
    expert_gemm_seconds,
    expert_gemm_shapes,
    routed_rows,
)
from parc.compiler.cost.setup.cost_model import CostModel, GroupSpans
from parc.compiler.cost.setup.links import GroupSpan, Links
from parc.compiler.cost.step.gradient_sums import base_gradient_bytes
from parc.compiler.ir import Experts, Layout, PassBytes
from parc.compiler.ir.problem import Job

PASS_BYTES = 4
"""Traffic per element of one permutation of routed tokens: read and written in 16 bit."""
PASSES = 2
"""Permutations of tokens in dispatch and combine: by expert before an all-to-all, or on arrival
with DeepEP and HybridEP, and back."""
SORTED_PASSES = 2
"""Further permutations if an all-to-all delivers tokens of several experts: the rows of each expert
arrive in one piece per sender, so that they are sorted by expert, and back (Megatron-LM,
token_dispatcher.py)."""
BIAS_BYTES = 28
"""Traffic per output element of experts with biases. Megatron multiplies the bias of the second
matrix by the router's probability in fp32 and adds it by separate PyTorch kernels (experts.py,
``_apply_bias``): the product is written (4); the output and the product are read and the sum is
written (10); the pieces of all experts are joined (8) and converted to 16 bit (6)."""
BIAS_GRADIENT_BYTES = 40
"""Traffic of the same kernels in the backward pass: conversions to fp32 and back (12), products of
the gradient with probability and bias, and their sums (24), and joining of the pieces (4)."""
GROUPED_GEMMS = 1.1
"""Time of a grouped GEMM, divided by that of the same tiles in one GEMM. Timings of fused experts
with many rows give 1.0 for bf16 on H100 and 1.15 for fp8 on B200 (ai-dynamo/aiconfigurator)."""
SCATTERED = 1.3
"""Time per byte of kernels that move routed rows, divided by that of other element-wise kernels.
They read or write rows in random order, in pieces per expert. Fitted to the published runs of all
GPUs and models together."""
UNFUSED_TRAFFIC = 2.3
"""Traffic of permutations as separate PyTorch kernels, divided by that of fused kernels. Runs with
token dropping use separate kernels. Fitted to published runs with and without token dropping."""
CAST_BYTES = 8
"""Bytes moved per element that is quantized to 8 or 4 bit. The element is padded for its expert
(read and written), then read and written by row and again by column."""
FUSED_CASTS = 0.25
"""Fraction of the cast traffic that remains if the grouped MLP is one kernel: the casts of incoming
gradients."""
FUSED_GEMMS = 0.8
"""Time of a grouped MLP in one kernel, divided by the time with one kernel per matrix. Fitted to
published runs of both variants."""
MAX_HIDDEN_SHARE = 0.45
"""Largest fraction of dispatch and combine that ``moe_overlap`` hides behind another micro-batch.
Traces of Qwen3-30B on 16 H100 show 37 % (Megatron-Bridge, expert-parallel overlap). The value is
fitted to these traces and to published step times."""
HIDING_COMPUTE_SHARE = 0.5
"""Fraction of a routed layer's computation that can hide dispatch and combine; assumed."""


def routed_expert_seconds(cost_model: CostModel, layout: Layout, tokens: float) -> ForwardBackward:
    """Return the forward and backward times in seconds of the routed experts of one layer.

    ``tokens`` is the number of tokens per micro-batch that a tensor-parallel group processes. The
    times are those of the busiest rank of the expert-parallel group.
    """
    tokens *= cost_model.problem.job.busiest_rank_load(layout.ep)
    gemms, moved = (
        _grouped_gemm_seconds(cost_model, layout, tokens),
        routed_traffic_bytes(cost_model, layout, tokens),
    )
    gpu, row = cost_model.problem.cluster.gpu, cost_model.efficiency
    factor = GROUPED_GEMMS * (FUSED_GEMMS if row.fused_experts else 1.0)
    stream = row.stream * SCATTERED / (gpu.memory_gb_per_s * 1e9)
    return ForwardBackward(
        factor * gemms.forward + stream * moved.forward,
        factor * gemms.backward + stream * moved.backward,
    )


def _grouped_gemm_seconds(cost_model: CostModel, layout: Layout, tokens: float) -> ForwardBackward:
    """Return the forward and backward times in seconds of the grouped GEMMs of one layer.

    The times are computed once per shape.
    """
    model = cost_model.problem.model
    assert model.experts is not None
    shapes = expert_gemm_shapes(model, layout, tokens)
    local = model.experts.count / layout.ep
    sum_bytes = base_gradient_bytes(cost_model, layout)
    return cost_model.cached(
        ("grouped", local, sum_bytes, *shapes),
        lambda: cost_model.step_gemm_seconds(
            lambda fit: expert_gemm_seconds(fit, local, shapes, sum_bytes)
        ),
    )


def routed_traffic_bytes(cost_model: CostModel, layout: Layout, tokens: float) -> ForwardBackward:
    """Return the bytes that kernels move for routed tokens in the forward and backward pass.

    The kernels are permutations, activation function and casts.
    """
    job, model, row = cost_model.problem.job, cost_model.problem.model, cost_model.efficiency
    experts = model.experts
    if experts is None:
        return NOTHING
    # Every routed token is one row per selected expert; etp ranks compute each row in parts.
    visits = routed_rows(model, layout, tokens)
    inner = experts.size / layout.etp
    columns = 2 * inner if model.ffn.gated else inner
    permuted = _permutation_bytes(cost_model, layout)
    traffic = cost_model.traffic(layout)
    activated = traffic.gated if model.ffn.gated else traffic.plain
    cast = CAST_BYTES if job.is_low_precision else 0.0
    cast *= FUSED_CASTS if row.fused_experts else 1.0
    biased = model.expert_input_width if experts.bias and not row.fused_experts else 0
    return ForwardBackward(
        visits
        * (
            permuted.forward * model.expert_input_width
            + activated.forward * inner
            + cast * (model.expert_input_width + inner)
            + BIAS_BYTES * biased
        ),
        visits
        * (
            permuted.backward * model.expert_input_width
            + activated.backward * inner
            + cast * (model.expert_input_width + columns)
            + BIAS_GRADIENT_BYTES * biased
        ),
    )


def _permutation_bytes(cost_model: CostModel, layout: Layout) -> PassBytes:
    """Return the bytes per element of a routed row that permutations and weights move."""
    experts, job = cost_model.problem.model.experts, cost_model.problem.job
    assert experts is not None
    fused, routed = cost_model.efficiency.fused_routing, cost_model.traffic(layout).routed
    if routed is not None and not fused:
        exchanged = routed.sent_once if job.deduplicates_dispatch else routed.exchanged
        return routed.alone if layout.ep == 1 or exchanged is None else exchanged
    sorts = experts.count > layout.ep and not job.deduplicates_dispatch
    passes = PASSES + SORTED_PASSES if sorts else PASSES
    each = PASS_BYTES * passes * (1.0 if fused else UNFUSED_TRAFFIC)
    return PassBytes(each, each)


def dispatch_seconds(
    cost_model: CostModel, layout: Layout, groups: GroupSpans, compute: float
) -> float:
    """Return the exposed time in seconds of dispatch and combine in one routed layer.

    Per micro-batch there are four transfers: dispatch and combine, in the forward and in the
    backward pass. ``compute`` is the device time of the layer in seconds, forward plus backward.
    """
    job, model = cost_model.problem.job, cost_model.problem.model
    if layout.ep == 1 or model.experts is None:
        return 0.0
    tokens = layout.tokens(job.sequence_length) / layout.tp
    nbytes = 2 * tokens * model.expert_input_width
    if job.deduplicates_dispatch:
        transfer = single_copy_dispatch_seconds(cost_model.links, nbytes, groups.ep, model.experts)
    else:
        # An all-to-all sends one copy of a token per selected expert.
        transfer = cost_model.links.collective_seconds(
            "all_to_all", nbytes * model.experts.top_k, groups.ep
        )
    # Dispatch and combine move the same bytes, and the backward pass repeats both.
    # The busiest rank receives the most tokens, and all ranks wait for it.
    whole = 4 * cost_model.efficiency.ep * transfer * job.busiest_rank_load(layout.ep)
    if not job.moe_overlap:
        return whole
    return whole - min(MAX_HIDDEN_SHARE * whole, HIDING_COMPUTE_SHARE * compute)


def single_copy_dispatch_seconds(
    links: Links, nbytes: float, group: GroupSpan, experts: Experts
) -> float:
    """Return the time in seconds of a dispatch that sends each token once per NVLink domain.

    Inside a domain the token is forwarded to the ranks of its experts, as in DeepEP and HybridEP
    (github.com/deepseek-ai/DeepEP). Transfers between domains and inside a domain are pipelined.
    ``nbytes`` is the size of one copy of all tokens of a rank.
    """
    # A token with several experts on one rank is sent there once.
    ranks = expected_distinct_parts(experts, group.size)
    fit = links.fits["all_to_all"]
    inside = collective_seconds(fit, nbytes * ranks / group.domains, group.local)
    if group.domains == 1:
        return inside
    network = links.network
    outside = nbytes * _remote_domains(experts, group) / (network.gb_per_s_per_gpu * 1e9)
    return max(inside, outside) + 2 * network.hop_seconds


def token_copies_sent(job: Job, experts: Experts, group: GroupSpan) -> float:
    """Return the mean number of copies of a token that a rank sends over the slowest links.

    ``group`` is the expert-parallel group. If this group spans several NVLink domains and each
    token is sent once per domain, only copies to other domains are counted. Otherwise all copies to
    other ranks are counted.
    """
    if not job.deduplicates_dispatch:
        return experts.top_k * (group.size - 1) / group.size
    if group.domains > 1:
        return _remote_domains(experts, group)
    return expected_distinct_parts(experts, group.size) * (group.size - 1) / group.size


def _remote_domains(experts: Experts, group: GroupSpan) -> float:
    """Return the expected number of other NVLink domains that a token is sent to."""
    domains = expected_distinct_parts(experts, group.domains)
    return domains * (group.domains - 1) / group.domains


def expected_distinct_parts(experts: Experts, parts: int) -> float:
    """Return the expected number of parts that contain at least one of a token's top-k experts.

    The E experts are divided into ``parts`` equal parts of consecutive experts. All choices of
    ``group_top_k`` groups are assumed to be equally likely, and so are all sets of k experts of
    these groups. Without groups, the result is parts x (1 - C(E - E/parts, k) / C(E, k)), with
    binomial coefficients C. The result is exact if a part is in one group or consists of groups.
    """
    size = experts.count / experts.groups
    own = experts.count / parts
    whole, rest = int(own // size), own % size
    # Number of groups of which the part contains some experts, but not all.
    partial = 1 if rest else 0
    untouched = 0.0
    for chosen in range(min(whole, experts.group_top_k) + 1):
        for touched in range(partial + 1):
            others = experts.group_top_k - chosen - touched
            if others < 0:
                continue
            ways = math.comb(whole, chosen) * math.comb(experts.groups - whole - partial, others)
            untouched += ways * _none_chosen(experts, chosen * size + touched * rest)
    return parts * (1.0 - untouched / math.comb(experts.groups, experts.group_top_k))


def _none_chosen(experts: Experts, own: float) -> float:
    """Return the probability that none of ``own`` experts in the chosen groups is chosen."""
    available = experts.count / experts.groups * experts.group_top_k
    # Ratio of two binomials, factor by factor, to avoid huge integers.
    missed = 1.0
    for index in range(experts.top_k):
        missed *= max(0.0, available - own - index) / (available - index)
    return missed

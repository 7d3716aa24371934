"""Rules of vLLM for pipeline stages, context parallelism and load balancing."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.serving.layout_rules import stage_layers_rule
from parc.backends.vllm.defaults import default_stages
from parc.backends.vllm.rules_tensor_parallel import MOST_SHOWN_DEGREE
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem, ServingRule
from parc.compiler.topology.arrange_hosts import engine_hosts

TARGETS = ("vllm",)


def _has_empty_stages(problem: ServingProblem, layout: ServingLayout) -> bool:
    # vLLM accepts more stages than layers, and gives the surplus stages no layers.
    return layout.pp > problem.model.layers or _has_stage_without_experts(problem, layout)


def _pattern_per_stage(problem: ServingProblem, layout: ServingLayout) -> Iterator[str]:
    """Yield the part of the model's layer pattern that each pipeline stage contains.

    A pattern has one letter per layer.
    """
    model, first = problem.model, 0
    for count in layout.stages or default_stages(model.layers, layout.pp):
        yield model.pattern[first : first + count]
        first += count


def _has_stage_without_experts(problem: ServingProblem, layout: ServingLayout) -> bool:
    """Return True if a pipeline stage of a model with a layer pattern has no layer with experts."""
    model = problem.model
    has_routed = model.pattern and model.experts is not None
    return bool(has_routed) and any("E" not in part for part in _pattern_per_stage(problem, layout))


def _explain_empty_stages(problem: ServingProblem, layout: ServingLayout) -> Finding:
    layers, pp = problem.model.layers, layout.pp
    if layout.pp <= layers:
        return _explain_stage_without_experts(problem, layout)
    return Finding(
        f"{pp} pipeline stages for {layers} layers: {pp - layers} stages would be empty, "
        "which vLLM does not report",
        label=f"pp {pp} > {layers} layers",
        help=f"valid pp: 1 to {layers}",
        fix=f"layout.pp: {min(layers, 8)}",
        causes=(Cause("model.layers", f"the model has {layers} layers"),),
        targets=TARGETS,
    )


def _explain_stage_without_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    parts = enumerate(_pattern_per_stage(problem, layout))
    number, part = next((number, part) for number, part in parts if "E" not in part)
    return Finding(
        f"stage {number} has no layer with experts, which vLLM requires for layer patterns",
        label=f"this stage has layers {part} of {problem.model.pattern}",
        help="vLLM fails with: assert example_moe is not None",
        fix="layout.pp: 1",
        causes=(Cause("model.pattern", "E in the pattern is a layer with experts"),),
        targets=TARGETS,
    )


def _violates_context_parallel_sizes(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _find_context_parallel_fault(problem, layout) is not None


def _find_context_parallel_fault(
    problem: ServingProblem, layout: ServingLayout
) -> tuple[str, str] | None:
    """Return (vLLM's error message, numbers of the layout) if pcp or dcp is invalid, else None."""
    tp, pcp, dcp = layout.tp, layout.pcp, layout.dcp
    if pcp > 1 and problem.model.attention.latent is None:
        return (
            "PCP requires attention backend support, but FLASH_ATTN does not support PCP.",
            f"pcp {pcp}, but {problem.model.name} has no latent attention",
        )
    if pcp == 1 and tp % dcp:
        return (
            f"tp_size={tp} must be divisible by dcp_size={dcp}.",
            f"{tp} % {dcp} = {tp % dcp}, must be 0; valid values: "
            f"{', '.join(map(str, divisors(tp, MOST_SHOWN_DEGREE)))}",
        )
    # With pcp, a dcp group is a slice of the pcp axis first, then of tp
    # (initialize_model_parallel).
    valid = sorted({1, pcp, tp * pcp})
    if pcp > 1 and dcp not in valid:
        return (
            "When PCP is enabled, DCP must be disabled, span the PCP axis, or span the full "
            f"TP x PCP axis: valid DCP sizes are {valid}.",
            f"tp {tp}, pcp {pcp}, dcp {dcp}",
        )
    if pcp > 1 and dcp > 1:
        return "MLAAttention does not support PCP+DCP.", f"pcp {pcp}, dcp {dcp}"
    return None if dcp == 1 else _find_grouped_query_fault(problem, layout)


def _find_grouped_query_fault(
    problem: ServingProblem, layout: ServingLayout
) -> tuple[str, str] | None:
    """Return (vLLM's error message, numbers of the layout) if dcp is invalid for grouped queries.

    Return None if dcp is valid. Only ranks that store copies of the same key-value head can split
    the cache of this head.
    """
    attention, tp, dcp = problem.model.attention, layout.tp, layout.dcp
    if attention.latent is not None:
        return None
    kv = attention.kv_heads
    if tp <= kv:
        return (
            f"Decode context parallelism for GQA/MQA requires TP ({tp}) to be greater than KV "
            f"heads ({kv})",
            f"tp {tp} <= {kv} key-value heads",
        )
    if dcp > tp // kv:
        return (
            f"`--decode-context-parallel-size` ({dcp}) exceeds the maximum supported value "
            f"({tp // kv})",
            f"dcp {dcp} > tp {tp} / {kv} key-value heads",
        )
    queries = attention.heads // kv
    if queries % dcp:
        return (
            f"The model's number of query heads per KV head ({queries}) must be divisible by "
            f"dcp ({dcp})",
            f"{queries} % {dcp} = {queries % dcp}, must be 0",
        )
    return None


def _explain_context_parallel_sizes(problem: ServingProblem, layout: ServingLayout) -> Finding:
    message, numbers = _find_context_parallel_fault(problem, layout) or ("", "")
    prefill = layout.pcp > 1 and problem.model.attention.latent is None
    return Finding(
        message.rstrip("."),
        label=numbers,
        help="dcp splits a request's cache over ranks that would otherwise store copies of it",
        fix="layout.pcp: 1" if prefill else "layout.dcp: 1",
        causes=(Cause("layout.tp", f"tp {layout.tp}"),),
        targets=TARGETS,
    )


def _splits_ranks_under_hybrid_balancing(problem: ServingProblem, layout: ServingLayout) -> bool:
    """Return True if load balancing is hybrid and a data-parallel rank spans several hosts."""
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    if hosts is None or problem.endpoint.load_balancer != "hybrid" or layout.dp == 1:
        return False
    return layout.rank_gpus > layout.engine_gpus // hosts


def _explain_hybrid_balancing(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "hybrid load balancing needs whole data-parallel ranks on each host",
        label=f"a rank of tp {layout.tp} x pcp {layout.pcp} x pp {layout.pp} spans several hosts",
        help="valid load_balancer with this layout: internal, external",
        fix="launch.load_balancer: internal",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
        targets=TARGETS,
    )


AXIS_RULES: tuple[ServingRule, ...] = (
    ServingRule("V27", ("layout.pp", "model"), _has_empty_stages, _explain_empty_stages),
    stage_layers_rule(TARGETS),
    ServingRule(
        "V12",
        ("layout.dcp", "layout.pcp", "layout.tp"),
        _violates_context_parallel_sizes,
        _explain_context_parallel_sizes,
        ("tp", "pcp", "dcp"),
    ),
    ServingRule(
        "V09",
        ("launch.load_balancer",),
        _splits_ranks_under_hybrid_balancing,
        _explain_hybrid_balancing,
    ),
)

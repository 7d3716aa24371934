"""Rules of pipeline and context parallelism, of stages, and of how requests are spread."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.vllm.defaults import default_stages
from parc.backends.vllm.legal_degrees import divisors
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem
from parc.compiler.ir.serving_rule import ServingRule
from parc.compiler.topology.engine_hosts import engine_hosts

TARGETS = ("vllm",)


def _stages(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.pp > problem.model.layers or _unrouted(problem, layout)


def _patterns(problem: ServingProblem, layout: ServingLayout) -> Iterator[str]:
    """The part of the pattern that each stage holds, where layers have one part each."""
    model, first = problem.model, 0
    for held in layout.stages or default_stages(model.layers, layout.pp):
        yield model.pattern[first : first + held]
        first += held


def _unrouted(problem: ServingProblem, layout: ServingLayout) -> bool:
    """A stage of a pattern with experts that holds none of them."""
    model = problem.model
    wanted = model.pattern and model.experts is not None
    return bool(wanted) and any("E" not in part for part in _patterns(problem, layout))


def _explain_stages(problem: ServingProblem, layout: ServingLayout) -> Finding:
    layers, pp = problem.model.layers, layout.pp
    if layout.pp <= layers:
        return _explain_unrouted(problem, layout)
    return Finding(
        f"{pp} pipeline stages for {layers} layers: {pp - layers} would hold none, and vLLM "
        "starts all the same",
        label=f"pp {pp} > {layers} layers",
        help=f"legal pp: 1 to {layers}",
        fix=f"layout.pp: {min(layers, 8)}",
        causes=(Cause("model.layers", f"{layers} layers come from here"),),
        targets=TARGETS,
    )


def _explain_unrouted(problem: ServingProblem, layout: ServingLayout) -> Finding:
    parts = enumerate(_patterns(problem, layout))
    number, part = next((number, part) for number, part in parts if "E" not in part)
    return Finding(
        f"stage {number} holds no routed layer, and vLLM's class of such patterns wants one",
        label=f"{part} of {problem.model.pattern}",
        help="vLLM: assert example_moe is not None",
        fix="layout.pp: 1",
        causes=(Cause("model.pattern", "E is a routed layer"),),
        targets=TARGETS,
    )


def _split(problem: ServingProblem, layout: ServingLayout) -> bool:
    pinned = problem.pins.stages
    return pinned is not None and (len(pinned) != layout.pp or sum(pinned) != problem.model.layers)


def _explain_split(problem: ServingProblem, layout: ServingLayout) -> Finding:
    pinned, layers = problem.pins.stages or (), problem.model.layers
    cause = (Cause("model.layers", f"{layers} layers come from here"),)
    if len(pinned) != layout.pp:
        return Finding(
            f"len(partitions)={len(pinned)} does not match pp_size={layout.pp}",
            label=f"{len(pinned)} stages are given, pp is {layout.pp}",
            fix=f"layout.pp: {len(pinned)}",
            causes=(Cause("layout.pp", f"pp {layout.pp}"),),
            targets=TARGETS,
        )
    return Finding(
        f"sum(partitions)={sum(pinned)} does not match num_hidden_layers={layers}",
        label=f"{' + '.join(map(str, pinned))} = {sum(pinned)}, must be {layers}",
        help="layers that no stage holds would be missing from the model",
        fix="layout.stage_layers: auto",
        causes=cause,
        targets=TARGETS,
    )


def _context(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _context_fault(problem, layout) is not None


def _context_fault(problem: ServingProblem, layout: ServingLayout) -> tuple[str, str] | None:
    """What vLLM says and the numbers, where the degrees of context parallelism do not go."""
    tp, pcp, dcp = layout.tp, layout.pcp, layout.dcp
    if pcp > 1 and problem.model.attention.latent is None:
        return (
            "PCP requires attention backend support, but FLASH_ATTN does not support PCP.",
            f"pcp {pcp}; {problem.model.name} has no latent attention",
        )
    if pcp == 1 and tp % dcp:
        return (
            f"tp_size={tp} must be divisible by dcp_size={dcp}.",
            f"{tp} % {dcp} = {tp % dcp}, must be 0; legal: {', '.join(map(str, divisors(tp)))}",
        )
    legal = sorted({1, pcp, tp * pcp})
    if pcp > 1 and dcp not in legal:
        return (
            "When PCP is enabled, DCP must be disabled, span the PCP axis, or span the full "
            f"TP x PCP axis: valid DCP sizes are {legal}.",
            f"tp {tp}, pcp {pcp}, dcp {dcp}",
        )
    if pcp > 1 and dcp > 1:
        return "MLAAttention does not support PCP+DCP.", f"pcp {pcp}, dcp {dcp}"
    return None if dcp == 1 else _grouped_fault(problem, layout)


def _grouped_fault(problem: ServingProblem, layout: ServingLayout) -> tuple[str, str] | None:
    """Grouped-query attention: copies of a key-value head share its cache, and nothing else."""
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


def _explain_context(problem: ServingProblem, layout: ServingLayout) -> Finding:
    said, numbers = _context_fault(problem, layout) or ("", "")
    prefill = layout.pcp > 1 and problem.model.attention.latent is None
    return Finding(
        said.rstrip("."),
        label=numbers,
        help="dcp shares a request's cache over ranks that would hold copies of it",
        fix="layout.pcp: 1" if prefill else "layout.dcp: 1",
        causes=(Cause("layout.tp", f"tp {layout.tp}"),),
        targets=TARGETS,
    )


def _balanced(problem: ServingProblem, layout: ServingLayout) -> bool:
    """Hybrid load balancing where a data-parallel rank takes several hosts."""
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    if hosts is None or problem.endpoint.load_balancer != "hybrid" or layout.dp == 1:
        return False
    return layout.rank_gpus > layout.engine_gpus // hosts


def _explain_balanced(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "hybrid load balancing wants whole data-parallel ranks on a host",
        label=f"a rank of tp {layout.tp} x pcp {layout.pcp} x pp {layout.pp} leaves its host",
        help="legal with this layout: internal, external",
        fix="launch.load_balancer: internal",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
        targets=TARGETS,
    )


AXIS_RULES: tuple[ServingRule, ...] = (
    ServingRule("V27", ("layout.pp", "model"), _stages, _explain_stages),
    ServingRule("P01", ("layout.stage_layers",), _split, _explain_split),
    ServingRule("V12", ("layout.dcp", "layout.pcp", "layout.tp"), _context, _explain_context),
    ServingRule("V09", ("launch.load_balancer",), _balanced, _explain_balanced),
)

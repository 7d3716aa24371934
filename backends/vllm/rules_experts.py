"""What experts ask of a layout: config/parallel.py, config/model.py, fused_moe/layer.py."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem
from parc.compiler.ir.serving_rule import ServingRule

TARGETS = ("vllm",)


def _ranks(layout: ServingLayout) -> int:
    """Ranks of a stage, which expert parallelism always spans whole."""
    return layout.tp * layout.pcp * layout.dp


def _no_experts(problem: ServingProblem, layout: ServingLayout) -> bool:
    asked = problem.pins.ep not in (None, "off", 1)
    return problem.model.experts is None and (asked or layout.ep > 1)


def _explain_no_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "Number of experts in the model must be greater than 0 when expert parallelism is enabled",
        label=f"{problem.model.name} has no experts",
        help="a dense model is spread by tp and pp, and copied by replicas",
        fix="layout.ep: off" if problem.pins.ep else "remove layout.redundant_experts",
        causes=(Cause("model", "a dense model"),),
        targets=TARGETS,
    )


def _partial(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.ep not in (1, _ranks(layout))


def _explain_partial(problem: ServingProblem, layout: ServingLayout) -> Finding:
    ranks = _ranks(layout)
    return Finding(
        f"vLLM would run ep {ranks} where ep {layout.ep} is asked: it derives the degree",
        label=f"ep = tp {layout.tp} x pcp {layout.pcp} x dp {layout.dp} = {ranks}, or 1",
        help=f"legal: 1 (off) or {ranks} (on)",
        fix="layout.ep: on",
        causes=(Cause("layout.tp", f"tp {layout.tp}"), Cause("layout.dp", f"dp {layout.dp}")),
        targets=TARGETS,
    )


def _no_effect(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.pins.ep == "on" and problem.model.experts is not None and _ranks(layout) == 1


def _explain_no_effect(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "expert parallelism over one rank does nothing, and vLLM does not say so",
        label="tp x pcp x dp = 1",
        help="experts spread over the ranks of tp, pcp and dp",
        fix="layout.ep: off",
        targets=TARGETS,
    )


def _dense_data(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.model.experts is None and layout.dp > 1


def _explain_dense_data(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "data parallelism inside an engine is not useful for dense models: its ranks would be "
        "independent engines",
        label=f"dp = {layout.dp}, and {problem.model.name} has no experts",
        help="vLLM: Non-MoE models do not support external data parallel mode",
        fix=f"layout.dp: 1   (replicas: {layout.dp} are as many engines)",
        causes=(Cause("model", "a dense model"),),
        targets=TARGETS,
    )


def _uneven(problem: ServingProblem, layout: ServingLayout) -> bool:
    experts, redundant = problem.model.experts, problem.pins.redundant_experts
    if experts is None:
        return False
    if layout.ep > experts.count:
        return True
    return redundant is not None and (experts.count + redundant) % layout.ep != 0


def _explain_uneven(problem: ServingProblem, layout: ServingLayout) -> Finding:
    experts = problem.model.experts
    count = experts.count if experts is not None else 0
    redundant = problem.pins.redundant_experts or 0
    total, ep = count + redundant, layout.ep
    cause = Cause("model", f"{count} experts come from here")
    if ep > count:
        return Finding(
            f"{count} experts cannot be spread over {ep} ranks: some would have none",
            label=f"ep {ep} > {count}",
            fix="layout.ep: off",
            causes=(cause,),
            targets=TARGETS,
        )
    fewest = -count % ep
    return Finding(
        f"n_physical_experts={total} must be divisible by ep_size={ep}. Adjust "
        "num_redundant_experts.",
        label=f"({count} + {redundant}) % {ep} = {total % ep}, must be 0",
        help="EPLB currently only supports even distribution of experts across ranks",
        fix=f"layout.redundant_experts: {fewest}",
        causes=(cause,),
        targets=TARGETS,
    )


def _balancer(problem: ServingProblem, layout: ServingLayout) -> bool:
    redundant = problem.pins.redundant_experts
    return redundant is not None and (layout.ep == 1 or redundant < 0)


def _explain_balancer(problem: ServingProblem, layout: ServingLayout) -> Finding:
    redundant = problem.pins.redundant_experts or 0
    if redundant < 0:
        return Finding(
            f"{redundant} redundant experts cannot be had",
            label=f"{redundant} < 0",
            fix="layout.redundant_experts: 0",
            targets=TARGETS,
        )
    return Finding(
        "enable_expert_parallel must be True to use EPLB, and its group must have two ranks",
        label=f"ep = {layout.ep}: nothing to balance experts over",
        fix=(
            "remove layout.redundant_experts"
            if problem.model.experts is None
            else "layout.ep: on, with tp or dp above 1"
        ),
        causes=(Cause("layout.ep", f"ep {layout.ep}"),),
        targets=TARGETS,
    )


def _routes_nothing(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.pins.all2all is not None and (layout.ep == 1 or layout.dp * layout.pcp == 1)


def _explain_routes_nothing(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        f"{problem.pins.all2all} would never be used: no token leaves its data-parallel rank",
        label=f"dp {layout.dp}, ep {layout.ep}",
        help="vLLM exchanges tokens where ep is on and dp is above 1",
        fix="remove layout.all2all",
        causes=(Cause("layout.dp", f"dp {layout.dp}"),),
        targets=TARGETS,
    )


EXPERT_RULES: tuple[ServingRule, ...] = (
    ServingRule("M01", ("layout.ep", "model"), _no_experts, _explain_no_experts),
    ServingRule("V11", ("layout.dp", "model"), _dense_data, _explain_dense_data),
    ServingRule("M09", ("layout.ep", "layout.tp"), _partial, _explain_partial),
    ServingRule("V21", ("layout.ep",), _no_effect, _explain_no_effect),
    ServingRule("M10", ("layout.redundant_experts",), _balancer, _explain_balancer),
    ServingRule("D08", ("layout.redundant_experts", "layout.ep"), _uneven, _explain_uneven),
    ServingRule("V23", ("layout.all2all",), _routes_nothing, _explain_routes_nothing),
)

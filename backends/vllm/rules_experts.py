"""Rules of vLLM for expert parallelism.

Sources: config/parallel.py, config/model.py, fused_moe/layer.py.
"""

from __future__ import annotations

from parc.backends.shared.serving.expert_rules import no_experts_rule, redundant_experts_rule
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule

TARGETS = ("vllm",)


def _ranks_per_stage(layout: ServingLayout) -> int:
    """Return the number of ranks of a pipeline stage, over all data-parallel ranks of an engine.

    If expert parallelism is on, ep has this size.
    """
    return layout.tp * layout.pcp * layout.dp


def _has_unsupported_ep(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.ep not in (1, _ranks_per_stage(layout))


def _explain_unsupported_ep(problem: ServingProblem, layout: ServingLayout) -> Finding:
    ranks = _ranks_per_stage(layout)
    return Finding(
        f"the spec sets ep {layout.ep}, but vLLM derives the size and would use ep {ranks}",
        label=f"ep must be 1 or tp {layout.tp} x pcp {layout.pcp} x dp {layout.dp} = {ranks}",
        help=f"valid ep: 1 (off) or {ranks} (on)",
        fix="layout.ep: on",
        causes=(Cause("layout.tp", f"tp {layout.tp}"), Cause("layout.dp", f"dp {layout.dp}")),
        targets=TARGETS,
    )


def _has_ep_on_single_rank(problem: ServingProblem, layout: ServingLayout) -> bool:
    return (
        problem.pins.ep == "on"
        and problem.model.experts is not None
        and _ranks_per_stage(layout) == 1
    )


def _explain_ep_on_single_rank(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "expert parallelism over one rank has no effect, which vLLM does not report",
        label="ep = tp x pcp x dp = 1",
        help="set tp, pcp or dp above 1 to distribute experts, or set ep to off",
        fix="layout.ep: off",
        targets=TARGETS,
    )


def _has_dense_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> bool:
    # vLLM resets each data-parallel rank of a dense model to an independent engine
    # (reconfigure_for_independent_dp_rank).
    return problem.model.experts is None and layout.dp > 1


def _explain_dense_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "data parallelism inside an engine is not useful for dense models: the ranks would be "
        "independent engines",
        label=f"dp {layout.dp}, but {problem.model.name} has no experts",
        help=f"layout.replicas: {layout.dp} starts as many engines (vLLM: Non-MoE models do not "
        "support external data parallel mode)",
        fix="layout.dp: 1",
        causes=(Cause("model", "the model has no experts"),),
        targets=TARGETS,
    )


def _distributes_experts_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    experts, redundant = problem.model.experts, problem.pins.redundant_experts
    if experts is None:
        return False
    if layout.ep > experts.count:
        return True
    # EPLB places physical experts, that is, the model's experts and their redundant copies.
    return redundant is not None and (experts.count + redundant) % layout.ep != 0


def _explain_uneven_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    experts = problem.model.experts
    count = experts.count if experts is not None else 0
    redundant = problem.pins.redundant_experts or 0
    total, ep = count + redundant, layout.ep
    cause = Cause("model", f"the model has {count} experts")
    if ep > count:
        return Finding(
            f"{count} experts cannot be distributed over {ep} ranks: some ranks would have none",
            label=f"ep {ep} > {count} experts",
            fix="layout.ep: off",
            causes=(cause,),
            targets=TARGETS,
        )
    fewest = -count % ep
    return Finding(
        f"n_physical_experts={total} must be divisible by ep_size={ep}. Adjust "
        "num_redundant_experts.",
        label=f"({count} experts + {redundant} redundant) % {ep} = {total % ep}, must be 0",
        help="EPLB currently only supports even distribution of experts across ranks",
        fix=f"layout.redundant_experts: {fewest}",
        causes=(cause,),
        targets=TARGETS,
    )


def _has_unused_all2all(problem: ServingProblem, layout: ServingLayout) -> bool:
    # vLLM exchanges tokens if dp is above 1, or if expert parallelism spans pcp (use_all2all).
    return problem.pins.all2all is not None and (layout.ep == 1 or layout.dp * layout.pcp == 1)


def _explain_unused_all2all(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        f"{problem.pins.all2all} would have no effect: no token leaves its data-parallel rank",
        label=f"dp is {layout.dp} and ep is {layout.ep}",
        help="vLLM exchanges tokens between ranks only if ep is on and dp or pcp is above 1",
        fix="remove layout.all2all",
        causes=(Cause("layout.dp", f"dp {layout.dp}"),),
        targets=TARGETS,
    )


EXPERT_RULES: tuple[ServingRule, ...] = (
    no_experts_rule(
        TARGETS,
        "Number of experts in the model must be greater than 0 when expert parallelism is enabled",
    ),
    ServingRule(
        "V11",
        ("layout.dp", "model"),
        _has_dense_data_parallelism,
        _explain_dense_data_parallelism,
        ("dp",),
    ),
    ServingRule(
        "M09",
        ("layout.ep", "layout.tp"),
        _has_unsupported_ep,
        _explain_unsupported_ep,
        RANK_FIELDS,
    ),
    ServingRule(
        "V21",
        ("layout.ep",),
        _has_ep_on_single_rank,
        _explain_ep_on_single_rank,
        ("tp", "pcp", "dp"),
    ),
    redundant_experts_rule(
        "enable_expert_parallel must be True to use EPLB, with two or more ranks per expert group",
        TARGETS,
    ),
    ServingRule(
        "D08",
        ("layout.redundant_experts", "layout.ep"),
        _distributes_experts_unevenly,
        _explain_uneven_experts,
        ("ep",),
    ),
    ServingRule(
        "V23",
        ("layout.all2all",),
        _has_unused_all2all,
        _explain_unused_all2all,
        ("ep", "dp", "pcp"),
    ),
)

"""Rules of SGLang for expert parallelism and attention data parallelism.

Sources, SGLang 0.5.23: arg_groups/moe_hook.py, parallel_hook.py, eplb/expert_location.py.
"""

from __future__ import annotations

from parc.backends.sglang.computed_settings import ALL2ALL
from parc.backends.sglang.rules import ATTENTION_DATA_PARALLEL, WHOLE_DENSE_MLPS
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule

TARGETS = ("sglang",)


def _has_no_experts(problem: ServingProblem, layout: ServingLayout) -> bool:
    pinned = problem.pins.ep not in (None, "off", 1)
    return problem.model.experts is None and (pinned or layout.ep > 1)


def _explain_no_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "expert parallelism needs a model with experts",
        label=f"{problem.model.name} has no experts",
        help="use tp and pp to split a dense model, and replicas to copy it",
        fix="layout.ep: off" if problem.pins.ep else "remove layout.redundant_experts",
        causes=(Cause("model", "the model has no experts"),),
        targets=TARGETS,
    )


def _has_unsupported_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> bool:
    model = problem.model
    if layout.dp == 1:
        return False
    if model.experts is None or model.family not in ATTENTION_DATA_PARALLEL:
        return True
    has_whole_mlps = model.dense_layers and layout.tp == 1  # --moe-dense-tp-size 1
    return bool(has_whole_mlps) and model.family not in WHOLE_DENSE_MLPS


def _explain_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> Finding:
    model = problem.model
    dense = model.experts is None
    reason = "has no experts" if dense else f"is of the family {model.family}"
    why = (
        "data parallelism inside an engine is not useful for dense models"
        if dense
        else f"SGLang splits the attention or the dense MLPs of {model.family} over all ranks of a "
        "stage, so that its ranks cannot be data parallel"
    )
    return Finding(
        why,
        label=f"dp {layout.dp}, but {model.name} {reason}",
        help=f"layout.replicas: {layout.dp} starts as many engines",
        fix="layout.dp: 1",
        causes=(Cause("model", f"{model.name} {reason}"),),
        targets=TARGETS,
    )


def _has_unsupported_ep(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.ep not in (1, layout.tp * layout.dp)


def _explain_unsupported_ep(problem: ServingProblem, layout: ServingLayout) -> Finding:
    ranks = layout.tp * layout.dp
    return Finding(
        f"ep {layout.ep} is neither 1 nor the {ranks} ranks of a pipeline stage",
        label=f"ep must be 1 or tp {layout.tp} x dp {layout.dp} = {ranks}",
        help=f"valid ep: 1 (off) or {ranks} (on); most of SGLang's kernels for experts and all "
        "all-to-all backends support only these sizes",
        fix=f"layout.ep: {ranks}",
        causes=(Cause("layout.tp", f"tp {layout.tp}"), Cause("layout.dp", f"dp {layout.dp}")),
        targets=TARGETS,
    )


def _has_ep_on_single_rank(problem: ServingProblem, layout: ServingLayout) -> bool:
    pinned = problem.pins.ep == "on" and problem.model.experts is not None
    return pinned and layout.tp * layout.dp == 1


def _explain_single_rank(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "expert parallelism over one rank has no effect",
        label="ep = tp x dp = 1",
        help="set tp or dp above 1 to distribute experts, or set ep to off",
        fix="layout.ep: off",
        targets=TARGETS,
    )


def _has_invalid_redundant_experts(problem: ServingProblem, layout: ServingLayout) -> bool:
    redundant = problem.pins.redundant_experts
    return redundant is not None and (layout.ep == 1 or redundant < 0)


def _explain_redundant_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    redundant = problem.pins.redundant_experts or 0
    if redundant < 0:
        return Finding(
            f"the number of redundant experts is negative: {redundant}",
            label=f"redundant_experts {redundant}, must be 0 or more",
            fix="layout.redundant_experts: 0",
            targets=TARGETS,
        )
    return Finding(
        "--enable-eplb needs two or more ranks per expert group",
        label=f"ep {layout.ep}: experts can be balanced only over several ranks",
        fix=(
            "remove layout.redundant_experts"
            if problem.model.experts is None
            else "layout.ep: on, with tp or dp above 1"
        ),
        causes=(Cause("layout.ep", f"ep {layout.ep}"),),
        targets=TARGETS,
    )


def _distributes_experts_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    experts = problem.model.experts
    if experts is None:
        return False
    return (experts.count + (problem.pins.redundant_experts or 0)) % layout.ep != 0


def _explain_uneven_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    experts, pinned = problem.model.experts, problem.pins.redundant_experts
    count = experts.count if experts is not None else 0
    total, ep = count + (pinned or 0), layout.ep
    return Finding(
        f"{total} experts are not divisible by ep {ep}",
        label=f"({count} experts + {pinned or 0} redundant) % {ep} = {total % ep}, must be 0",
        help="each rank stores the same number of whole experts",
        fix="layout.ep: off" if pinned is None else f"layout.redundant_experts: {-count % ep}",
        causes=(Cause("model", f"the model has {count} experts"),),
        targets=TARGETS,
    )


def _has_invalid_all2all(problem: ServingProblem, layout: ServingLayout) -> bool:
    chosen = problem.pins.all2all
    return chosen is not None and (chosen not in ALL2ALL or layout.ep == 1)


def _explain_all2all(problem: ServingProblem, layout: ServingLayout) -> Finding:
    chosen = problem.pins.all2all or ""
    if chosen not in ALL2ALL:
        return Finding(
            f"SGLang has no counterpart of the all-to-all backend {chosen}",
            label="no value of --moe-a2a-backend corresponds to it",
            help=f"valid all2all: {', '.join(ALL2ALL)}",
            fix="layout.all2all: auto",
            targets=TARGETS,
        )
    return Finding(
        f"all2all {chosen} is never used without expert parallelism",
        label=f"ep {layout.ep}: no tokens are exchanged between experts",
        help="SGLang would set --ep-size to all ranks of a stage, unlike the plan",
        fix="layout.all2all: auto",
        causes=(Cause("layout.ep", f"ep {layout.ep}"),),
        targets=TARGETS,
    )


EXPERT_RULES: tuple[ServingRule, ...] = (
    ServingRule("M01", ("layout.ep", "model"), _has_no_experts, _explain_no_experts, ("ep",)),
    ServingRule(
        "V11",
        ("layout.dp", "model"),
        _has_unsupported_data_parallelism,
        _explain_data_parallelism,
        ("dp", "tp"),
    ),
    ServingRule(
        "M09", ("layout.ep", "layout.tp"), _has_unsupported_ep, _explain_unsupported_ep, RANK_FIELDS
    ),
    ServingRule("V21", ("layout.ep",), _has_ep_on_single_rank, _explain_single_rank, ("tp", "dp")),
    ServingRule(
        "M10",
        ("layout.redundant_experts",),
        _has_invalid_redundant_experts,
        _explain_redundant_experts,
        ("ep",),
    ),
    ServingRule(
        "D08",
        ("layout.redundant_experts", "layout.ep"),
        _distributes_experts_unevenly,
        _explain_uneven_experts,
        ("ep",),
    ),
    ServingRule("V23", ("layout.all2all",), _has_invalid_all2all, _explain_all2all, ("ep",)),
)

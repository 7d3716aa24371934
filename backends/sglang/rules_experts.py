"""Rules of SGLang for expert parallelism and attention data parallelism.

Sources, SGLang 0.5.23: arg_groups/moe_hook.py, parallel_hook.py, eplb/expert_location.py.
"""

from __future__ import annotations

from parc.backends.sglang.computed_settings import ALL2ALL
from parc.backends.sglang.rules import ATTENTION_DATA_PARALLEL, WHOLE_DENSE_MLPS
from parc.backends.shared.serving.expert_rules import (
    even_experts_rule,
    explain_unsupported_data_parallelism,
    no_experts_rule,
    redundant_experts_rule,
    single_rank_rule,
    whole_stage_rule,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem, ServingRule

TARGETS = ("sglang",)


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
    message = (
        "data parallelism inside an engine is not useful for dense models"
        if model.experts is None
        else f"SGLang splits the attention or the dense MLPs of {model.family} over all ranks of a "
        "stage, so its ranks cannot be data parallel"
    )
    return explain_unsupported_data_parallelism(message, problem, layout, TARGETS)


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
    no_experts_rule(TARGETS),
    ServingRule(
        "V11",
        ("layout.dp", "model"),
        _has_unsupported_data_parallelism,
        _explain_data_parallelism,
        ("dp", "tp"),
    ),
    whole_stage_rule(
        "most of SGLang's kernels for experts and all all-to-all backends support only these sizes",
        TARGETS,
    ),
    single_rank_rule(TARGETS),
    redundant_experts_rule("--enable-eplb needs two or more ranks per expert group", TARGETS),
    even_experts_rule(TARGETS),
    ServingRule("V23", ("layout.all2all",), _has_invalid_all2all, _explain_all2all, ("ep",)),
)

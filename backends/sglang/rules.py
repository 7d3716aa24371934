"""Rules of SGLang for layouts: heads, widths, experts, pipeline stages and hosts.

Sources, SGLang 0.5.23: models/*.py (heads), layers/linear.py and moe/fused_moe_triton/layer.py
(widths), layers/quantization/fp8.py (blocks of scales), arg_groups/parallel_hook.py and
moe_hook.py (sizes), entrypoints/engine.py (hosts).
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.sglang.computed_settings import ALL2ALL
from parc.backends.shared.serving.layout_rules import (
    SplitCount,
    block_rule,
    division_rule,
    explain_empty_stages,
    heads,
    kv_heads,
    no_context_parallelism_rule,
    stage_layers_rule,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule
from parc.compiler.topology.arrange_hosts import engine_hosts

TARGETS = ("sglang",)
ATTENTION_DATA_PARALLEL = frozenset(
    (
        *("bailing_moe", "bailing_moe_v2", "deepseek_v2", "deepseek_v3", "exaone_moe", "glm4_moe"),
        *("glm4_moe_lite", "glm4v_moe_text", "gpt_oss", "kimi_k2", "llama4_text", "minimax_m2"),
        *("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"),
    )
)
"""Families with experts whose attention is split only over the ranks of a data-parallel rank
(get_parallel().attn_tp_size in models/*.py). In other families, attention is split over all ranks
of a stage, which rules out data-parallel attention."""
WHOLE_DENSE_MLPS = frozenset(
    (
        *("bailing_moe", "bailing_moe_v2", "deepseek_v2", "deepseek_v3", "glm4_moe"),
        *("glm4_moe_lite", "glm4v_moe_text", "kimi_k2"),
    )
)
"""Families whose dense MLPs can stay whole on each rank with --moe-dense-tp-size 1
(is_dense_ffn_fully_dp in models/*.py)."""
WITHOUT_STAGES = frozenset(
    (
        *("cohere", "cohere2", "dbrx", "ernie4_5", "ernie4_5_moe", "gemma", "gemma2"),
        *("gemma3_text", "gpt2", "gpt_bigcode", "granite", "granitemoe", "granitemoeshared"),
        *("grok", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "mimo", "olmo2", "olmoe"),
        *("stablelm",),
    )
)
"""Families whose class in models/*.py does not support pipeline stages: it does not read the
pipeline group, so every stage would load all layers."""


def _mlp_widths(problem: ServingProblem, layout: ServingLayout) -> Iterator[SplitCount]:
    """Yield the inner width of each kind of MLP, with the number of ranks that split it.

    With attention data parallelism, dense MLPs and shared experts are split over all ranks of a
    stage (layers/communicator.py gathers the tokens of all data-parallel ranks). Dense MLPs stay
    whole if each data-parallel rank has one GPU (--moe-dense-tp-size 1).
    """
    model, stage = problem.model, layout.tp * layout.dp
    for size in dict.fromkeys(model.ffn_sizes) if layout.tp > 1 else ():
        yield SplitCount("model.ffn", "the MLP", size, stage)
    if model.experts is not None:
        experts = model.experts
        ranks = layout.ranks_per_expert
        yield SplitCount("model.experts.size", "an expert", experts.size, ranks)
        if experts.shared_size and _all2all_backend(problem) in (None, "none"):
            size = experts.shared_size
            yield SplitCount("model.experts.shared_size", "the shared expert", size, stage)


def _all2all_backend(problem: ServingProblem) -> str | None:
    """Return the all-to-all backend; with one other than "none", shared experts are not split."""
    return ALL2ALL.get(problem.pins.all2all or "", (None, None))[0]


def _has_unsupported_stages(problem: ServingProblem, layout: ServingLayout) -> bool:
    model = problem.model
    return layout.pp > 1 and (layout.pp > model.layers or model.family in WITHOUT_STAGES)


def _explain_stages(problem: ServingProblem, layout: ServingLayout) -> Finding:
    model, pp = problem.model, layout.pp
    if model.family in WITHOUT_STAGES:
        return Finding(
            f"SGLang's class for {model.family} has no pipeline stages",
            label=f"pp {pp}: every stage would load all {model.layers} layers",
            help="valid pp: 1",
            fix="layout.pp: 1",
            causes=(Cause("model", f"family {model.family}"),),
            targets=TARGETS,
        )
    return explain_empty_stages(problem, layout, TARGETS)


def _splits_stages_over_hosts_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    return hosts is not None and layout.pp % hosts != 0 and hosts % layout.pp != 0


def _explain_hosts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    return Finding(
        f"SGLang cannot distribute {layout.pp} pipeline stages over {hosts} hosts",
        label=f"{layout.pp} % {hosts} and {hosts} % {layout.pp} are both not 0",
        help="SGLang starts either the same number of whole stages on each host, or each stage on "
        "the same number of hosts (entrypoints/engine.py); other stages would not be started",
        causes=(Cause("cluster.node", f"{problem.cluster.node.gpus} GPUs per host"),),
        targets=TARGETS,
    )


def _splits_attention_of_draft_model(problem: ServingProblem, layout: ServingLayout) -> bool:
    draft = problem.service.setup.speculative
    return draft is not None and draft.method == "draft-model" and layout.dp > 1


def _explain_draft_model(problem: ServingProblem, layout: ServingLayout) -> Finding:
    return Finding(
        "Currently standalone speculative decoding does not support dp attention",
        label=f"dp is {layout.dp}",
        help="valid dp with draft-model: 1; other methods have no such limit",
        fix="layout.dp: 1",
        causes=(Cause("job.speculative.method", "the method is draft-model"),),
        targets=TARGETS,
    )


LAYOUT_RULES: tuple[ServingRule, ...] = (
    division_rule("D01", heads, ("tp",), TARGETS),
    division_rule("D02", kv_heads, ("tp",), TARGETS),
    division_rule("D06", _mlp_widths, RANK_FIELDS, TARGETS),
    block_rule("V07", ("fp8",), _mlp_widths, TARGETS),
    block_rule("V06", ("int4", "nvfp4"), _mlp_widths, TARGETS),
    no_context_parallelism_rule(
        "SGLang",
        "--attn-cp-size and --dcp-size support only some attention backends",
        TARGETS,
    ),
    ServingRule(
        "V40",
        ("layout.dp", "job.speculative.method"),
        _splits_attention_of_draft_model,
        _explain_draft_model,
        ("dp",),
    ),
    ServingRule("V27", ("layout.pp", "model"), _has_unsupported_stages, _explain_stages, ("pp",)),
    stage_layers_rule(TARGETS),
    ServingRule(
        "V05", ("layout.pp", "cluster"), _splits_stages_over_hosts_unevenly, _explain_hosts
    ),
)

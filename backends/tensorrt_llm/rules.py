"""Rules of TensorRT-LLM for layouts: heads, widths, experts and pipeline stages.

Sources, TensorRT-LLM 1.0 to 1.2: mapping.py (sizes; moe_tp_size x moe_ep_size = tp_size),
_torch/modules/attention.py (heads),
_torch/modules/linear.py and fused_moe/ (widths, blocks of scales), llmapi/llm_args.py (stages),
docs/source/models/supported-models.md (attention data parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.serving.expert_rules import (
    divided_stage_rules,
    even_experts_rule,
    explain_unsupported_data_parallelism,
    no_experts_rule,
    single_rank_rule,
)
from parc.backends.shared.serving.layout_rules import (
    SplitCount,
    block_rule,
    division_rule,
    explain_empty_stages,
    heads,
    kv_heads,
    no_context_parallelism_rule,
)
from parc.backends.shared.versions import is_in_range
from parc.backends.tensorrt_llm.arguments import NAME
from parc.backends.tensorrt_llm.defaults import default_stages
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule

TARGETS = (NAME,)
ATTENTION_DATA_PARALLEL = frozenset(
    ("deepseek_v3", "glm4_moe", "gpt_oss", "kimi_k2", "llama4_text", "qwen3_moe")
)
"""Families for which attention data parallelism is documented (model-feature support matrix)."""
FITTED_WIDTHS = frozenset(("deepseek_v3", "kimi_k2"))
"""Families whose class splits dense MLPs and shared experts over fewer ranks if their width is not
divisible (modeling_deepseekv3.py, _compute_mlp_tp_size and _compute_shared_expert_tp_size)."""
STAGES_SINCE = "1.2.0"
"""First version with pp_partition, the layers per pipeline stage."""


def _mlp_widths(problem: ServingProblem, layout: ServingLayout) -> Iterator[SplitCount]:
    """Yield the inner width of each kind of MLP, with the number of ranks that split it.

    With attention data parallelism, dense MLPs and shared experts stay whole on each rank.
    """
    model, experts = problem.model, problem.model.experts
    is_split = layout.dp == 1 and model.family not in FITTED_WIDTHS
    for size in dict.fromkeys(model.ffn_sizes) if is_split else ():
        yield SplitCount("model.ffn", "the MLP", size, layout.tp)
    if experts is not None:
        ranks = layout.ranks_per_expert
        yield SplitCount("model.experts.size", "an expert", experts.size, ranks)
        if experts.shared_size and is_split:
            what = "the shared expert"
            yield SplitCount("model.experts.shared_size", what, experts.shared_size, layout.tp)


def _has_unsupported_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> bool:
    if layout.dp == 1:
        return False
    model = problem.model
    supported = model.experts is not None and model.family in ATTENTION_DATA_PARALLEL
    return not supported or layout.tp > 1


def _explain_data_parallelism(problem: ServingProblem, layout: ServingLayout) -> Finding:
    model, ranks = problem.model, layout.tp * layout.dp
    if model.experts is not None and model.family in ATTENTION_DATA_PARALLEL:
        return Finding(
            "enable_attention_dp makes every rank of a stage a data-parallel rank",
            label=f"dp {layout.dp} with tp {layout.tp}: tp must be 1",
            help=f"valid layouts of these {ranks} ranks: tp {ranks} with dp 1, or tp 1 with "
            f"dp {ranks}",
            fix="layout.dp: 1",
            causes=(Cause("layout.tp", f"tp {layout.tp}"),),
            targets=TARGETS,
        )
    message = (
        "TensorRT-LLM documents attention data parallelism only for models with experts of the "
        f"families {', '.join(sorted(ATTENTION_DATA_PARALLEL))}"
    )
    return explain_unsupported_data_parallelism(message, problem, layout, TARGETS)


def _pins_experts(problem: ServingProblem, layout: ServingLayout) -> bool:
    del layout
    return problem.pins.redundant_experts is not None


def _explain_redundant_experts(problem: ServingProblem, layout: ServingLayout) -> Finding:
    del layout
    return Finding(
        "PARC does not plan redundant experts for TensorRT-LLM",
        label=f"redundant_experts {problem.pins.redundant_experts}",
        help="its load balancer (moe_config.load_balancer with num_slots) needs multi-node NVLink",
        fix="remove layout.redundant_experts",
        targets=TARGETS,
    )


def _pins_all2all(problem: ServingProblem, layout: ServingLayout) -> bool:
    del layout
    return problem.pins.all2all is not None


def _explain_all2all(problem: ServingProblem, layout: ServingLayout) -> Finding:
    del layout
    return Finding(
        "TensorRT-LLM selects its all-to-all kernels itself",
        label=f"all2all {problem.pins.all2all} has no counterpart in trtllm-serve",
        fix="layout.all2all: auto",
        targets=TARGETS,
    )


def _has_empty_stages(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.pp > problem.model.layers


def _has_invalid_stage_layers(problem: ServingProblem, layout: ServingLayout) -> bool:
    pinned, layers = problem.pins.stages, problem.model.layers
    if pinned is None:
        return False
    if len(pinned) != layout.pp or sum(pinned) != layers or min(pinned) < 1:
        return True
    can_set = is_in_range(problem.version(NAME), STAGES_SINCE, None)
    return not can_set and pinned != default_stages(layers, layout.pp)


def _explain_stage_layers(problem: ServingProblem, layout: ServingLayout) -> Finding:
    pinned, layers = problem.pins.stages or (), problem.model.layers
    text = " + ".join(map(str, pinned))
    if len(pinned) != layout.pp:
        return Finding(
            f"pp_partition lists {len(pinned)} stages, but --pp_size is {layout.pp}",
            label=f"stage_layers lists {len(pinned)} stages, but pp is {layout.pp}",
            fix=f"layout.pp: {len(pinned)}",
            causes=(Cause("layout.pp", f"pp {layout.pp}"),),
            targets=TARGETS,
        )
    if sum(pinned) != layers or min(pinned) < 1:
        return Finding(
            f"pp_partition has {sum(pinned)} layers, the model has {layers}",
            label=f"{text} = {sum(pinned)}, must be {layers}, with 1 or more per stage",
            fix="layout.stage_layers: auto",
            causes=(Cause("model.layers", f"the model has {layers} layers"),),
            targets=TARGETS,
        )
    version, own = problem.version(NAME), default_stages(layers, layout.pp)
    return Finding(
        f"TensorRT-LLM {version} has no setting for the layers per stage",
        label=f"stage_layers is {text}, but {version} always uses {' + '.join(map(str, own))}",
        help=f"pp_partition exists since {STAGES_SINCE}",
        fix="layout.stage_layers: auto",
        causes=(Cause(f"versions.{NAME}", f"version {version}"),),
        targets=TARGETS,
    )


RULES: tuple[ServingRule, ...] = (
    division_rule("D01", heads, ("tp",), TARGETS),
    division_rule("D02", kv_heads, ("tp",), TARGETS),
    division_rule("D06", _mlp_widths, RANK_FIELDS, TARGETS),
    block_rule("V07", ("fp8",), _mlp_widths, TARGETS),
    block_rule("V06", ("int4", "nvfp4"), _mlp_widths, TARGETS),
    no_context_parallelism_rule(
        "TensorRT-LLM",
        "its context parallelism is a prototype",
        TARGETS,
    ),
    ServingRule(
        "V27",
        ("layout.pp", "model"),
        _has_empty_stages,
        lambda problem, layout: explain_empty_stages(problem, layout, TARGETS),
        ("pp",),
    ),
    ServingRule("P01", ("layout.stage_layers",), _has_invalid_stage_layers, _explain_stage_layers),
    no_experts_rule(TARGETS),
    ServingRule(
        "V11",
        ("layout.dp", "model"),
        _has_unsupported_data_parallelism,
        _explain_data_parallelism,
        ("dp", "tp"),
    ),
    *divided_stage_rules("TensorRT-LLM", TARGETS),
    single_rank_rule(TARGETS),
    ServingRule("M10", ("layout.redundant_experts",), _pins_experts, _explain_redundant_experts),
    even_experts_rule(TARGETS),
    ServingRule("V23", ("layout.all2all",), _pins_all2all, _explain_all2all),
)
"""All rules of TensorRT-LLM, in the order in which the search counts violations."""

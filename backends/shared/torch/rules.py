"""Rules that fsdp, torchtitan and accelerate share: divisibility, rank order, number formats."""

from __future__ import annotations

from collections.abc import Mapping

from parc.backends.shared.common_rules import (
    BATCH,
    GPU_COUNT,
    HEADS,
    NO_EXPERTS,
    always_violated_rule,
    only_value_rules,
)
from parc.backends.shared.valid_degrees import mixer_head_counts, tp_sizes_within_domain
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import describe_indivisible, format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def torch_rules(problem: Problem, framework: str) -> tuple[Rule, ...]:
    """Return the rules for layouts of ``problem`` that fsdp, torchtitan and accelerate share.

    ``framework`` is the name of one of these backends; findings mention it.
    """
    rules = [HEADS, _KV_HEADS, _WIDTHS, GPU_COUNT, BATCH, _ZERO_1]
    if problem.model.experts is None:
        rules.append(NO_EXPERTS)
    if mixer_head_counts(problem.model):
        rules.append(_RECURRENT_LAYERS)
    rules += [precision_rule(framework), *only_value_rules(framework)]
    if problem.job.deduplicates_dispatch or problem.job.moe_overlap:
        at = "job.moe_dispatcher" if problem.job.deduplicates_dispatch else "job.moe_overlap"
        rules.append(always_violated_rule("E11", (at,), _explain_dispatch(framework, at)))
    return tuple(rules)


def _explain_dispatch(framework: str, at: str) -> Finding:
    """Return the finding that ``framework`` ignores the spec field ``at``, a setting of experts."""
    return Finding(
        message=f"{framework} sends tokens to experts only by an all-to-all without overlap",
        label=f"{framework} would ignore {at}",
        help="valid: moe_dispatcher alltoall, moe_overlap false",
        fix=f"{at}: {'alltoall' if at.endswith('dispatcher') else 'false'}",
        targets=(framework,),
    )


def _violates_kv_heads(problem: Problem, layout: Layout) -> bool:
    # With latent attention all heads share one compressed state, so there are no KV heads to split.
    attention = problem.model.attention
    # Megatron and vLLM copy a key-value head to several ranks if tp is larger; torch's tensor
    # parallelism does not.
    return attention.latent is None and attention.kv_heads % layout.tp != 0


def _explain_kv_heads(problem: Problem, layout: Layout) -> Finding:
    kv, tp = problem.model.attention.kv_heads, layout.tp
    heads = problem.model.attention.heads
    good = filter_valid(tp_sizes_within_domain(problem), lambda n: kv % n == 0 and heads % n == 0)
    return Finding(
        message=describe_indivisible(kv, "key-value heads", f"tp={tp}"),
        label=f"{kv} % {tp} = {kv % tp}, must be 0, because torch does not copy heads",
        help=f"valid tp within one NVLink domain: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause("model.kv_heads", f"the model has {kv} key-value heads"),),
    )


def _tensor_parallel_widths(problem: Problem) -> tuple[tuple[str, int], ...]:
    """Return (description, size) of every tensor dimension that tensor parallelism splits.

    Heads of softmax attention are not included, because other rules check them.
    """
    model = problem.model
    widths = [("the vocabulary", model.vocab)]
    if model.ffn.size and model.dense_layers:
        widths.append(("the dense MLP", model.ffn.size))
    if model.experts is not None and model.experts.shared_size:
        widths.append(("the shared experts", model.experts.shared_size))
    return (*widths, *mixer_head_counts(model))


def _has_indivisible_widths(problem: Problem, layout: Layout) -> bool:
    return any(width % layout.tp for _, width in _tensor_parallel_widths(problem))


def _explain_indivisible_widths(problem: Problem, layout: Layout) -> Finding:
    tp = layout.tp
    what, width = next(row for row in _tensor_parallel_widths(problem) if row[1] % tp)
    good = filter_valid(
        tp_sizes_within_domain(problem),
        lambda n: all(w % n == 0 for _, w in _tensor_parallel_widths(problem)),
    )
    return Finding(
        message=describe_indivisible(width, what, f"tp={tp}"),
        label=f"{width} % {tp} = {width % tp}, must be 0",
        help=f"valid tp within one NVLink domain: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause("model", f"the width of {what} is {width}"),),
    )


def _uses_zero_1(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 1


def _explain_zero_1(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="FSDP2 cannot shard the optimizer state only (ZeRO-1)",
        label="FSDP2 shards weights, gradients and optimizer state together",
        help="valid zero_stage: 3, 2 (weights stay gathered after the forward pass), 0 (DDP)",
        fix="layout.zero_stage: 2",
    )


def _uses_cp_with_recurrent_layers(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and bool(mixer_head_counts(problem.model))


def _explain_cp_with_recurrent_layers(problem: Problem, layout: Layout) -> Finding:
    name, what = problem.model.name, mixer_head_counts(problem.model)[0][0]
    return Finding(
        message="torch's context parallelism supports only softmax attention, "
        f"but {name} has {what}",
        label=f"cp {layout.cp}: recurrent layers would process only the tokens of their own rank",
        help="use cp 1, or emit megatron, whose all-to-all exchanges tokens for heads",
        fix="layout.cp: 1",
        causes=(Cause("model", f"{name} has {what}"),),
    )


_KV_HEADS = Rule(
    "D02", ("layout.tp", "model.kv_heads"), _violates_kv_heads, _explain_kv_heads, ("tp",)
)
_WIDTHS = Rule(
    "D06",
    ("layout.tp", "model.ffn", "model.vocab"),
    _has_indivisible_widths,
    _explain_indivisible_widths,
    ("tp",),
)
_RECURRENT_LAYERS = Rule(
    "S17",
    ("layout.cp", "model"),
    _uses_cp_with_recurrent_layers,
    _explain_cp_with_recurrent_layers,
    ("cp",),
)
_ZERO_1 = Rule("E08", ("layout.zero_stage",), _uses_zero_1, _explain_zero_1, ("zero_stage",))


def precision_rule(framework: str) -> Rule:
    """Return rule E11: ``framework`` trains only in bf16.

    fp16 would need a loss scaler; fp8 and fp4 would need a quantization library.
    """

    def has_other_precision(problem: Problem, layout: Layout) -> bool:
        del layout
        return problem.job.precision != "bf16"

    def explain_precision(problem: Problem, layout: Layout) -> Finding:
        del layout
        return Finding(
            message=f"PARC emits {framework} training only in bf16, not {problem.job.precision}",
            label="fp16 needs a loss scaler, fp8 and fp4 a quantization library",
            help="valid precision: bf16",
            fix="job.precision: bf16",
            targets=(framework,),
        )

    return Rule("E11", ("job.precision",), has_other_precision, explain_precision, ())


MEGATRON_PINS = ("pipeline_layout", "count_embedding", "count_loss")
"""Pinned fields of ``layout`` that only Megatron supports."""


STAGE_PINS = ("first_stage_layers", "last_stage_layers")
"""Pinned fields of ``layout`` that only frameworks with a pipeline support."""


def unsupported_pin_rules(
    problem: Problem, framework: str, names: tuple[str, ...]
) -> tuple[Rule, ...]:
    """Return one rule (E11) per ``layout`` field in ``names`` that the spec sets.

    Each rule rejects the spec, because ``framework`` would ignore the field. A field with the value
    false is accepted, because it requests nothing.
    """
    pinned = (name for name in names if getattr(problem.pins, name) not in (None, False))
    return tuple(
        always_violated_rule("E11", (f"layout.{name}",), _explain_unsupported_pin(framework, name))
        for name in pinned
    )


def _explain_unsupported_pin(framework: str, name: str) -> Finding:
    """Return the finding that ``framework`` does not support the spec field ``layout.<name>``."""
    return Finding(
        message=f"{framework} does not support layout.{name}",
        label=f"{framework} would ignore layout.{name}",
        fix=f"remove layout.{name}",
        targets=(framework,),
    )


def fp32_gradients_rule(framework: str, why: str) -> Rule:
    """Return rule E11: ``framework`` reduces gradients only in fp32.

    ``why`` explains this limit in the finding.
    """

    def has_other_gradient_precision(problem: Problem, layout: Layout) -> bool:
        del layout
        return problem.job.gradient_precision != "fp32"

    def explain_gradient_precision(problem: Problem, layout: Layout) -> Finding:
        del layout
        return Finding(
            message=f"{framework} reduces gradients in fp32, not {problem.job.gradient_precision}",
            label=why,
            help="valid gradient_precision: fp32",
            fix="job.gradient_precision: fp32",
            targets=(framework,),
        )

    return Rule(
        "E11",
        ("job.gradient_precision",),
        has_other_gradient_precision,
        explain_gradient_precision,
        (),
    )


def replicas_need_shards_rule(
    framework: str, reason: str, axes: tuple[str, ...] = ("tp", "cp")
) -> Rule:
    """Return rule D19: if replicas have a single shard, all parallel sizes in ``axes`` must be 1.

    The rule applies only if there are several replicas. ``reason`` explains in the finding why
    ``framework`` has this limit.
    """

    def splits_unsharded_replicas(problem: Problem, layout: Layout) -> bool:
        del problem
        replicas = layout.dp if layout.zero_stage == 0 else layout.dp_replicate
        shard = 1 if layout.zero_stage == 0 else layout.dp_shard
        return any(getattr(layout, axis) > 1 for axis in axes) and replicas > 1 and shard == 1

    def explain_unsharded_replicas(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=f"{framework} cannot combine {' or '.join(axes)} with unsharded replicas",
            label=f"tp {layout.tp}, cp {layout.cp}, {layout.dp} replicas, dp_shard 1: {reason}",
            help="valid: zero_stage 2 or 3 with dp_shard above 1, or both tp 1 and cp 1",
            fix="layout.zero_stage: 3" if layout.zero_stage == 0 else "layout.dp_shard: auto",
            targets=(framework,),
        )

    reads = ("tp", "cp", "zero_stage", *WORLD_FIELDS)
    return Rule(
        "D19",
        ("layout.zero_stage", "layout.dp_shard", "layout.tp"),
        splits_unsharded_replicas,
        explain_unsharded_replicas,
        reads,
    )


def interleaving_rule(supported: Mapping[str, str]) -> Rule:
    """Return rule P06: vpp above 1 requires pp above 1.

    The keys of ``supported`` are the strategies of the framework. If 1F1B is among them, the help
    of the finding also suggests a larger pp.
    """

    def interleaves_without_pipeline(problem: Problem, layout: Layout) -> bool:
        del problem
        return layout.vpp > 1 and layout.pp == 1

    def explain_interleaving(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=f"vpp={layout.vpp} interleaves stages, but pp is 1",
            label="vpp > 1 needs pp > 1",
            help="valid vpp: 1" + ("; or set pp above 1" if "1f1b" in supported else ""),
            fix="layout.vpp: 1",
            causes=(Cause("layout.pp", "pp 1"),),
        )

    return Rule(
        "P06",
        ("layout.vpp", "layout.pp"),
        interleaves_without_pipeline,
        explain_interleaving,
        ("vpp", "pp"),
    )


def recompute_blocks_rule(framework: str) -> Rule:
    """Return rule E11: ``framework`` recomputes each layer separately, never blocks of layers."""

    def recomputes_blocks(problem: Problem, layout: Layout) -> bool:
        del problem
        again = layout.recompute
        return again.granularity == "full" and (again.method, again.layers) != ("uniform", 1)

    def explain_recompute(problem: Problem, layout: Layout) -> Finding:
        del problem
        again = layout.recompute
        return Finding(
            message=f"{framework} recomputes each layer separately, not blocks of layers",
            label=f"recompute has method {again.method} and layers {again.layers}",
            help="valid recompute: full (uniform, 1 layer), none",
            fix="layout.recompute: full",
            targets=(framework,),
        )

    return Rule("E11", ("layout.recompute",), recomputes_blocks, explain_recompute, ("recompute",))

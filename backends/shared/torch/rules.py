"""Rules that PyTorch's own frameworks share: even shards, the mesh, number formats, stages."""

from __future__ import annotations

from collections.abc import Mapping

from parc.backends.shared.plain_rules import BATCH, HEADS, NO_EXPERTS, TILING
from parc.backends.shared.torch.mesh import ORDER
from parc.backends.shared.valid_degrees import domain_degrees, mixer_heads
from parc.backends.shared.valid_values import format_pin, format_values, nearest, valid
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD, Rule


def torch_rules(problem: Problem, framework: str) -> tuple[Rule, ...]:
    """What each of them keeps; ``framework`` is named where the user reads it."""
    rules = [HEADS, _KV_HEADS, _WIDTHS, TILING, BATCH, _STAGE_ONE]
    if problem.model.experts is None:
        rules.append(NO_EXPERTS)
    if mixer_heads(problem.model):
        rules.append(_SCAN)
    rules += [precision_rule(framework), order_rule(framework)]
    if problem.job.sends_once or problem.job.moe_overlap:
        at = "job.moe_dispatcher" if problem.job.sends_once else "job.moe_overlap"
        rules.append(always("E11", (at,), _dispatch(framework, at)))
    return tuple(rules)


def _dispatch(framework: str, at: str) -> Finding:
    return Finding(
        message=f"{framework} is told to send tokens by a plain all-to-all, nothing beside it",
        label="would be ignored",
        help="legal: moe_dispatcher alltoall, moe_overlap false; megatron has them",
        fix=f"{at}: {'alltoall' if at.endswith('dispatcher') else 'false'}",
        targets=(framework,),
    )


def always(code: str, paths: tuple[str, ...], finding: Finding) -> Rule:
    """A rule that no layout keeps."""
    return Rule(code, paths, lambda problem, layout: True, lambda problem, layout: finding, ())


def _kv_broken(problem: Problem, layout: Layout) -> bool:
    attention = problem.model.attention
    return attention.latent is None and attention.kv_heads % layout.tp != 0


def _kv(problem: Problem, layout: Layout) -> Finding:
    kv, tp = problem.model.attention.kv_heads, layout.tp
    heads = problem.model.attention.heads
    good = valid(domain_degrees(problem), lambda n: kv % n == 0 and heads % n == 0)
    return Finding(
        message=f"{kv} key-value heads cannot be split over tp={tp}",
        label=f"{kv} % {tp} = {kv % tp}, must be 0: torch does not copy heads",
        help=f"legal tp within one NVLink domain: {format_values(good)}",
        fix=format_pin("layout.tp", nearest(good, tp)),
        causes=(Cause("model.kv_heads", f"{kv} key-value heads"),),
    )


def _widths(problem: Problem) -> tuple[tuple[str, int], ...]:
    """(what, width) of every tensor dim that tp cuts, heads apart."""
    model = problem.model
    widths = [("the vocabulary", model.vocab)]
    if model.ffn.size and model.dense_layers:
        widths.append(("the dense MLP", model.ffn.size))
    if model.experts is not None and model.experts.shared_size:
        widths.append(("the shared experts", model.experts.shared_size))
    return (*widths, *mixer_heads(model))


def _width_broken(problem: Problem, layout: Layout) -> bool:
    return any(width % layout.tp for _, width in _widths(problem))


def _width(problem: Problem, layout: Layout) -> Finding:
    tp = layout.tp
    what, width = next(row for row in _widths(problem) if row[1] % tp)
    good = valid(domain_degrees(problem), lambda n: all(w % n == 0 for _, w in _widths(problem)))
    return Finding(
        message=f"the width of {what}, {width}, cannot be split over tp={tp}",
        label=f"{width} % {tp} = {width % tp}, must be 0",
        help=f"legal tp within one NVLink domain: {format_values(good)}",
        fix=format_pin("layout.tp", nearest(good, tp)),
        causes=(Cause("model", f"{what} is {width} wide"),),
    )


def _stage_one_broken(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 1


def _stage_one(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torch's FSDP2 shards weights, gradients and optimizer together",
        label="ZeRO-1 cannot be expressed",
        help="legal zero_stage: 3, 2 (weights stay gathered after the forward), 0 (DDP)",
        fix="layout.zero_stage: 2",
    )


def _scan_broken(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and bool(mixer_heads(problem.model))


def _scan(problem: Problem, layout: Layout) -> Finding:
    name, what = problem.model.name, mixer_heads(problem.model)[0][0]
    return Finding(
        message=f"torch's context parallelism knows softmax attention alone, {name} has {what}",
        label=f"cp {layout.cp}: each rank would scan its own tokens",
        help="legal: cp 1; megatron exchanges tokens for heads",
        fix="layout.cp: 1",
        causes=(Cause("model", "the model comes from here"),),
    )


_KV_HEADS = Rule("D02", ("layout.tp", "model.kv_heads"), _kv_broken, _kv, ("tp",))
_WIDTHS = Rule("D06", ("layout.tp", "model.ffn", "model.vocab"), _width_broken, _width, ("tp",))
_SCAN = Rule("S17", ("layout.cp", "model"), _scan_broken, _scan, ("cp",))
_STAGE_ONE = Rule("E08", ("layout.zero_stage",), _stage_one_broken, _stage_one, ("zero_stage",))


def precision_rule(framework: str) -> Rule:
    """bf16 is the one format that needs neither a loss scaler nor another library."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del layout
        return problem.job.precision != "bf16"

    def explain(problem: Problem, layout: Layout) -> Finding:
        del layout
        return Finding(
            message=f"{framework} is told to train in bf16, not {problem.job.precision}",
            label="fp16 needs a loss scaler, fp8 and fp4 a quantisation library",
            help="legal: bf16; or a framework with the format: megatron",
            fix="job.precision: bf16",
            targets=(framework,),
        )

    return Rule("E11", ("job.precision",), broken, explain, ())


def order_rule(framework: str) -> Rule:
    """The mesh of torch has one order."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del problem
        return layout.order != ORDER

    def explain(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=f"{framework} has no rank order {layout.order}",
            label="pipeline stages are the slowest axis",
            help=f"legal: {ORDER}",
            fix=f"layout.order: {ORDER}",
            targets=(framework,),
        )

    return Rule("E11", ("layout.order",), broken, explain, ("order",))


MEGATRON_PINS = ("pipeline_layout", "count_embedding", "count_loss")
"""Pins of ``layout`` that only Megatron has words for."""


STAGE_PINS = ("first_stage_layers", "last_stage_layers")
"""Those that say something about pipelines alone."""


def foreign_pins(problem: Problem, framework: str, names: tuple[str, ...]) -> tuple[Rule, ...]:
    """E11 for every pin of ``names`` that the spec has: they would be ignored."""
    written = (name for name in names if getattr(problem.pins, name) is not None)
    return tuple(always("E11", (f"layout.{name}",), _foreign(framework, name)) for name in written)


def _foreign(framework: str, name: str) -> Finding:
    return Finding(
        message=f"{framework} has no layout.{name}",
        label="would be ignored",
        help="megatron has it",
        fix=f"remove layout.{name}",
        targets=(framework,),
    )


def gradients_rule(framework: str, why: str) -> Rule:
    """Where gradients are reduced in fp32 whatever is asked."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del layout
        return problem.job.gradient_precision != "fp32"

    def explain(problem: Problem, layout: Layout) -> Finding:
        del layout
        return Finding(
            message=f"{framework} reduces gradients in fp32, not {problem.job.gradient_precision}",
            label=why,
            help="legal: fp32",
            fix="job.gradient_precision: fp32",
            targets=(framework,),
        )

    return Rule("E11", ("job.gradient_precision",), broken, explain, ())


def replicas_rule(framework: str, says: str, axes: tuple[str, ...] = ("tp", "cp")) -> Rule:
    """D19: what splits a model does not go with replicas that shard nothing."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del problem
        replicas = layout.dp if layout.zero_stage == 0 else layout.dp_replicate
        shard = 1 if layout.zero_stage == 0 else layout.dp_shard
        return any(getattr(layout, axis) > 1 for axis in axes) and replicas > 1 and shard == 1

    def explain(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=f"{framework} has no {' or '.join(axes)} beside replicas that shard nothing",
            label=f"tp {layout.tp}, cp {layout.cp}, {layout.dp} replicas, shard 1: {says}",
            help="legal: zero_stage 2 or 3 with a dp_shard above 1, or tp 1 and cp 1",
            fix="layout.zero_stage: 3" if layout.zero_stage == 0 else "layout.dp_shard: auto",
            targets=(framework,),
        )

    reads = ("tp", "cp", "zero_stage", *WORLD)
    return Rule(
        "D19", ("layout.zero_stage", "layout.dp_shard", "layout.tp"), broken, explain, reads
    )


def stages_rule(only: Mapping[str, str]) -> Rule:
    """P06 for frameworks without pipelines, whose other pins are refused by name."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del problem
        return layout.vpp > 1 and layout.pp == 1

    def explain(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=f"vpp={layout.vpp} interleaves stages, but pp is 1",
            label="vpp > 1 needs pp > 1",
            help="legal: vpp 1" + (", or pp > 1" if "1f1b" in only else ""),
            fix="layout.vpp: 1",
            causes=(Cause("layout.pp", "pp 1"),),
        )

    return Rule("P06", ("layout.vpp", "layout.pp"), broken, explain, ("vpp", "pp"))


def layer_blocks_rule(framework: str) -> Rule:
    """Where every layer is recomputed by itself, blocks of them cannot be asked for."""

    def broken(problem: Problem, layout: Layout) -> bool:
        del problem
        again = layout.recompute
        return again.granularity == "full" and (again.method, again.layers) != ("uniform", 1)

    def explain(problem: Problem, layout: Layout) -> Finding:
        del problem
        again = layout.recompute
        return Finding(
            message=f"{framework} recomputes every layer by itself",
            label=f"method {again.method}, layers {again.layers}",
            help="legal: full (uniform, 1 layer), none",
            fix="layout.recompute: full",
            targets=(framework,),
        )

    return Rule("E11", ("layout.recompute",), broken, explain, ("recompute",))

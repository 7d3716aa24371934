"""Rules on the alignment of GEMM dims that 8-bit and 4-bit formats require (R01, R02)."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.rules.mesh import sharded_widths
from parc.backends.shared.common_rules import always_violated_rule
from parc.backends.shared.valid_values import format_setting, nearest_multiples
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.rule import Rule

READS = ("tp", "cp", "etp", "sequence_parallel", "micro_batch")
"""Layout fields on which the dims of a GEMM depend."""
ALIGNMENT = {"fp8": 16, "mxfp8": 32, "nvfp4": 16}
"""Precision -> number that must divide both dims of a GEMM (Transformer Engine). MXFP8 scales
blocks of 32 values."""


def _gemm_dims(problem: Problem, layout: Layout) -> tuple[tuple[str, int], ...]:
    """Return (description, size) of each GEMM dim on one rank: tokens first, then widths."""
    job, model = problem.job, problem.model
    cut = layout.cp * (layout.tp if layout.sequence_parallel else 1)
    # Sequence parallelism also splits the tokens over the tensor-parallel ranks.
    tokens = job.sequence_length * layout.micro_batch // cut
    heads = model.attention.heads * model.attention.head_dim
    widths = ((part.what, part.width // part.ranks) for part in sharded_widths(problem, layout))
    mixers = ((what, width // layout.tp) for what, width in _mixer_widths(model))
    return (
        ("tokens", tokens),
        ("hidden width", model.hidden),
        ("attention width", heads // layout.tp),
        *widths,
        *mixers,
    )


def _mixer_widths(model: Model) -> Iterator[tuple[str, int]]:
    """Yield (description, width) of the projections of linear attention and Mamba layers."""
    if (linear := model.linear) is not None:
        yield "input projection of linear attention", linear.input_projection_width
        yield "output projection of linear attention", linear.inner_width
    if (mamba := model.mamba) is not None:
        yield "input projection of a Mamba layer", mamba.input_projection_width
        yield "output projection of a Mamba layer", mamba.inner_width


def _violates_alignment(problem: Problem, layout: Layout) -> bool:
    step = ALIGNMENT[problem.job.precision]
    return any(size % step for _, size in _gemm_dims(problem, layout))


def _explain_alignment(problem: Problem, layout: Layout) -> Finding:
    precision, length = problem.job.precision, problem.job.sequence_length
    step = ALIGNMENT[precision]
    what, size = next((what, size) for what, size in _gemm_dims(problem, layout) if size % step)
    cut = layout.cp * (layout.tp if layout.sequence_parallel else 1)
    below, above = nearest_multiples(length, step * cut)
    lengths = f"nearest valid sequence lengths: {format_values(sorted({below, above}))}"
    tokens = what == "tokens"
    return Finding(
        message=f"{precision} requires GEMM dims that are multiples of {step}; a rank has {size} "
        f"({what})",
        label=f"{size} % {step} = {size % step}, must be 0",
        help=lengths if tokens else "use a smaller tp, or bf16",
        fix=format_setting("job.sequence_length", above) if tokens else "job.precision: bf16",
        causes=(Cause("job.precision", precision),),
    )


def precision_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that the job's number formats require.

    In 8-bit and 4-bit formats each GEMM dim must be a multiple of a number; the code is R01 for fp8
    and nvfp4, and R02 for mxfp8. Moments in bf16 require the distributed optimizer (E11).
    """
    found = []
    if problem.job.precision in ALIGNMENT:
        code = "R02" if problem.job.precision == "mxfp8" else "R01"
        paths = ("job.precision", "job.sequence_length", "layout.tp")
        found.append(Rule(code, paths, _violates_alignment, _explain_alignment, READS))
    if problem.job.moment_precision != "fp32":
        paths = ("job.moment_precision", "layout.zero_stage", "job.precision")
        found.append(Rule("E11", paths, _violates_moments, _explain_moments, ("zero_stage",)))
    if problem.job.precision == "fp8" and problem.job.fp8_recipe == "delayed":
        at = ("job.fp8_recipe", "layout.recompute")
        rule = Rule(
            "E11", at, _violates_delayed_recompute, _explain_delayed_recompute, ("recompute",)
        )
        found.append(rule)
    if problem.job.fused_loss and problem.job.precision == "fp16":
        found.append(always_violated_rule("E11", ("job.fused_loss",), _FUSED_LOSS_IN_FP16))
    return tuple(found)


NOT_WITH_DELAYED_SCALES = {"moe_act", "layernorm"}
"""Recompute modules that Megatron rejects with delayed scales (TransformerConfig)."""


def _violates_delayed_recompute(problem: Problem, layout: Layout) -> bool:
    return bool(NOT_WITH_DELAYED_SCALES & set(layout.recompute.modules))


def _explain_delayed_recompute(problem: Problem, layout: Layout) -> Finding:
    names = sorted(NOT_WITH_DELAYED_SCALES & set(layout.recompute.modules))
    return Finding(
        message=f"Megatron does not recompute {' and '.join(names)} with delayed fp8 scales",
        label="the second forward pass would record the largest values twice",
        help="valid fp8_recipe for these modules: tensorwise, blockwise",
        fix="job.fp8_recipe: tensorwise",
        causes=(Cause("layout.recompute", f"recompute covers {', '.join(names)}"),),
    )


_FUSED_LOSS_IN_FP16 = Finding(
    message="Megatron's fused loss returns its gradient in bf16, but the precision is fp16",
    label="fp16 logits need a gradient in fp16",
    help="valid: fused_loss false, or precision bf16",
    fix="job.fused_loss: false",
    causes=(Cause("job.precision", "the precision is fp16"),),
)


def _violates_moments(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 0 or problem.job.precision == "fp16"


def _explain_moments(problem: Problem, layout: Layout) -> Finding:
    fp16 = problem.job.precision == "fp16"
    needs = "precision bf16, fp8, mxfp8 or nvfp4" if fp16 else "zero_stage 1"
    return Finding(
        message=f"bf16 moments of Adam require {needs}",
        label="Megatron's precision-aware optimizer needs zero_stage 1 and does not support fp16",
        help="valid: moment_precision fp32, or zero_stage 1 without precision fp16",
        fix="job.moment_precision: fp32",
        causes=(
            Cause("job.precision", "the precision is fp16")
            if fp16
            else Cause("layout.zero_stage", "zero_stage is 0"),
        ),
    )

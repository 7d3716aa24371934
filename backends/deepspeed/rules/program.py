"""Rules on models and jobs that DeepSpeed (E08) or the emitted train.py (E10) cannot train.

The limits of train.py apply only if it is the emitted program: transformers builds the models that
train.py lacks, and ``launch.program`` can name the user's own program.
"""

from __future__ import annotations

from parc.backends.shared.torch.emitted_program import ProgramKind, program_kind
from parc.backends.shared.unsupported_features import never_supported_features
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Experts, Layout, Model, Problem
from parc.compiler.ir.rule import Rule

# Activations that templates/deepspeed/model.py.j2 implements.
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2")


def missing_model_parts(model: Model) -> list[str]:
    """Return descriptions of the model's parts that PARC's decoder for DeepSpeed lacks."""
    position = model.position
    found = {
        f"activation {model.ffn.activation}": model.ffn.activation not in ACTIVATIONS,
        f"{model.norms_per_layer} norms per layer": model.norms_per_layer != 2,
        "stack without final norm": not model.final_norm,
        f"positions scaled by {position.scaling}": position.scaling != "none",
        # train.py rotates by plain RoPE angles; YaRN would need other frequencies and an attention
        # scale.
        f"positions of kind {position.kind}": position.kind == "yarn",
    }
    names = [*never_supported_features(model), *(name for name, there in found.items() if there)]
    return names if model.experts is None else names + _unsupported_expert_parts(model.experts)


def _unsupported_expert_parts(experts: Experts) -> list[str]:
    found = {
        "gated shared experts": experts.shared_gate,
        "experts with biases": experts.bias,
        f"router with {experts.score_function} scores": experts.score_function != "softmax",
        "expert groups": experts.groups > 1,
        "router with biases": experts.router_bias != "none",
        "scaled expert outputs": experts.scaling_factor != 1.0,
    }
    return [name for name, there in found.items() if there]


def emitted_program(problem: Problem) -> ProgramKind:
    """Return which program PARC emits for DeepSpeed; "" if the job starts the user's program."""
    return program_kind(problem, missing_model_parts)


def _violates_program_experts(problem: Problem, layout: Layout) -> bool:
    split = layout.tp > 1 or layout.pp > 1
    decoder = emitted_program(problem) == "decoder"
    return decoder and problem.model.experts is not None and split


def _explain_program_experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the emitted train.py supports experts only with data parallelism",
        label=f"tp {layout.tp}, pp {layout.pp}, both must be 1",
        help="set tp and pp to 1, or launch.program to your own program",
        fix="layout.tp: 1, layout.pp: 1",
        causes=(),
        targets=("deepspeed",),
    )


def _violates_precision(problem: Problem, layout: Layout) -> bool:
    return problem.job.precision not in ("bf16", "fp16")


def _explain_precision(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed cannot train in {problem.job.precision}",
        label="DeepSpeed trains only in bf16 and fp16",
        help="valid precision: bf16, fp16",
        fix="job.precision: bf16",
        targets=("deepspeed",),
    )


def _violates_dispatcher(problem: Problem, layout: Layout) -> bool:
    return problem.job.moe_dispatcher not in ("auto", "alltoall") or problem.job.moe_overlap


def _explain_dispatcher(problem: Problem, layout: Layout) -> Finding:
    job = problem.job
    what = "overlapped dispatch" if job.moe_overlap else f"dispatcher {job.moe_dispatcher}"
    return Finding(
        message=f"deepspeed does not support {what} for experts",
        label="DeepSpeed sends tokens to experts by an all-to-all without overlap",
        help="valid settings: moe_dispatcher alltoall, moe_overlap false",
        fix="remove job.moe_dispatcher and job.moe_overlap",
        targets=("deepspeed",),
    )


PROGRAM_RULES: tuple[Rule, ...] = (
    Rule("E08", ("job.precision",), _violates_precision, _explain_precision, ()),
    Rule(
        "E08",
        ("job.moe_dispatcher", "job.moe_overlap"),
        _violates_dispatcher,
        _explain_dispatcher,
        (),
    ),
    Rule(
        "E10",
        ("layout.pp", "layout.tp", "model"),
        _violates_program_experts,
        _explain_program_experts,
        ("tp", "pp"),
    ),
)

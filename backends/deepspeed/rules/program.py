"""Family E: what the emitted train.py cannot do; a program of the user's own may."""

from __future__ import annotations

from parc.backends.shared.plain_decoder import never_built_parts
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Experts, Layout, Model, Problem
from parc.compiler.ir.rule import Rule

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2")
OWN_PROGRAM = "launch.program: train.py"


def lacking(model: Model) -> list[str]:
    """Parts of the model that train.py does not build, in words."""
    position = model.position
    found = {
        f"activation {model.ffn.activation}": model.ffn.activation not in ACTIVATIONS,
        f"{model.norms_per_layer} norms a layer": model.norms_per_layer != 2,
        "stack without final norm": not model.final_norm,
        f"positions scaled by {position.scaling}": position.scaling != "none",
        f"positions of kind {position.kind}": position.kind == "yarn",
    }
    names = [*never_built_parts(model), *(name for name, there in found.items() if there)]
    return names if model.experts is None else names + _lacking_experts(model.experts)


def _lacking_experts(experts: Experts) -> list[str]:
    found = {
        "gated shared experts": experts.shared_gate,
        "experts with biases": experts.bias,
        f"router with {experts.score_function} scores": experts.score_function != "softmax",
        "expert groups": experts.groups > 1,
        "router with biases": experts.router_bias != "none",
        "scaled expert outputs": experts.scaling_factor != 1.0,
    }
    return [name for name, there in found.items() if there]


def _model_broken(problem: Problem, layout: Layout) -> bool:
    return not problem.launch.program and bool(lacking(problem.model))


def _model(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"the emitted train.py does not build {problem.model.name}",
        label=f"it has no {', no '.join(lacking(problem.model))}",
        help="legal: a program of your own, or a model without them",
        fix=OWN_PROGRAM,
        targets=("deepspeed",),
    )


def _data_broken(problem: Problem, layout: Layout) -> bool:
    return not problem.launch.program and bool(problem.job.data)


def _data(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the emitted train.py reads no data: it makes token ids of its own",
        label="would be ignored",
        help="legal: no data, or a program of your own",
        fix=OWN_PROGRAM,
        targets=("deepspeed",),
    )


def _experts_broken(problem: Problem, layout: Layout) -> bool:
    split = layout.tp > 1 or layout.pp > 1
    return not problem.launch.program and problem.model.experts is not None and split


def _experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the emitted train.py has experts with data parallelism alone",
        label=f"tp {layout.tp}, pp {layout.pp}, must be 1",
        help="legal: tp 1 and pp 1, or a program of your own",
        fix="layout.tp: 1, layout.pp: 1",
        causes=(),
        targets=("deepspeed",),
    )


def _precision_broken(problem: Problem, layout: Layout) -> bool:
    return problem.job.precision not in ("bf16", "fp16")


def _precision(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed has no training in {problem.job.precision}",
        label="cannot be expressed",
        help="legal precision: bf16, fp16",
        fix="job.precision: bf16",
        targets=("deepspeed",),
    )


def _dispatch_broken(problem: Problem, layout: Layout) -> bool:
    return problem.job.moe_dispatcher not in ("auto", "alltoall") or problem.job.moe_overlap


def _dispatch(problem: Problem, layout: Layout) -> Finding:
    job = problem.job
    what = "overlap of dispatch" if job.moe_overlap else f"dispatcher {job.moe_dispatcher}"
    return Finding(
        message=f"deepspeed has no {what} for its experts",
        label="cannot be expressed",
        help="legal: an all-to-all, not overlapped",
        fix="remove job.moe_dispatcher and job.moe_overlap",
        targets=("deepspeed",),
    )


PROGRAM_RULES: tuple[Rule, ...] = (
    Rule("E08", ("job.precision",), _precision_broken, _precision, ()),
    Rule("E08", ("job.moe_dispatcher", "job.moe_overlap"), _dispatch_broken, _dispatch, ()),
    Rule("E10", ("model", "launch.program"), _model_broken, _model, ()),
    Rule("E10", ("job.data", "launch.program"), _data_broken, _data, ()),
    Rule("E10", ("layout.pp", "layout.tp", "model"), _experts_broken, _experts, ("tp", "pp")),
)

"""Family E: models that Megatron's command line cannot say. No layout helps, so all are dropped.

Megatron has one switch for all linear biases outside query-key-value, one norm before each
sub-layer, and SiLU, GELU, squared ReLU and quick-GeGLU as activations.
Source: megatron/training/argument_utils.py, ``core_transformer_config_from_args``.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.rules.express_hybrid import hybrid_faults, unbuilt_prediction
from parc.backends.megatron.rules.express_position import cannot_say, position_faults, router_faults
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.rule import Rule

ACTIVATIONS = {
    (True, "silu"),
    (True, "clamped_silu"),
    (False, "gelu"),
    (False, "gelu_tanh"),
    (False, "relu2"),
}
"""(gated, activation) that a flag exists for."""


def linear_bias(model: Model) -> bool:
    """Whether Megatron's one switch for linear biases is on."""
    return model.attention.output_bias


def inexpressible(model: Model, version: str) -> Iterator[tuple[str, str, Finding]]:
    """(code, spec path, finding) of everything that no flag can say."""
    yield from _biases(model)
    yield from _norms(model)
    yield from _activation(model)
    yield from position_faults(model, version)
    yield from router_faults(model)
    yield from hybrid_faults(model, version)


def another_model(model: Model) -> Finding:
    """What is emitted for ``model`` would train another one: parts of it have no flag."""
    return Finding(
        message=f"Megatron's arguments cannot say all of {model.name}",
        label=model.left_out,
        help="leave megatron out of emit and start a program of your own; or train the model "
        "without these parts, as a family of your own",
        fix="model.family: custom   (model: NAME becomes model: {base: NAME, family: custom})",
        targets=("megatron",),
    )


def _biases(model: Model) -> Iterator[tuple[str, str, Finding]]:
    parts = [("attention output", model.attention.output_bias)]
    if model.dense_layers:
        parts.append(("MLP", model.ffn.bias))
    if model.experts is not None:
        parts.append(("experts", model.experts.bias))
        parts.append(("router", model.experts.router_bias == "parameter"))
        if model.experts.shared_size:
            parts.append(("shared experts", False))
    if len({bias for _, bias in parts}) > 1 or (linear_bias(model) and not _qkv_bias(model)):
        have = ", ".join(f"{part} {'with' if bias else 'without'}" for part, bias in parts)
        yield (
            "E01",
            "model",
            cannot_say(
                f"{model.name} has biases on some linear layers only, Megatron has one switch",
                f"{have}, qkv {'with' if _qkv_bias(model) else 'without'}",
                "no biases, biases on query-key-value alone, or biases everywhere",
                model,
            ),
        )


def _qkv_bias(model: Model) -> bool:
    return model.attention.qkv_bias


def _norms(model: Model) -> Iterator[tuple[str, str, Finding]]:
    if model.norms_per_layer != 2 or not model.final_norm:
        yield (
            "E02",
            "model.norms_per_layer",
            cannot_say(
                f"{model.name} has {model.norms_per_layer} norms a layer and "
                f"{'a' if model.final_norm else 'no'} final norm",
                f"norms_per_layer {model.norms_per_layer}, must be 2",
                "one norm before attention, one before the MLP, one at the end",
                model,
            ),
        )
    if model.attention.qk_norm == "full":
        yield (
            "E02",
            "model.qk_norm",
            cannot_say(
                f"{model.name} norms queries and keys over all heads together",
                "qk_norm full",
                "qk_norm none or head",
                model,
            ),
        )


def _activation(model: Model) -> Iterator[tuple[str, str, Finding]]:
    gated, kind = model.ffn.gated, model.ffn.activation
    if (gated, kind) not in ACTIVATIONS:
        yield (
            "E03",
            "model.activation",
            cannot_say(
                f"{model.name} uses {'gated ' if gated else ''}{kind}: Megatron has no flag",
                f"gated {str(gated).lower()}, activation {kind}",
                "gated silu, gated clamped_silu, gelu, gelu_tanh with biases, relu2",
                model,
            ),
        )
    # The tanh form of GELU is reached only through the fused bias kernel.
    elif kind == "gelu_tanh" and not linear_bias(model):
        yield (
            "E03",
            "model.activation",
            cannot_say(
                f"{model.name} uses the tanh form of GELU without biases",
                "gelu_tanh without mlp_bias",
                "gelu_tanh with biases, or gelu",
                model,
            ),
        )


def express_rules(problem: Problem) -> tuple[Rule, ...]:
    """A rule that every layout breaks for each thing that cannot be said; none is the rule."""
    found = [
        *inexpressible(problem.model, problem.version("megatron")),
        *unbuilt_prediction(problem),
    ]
    return tuple(_always(code, path, finding) for code, path, finding in found)


def _always(code: str, path: str, finding: Finding) -> Rule:
    """A rule that no layout keeps."""

    def broken(problem: Problem, layout: Layout) -> bool:
        return True

    def explain(problem: Problem, layout: Layout) -> Finding:
        return finding

    return Rule(code, (path, "model"), broken, explain, ())

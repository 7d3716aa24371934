"""Rules on model features that Megatron's command line cannot express, whatever the layout.

Megatron's flags have these limits: one switch for all linear biases except those of query, key and
value; exactly one norm before each sub-layer; only SiLU, GELU, squared ReLU and quick-GeGLU as
activations. Source: megatron/training/argument_utils.py, ``core_transformer_config_from_args``.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.capabilities import core_version
from parc.backends.megatron.rules.inexpressible_mixers import (
    inexpressible_mixers,
    unsupported_mtp_layers,
)
from parc.backends.megatron.rules.inexpressible_positions import (
    explain_inexpressible,
    inexpressible_positions,
    inexpressible_routers,
)
from parc.backends.shared.common_rules import always_violated_rule
from parc.backends.shared.unsupported_features import unusual_features
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Model, Problem
from parc.compiler.ir.rule import Rule

ACTIVATIONS = {
    (True, "silu"),
    (True, "clamped_silu"),
    (False, "gelu"),
    (False, "gelu_tanh"),
    (False, "relu2"),
}
"""(gated, activation) pairs that flags can express."""


def needs_linear_bias_flag(model: Model) -> bool:
    """Return True if the model needs Megatron's flag for the biases of all linear layers."""
    return model.attention.output_bias


def inexpressible_features(model: Model, version: str) -> Iterator[tuple[str, str, Finding]]:
    """Yield (code, spec path, finding) for each feature of ``model`` that no flag can express."""
    yield from _inexpressible_biases(model)
    yield from _inexpressible_norms(model)
    yield from _inexpressible_activations(model)
    yield from inexpressible_positions(model, version)
    yield from inexpressible_routers(model)
    yield from inexpressible_mixers(model, version)


def report_left_out_parts(model: Model, sink: Sink) -> None:
    """Report the parts of ``model`` that Megatron's arguments cannot express, if any (E07)."""
    unusual = tuple(unusual_features(model))
    if unusual:
        finding = Finding(
            message=f"Megatron has no flags for some parts of {model.name}",
            label=", ".join(unusual),
            help="fsdp, deepspeed and accelerate train it with the classes of transformers, if "
            "model is a Hugging Face config.json",
            fix="emit: [fsdp, slurm]",
            targets=("megatron",),
        )
        sink.report("E07", finding, at="model")
    elif model.left_out:
        sink.report("E07", _explain_left_out_parts(model), at="model")


def _explain_left_out_parts(model: Model) -> Finding:
    """Return the finding that Megatron would train the model without some of its parts."""
    return Finding(
        message=f"Megatron's arguments cannot express some parts of {model.name}",
        label=model.left_out,
        help="deepspeed and fsdp train this model with your own program: set emit and "
        "launch.program; "
        "Megatron can train this model only without these parts (family: custom)",
        fix="model.family: custom   (model: NAME becomes model: {base: NAME, family: custom})",
        targets=("megatron",),
    )


def _inexpressible_biases(model: Model) -> Iterator[tuple[str, str, Finding]]:
    parts = [("attention output", model.attention.output_bias)]
    if model.dense_layers:
        parts.append(("MLP", model.ffn.bias))
    if model.experts is not None:
        parts.append(("experts", model.experts.bias))
        parts.append(("router", model.experts.router_bias == "parameter"))
        if model.experts.shared_size:
            parts.append(("shared experts", False))
    # Query, key and value are exempt because --add-qkv-bias can switch on their biases separately.
    if len({bias for _, bias in parts}) > 1 or (
        needs_linear_bias_flag(model) and not _has_qkv_bias(model)
    ):
        have = ", ".join(f"{part} {'with' if bias else 'without'}" for part, bias in parts)
        yield (
            "E01",
            "model",
            explain_inexpressible(
                f"only some linear layers of {model.name} have biases; Megatron has one switch",
                f"{have}, qkv {'with' if _has_qkv_bias(model) else 'without'}",
                "no biases, biases only on query, key and value, or biases everywhere",
                model,
            ),
        )


def _has_qkv_bias(model: Model) -> bool:
    return model.attention.qkv_bias


def _inexpressible_norms(model: Model) -> Iterator[tuple[str, str, Finding]]:
    if model.norms_per_layer != 2 or not model.final_norm:
        yield (
            "E02",
            "model.norms_per_layer",
            explain_inexpressible(
                f"{model.name} has {model.norms_per_layer} norms per layer and "
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
            explain_inexpressible(
                f"{model.name} normalizes queries and keys over all heads together",
                "qk_norm full",
                "qk_norm none or head",
                model,
            ),
        )


def _inexpressible_activations(model: Model) -> Iterator[tuple[str, str, Finding]]:
    gated, kind = model.ffn.gated, model.ffn.activation
    if (gated, kind) not in ACTIVATIONS:
        yield (
            "E03",
            "model.activation",
            explain_inexpressible(
                f"Megatron has no flag for the activation {'gated ' if gated else ''}{kind}",
                f"gated {str(gated).lower()}, activation {kind}",
                "gated silu, gated clamped_silu, gelu, gelu_tanh with biases, relu2",
                model,
            ),
        )
    # The tanh form of GELU is reached only through the fused bias kernel.
    elif kind == "gelu_tanh" and not needs_linear_bias_flag(model):
        yield (
            "E03",
            "model.activation",
            explain_inexpressible(
                f"{model.name} uses the tanh form of GELU without biases",
                "gelu_tanh without mlp_bias",
                "gelu_tanh with biases, or gelu",
                model,
            ),
        )


def inexpressible_feature_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return one rule for each model feature that no flag of Megatron can express.

    Every layout violates such a rule. For most models there are no such rules.
    """
    found = [
        *inexpressible_features(problem.model, core_version(problem)),
        *unsupported_mtp_layers(problem),
    ]
    return tuple(
        always_violated_rule(code, (path, "model"), finding) for code, path, finding in found
    )

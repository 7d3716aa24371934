"""Family E: models that Megatron's command line cannot say. No layout helps, so all are dropped.

Megatron has one switch for all linear biases outside query-key-value, one norm before each
sub-layer, and SiLU, GELU, squared ReLU and quick-GeGLU as activations.
Source: megatron/training/argument_utils.py, ``core_transformer_config_from_args``.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.versions import as_number
from parc.compiler.diagnostics import Cause, Finding
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


LATENT_ORIGINAL = 4096
"""original_max_position_embeddings of MLATransformerConfig, which has no flag."""
YARN_SINCE = (0, 19)


def inexpressible(model: Model, version: str) -> Iterator[tuple[str, str, Finding]]:
    """(code, spec path, finding) of everything that no flag can say."""
    yield from _biases(model)
    yield from _norms(model)
    yield from _activation(model)
    yield from _position(model, version)
    yield from _router(model)


def _finding(message: str, label: str, legal: str, model: Model) -> Finding:
    return Finding(
        message=message,
        label=label,
        help=f"Megatron can say: {legal}",
        fix="choose a model that Megatron can say, or change these fields under model:",
        causes=(Cause("model", f"from {model.source}"),),
    )


def _biases(model: Model) -> Iterator[tuple[str, str, Finding]]:
    parts = [("attention output", model.attention.output_bias)]
    if model.moe_layers < model.layers:
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
            _finding(
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
            _finding(
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
            _finding(
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
            _finding(
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
            _finding(
                f"{model.name} uses the tanh form of GELU without biases",
                "gelu_tanh without mlp_bias",
                "gelu_tanh with biases, or gelu",
                model,
            ),
        )


def _position(model: Model, version: str) -> Iterator[tuple[str, str, Finding]]:
    position = model.position
    if position.kind in ("rope", "yarn") and position.base != int(position.base):
        yield (
            "E04",
            "model.position.base",
            _finding(
                f"the rotary base {position.base} is not a whole number",
                "--rotary-base takes a whole number",
                "whole numbers",
                model,
            ),
        )
    if position.scaling == "linear" and position.scaling_factor != int(position.scaling_factor):
        yield (
            "E04",
            "model.position.scaling_factor",
            _finding(
                f"the linear rope scaling {position.scaling_factor} is not a whole number",
                "--rotary-seq-len-interpolation-factor takes a whole number",
                "whole numbers",
                model,
            ),
        )
    if (message := _yarn_fault(model, version)) is not None:
        yield (
            "E04",
            "model.position",
            _finding(
                message,
                f"original_max_positions {position.original_max_positions}, Megatron {version}",
                "YaRN in latent attention from 4096 positions; elsewhere from version 0.19 on",
                model,
            ),
        )
    plain = position.kind in ("rope", "none") or model.attention.latent is not None
    if model.mtp_layers and (not plain or _is_yarn(model)):
        yield (
            "E05",
            "model.mtp_layers",
            _finding(
                f"{model.mtp_layers} MTP layers with {position.kind} positions",
                f"position.kind {position.kind}, must be rope or none",
                "MTP with rope or without positions",
                model,
            ),
        )


def _is_yarn(model: Model) -> bool:
    """YaRN outside latent attention is a position type of its own, which MTP refuses."""
    return model.attention.latent is None and _scales_by_yarn(model)


def _scales_by_yarn(model: Model) -> bool:
    return "yarn" in (model.position.kind, model.position.scaling)


def _yarn_fault(model: Model, version: str) -> str | None:
    """What no flag says about YaRN: its first context length."""
    if not _scales_by_yarn(model):
        return None
    original = model.position.original_max_positions
    if model.attention.latent is not None:
        wrong = original != LATENT_ORIGINAL
        return f"YaRN from {original} positions in latent attention has no flag" if wrong else None
    old = as_number(version) < YARN_SINCE
    return f"YaRN without latent attention has no flags in Megatron-LM {version}" if old else None


def _router(model: Model) -> Iterator[tuple[str, str, Finding]]:
    experts = model.experts
    if experts is None or experts.router_bias != "buffer" or experts.score_function == "sigmoid":
        return
    yield (
        "E06",
        "model.experts.router_bias",
        _finding(
            f"{model.name} balances its experts by a bias, but scores them by softmax",
            f"router_bias buffer, score_function {experts.score_function}",
            "a load-balancing bias with sigmoid scores",
            model,
        ),
    )


def express_rules(problem: Problem) -> tuple[Rule, ...]:
    """A rule that every layout breaks for each thing that cannot be said; none is the rule."""
    found = inexpressible(problem.model, problem.version("megatron"))
    return tuple(_always(code, path, finding) for code, path, finding in found)


def _always(code: str, path: str, finding: Finding) -> Rule:
    """A rule that no layout keeps."""

    def broken(problem: Problem, layout: Layout) -> bool:
        return True

    def explain(problem: Problem, layout: Layout) -> Finding:
        return finding

    return Rule(code, (path, "model"), broken, explain)

"""Rules on model features that Megatron's command line cannot express, whatever the layout.

Megatron's flags have these limits: one switch for all linear biases except those of query, key and
value; exactly one norm before each sub-layer; only SiLU, GELU, squared ReLU and quick-GeGLU as
activations. Source: megatron/training/argument_utils.py, ``core_transformer_config_from_args``.

For several token mixers: Gated DeltaNet is an attention variant of GPTModel. A layer pattern builds
a HybridModel, whose layers are defined in megatron/core/models/hybrid/hybrid_layer_specs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.capabilities import core_version
from parc.backends.megatron.programs import PLAIN
from parc.backends.megatron.rules.inexpressible_positions import (
    explain_inexpressible,
    inexpressible_positions,
    inexpressible_routers,
)
from parc.backends.shared.common_rules import always_violated_rule
from parc.backends.shared.unsupported_features import unusual_features
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import CodedFinding, Finding
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
MAMBA_CONVOLUTION = 4
"""Convolution width ``d_conv`` of Megatron's MambaMixer, for which there is no flag."""
NORMED_PATTERN_SINCE = (0, 18)
"""First version that builds layer patterns with norms of queries and keys; older versions silently
leave the norms out."""
SCALED_PATTERN_SINCE = (0, 19)
"""First version whose builder of layer patterns uses --rotary-seq-len-interpolation-factor; older
versions ignore the flag."""
VARIANT_WITHOUT_MTP = (0, 19)
"""First version in which ``get_gpt_decoder_layer_specs`` rejects MTP layers together with attention
variants."""


def needs_linear_bias_flag(model: Model) -> bool:
    """Return True if the model needs Megatron's flag for the biases of all linear layers."""
    return model.attention.output_bias


def inexpressible_features(model: Model, version: str) -> Iterator[CodedFinding]:
    """Yield a finding for each feature of ``model`` that no flag can express."""
    yield from _inexpressible_biases(model)
    yield from _inexpressible_norms(model)
    yield from _inexpressible_activations(model)
    yield from inexpressible_positions(model, version)
    yield from inexpressible_routers(model)
    yield from inexpressible_mixers(model, version)


def _left_out_parts(model: Model) -> Iterator[CodedFinding]:
    """Yield the finding on parts of ``model`` that Megatron would not train, if any (E07)."""
    unusual = tuple(unusual_features(model))
    if unusual:
        from parc.backends.shared.torch.emitted_program import routes_to_train

        route, fix = routes_to_train(model)
        finding = Finding(
            message=f"Megatron has no flags for some parts of {model.name}",
            label=", ".join(unusual),
            help=route,
            fix=fix,
            targets=("megatron",),
        )
        yield CodedFinding("E07", "model", finding)
    elif model.left_out:
        yield CodedFinding("E07", "model", _explain_left_out_parts(model))


def _explain_left_out_parts(model: Model) -> Finding:
    """Return the finding that Megatron would train the model without some of its parts."""
    from parc.backends.shared.torch.emitted_program import routes_to_train

    route, fix = routes_to_train(model)
    custom = "model.family: custom   (model: NAME becomes model: {base: NAME, family: custom})"
    return Finding(
        message=f"Megatron's arguments cannot express some parts of {model.name}",
        label=model.left_out,
        help=f"{route}; Megatron can train this model only without these parts (family: custom)",
        fix=fix or custom,
        targets=("megatron",),
    )


def _inexpressible_biases(model: Model) -> Iterator[CodedFinding]:
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
        yield CodedFinding(
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


def _inexpressible_norms(model: Model) -> Iterator[CodedFinding]:
    if model.norms_per_layer != 2 or not model.final_norm:
        yield CodedFinding(
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
        yield CodedFinding(
            "E02",
            "model.qk_norm",
            explain_inexpressible(
                f"{model.name} normalizes queries and keys over all heads together",
                "qk_norm full",
                "qk_norm none or head",
                model,
            ),
        )


def _inexpressible_activations(model: Model) -> Iterator[CodedFinding]:
    gated, kind = model.ffn.gated, model.ffn.activation
    if (gated, kind) not in ACTIVATIONS:
        yield CodedFinding(
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
        yield CodedFinding(
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
    # Another target of the framework, such as a user's own program, may train these parts.
    if problem.framework in problem.emit:
        found += _left_out_parts(problem.model)
    return tuple(
        always_violated_rule(code, (path, "model"), finding) for code, path, finding in found
    )


def inexpressible_mixers(model: Model, version: str) -> Iterator[CodedFinding]:
    """Yield a finding for each token mixer of ``model`` that no flag can express.

    The token mixers are gated latent attention, linear attention, Mamba layers and layer patterns.
    """
    if model.attention.gate and model.attention.latent is not None:
        yield _inexpressible_feature(
            ("E07", "model.attention_gate"),
            f"{model.name} gates the output of latent attention",
            "attention_gate true with latent: Output gate is not supported for MLA yet",
            ("a gate on grouped-query attention", model),
        )
    if model.linear is not None:
        yield from _inexpressible_linear_attention(model)
    if model.mamba is not None and model.mamba.conv_size != MAMBA_CONVOLUTION:
        yield _inexpressible_feature(
            ("E07", "model.mamba.conv_size"),
            f"Megatron has no flag for a Mamba convolution of {model.mamba.conv_size} tokens",
            f"conv_size {model.mamba.conv_size}, must be {MAMBA_CONVOLUTION}",
            (f"Mamba layers with conv_size {MAMBA_CONVOLUTION}", model),
        )
    if model.pattern:
        yield from _inexpressible_layer_patterns(model, version)


def unsupported_mtp_layers(problem: Problem) -> Iterator[CodedFinding]:
    """Yield (code, spec path, finding) if pretrain_gpt.py cannot build the model's MTP layers.

    Only models with linear attention are affected. For these models, pretrain_gpt.py before version
    0.19 builds only MTP layers with softmax attention. From 0.19 on, pretrain_gpt.py builds no MTP
    layers. The user's own program may build MTP layers from Megatron's modules.
    """
    model, version = problem.model, core_version(problem)
    own = problem.launch.program.rpartition("/")[2] == PLAIN
    if not (own and model.linear is not None and model.mtp_layers):
        return
    if parse_version(version) >= VARIANT_WITHOUT_MTP or model.last_kind.mixer == "linear":
        yield _inexpressible_feature(
            ("E05", "model.mtp_layers"),
            f"{PLAIN} does not build MTP layers with linear attention",
            f"mtp_layers {model.mtp_layers}, must be 0 in Megatron-LM {version}",
            ("MTP layers with softmax attention; your own program may build others", model),
        )


def _inexpressible_linear_attention(model: Model) -> Iterator[CodedFinding]:
    """Yield (code, spec path, finding) for linear attention that no flag can express.

    Megatron has Gated DeltaNet, which uses the MLP's activation in a convolution that supports
    only SiLU.
    """
    linear = model.linear
    if linear is not None and linear.kind != "gated-delta-net":
        yield _inexpressible_feature(
            ("E07", "model.linear_attention.kind"),
            f"Megatron has no flag for the linear attention of {model.name}",
            f"kind {linear.kind}, must be gated-delta-net",
            ("Gated DeltaNet", model),
        )
    if model.ffn.activation != "silu":
        yield _inexpressible_feature(
            ("E03", "model.activation"),
            f"linear attention does not support {model.ffn.activation}, the activation of the MLP",
            f"activation {model.ffn.activation}, must be silu",
            ("linear attention with silu", model),
        )


def _inexpressible_layer_patterns(model: Model, version: str) -> Iterator[CodedFinding]:
    # A leading - stands for a layer with only an MLP.
    if model.pattern.startswith("-"):
        yield _inexpressible_feature(
            ("E07", "model.pattern"),
            f"the pattern of {model.name} starts with -, which argparse reads as a flag",
            f"pattern {model.pattern[:16]}",
            ("patterns that start with another character", model),
        )
    if model.attention.latent is not None:
        yield _inexpressible_feature(
            ("E07", "model.latent"),
            f"{model.name} has latent attention in a layer pattern",
            "latent with pattern: the letter * means grouped-query attention",
            ("a pattern with grouped-query attention", model),
        )
    if model.attention.qk_norm != "none" and parse_version(version) < NORMED_PATTERN_SINCE:
        yield _inexpressible_feature(
            ("E02", "model.qk_norm"),
            f"Megatron-LM {version} builds layer patterns without norms of queries and keys",
            f"qk_norm {model.attention.qk_norm} with pattern",
            ("qk_norm head in a pattern from version 0.18 on", model),
        )
    scaling = model.position.scaling
    late = scaling == "linear" and parse_version(version) < SCALED_PATTERN_SINCE
    if scaling == "llama3" or late:
        yield _inexpressible_feature(
            ("E04", "model.position.scaling"),
            f"Megatron-LM {version} ignores {scaling} scaling of positions in layer patterns",
            f"position.scaling {scaling} with pattern",
            ("patterns with rope or without positions; linear scaling from version 0.19", model),
        )


def _inexpressible_feature(
    at: tuple[str, str], message: str, label: str, supported: tuple[str, Model]
) -> CodedFinding:
    """Return the finding about a model feature that no flag of Megatron can express.

    ``at`` is (code, spec path). ``supported`` is (text that lists features with a flag, model).
    """
    return CodedFinding(*at, explain_inexpressible(message, label, *supported))

"""Layers of several mixers that Megatron's command line cannot say.

Gated DeltaNet is an attention variant of GPTModel; a pattern builds a HybridModel, whose layers
are described in megatron/core/models/hybrid/hybrid_layer_specs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.programs import PLAIN
from parc.backends.megatron.rules.express_position import cannot_say
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Model, Problem

MAMBA_CONVOLUTION = 4
"""``d_conv`` of MambaMixer, which has no flag."""
NORMED_PATTERN_SINCE = (0, 18)
"""Before, the attention layer of a pattern has no norms of queries and keys, and says nothing."""
SCALED_PATTERN_SINCE = (0, 19)
"""Before, the builder does not hand --rotary-seq-len-interpolation-factor on."""
VARIANT_WITHOUT_MTP = (0, 19)
"""From here on ``get_gpt_decoder_layer_specs`` stops where MTP meets an attention variant."""

Fault = tuple[str, str, Finding]
"""(code, spec path, finding)."""


def hybrid_faults(model: Model, version: str) -> Iterator[Fault]:
    """What no flag says about layers that differ in what mixes tokens."""
    if model.attention.gate and model.attention.latent is not None:
        yield _fault(
            ("E07", "model.attention_gate"),
            f"{model.name} gates the output of latent attention",
            "attention_gate true beside latent: Output gate is not supported for MLA yet",
            ("a gate on grouped-query attention", model),
        )
    if model.linear is not None:
        yield from _linear(model)
    if model.mamba is not None and model.mamba.conv_size != MAMBA_CONVOLUTION:
        yield _fault(
            ("E07", "model.mamba.conv_size"),
            f"a Mamba convolution of {model.mamba.conv_size} tokens has no flag",
            f"conv_size {model.mamba.conv_size}, must be {MAMBA_CONVOLUTION}",
            (f"Mamba layers with conv_size {MAMBA_CONVOLUTION}", model),
        )
    if model.pattern:
        yield from _pattern(model, version)


def unbuilt_prediction(problem: Problem) -> Iterator[Fault]:
    """What Megatron's own program does not build; another may, of the same parts.

    Where it builds prediction layers beside linear attention, they have softmax attention.
    """
    model, version = problem.model, problem.version("megatron")
    own = problem.launch.program.rpartition("/")[2] == PLAIN
    if not (own and model.linear is not None and model.mtp_layers):
        return
    if parse_version(version) >= VARIANT_WITHOUT_MTP or model.last_kind.mixer == "linear":
        yield _fault(
            ("E05", "model.mtp_layers"),
            f"{PLAIN} builds no MTP layers beside linear attention",
            f"mtp_layers {model.mtp_layers}, must be 0 in Megatron-LM {version}",
            ("MTP layers where all have attention; a program of your own may build them", model),
        )


def _linear(model: Model) -> Iterator[Fault]:
    """GatedDeltaNet takes its activation from the MLP, and its convolution knows SiLU alone."""
    if model.ffn.activation != "silu":
        yield _fault(
            ("E03", "model.activation"),
            f"linear attention takes the activation of the MLP, {model.ffn.activation}",
            f"activation {model.ffn.activation}, must be silu",
            ("linear attention with silu", model),
        )


def _pattern(model: Model, version: str) -> Iterator[Fault]:
    if model.pattern.startswith("-"):
        yield _fault(
            ("E07", "model.pattern"),
            f"the pattern of {model.name} starts with -, which a command line takes for a flag",
            f"pattern {model.pattern[:16]}",
            ("patterns that start with another letter", model),
        )
    if model.attention.latent is not None:
        yield _fault(
            ("E07", "model.latent"),
            f"{model.name} has latent attention in a pattern",
            "latent beside pattern: the letter * is grouped-query attention",
            ("a pattern with grouped-query attention", model),
        )
    if model.attention.qk_norm != "none" and parse_version(version) < NORMED_PATTERN_SINCE:
        yield _fault(
            ("E02", "model.qk_norm"),
            f"Megatron-LM {version} builds a pattern without norms of queries and keys",
            f"qk_norm {model.attention.qk_norm} beside pattern",
            ("qk_norm head in a pattern from version 0.18 on", model),
        )
    scaling = model.position.scaling
    late = scaling == "linear" and parse_version(version) < SCALED_PATTERN_SINCE
    if scaling == "llama3" or late:
        yield _fault(
            ("E04", "model.position.scaling"),
            f"Megatron-LM {version} builds a pattern without {scaling} scaling of positions",
            f"position.scaling {scaling} beside pattern",
            ("a pattern with rope or without positions; linear scaling from version 0.19", model),
        )


def _fault(at: tuple[str, str], message: str, label: str, legal: tuple[str, Model]) -> Fault:
    """``at`` is (code, spec path), ``legal`` what flags describe, and the model."""
    return (*at, cannot_say(message, label, *legal))

"""What the programs that PARC emits itself can build: one kind of decoder, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Model

SCALINGS = ("none", "linear", "llama3")
"""Rotary scalings that the emitted model knows."""


def not_plain(model: Model) -> tuple[str, ...]:
    """What of ``model`` a plain decoder does not have, in words; empty: it can be built.

    Plain: RMSNorm before attention and a SiLU-gated MLP, rotary positions, grouped queries.
    """
    return tuple(unbuilt(model)) + tuple(_layers(model)) + tuple(_rest(model))


def unbuilt(model: Model) -> Iterator[str]:
    """Parts of ``model`` that none of the emitted programs builds, in words."""
    attention = model.attention
    if attention.latent is not None:
        yield "latent attention"
    if attention.qk_norm != "none":
        yield "norms of queries and keys"
    if attention.window is not None:
        yield "sliding window"
    if attention.sinks:
        yield "attention sinks"
    yield from hybrid_parts(model)
    if model.mtp_layers:
        yield "multi-token prediction"
    if model.left_out:
        yield model.left_out


def hybrid_parts(model: Model) -> Iterator[str]:
    """What of ``model`` no stack of alike attention layers has, in words."""
    if model.attention.gate:
        yield "gate on the attention output"
    if model.linear is not None:
        yield "linear attention"
    if model.mamba is not None:
        yield "Mamba layers"
    if model.pattern:
        yield "pattern of layers of one part each"


def _layers(model: Model) -> Iterator[str]:
    if model.attention.output_bias:
        yield "bias on the attention output"
    if model.experts is not None:
        yield "experts"
    if not model.ffn.gated or model.ffn.activation != "silu":
        yield f"{'gated' if model.ffn.gated else 'ungated'} {model.ffn.activation} MLP"
    if model.ffn.bias:
        yield "biases in the MLP"
    if model.norm != "rmsnorm":
        yield model.norm
    if model.norms_per_layer != 2 or not model.final_norm:
        yield f"{model.norms_per_layer} norms a layer"


def _rest(model: Model) -> Iterator[str]:
    position = model.position
    if position.kind == "none":
        yield "attention without positions"
    elif position.kind == "rope" and position.scaling in SCALINGS and position.percent != 1:
        yield f"rotation of {position.percent:.4g} of a head"
    elif position.kind != "rope" or position.scaling not in SCALINGS:
        yield f"{position.kind} positions with {position.scaling} scaling"
    if model.tied_embeddings:
        yield "tied embeddings"


def another_program(name: str, lacks: Iterable[str], framework: str) -> Finding:
    """The emitted program would train another model than ``name``, one without ``lacks``."""
    return Finding(
        message=f"the program that is emitted for {framework} does not build {name}",
        label=f"it has no {', no '.join(lacks)}",
        help="legal: RMSNorm, SiLU-gated MLP, grouped queries, rotary positions; or name a program "
        "of your own, which imports what is emitted",
        fix="launch.program: train.py",
        targets=(framework,),
    )

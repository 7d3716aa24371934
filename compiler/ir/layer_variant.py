"""Layers whose shapes differ from the other layers of a model, and weights of unusual parts."""

from __future__ import annotations

from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.token_mixers import Attention, Mixer


@frozen
class LayerVariant:
    """Shapes of decoder layers that differ from the shapes in ``Model``."""

    layers: tuple[int, ...]
    """Indexes of the layers, counted from 0."""
    attention: Attention | None
    """Attention of these layers; None if they have another token mixer or none."""
    ffn_size: int | None
    """Hidden width of the dense MLP of these layers; None if they have no MLP."""
    mixer: Mixer
    """Token mixer of these layers."""


@frozen
class ExtraWeights:
    """Weights of a model part that no other field describes, such as a norm after the embedding."""

    name: str
    at: Literal["layers", "embedding", "output", "dense", "experts"] | Mixer
    """Layers that have the weights: all, or those with this token mixer, a dense MLP or routed
    experts. Or the module next to which the model has them once."""
    parameters: int
    """Number of parameters per layer, or in total at the embedding or the output."""
    multiplied: bool
    """True if each token is multiplied with all of these weights, as in a linear layer."""

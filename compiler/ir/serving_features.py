"""Optional features of a service that make it faster or larger: drafts and adapters."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.model import Model
from parc.compiler.ir.serialize import NOT_SERIALIZED

SpeculativeMethod = Literal["mtp", "eagle", "eagle3", "draft-model", "ngram"]


@frozen
class Speculative:
    """Speculative decoding: its draft, and the share of the draft tokens that is accepted."""

    method: SpeculativeMethod
    tokens: int
    """Number of draft tokens per request and step."""
    acceptance: float
    """Probability that a draft token is accepted if all draft tokens before it were accepted."""
    checkpoint: str | None
    """Checkpoint of the draft; None if it has no checkpoint of its own."""
    model: Model | None = field(default=None, metadata=NOT_SERIALIZED)
    """Layers that the draft computes; None for ngram, which computes none."""
    own_elements: float = 0.0
    """Weights of the draft, in elements per rank, that are not in ``model``: the matrix that
    combines hidden states with embeddings."""
    is_whole_model: bool = False
    """True if the draft has its own embedding and output projection."""

    @property
    def accepted_tokens(self) -> float:
        """Mean number of tokens per step and request: accepted draft tokens, and one of the model.

        Leviathan et al., Fast Inference from Transformers via Speculative Decoding
        (arXiv:2211.17192), equation 1.
        """
        return (1 - self.acceptance ** (self.tokens + 1)) / (1 - self.acceptance)


@frozen
class Lora:
    """LoRA adapters that an engine can apply."""

    adapters: tuple[tuple[str, str], ...]
    """(name in requests, checkpoint) of each adapter."""
    active: int
    """Maximum number of adapters that one step uses and that GPU memory stores."""
    rank: int
    """Largest rank of the adapters."""

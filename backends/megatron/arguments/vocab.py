"""Padding of the vocabulary."""

from __future__ import annotations

from parc.compiler.ir import Model

MULTIPLE = 128
"""``--make-vocab-size-divisible-by``: Megatron's default, always written out."""


def padded_vocab(model: Model, tp: int) -> int:
    """Rows of the embedding: a multiple of 128 x tp (training/vocab_utils.py)."""
    step = MULTIPLE * tp
    return -(-model.vocab // step) * step

"""Kernels of LoRA adapters: two narrow matrix products and element-wise kernels per adapter."""

from __future__ import annotations

from parc.compiler.cost.counts.adapters import adapted_widths
from parc.compiler.cost.kernels.layer_kernels import NOTHING, ForwardBackward, GemmShape
from parc.compiler.ir import LayerKind, LoraAdapters, Model, PassBytes

OUTPUT = PassBytes(10.0, 4.0)
"""Bytes per element of an adapter's output: the scaling (2 read, 2 written) and the addition to the
output of the frozen layer (4 + 2); backward the scaling (peft 0.21, tuners/lora/layer.py,
Linear.forward)."""
INPUT = PassBytes(0.0, 6.0)
"""Bytes per element of an adapter's input: the gradients of the frozen layer and of the adapter are
added."""
DROPOUT = PassBytes(5.0, 5.0)
"""Further bytes per element of the input with dropout: both tensors in 16 bit, and the mask."""


def adapter_gemm_shapes(
    model: Model, lora: LoraAdapters | None, kind: LayerKind, tokens: float
) -> list[GemmShape]:
    """Return the (m, n, k) shapes of the forward GEMMs of the adapters of one layer."""
    if lora is None:
        return []
    widths = adapted_widths(model, kind, lora)
    down = [(tokens, float(lora.rank), float(inputs)) for inputs, _ in widths]
    return down + [(tokens, float(outputs), float(lora.rank)) for _, outputs in widths]


def adapter_traffic_bytes(
    model: Model, lora: LoraAdapters | None, kind: LayerKind, tokens: float, cast: PassBytes
) -> ForwardBackward:
    """Return the bytes that the element-wise kernels of the adapters of one layer move, by pass.

    ``cast`` is ``ProgramTraffic.adapter_cast``.
    """
    if lora is None:
        return NOTHING
    found = NOTHING
    for inputs, outputs in adapted_widths(model, kind, lora):
        each = [(OUTPUT, outputs), (INPUT, inputs), (cast, inputs)]
        each += [(DROPOUT, inputs)] if lora.dropout else []
        found += ForwardBackward(
            sum(moved.forward * width for moved, width in each),
            sum(moved.backward * width for moved, width in each),
        )
    return found.scaled(tokens)

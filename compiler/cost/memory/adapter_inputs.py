"""Activation bytes that LoRA adapters save for their weight gradients.

A frozen linear layer saves nothing, because the gradient of its input needs only the weight. An
adapter saves its input and the output of A. The bytes of both were read from autograd for one layer
with peft 0.21 (tests/conformance/torch/test_activations.py).
"""

from __future__ import annotations

from parc.compiler.cost.counts.adapters import ATTENTION, projection_widths
from parc.compiler.ir import LayerKind, Model, ProgramMemory, Projection

HALF = 2.0
"""Bytes per element of an input and of the output of A."""
DROPOUT_MASK = 1.0
"""Bytes per element of an input that dropout saves in addition to the kept elements."""
_SAME_INPUT: dict[Projection, str] = {
    **{"q_proj": "attention norm", "k_proj": "attention norm", "v_proj": "attention norm"},
    **{"gate_proj": "MLP norm", "up_proj": "MLP norm"},
}
"""Projection -> name of an input that several projections read."""


def adapter_bytes(model: Model, kind: LayerKind, program: ProgramMemory) -> tuple[float, float]:
    """Return the bytes per token that the adapters of (attention, MLP) of one layer save.

    Adapters that read the same tensor save it once. With dropout, or if each adapter converts its
    input, each of them saves an input of its own.
    """
    lora = program.adapters
    if lora is None:
        return 0.0, 0.0
    widths = projection_widths(model, kind)
    shared = not (lora.dropout or program.separate_adapter_inputs)
    found, saved = [0.0, 0.0], set[str]()
    for name in lora.targets:
        if name not in widths:
            continue
        inputs = float(widths[name][0])
        source = _SAME_INPUT.get(name, name)
        if shared and (source in saved or name == "o_proj"):
            inputs = 0.0  # the attention core saves its output, which is the input of o_proj
        saved.add(source)
        each = HALF + (DROPOUT_MASK if lora.dropout else 0.0)
        found[name not in ATTENTION] += each * inputs + HALF * lora.rank
    return found[0], found[1]

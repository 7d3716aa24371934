"""Bytes of the recurrent state of a sequence in a layer of linear attention or Mamba.

The state does not grow with the sequence. The recurrence stores one matrix per head, the
convolution the inputs of its last tokens. Both are split over tp with the heads. Shapes and
formats: vLLM 0.33, layers/mamba/mamba_utils.py.
"""

from __future__ import annotations

from parc.compiler.ir import Model
from parc.compiler.ir.engine_constants import EngineConstants

ACTIVATION_BYTES = 2.0
"""Bytes per element of the convolution's inputs, which are stored like activations."""


def state_bytes(model: Model, engine: EngineConstants, tp: int) -> float:
    """Return the bytes that one sequence stores in one recurrent layer, per rank.

    The result is 0 for models without recurrent layers. If ``tp`` exceeds the number of groups of a
    Mamba layer, each rank stores one whole group.
    """
    states = engine.states
    like_activations = model.family in states.activation_width_families
    element_bytes = ACTIVATION_BYTES if like_activations else states.bytes_per_element
    linear, mamba = model.linear, model.mamba
    if linear is not None:
        state = linear.value_heads * linear.key_dim * linear.value_dim / tp
        inputs = linear.conv_channels / tp * (linear.conv_size - 1)
        return state * element_bytes + inputs * ACTIVATION_BYTES
    if mamba is not None:
        matrices = 2 * max(mamba.groups / tp, 1.0) * mamba.state_size
        inputs = (mamba.inner / tp + matrices) * (mamba.conv_size - 1)
        return mamba.inner * mamba.state_size / tp * element_bytes + inputs * ACTIVATION_BYTES
    return 0.0

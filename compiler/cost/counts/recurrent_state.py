"""What a sequence keeps in a layer of linear attention or Mamba: a state, whatever its length.

The recurrence keeps a matrix a head, the convolution the inputs of its last tokens. Both are split
over tp with the heads. Shapes and formats: vLLM 0.33, layers/mamba/mamba_utils.py.
"""

from __future__ import annotations

from parc.compiler.ir import Model
from parc.compiler.ir.serving import EngineName

TAIL_BYTES = 2.0
"""A number of the convolution's tail, as activations have it."""
STATE_BYTES = 4.0
"""A number of the recurrence's state: checkpoints of Qwen3.5 and Nemotron-H ask for fp32, SGLang
takes it for all."""
NARROW = {("vllm", "qwen3_next"): 2.0}
"""(engine, family) where the state is as wide as activations: no config of Qwen3-Next asks for
more, and vLLM's ``mamba_ssm_cache_dtype: auto`` then means the model's own."""


def state_bytes(model: Model, engine: EngineName, tp: int) -> float:
    """Bytes that one sequence keeps in one such layer on one of ``tp`` ranks; 0 without them.

    Where ``tp`` exceeds the groups of a Mamba layer, a rank has a whole group.
    """
    number = NARROW.get((engine, model.family), STATE_BYTES)
    linear, mamba = model.linear, model.mamba
    if linear is not None:
        state = linear.value_heads * linear.key_dim * linear.value_dim / tp
        tail = linear.conv_channels / tp * (linear.conv_size - 1)
        return state * number + tail * TAIL_BYTES
    if mamba is not None:
        matrices = 2 * max(mamba.groups / tp, 1.0) * mamba.state_size
        tail = (mamba.inner / tp + matrices) * (mamba.conv_size - 1)
        return mamba.inner * mamba.state_size / tp * number + tail * TAIL_BYTES
    return 0.0

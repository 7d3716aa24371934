"""Ranks without a GPU for Accelerate: a program imports this before it creates its Accelerator.

Accelerate treats several processes on a CPU as another kind of job (MULTI_CPU), which supports
neither FSDP2 nor DeepSpeed. Here they are reported as MULTI_GPU, over gloo;
ACCELERATE_TORCH_DEVICE=cpu sets the device of tensors. The rest of Accelerate is unchanged. Imports
neither PARC nor pytest.
"""

from __future__ import annotations

import os
from typing import Any

from accelerate.state import DistributedType, PartialState


def prepare_backend(self: Any, *_: Any) -> tuple[str, Any]:
    del self
    return "gloo", DistributedType.MULTI_GPU


if "ACCELERATE_USE_CPU" not in os.environ:  # Accelerate's own setting, sufficient for DDP
    PartialState._prepare_backend = prepare_backend

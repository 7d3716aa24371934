"""Ranks without a GPU, for Accelerate: imported by a program before it makes its Accelerator.

Accelerate takes several processes of a CPU for another kind of job (MULTI_CPU), which knows neither
FSDP2 nor DeepSpeed. Here they are what it calls MULTI_GPU, over gloo; ACCELERATE_TORCH_DEVICE=cpu
says where tensors are. All else is Accelerate's own. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import os
from typing import Any

from accelerate.state import DistributedType, PartialState


def prepare_backend(self: Any, *_: Any) -> tuple[str, Any]:
    del self
    return "gloo", DistributedType.MULTI_GPU


if "ACCELERATE_USE_CPU" not in os.environ:  # what Accelerate itself has for DDP
    PartialState._prepare_backend = prepare_backend

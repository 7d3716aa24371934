"""Ranks without a GPU, for Accelerate: imported by a program before it makes its Accelerator.

Accelerate takes several processes of a CPU for another kind of job (MULTI_CPU), which knows neither
FSDP2 nor DeepSpeed. Here they are what it calls MULTI_GPU, over gloo; ACCELERATE_TORCH_DEVICE=cpu
says where tensors are. All else is Accelerate's own. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import DistributedType, PartialState


def prepare_backend(self: Any, *_: Any) -> tuple[str, Any]:
    del self
    return "gloo", DistributedType.MULTI_GPU


def leave(self: Any) -> None:
    """End at once: gloo's thread and an interpreter that clears up may wait for each other."""
    del self
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


Accelerator.end_training = leave
if "ACCELERATE_USE_CPU" not in os.environ:  # what Accelerate itself has for DDP
    PartialState._prepare_backend = prepare_backend


def without_shared_memory() -> None:
    """DeepSpeed would compile an extension for collectives inside a host, which takes a minute."""
    import deepspeed  # noqa: F401

    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None


without_shared_memory()

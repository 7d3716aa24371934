"""Environment variables that a launch script must export, derived again from ``plan.json``.

No code is shared with the emitter. Sources: PyTorch (torchrun, torch.distributed, CUDA allocator).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.backends.shared.verify_environment import network_variables

DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that select GPUs; the column gpu of the rank map is compared with them."""
COMMON = {
    "PYTHONUNBUFFERED": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
}
MOST_THREADS = 8
"""Most CPU threads per rank."""


def expected_environment(plan: Mapping[str, Any], framework: Mapping[str, str]) -> dict[str, str]:
    """Return variable -> value; ``framework`` are the variables that the framework requires.

    The variables of ``launch.env`` replace others of the same name.
    """
    problem = plan["problem"]
    node = problem["cluster"]["node"]
    threads = node["cpu_cores"] // node["gpus"]
    found = {**COMMON, "OMP_NUM_THREADS": str(min(MOST_THREADS, max(1, threads)))}
    if problem["cluster"]["gpu"]["vendor"] == "nvidia":
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    # One host needs no network.
    if len(plan["placement"]["hosts"]) > 1:
        found |= network_variables(problem)
    return found | dict(framework) | dict(problem["launch"]["env"])

"""Constants of the serving model, with where they come from.

Hardware shares and engine overheads are fitted together to published serving measurements (see
`python -m benchmarks.accuracy.serving`); byte sizes are formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0 + 4 / 128**2,
    "int4": 0.5 + 2.5 / 128,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes a weight with its scales: fp8 blocks of 128 x 128 (fp32 scale), int4 groups of 128 (fp16
scale, 4-bit zero), nvfp4 blocks of 16 (fp8 scale)."""
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
CONTEXT_BYTES = 2.5e9
"""CUDA context, NCCL buffers and CUDA graphs."""
WORKSPACE_BYTES_PER_TOKEN = 2.0
"""Bytes an element of the intermediates of the largest step."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How a serving engine schedules, and what its host side costs."""

    step_seconds: float
    """Host work of one step that the GPU waits for."""
    sequence_seconds: float
    """The same for each running request: sampling, detokenising, bookkeeping."""
    max_running: int
    max_batched_tokens: int
    reserves_output: bool
    """A request is admitted only where its whole output fits (no eviction)."""
    routed_seconds: float
    """What one routed layer costs beyond its kernels: gaps between small kernels."""
    memory_share: float | None
    """Default of ServingSetup.memory_share; None: all but SGLANG_RESERVE_BYTES."""
    budget: Literal["total", "static", "free"]
    """What memory_share is a share of: all memory, activations included (vLLM); all memory,
    activations apart (SGLang); what weights and activations leave (TensorRT-LLM)."""
    later_share: float
    """Of the prompts of the others in its round, those that delay a request's later tokens; the
    rest goes by before its first."""
    wait_share: float
    """Of the same, those that stand before its own prompt."""
    poll_steps: float
    """Steps until a busy engine looks at what has arrived and hands a first token out, in a closed
    loop; an idle one looks at once."""
    front_seconds: float
    """From the network to the scheduler: HTTP, tokens of the prompt, and back."""
    admission_seconds: float
    """What each of several requests that arrive together adds to that, on average."""


ENGINES = {
    "vllm": Engine(
        step_seconds=1.45e-3,
        sequence_seconds=32e-6,
        max_running=1024,
        max_batched_tokens=8192,
        reserves_output=False,
        routed_seconds=10e-6,
        memory_share=0.9,
        budget="total",
        later_share=0.91,
        wait_share=0.047,
        poll_steps=0.38,
        front_seconds=51e-3,
        admission_seconds=0.18e-3,
    ),
    "sglang": Engine(
        step_seconds=1.3e-3,
        sequence_seconds=36e-6,
        max_running=1024,
        max_batched_tokens=8192,
        reserves_output=False,
        routed_seconds=20e-6,
        memory_share=None,
        budget="static",
        later_share=0.61,
        wait_share=0.15,
        poll_steps=12.4,
        front_seconds=109e-3,
        admission_seconds=1.2e-3,
    ),
    "trtllm": Engine(
        step_seconds=0.74e-3,
        sequence_seconds=5.7e-6,
        max_running=4096,
        max_batched_tokens=8192,
        reserves_output=True,
        routed_seconds=2.5e-6,
        memory_share=0.9,
        budget="free",
        later_share=0.83,
        wait_share=0.0065,
        poll_steps=18.3,
        front_seconds=6e-3,
        admission_seconds=1.1e-3,
    ),
}
"""Seconds, shares and poll_steps: fitted; the last four of each to 1,420 times to the first token
(`python -m benchmarks.accuracy.serving_waits`), the others to times per token. Limits and budgets:
the engines' defaults (vLLM 0.33, SGLang 0.5, TensorRT-LLM 1.0); vLLM has no routed rows in the fit,
so its routed_seconds is a guess.
"""
SGLANG_RESERVE_BYTES = 16.1e9
"""What SGLang keeps beside weights and cache by default: 0.107 of an H200 with 8,192-token chunks
(its own resolver: activations of a chunk, graphs)."""
SGLANG_RESERVE_SHARE = 0.2
"""The same on small devices, whose chunks are smaller."""

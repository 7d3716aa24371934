"""Warning about a checkpoint whose weights have another number format than the plan assumes."""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import ServingPlan

QUANTIZED = {
    "deepseek-ai/DeepSeek-R1": "fp8",
    "deepseek-ai/DeepSeek-V3": "fp8",
    "moonshotai/Kimi-K2-Instruct": "fp8",
    "MiniMaxAI/MiniMax-M2.5": "fp8",
    # MXFP4: 4-bit weights in blocks of 32.
    "openai/gpt-oss-120b": "int4",
    "openai/gpt-oss-20b": "int4",
}
"""Default checkpoints of the catalog whose weights are quantized. Source: quantization_config in
their config.json. All other default checkpoints have 16-bit weights."""
WIDE = ("bf16", "fp16")
_IN_NAME = (
    (re.compile(r"nvfp4", re.IGNORECASE), "nvfp4"),
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"int4|awq|gptq|w4a16", re.IGNORECASE), "int4"),
)
"""Text in repository names -> format of the weights in such repositories."""


def check_checkpoint_format(plan: ServingPlan, sink: Sink) -> None:
    """Report a checkpoint whose weights have another format than the plan assumes (F06).

    If the user names a checkpoint, its format is known only if its name contains the format. A
    checkpoint of unknown format is not checked.
    """
    service = plan.problem.service
    planned, found = service.setup.weights, _checkpoint_weight_format(plan)
    if found is None or (service.quantize and found in WIDE):
        return
    if planned == found or (planned in WIDE and found in WIDE):
        return
    wide = found in WIDE
    # An edit keeps the format that the user chose, if the engine can produce it.
    fix = "job.quantize: true" if wide and planned == "fp8" else ""
    fix = f"job.precision: {found}" if not wide and planned in WIDE else fix
    finding = Finding(
        f"the plan has {planned} weights, but {service.checkpoint} has "
        f"{'16-bit' if wide else found} weights",
        label="the engine serves the format of the checkpoint",
        help=f"set job.checkpoint to a checkpoint with {planned} weights, or job.precision to the "
        "format of this checkpoint",
        fix=fix,
        causes=(Cause("model", service.checkpoint),),
    )
    sink.report("F06", finding, at="job.precision")


def _checkpoint_weight_format(plan: ServingPlan) -> str | None:
    """Return the format of the weights in the checkpoint; None if it is unknown."""
    checkpoint = plan.problem.service.checkpoint
    if checkpoint in QUANTIZED:
        return QUANTIZED[checkpoint]
    named = next((form for pattern, form in _IN_NAME if pattern.search(checkpoint)), None)
    default = plan.problem.model.source.strip().endswith(f"huggingface.co/{checkpoint}")
    return named or ("bf16" if default else None)

"""Check the number formats of a training job: against the GPU (R03) and each other (R04)."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Cluster, Precision


def _nearest(precision: Precision, valid: Sequence[str]) -> str:
    """Return the closest valid format: fp8 for scaled formats, else bf16, else the last."""
    scaled = precision in ("mxfp8", "nvfp4")
    preferred = ("fp8", "bf16") if scaled else ("bf16",)
    return next((name for name in preferred if name in valid), valid[-1])


def check_precision(precision: Precision, cluster: Cluster, sink: Sink) -> None:
    """Report R03 if the matrix units of the cluster's GPUs lack ``precision``."""
    gpu, valid = cluster.gpu, cluster.generation.precisions
    if precision in valid:
        return
    finding = Finding(
        f"{gpu.name} cannot multiply in {precision}",
        label=f"the matrix units of the {gpu.generation} generation lack it",
        help=f"valid on this GPU: {', '.join(valid) or 'none'}",
        fix=f"job.precision: {_nearest(precision, valid)}" if valid else "",
        causes=(Cause("cluster.gpu", "the GPU"),),
    )
    sink.report("R03", finding, at="job.precision")


def check_gradients(precision: Precision, gradients: str, sink: Sink) -> None:
    """Report R04 if fp16 training is set to sum gradients in bf16."""
    if precision != "fp16" or gradients != "bf16":
        return
    finding = Finding(
        "fp16 training cannot sum its gradients in bf16",
        label="the loss is scaled for fp16 gradients",
        help="valid with fp16: gradient_precision fp32; gradients are still stored in 16 bit",
        fix="job.gradient_precision: fp32",
        causes=(Cause("job.precision", "fp16"),),
    )
    sink.report("R04", finding, at="job.gradient_precision")

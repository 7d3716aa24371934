"""Whether the number formats go together, and the GPU has them (R03, R04)."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu, Precision

# CUDA math API (cuda_bf16.h, cuda_fp8.h, cuda_fp4.h): lowest compute capability with the format in
# its tensor cores; Transformer Engine asks for the same before it starts
CUDA_NEEDS: dict[Precision, tuple[int, int]] = {
    "fp16": (7, 0),
    "bf16": (8, 0),
    "fp8": (8, 9),
    "mxfp8": (10, 0),
    "nvfp4": (10, 0),
}
# AMD CDNA 2, 3 and 4 ISA references, chapter "Matrix fused-multiply-add"
CDNA_HAS: dict[str, tuple[Precision, ...]] = {
    "cdna2": ("bf16", "fp16"),
    "cdna3": ("bf16", "fp16", "fp8"),
    "cdna4": ("bf16", "fp16", "fp8", "mxfp8"),
}


def precisions(gpu: Gpu) -> tuple[Precision, ...]:
    """Formats that ``gpu`` multiplies in hardware, in the order of ``CUDA_NEEDS``."""
    if gpu.vendor == "amd":
        return CDNA_HAS.get(gpu.generation, ())
    return tuple(name for name, need in CUDA_NEEDS.items() if gpu.compute_capability >= need)


def _nearest(precision: Precision, legal: Sequence[Precision]) -> Precision:
    """What is lost least: eight bits in place of scaled ones, else bf16, else what there is."""
    wanted: tuple[Precision, ...] = (
        ("fp8", "bf16") if precision in ("mxfp8", "nvfp4") else ("bf16",)
    )
    return next((name for name in wanted if name in legal), legal[-1])


def check_precision(precision: Precision, gpu: Gpu, sink: Sink) -> None:
    """Report R03 where ``gpu`` lacks ``precision``."""
    legal = precisions(gpu)
    if precision in legal:
        return
    capability = ".".join(str(part) for part in gpu.compute_capability)
    is_cuda = gpu.vendor == "nvidia"
    need = ".".join(str(part) for part in CUDA_NEEDS[precision])
    label = f"compute capability {capability} < {need}" if is_cuda else f"{gpu.generation} lacks it"
    finding = Finding(
        f"{gpu.name} cannot multiply in {precision}",
        label=label,
        help=f"legal on this GPU: {', '.join(legal) or 'none'}",
        fix=f"job.precision: {_nearest(precision, legal)}" if legal else "",
        causes=(Cause("cluster.gpu", "the GPU comes from here"),),
    )
    sink.report("R03", finding, at="job.precision")


def check_gradients(precision: Precision, gradients: str, sink: Sink) -> None:
    """Report R04 where fp16 training is asked to sum gradients in bf16."""
    if precision != "fp16" or gradients != "bf16":
        return
    finding = Finding(
        "fp16 training cannot sum its gradients in bf16",
        label="the loss is scaled for fp16 gradients",
        help="legal with fp16: gradient_precision fp32, which keeps 16-bit gradients there too",
        fix="job.gradient_precision: fp32",
        causes=(Cause("job.precision", "fp16"),),
    )
    sink.report("R04", finding, at="job.gradient_precision")

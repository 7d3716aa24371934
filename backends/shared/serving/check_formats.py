"""Checks of number formats against the GPU and against each other, before the search.

vLLM and SGLang support the same formats, because they use the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.serving_plan import Service

LEAST_CAPABILITY = {
    "bf16": (8, 0),
    "fp16": (7, 0),
    "fp8": (8, 0),
    "int4": (7, 5),
    "nvfp4": (8, 0),
    "mxfp4": (8, 0),
}
"""Lowest CUDA compute capability per weight format. bf16: vllm/platforms/interface.py. Kernels of
8-bit and 4-bit weights fall back to Marlin, which needs fp16 tensor cores with asynchronous
copies."""


@dataclass(frozen=True, slots=True)
class FormatMessages:
    """Names under which the messages about number formats present an engine."""

    title: str
    """Name of the engine."""
    cache_rule: str
    """The engine's rule for the format of the KV cache, in its own words."""


def check_formats(service: Service, gpu: Gpu, messages: FormatMessages, sink: Sink) -> None:
    """Report number formats that the engine does not support.

    The checks cover the format of the weights (R03), quantization while the model is loaded (V06),
    and the format of the KV cache (R04).
    """
    _check_weight_format(service, gpu, messages, sink)
    _check_quantization(service, messages, sink)
    _check_cache_format(service, messages, sink)


def _check_weight_format(service: Service, gpu: Gpu, messages: FormatMessages, sink: Sink) -> None:
    """Report a weight format for which the engine has no kernels on ``gpu`` (R03)."""
    weights, capability = service.setup.weights, gpu.compute_capability
    need = LEAST_CAPABILITY[weights]
    if gpu.vendor != "nvidia" or capability >= need:
        return
    valid = [name for name, least in LEAST_CAPABILITY.items() if capability >= least]
    finding = Finding(
        f"{messages.title} has no kernels for {weights} weights on {gpu.name}",
        label=f"compute capability {'.'.join(map(str, capability))} < {need[0]}.{need[1]}",
        help=f"valid weight formats on this GPU: {', '.join(valid) or 'none'}",
        fix=f"job.precision: {valid[-1]}" if valid else "",
        causes=(Cause("cluster.gpu", "the GPU is set here"),),
    )
    sink.report("R03", finding, at="job.precision")


def _check_quantization(service: Service, messages: FormatMessages, sink: Sink) -> None:
    """Report a weight format that the engine cannot produce while it loads the model (V06).

    It can quantize a 16-bit checkpoint only to fp8.
    """
    weights = service.setup.weights
    if not service.quantize or weights == "fp8":
        return
    finding = Finding(
        f"{messages.title} cannot quantize to {weights} while it loads the model",
        label="--quantization of a 16-bit checkpoint supports only fp8",
        help="other formats need a checkpoint that is already quantized: remove job.quantize",
        fix="job.precision: fp8",
        causes=(Cause("job.precision", weights),),
    )
    sink.report("V06", finding, at="job.quantize")


def _check_cache_format(service: Service, messages: FormatMessages, sink: Sink) -> None:
    """Report a KV cache format that is neither fp8 nor the format of the activations (R04)."""
    weights, cache = service.setup.weights, service.setup.kv
    activations = "fp16" if weights == "fp16" else "bf16"
    # An explicit 16-bit cache format must equal the format of the model.
    if cache in ("fp8", activations):
        return
    finding = Finding(
        f"the KV cache cannot be {cache} if activations are {activations}",
        label=f"{messages.title}: {messages.cache_rule}",
        help="valid kv_precision: auto, fp8",
        fix="job.kv_precision: auto",
        causes=(Cause("job.precision", weights),),
    )
    sink.report("R04", finding, at="job.kv_precision")

"""Checks of number formats against the GPU and against each other, before the search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from parc.backends.shared.valid_values import compare_capabilities
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Gpu
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving_plan import Service

MARLIN_CAPABILITY = {
    "bf16": (8, 0),
    "fp16": (7, 0),
    "fp8": (8, 0),
    "int4": (7, 5),
    "nvfp4": (8, 0),
    "mxfp4": (8, 0),
}
"""Lowest CUDA compute capability per weight format, for vLLM and SGLang, which use the same
kernels. bf16: vllm/platforms/interface.py. Kernels of 8-bit and 4-bit weights fall back to Marlin,
which needs fp16 tensor cores with asynchronous copies."""


@frozen
class FormatSupport:
    """Number formats that an engine supports, and its names in messages about them."""

    title: str
    """Name of the engine."""
    cache_rule: str
    """The engine's rule for the format of the KV cache, in its own words."""
    capabilities: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: MARLIN_CAPABILITY, hash=False
    )
    """Lowest CUDA compute capability per weight format."""
    quantizes: bool = True
    """True if the engine can quantize a 16-bit checkpoint to fp8 while it loads the model."""
    vendor: str = ""
    """Only vendor whose GPUs the engine supports; empty for all vendors."""
    for_other_vendors: tuple[str, ...] = ()
    """Engines for GPUs of other vendors, the one to try first at the start; set with ``vendor``."""
    refused_on_amd: str = ""
    """Pattern in the names of checkpoints whose quantization the engine refuses on AMD GPUs."""


def check_formats(service: Service, gpu: Gpu, engine: FormatSupport, sink: Sink) -> None:
    """Report number formats that the engine does not support.

    The checks cover the format of the weights (R03), quantization while the model is loaded (V06),
    and the format of the KV cache (R04).
    """
    _check_weight_format(service, gpu, engine, sink)
    _check_quantization(service, engine, sink)
    _check_cache_format(service, engine, sink)


def _check_weight_format(service: Service, gpu: Gpu, engine: FormatSupport, sink: Sink) -> None:
    """Report a weight format for which the engine has no kernels on ``gpu`` (R03)."""
    weights, capability = service.setup.weights, gpu.compute_capability
    least = engine.capabilities
    need = least[weights]
    if engine.vendor and gpu.vendor != engine.vendor:
        finding = Finding(
            f"{engine.title} does not run on {gpu.name}",
            label=f"its vendor is {gpu.vendor}, must be {engine.vendor}",
            help=f"engines for GPUs of {gpu.vendor}: {', '.join(engine.for_other_vendors)}",
            fix=f"replace the engine in emit by {engine.for_other_vendors[0]}",
            causes=(Cause("cluster.gpu", "the GPU is set here"),),
        )
        sink.report("R03", finding, at="emit")
        return
    if gpu.vendor != "nvidia":
        _check_checkpoint_on_amd(service, gpu, engine, sink)
        return
    if capability >= need:
        return
    valid = [name for name, lowest in least.items() if capability >= lowest]
    finding = Finding(
        f"{engine.title} has no kernels for {weights} weights on {gpu.name}",
        label=compare_capabilities(capability, need),
        help=f"valid weight formats on this GPU: {', '.join(valid) or 'none'}",
        fix=f"job.precision: {valid[-1]}" if valid else "",
        causes=(Cause("cluster.gpu", "the GPU is set here"),),
    )
    sink.report("R03", finding, at="job.precision")


def _check_checkpoint_on_amd(service: Service, gpu: Gpu, engine: FormatSupport, sink: Sink) -> None:
    """Report a checkpoint whose quantization the engine does not support on AMD GPUs (R03)."""
    if not engine.refused_on_amd or not re.search(engine.refused_on_amd, service.checkpoint):
        return
    finding = Finding(
        f"{engine.title} cannot load {service.checkpoint} on {gpu.name}",
        label="on AMD GPUs, it supports no weights that ModelOpt or GPTQ quantized",
        help="set job.checkpoint to a checkpoint that was quantized with Quark, compressed-tensors "
        "or AWQ, or let the engine quantize a 16-bit checkpoint to fp8 (job.quantize)",
        fix="job.quantize: true" if service.setup.weights == "fp8" else "",
        causes=(Cause("cluster.gpu", "the GPU is set here"),),
    )
    sink.report("R03", finding, at="job.precision")


def _check_quantization(service: Service, engine: FormatSupport, sink: Sink) -> None:
    """Report a weight format that the engine cannot produce while it loads the model (V06).

    It can quantize a 16-bit checkpoint only to fp8, or not at all.
    """
    weights = service.setup.weights
    if not service.quantize or (weights == "fp8" and engine.quantizes):
        return
    if not engine.quantizes:
        finding = Finding(
            f"{engine.title} does not quantize a checkpoint while it loads the model",
            label="it loads weights in the format of the checkpoint",
            help="set job.checkpoint to a repository that is already quantized",
            fix="remove job.quantize",
        )
        sink.report("V06", finding, at="job.quantize")
        return
    finding = Finding(
        f"{engine.title} cannot quantize to {weights} while it loads the model",
        label="--quantization of a 16-bit checkpoint supports only fp8",
        help="other formats need a checkpoint that is already quantized: remove job.quantize",
        fix="job.precision: fp8",
        causes=(Cause("job.precision", weights),),
    )
    sink.report("V06", finding, at="job.quantize")


def _check_cache_format(service: Service, engine: FormatSupport, sink: Sink) -> None:
    """Report a KV cache format that is neither fp8 nor the format of the activations (R04)."""
    weights, cache = service.setup.weights, service.setup.kv
    activations = "fp16" if weights == "fp16" else "bf16"
    # An explicit 16-bit cache format must equal the format of the model.
    if cache in ("fp8", activations):
        return
    finding = Finding(
        f"the KV cache cannot be {cache} if activations are {activations}",
        label=f"{engine.title}: {engine.cache_rule}",
        help="valid kv_precision: auto, fp8",
        fix="job.kv_precision: auto",
        causes=(Cause("job.precision", weights),),
    )
    sink.report("R04", finding, at="job.kv_precision")

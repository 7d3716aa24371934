"""Cost of a layout: memory per stage, time per term, traffic per axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DYNAMIC_BAND = 0.1
"""Relative half width of the uncertainty band around all bytes except parameters and their state.

On 120 published readings (benchmarks/accuracy) about eight in ten are inside this band.
"""
STEP_BAND = 0.1
"""Relative half width of the uncertainty band around the step time. It is the mean error on
published runs of held-out models (docs/accuracy.md: 9.5 % dense, 10.4 % mixture of experts)."""
STAGE_TOTALS = ("static_bytes", "total_bytes", "low_bytes", "high_bytes")
"""Sums of StageMemory that reports write in addition to its terms."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Peak bytes per rank of pipeline stage ``stage``; the fields are the terms of ``explain``."""

    stage: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    communication_bytes: float
    framework_bytes: float
    fragmentation_bytes: float
    casts_bytes: float
    """Quantized copies of weights."""
    gathered_bytes: float
    """Weights that ZeRO-3 or FSDP have gathered at the peak."""
    workspace_bytes: float
    """Library workspaces, communication buckets and pipeline buffers in the caching allocator."""

    @property
    def static_bytes(self) -> float:
        """Weights, gradients and optimizer state."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def dynamic_bytes(self) -> float:
        """Bytes that vary within a step, or that do not follow from the parameter count."""
        return self.total_bytes - self.static_bytes

    @property
    def allocated_bytes(self) -> float:
        """Peak of torch.cuda.max_memory_allocated: all tensors."""
        return (
            self.static_bytes
            + self.casts_bytes
            + self.gathered_bytes
            + self.activations_bytes
            + self.logits_bytes
            + self.workspace_bytes
        )

    @property
    def reserved_bytes(self) -> float:
        """Peak of torch.cuda.max_memory_reserved: tensors and fragmentation."""
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def device_bytes(self) -> float:
        """Memory that nvidia-smi shows: allocator, communicators and the driver's context."""
        return self.reserved_bytes + self.communication_bytes + self.framework_bytes

    @property
    def total_bytes(self) -> float:
        """Sum of all terms, which must fit into device memory."""
        return self.device_bytes

    @property
    def low_bytes(self) -> float:
        """Low end of the band: static bytes are exact, dynamic bytes are 10 % smaller."""
        return self.total_bytes - DYNAMIC_BAND * self.dynamic_bytes

    @property
    def high_bytes(self) -> float:
        """High end of the band: static bytes are exact, dynamic bytes are 10 % larger."""
        return self.total_bytes + DYNAMIC_BAND * self.dynamic_bytes


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step on the critical path; overlapped time is not included."""

    compute_seconds: float
    recompute_seconds: float
    tp_seconds: float
    cp_seconds: float
    ep_seconds: float
    pp_seconds: float
    bubble_seconds: float
    dp_seconds: float
    optimizer_seconds: float

    @property
    def total_seconds(self) -> float:
        """Step time: the sum of all terms."""
        return (
            self.compute_seconds
            + self.recompute_seconds
            + self.tp_seconds
            + self.cp_seconds
            + self.ep_seconds
            + self.pp_seconds
            + self.bubble_seconds
            + self.dp_seconds
            + self.optimizer_seconds
        )


@dataclass(frozen=True, slots=True)
class AxisTraffic:
    """Bytes that one rank sends per step along one axis."""

    axis: str
    bytes_per_rank: float
    level: str
    """Widest level that a group of the axis spans: device, nvlink, host, rack, fabric."""
    gb_per_s: float
    """GB/s per GPU, one direction, that the estimate used."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory, time and traffic of one layout."""

    memory: tuple[StageMemory, ...]
    limit_bytes: float
    """Device memory minus the headroom of ``goals.memory_headroom``."""
    time: StepTime
    traffic: tuple[AxisTraffic, ...]
    model_flops_per_step: float
    """3 x forward FLOPs, with causal attention counted as half and without recomputation."""
    mfu: float
    tokens_per_second: float

    @property
    def peak(self) -> StageMemory:
        """Stage with the highest peak; the first one if several are equal."""
        return max(self.memory, key=lambda stage: (stage.total_bytes, -stage.stage))

    @property
    def fits(self) -> bool:
        """True if the stage with the highest peak is within the limit."""
        return self.peak.total_bytes <= self.limit_bytes

    @property
    def verdict(self) -> Literal["fits", "close", "exceeds"]:
        """Position of the limit relative to the highest stage's band: above, inside or below."""
        peak, limit = self.peak, self.limit_bytes
        if peak.high_bytes <= limit:
            return "fits"
        return "close" if peak.low_bytes <= limit else "exceeds"

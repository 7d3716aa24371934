"""What a layout costs: memory by stage, time by term, traffic by axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DYNAMIC_BAND = 0.1
"""Relative half width of the band around all bytes that are not parameters or their state.

On 120 published readings (benchmarks/accuracy) about eight of ten lie within it.
"""
STEP_BAND = 0.1
"""Relative half width of the band around the step time: the mean error on published runs of models
that the fit never saw (docs/accuracy.md: 9.5 % dense, 10.4 % mixtures of experts)."""
STAGE_TOTALS = ("static_bytes", "total_bytes", "low_bytes", "high_bytes")
"""Sums of StageMemory that reports write beside its terms."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Peak bytes on one rank of pipeline rank ``stage``; its fields are terms of ``explain``."""

    stage: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    communication_bytes: float
    framework_bytes: float
    fragmentation_bytes: float
    casts_bytes: float = 0.0
    """Quantised copies of weights."""
    gathered_bytes: float = 0.0
    """Weights that ZeRO-3 or FSDP hold in gathered form."""
    workspace_bytes: float = 0.0
    """Workspaces, buckets and stage hand-overs inside the caching allocator."""

    @property
    def static_bytes(self) -> float:
        """Weights, gradients and optimizer state."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def dynamic_bytes(self) -> float:
        """What comes and goes with the step, or is not known from the parameters alone."""
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
        """Peak of torch.cuda.max_memory_reserved: tensors and what the allocator loses."""
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def device_bytes(self) -> float:
        """What nvidia-smi shows: the allocator, communicators and the driver's context."""
        return self.reserved_bytes + self.communication_bytes + self.framework_bytes

    @property
    def total_bytes(self) -> float:
        """All terms: what must fit into the device."""
        return self.device_bytes

    @property
    def low_bytes(self) -> float:
        """Low end of the band: parameters are exact, the rest is 10 % smaller."""
        return self.total_bytes - DYNAMIC_BAND * self.dynamic_bytes

    @property
    def high_bytes(self) -> float:
        """High end of the band."""
        return self.total_bytes + DYNAMIC_BAND * self.dynamic_bytes


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step, as exposed on the critical path; the terms add up."""

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
        """All terms."""
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
    """Bytes that one rank sends in one step along one axis."""

    axis: str
    bytes_per_rank: float
    level: str
    """Widest level that a group of the axis spans: device, nvlink, host, rack, fabric."""
    gb_per_s: float
    """Bandwidth that the estimate used, one direction, per GPU."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory, time and traffic of one layout."""

    memory: tuple[StageMemory, ...]
    limit_bytes: float
    """Device memory less the headroom that the goals ask for."""
    time: StepTime
    traffic: tuple[AxisTraffic, ...]
    model_flops_per_step: float
    """3 x forward, causal attention counted half, no recompute (facts: MFU convention)."""
    mfu: float
    tokens_per_second: float

    @property
    def peak(self) -> StageMemory:
        """The fullest stage; the first of equals."""
        return max(self.memory, key=lambda stage: (stage.total_bytes, -stage.stage))

    @property
    def fits(self) -> bool:
        """Whether the fullest stage stays under the limit."""
        return self.peak.total_bytes <= self.limit_bytes

    @property
    def verdict(self) -> Literal["fits", "close", "exceeds"]:
        """Where the limit lies: above the band of the fullest stage, inside it, or below it."""
        peak, limit = self.peak, self.limit_bytes
        if peak.high_bytes <= limit:
            return "fits"
        return "close" if peak.low_bytes <= limit else "exceeds"

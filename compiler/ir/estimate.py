"""Estimated cost of a layout, and of the whole training run.

A layout has memory per pipeline stage, time per step and traffic per axis. A run has a length,
failures, energy and a price.
"""

from __future__ import annotations

from typing import Literal

from parc.compiler.ir.frozen import frozen

DYNAMIC_SPREAD = 0.14
"""Relative half width of the 80 % interval of all bytes except weights, gradients, optimizer state
and fragmentation.

With the other two spreads, it puts at least four in five published readings inside the interval,
each source counted once (benchmarks/accuracy/memory/section.py). It was fitted before the last
repairs of formulas, after which 0.12 would do, but readings of new documents have larger errors.
"""
STATIC_SPREAD = 0.01
"""Relative half width of the interval of weights, gradients and optimizer state: the 80th
percentile of the errors of published readings between two steps, each source counted once."""
FRAGMENTATION_SPREAD = 2.0
"""Fragmentation at the high end of the interval, relative to the expected fragmentation; at the low
end it is 0."""
STAGE_TOTALS = ("static_bytes", "total_bytes", "low_bytes", "high_bytes")
"""Names of the sums in ``StageMemory`` that reports show in addition to the single terms."""


@frozen
class StageMemory:
    """Peak memory in bytes on a rank of pipeline stage ``stage``, split into terms.

    The stored fields are the terms that ``parc explain`` prints; the properties are sums.
    """

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
    """Copies of weights in a quantized format."""
    gathered_bytes: float
    """Weights that ZeRO-3 or FSDP have gathered from other ranks when memory is at its peak."""
    workspace_bytes: float
    """Library workspaces, communication buckets and pipeline buffers that torch's caching allocator
    provides."""

    @property
    def static_bytes(self) -> float:
        """Bytes of weights, gradients and optimizer state, computed exactly from the layout."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def dynamic_bytes(self) -> float:
        """Estimated bytes of all memory except weights, gradients and optimizer state."""
        # Computed as a difference, so that static and dynamic bytes always add up to the total.
        return self.total_bytes - self.static_bytes

    @property
    def allocated_bytes(self) -> float:
        """Peak bytes of all tensors, as torch.cuda.max_memory_allocated reports them."""
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
        """Peak bytes of tensors and fragmentation (torch.cuda.max_memory_reserved)."""
        return self.allocated_bytes + self.fragmentation_bytes

    @property
    def device_bytes(self) -> float:
        """Bytes that nvidia-smi shows: reserved memory, NCCL buffers and the CUDA context."""
        # NCCL and the CUDA context allocate outside of torch's caching allocator.
        return self.reserved_bytes + self.communication_bytes + self.framework_bytes

    @property
    def total_bytes(self) -> float:
        """Sum of all memory terms in bytes; the sum must not exceed the device memory."""
        return self.device_bytes

    @property
    def low_bytes(self) -> float:
        """Low end of the 80 % interval: less of all bytes that are not exact, no fragmentation.

        Communicators are not counted either, because NCCL can connect them later or let them share
        their buffers (NCCL_RUNTIME_CONNECT, ncclCommSplit).
        """
        absent = self.fragmentation_bytes + self.communication_bytes
        spread = DYNAMIC_SPREAD * (self.dynamic_bytes - absent) + STATIC_SPREAD * self.static_bytes
        return self.total_bytes - absent - spread

    @property
    def high_bytes(self) -> float:
        """High end of the 80 % interval, with twice the expected fragmentation."""
        return (
            self.total_bytes
            + STATIC_SPREAD * self.static_bytes
            + DYNAMIC_SPREAD * (self.dynamic_bytes - self.fragmentation_bytes)
            + (FRAGMENTATION_SPREAD - 1) * self.fragmentation_bytes
        )


@frozen
class StepTime:
    """Seconds of one optimizer step by activity; time hidden behind other work is not counted."""

    compute_seconds: float
    recompute_seconds: float
    tp_seconds: float
    cp_seconds: float
    ep_seconds: float
    pp_seconds: float
    bubble_seconds: float
    dp_seconds: float
    optimizer_seconds: float
    placement_seconds: float = 0.0
    """Seconds that the order of hosts adds, because groups share links. 0 before a layout is placed
    on hosts."""

    @property
    def total_seconds(self) -> float:
        """Step time in seconds: the sum of the times of all activities."""
        return self.seconds_before_placement + self.placement_seconds

    @property
    def seconds_before_placement(self) -> float:
        """Step time in seconds at full bandwidth between hosts."""
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


@frozen
class AxisTraffic:
    """Bytes that one rank sends per step along one axis of the device mesh."""

    axis: str
    bytes_per_rank: float
    level: str
    """Widest network level that a process group of the axis spans: device, nvlink, host, rack or
    fabric."""
    gb_per_s: float
    """Bandwidth per GPU that the estimate used, one direction, in decimal GB/s."""


@frozen
class Estimate:
    """Estimated memory, step time and traffic of one layout."""

    memory: tuple[StageMemory, ...]
    limit_bytes: float
    """Device memory minus the headroom of ``goals.memory_headroom``."""
    time: StepTime
    traffic: tuple[AxisTraffic, ...]
    model_flops_per_step: float
    """FLOPs per step from which MFU is computed: three times the forward pass, causal attention
    counted as half, no recomputation. With LoRA, frozen weights count twice instead."""
    mfu: float
    tokens_per_second: float
    step_low_seconds: float
    """Low end of the 80 % interval of the step time."""
    step_high_seconds: float
    """High end of the 80 % interval of the step time."""

    @property
    def peak(self) -> StageMemory:
        """Memory of the pipeline stage with the highest peak.

        If several stages have this peak, the first one is returned.
        """
        # The second key makes the lowest stage number win a tie.
        return max(self.memory, key=lambda stage: (stage.total_bytes, -stage.stage))

    @property
    def high_bytes(self) -> float:
        """Highest end of the intervals of all pipeline stages."""
        return max(stage.high_bytes for stage in self.memory)

    @property
    def fits(self) -> bool:
        """True if the estimate of the fullest pipeline stage is at most ``limit_bytes``."""
        return self.peak.total_bytes <= self.limit_bytes

    @property
    def verdict(self) -> Literal["fits", "close", "exceeds"]:
        """Verdict on whether the fullest pipeline stage fits into the memory limit.

        ``fits``: even the high end of the interval is within the limit. ``close``: the limit is
        inside the interval. ``exceeds``: even the low end is above the limit.
        """
        # The verdict uses the interval; ``fits`` uses only the expected value.
        if self.high_bytes <= self.limit_bytes:
            return "fits"
        return "close" if self.peak.low_bytes <= self.limit_bytes else "exceeds"


@frozen
class Run:
    """Expected length of a training run, with its checkpoints, failures, energy and cost."""

    steps: int
    tokens: int
    productive_seconds: float
    """Number of steps times the step time."""
    wall_seconds: float | None
    """Expected time with checkpoints, failures and restarts; equal to ``productive_seconds`` if the
    job saves no checkpoints. None if failures are so frequent that the run does not end."""
    effective_share: float
    """Share of ``wall_seconds`` in which steps are computed that no failure destroys."""
    expected_failures: float
    """Number of failures that are expected in ``wall_seconds``."""
    finish_probability: float
    """Probability that no failure stops the run."""
    failure_interval_seconds: float
    """Mean time between failures of all GPUs that the job occupies."""
    checkpoint_bytes: float
    """Size of one checkpoint: weights and optimizer state, each parameter once."""
    checkpoint_steps: int | None
    """Number of steps between two checkpoints; None if the job saves none."""
    best_checkpoint_steps: int
    """Number of steps between two checkpoints that makes the run shortest."""
    save_seconds: float
    restart_seconds: float
    """Time from a failure until training continues, including reading the checkpoint."""
    spares: int
    """Number of spare hosts that makes the host-hours of the run smallest."""
    gpu_hours: float | None
    """Hours of all occupied GPUs during ``wall_seconds``."""
    energy_kwh: float | None
    """Energy at the power limits of the hosts, times PUE; None if the power is unknown."""
    cost: float | None
    """Price of ``gpu_hours``; None if the spec states no price."""

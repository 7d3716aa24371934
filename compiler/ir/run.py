"""Expected length, energy and cost of a training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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

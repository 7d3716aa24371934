"""Resolve the learning-rate schedule of a job: warm-up, decay and end, in steps (X11)."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.job_spec import JobSpec

DEFAULT_RATIO = 10
"""Default of peak rate / final rate, and of all steps / steps of the wsd decay."""


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Schedule of the learning rate, without its peak and the form of its decay."""

    minimum: float
    """Rate at the end of the decay."""
    warmup_steps: int
    warmup_fraction: float | None
    """Warm-up / steps as the spec sets it; None if it sets steps."""
    decay_steps: int
    """Step at which the decay ends."""
    wsd_steps: int
    """Length of the decay at the end of a wsd schedule (warm-up, stable, decay); else 0."""


def resolve_learning_rate(spec: JobSpec, sink: Sink) -> LearningRate:
    """Return the schedule, with fractions rounded down to steps; X11 for contradicting numbers."""
    end = spec.lr_decay_steps or spec.steps
    fraction = spec.warmup_steps if isinstance(spec.warmup_steps, float) else None
    # Rounding errors may put a product that is a whole number just below it.
    warmup = int(spec.warmup_steps if fraction is None else fraction * end + 1e-6)
    minimum = spec.min_learning_rate
    if minimum is None:
        minimum = float(f"{spec.learning_rate / DEFAULT_RATIO:.6g}")
    wsd = 0
    if spec.lr_decay == "wsd":
        wsd = spec.wsd_decay_steps or max(1, end // DEFAULT_RATIO)
    elif spec.wsd_decay_steps is not None:
        sink.report("X11", _unused_wsd_steps(spec), at="job.wsd_decay_steps")
    if minimum > spec.learning_rate:
        sink.report("X11", _rising(spec, minimum), at="job.min_learning_rate")
    if warmup >= end:
        sink.report("X11", _long_warmup(spec, warmup, end), at="job.warmup_steps")
    elif warmup == 0 and spec.lr_decay == "inverse-square-root":
        sink.report("X11", _no_warmup(), at="job.warmup_steps")
    elif warmup + wsd > end:
        sink.report("X11", _long_decay(warmup, wsd, end), at="job.wsd_decay_steps")
    return LearningRate(minimum, warmup, fraction, end, wsd)


def _unused_wsd_steps(spec: JobSpec) -> Finding:
    return Finding(
        f"job.wsd_decay_steps has no effect on lr_decay {spec.lr_decay}",
        label="would be ignored",
        help="it is the length of the decay at the end of an lr_decay wsd",
        fix="remove job.wsd_decay_steps",
        causes=(Cause("job.lr_decay", f"the decay is {spec.lr_decay}"),),
    )


def _rising(spec: JobSpec, minimum: float) -> Finding:
    return Finding(
        f"the learning rate would decay from {spec.learning_rate:g} up to {minimum:g}",
        label=f"{minimum:g} > {spec.learning_rate:g}",
        help=f"valid values: 0 to {spec.learning_rate:g}",
        fix=f"job.min_learning_rate: {spec.learning_rate / DEFAULT_RATIO:g}",
        causes=(Cause("job.learning_rate", "the peak rate"),),
    )


def _end(spec: JobSpec) -> str:
    return "job.steps" if spec.lr_decay_steps is None else "job.lr_decay_steps"


def _long_warmup(spec: JobSpec, warmup: int, end: int) -> Finding:
    return Finding(
        f"a warm-up of {warmup} steps leaves none for the decay, which ends at step {end}",
        label=f"{warmup} >= {end}",
        help=f"valid values: 0 to {end - 1}, or a percentage of the steps",
        fix="job.warmup_steps: 1%",
        causes=(Cause(_end(spec), f"the decay ends at step {end}"),),
    )


def _no_warmup() -> Finding:
    """Report inverse-square-root decay without warm-up, which Megatron replaces by one sample.

    Source: Megatron-LM, optimizer_param_scheduler.py.
    """
    return Finding(
        "an inverse-square-root decay needs a warm-up, which sets its scale",
        label="0 steps, must be 1 or more",
        help="the rate is peak x sqrt(warmup_steps / step)",
        fix="job.warmup_steps: 1",
        causes=(Cause("job.lr_decay", "the form of the decay"),),
    )


def _long_decay(warmup: int, wsd: int, end: int) -> Finding:
    return Finding(
        f"{warmup} steps of warm-up and {wsd} steps of decay exceed {end} steps",
        label=f"{warmup} + {wsd} = {warmup + wsd} > {end}",
        help=f"valid values: 1 to {end - warmup}",
        fix=f"job.wsd_decay_steps: {end - warmup}",
        causes=(Cause("job.warmup_steps", f"{warmup} steps"),),
    )

"""Resolve the learning-rate schedule of a job to steps of warm-up and decay (X11)."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.job_spec import JobSpec

DEFAULT_RATIO = 10
"""Default of two ratios: peak learning rate / final learning rate, and all steps / steps of the
decay in a wsd schedule (warm-up, stable, decay)."""


@frozen
class LearningRate:
    """Steps and final rate of a learning-rate schedule; the peak rate is in ``Job``."""

    minimum: float
    """Learning rate at the end of the decay."""
    warmup_steps: int
    warmup_fraction: float | None
    """Warm-up as a fraction of the steps; None if the spec sets it in steps."""
    decay_steps: int
    """Step at which the decay ends."""
    wsd_steps: int
    """Steps of the decay at the end of a wsd schedule (warm-up, stable, decay); otherwise 0."""


def resolve_learning_rate(spec: JobSpec, steps: int, sink: Sink) -> LearningRate:
    """Return the learning-rate schedule of a run of ``steps`` steps; report contradictions (X11).

    A warm-up that is given as a fraction is rounded down to whole steps.
    """
    end = spec.lr_decay_steps or steps
    fraction = spec.warmup_steps if isinstance(spec.warmup_steps, float) else None
    # In floating point, a product such as 0.29 x 100 can be slightly below the whole number.
    warmup = int(spec.warmup_steps if fraction is None else fraction * end + 1e-6)
    minimum = spec.min_learning_rate
    if minimum is None:
        # Six digits: 3e-4 / 10 would be emitted as 2.9999999999999997e-05.
        minimum = float(f"{spec.learning_rate / DEFAULT_RATIO:.6g}")
    wsd = 0
    if spec.lr_decay == "wsd":
        # At least one step, so that short test runs end with a decay too.
        wsd = spec.wsd_decay_steps or max(1, end // DEFAULT_RATIO)
    elif spec.wsd_decay_steps is not None:
        sink.report("X11", _unused_wsd_steps_finding(spec), at="job.wsd_decay_steps")
    if minimum > spec.learning_rate:
        sink.report("X11", _rising_rate_finding(spec, minimum), at="job.min_learning_rate")
    if warmup >= end:
        sink.report("X11", _long_warmup_finding(spec, warmup, end), at="job.warmup_steps")
    elif warmup == 0 and spec.lr_decay == "inverse-square-root":
        sink.report("X11", _no_warmup_finding(), at="job.warmup_steps")
    elif warmup + wsd > end:
        sink.report("X11", _long_decay_finding(warmup, wsd, end), at="job.wsd_decay_steps")
    return LearningRate(minimum, warmup, fraction, end, wsd)


def _unused_wsd_steps_finding(spec: JobSpec) -> Finding:
    """Return a finding about wsd_decay_steps, which has an effect only in the wsd schedule."""
    return Finding(
        f"job.wsd_decay_steps has no effect with lr_decay {spec.lr_decay}",
        label="only lr_decay wsd uses it",
        help="wsd_decay_steps is the number of decay steps at the end of a wsd schedule",
        fix="remove job.wsd_decay_steps",
        causes=(Cause("job.lr_decay", f"the decay is {spec.lr_decay}"),),
    )


def _rising_rate_finding(spec: JobSpec, minimum: float) -> Finding:
    return Finding(
        f"the final learning rate {minimum:g} is higher than the peak rate {spec.learning_rate:g}",
        label=f"{minimum:g}, must be at most {spec.learning_rate:g}",
        help=f"valid values: 0 to {spec.learning_rate:g}",
        fix=f"job.min_learning_rate: {spec.learning_rate / DEFAULT_RATIO:g}",
        causes=(Cause("job.learning_rate", "the peak rate is set here"),),
    )


def _path_of_decay_end(spec: JobSpec) -> str:
    """Return the spec path of the setting that fixes the last step of the learning-rate decay."""
    if spec.lr_decay_steps is not None:
        return "job.lr_decay_steps"
    return "job.steps" if spec.tokens is None else "job.tokens"


def _long_warmup_finding(spec: JobSpec, warmup: int, end: int) -> Finding:
    return Finding(
        f"a warm-up of {warmup} steps leaves no step for the decay, which ends at step {end}",
        label=f"{warmup} steps, must be less than {end}",
        help=f"valid values: 0 to {end - 1}, or a percentage of the steps",
        fix="job.warmup_steps: 1%",
        causes=(Cause(_path_of_decay_end(spec), f"the decay ends at step {end}"),),
    )


def _no_warmup_finding() -> Finding:
    """Return a finding about an inverse-square-root decay without a warm-up.

    Megatron would silently use a warm-up of one sample (optimizer_param_scheduler.py).
    """
    return Finding(
        "an inverse-square-root decay needs a warm-up, which sets its scale",
        label="warm-up is 0 steps, must be at least 1",
        help="the learning rate at a step is peak x sqrt(warmup_steps / step)",
        fix="job.warmup_steps: 1",
        causes=(Cause("job.lr_decay", "the form of the decay is set here"),),
    )


def _long_decay_finding(warmup: int, wsd: int, end: int) -> Finding:
    return Finding(
        f"{warmup} steps of warm-up and {wsd} steps of decay exceed the schedule of {end} steps",
        label=f"{warmup} + {wsd} = {warmup + wsd} > {end} steps",
        help=f"valid values: 1 to {end - warmup}",
        fix=f"job.wsd_decay_steps: {end - warmup}",
        causes=(Cause("job.warmup_steps", f"{warmup} steps of warm-up"),),
    )

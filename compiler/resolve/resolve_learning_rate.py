"""The learning rate over the steps of a run: warm-up, decay and end as numbers (X11)."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.job_spec import JobSpec

LEAST_SHARE = 10
"""The peak over the rate at the end, and all steps over those of a decay at the end, by default."""


@dataclass(frozen=True, slots=True)
class LearningRate:
    """What a spec says of it beside the peak and the form of the decay."""

    least: float
    """At the end of the decay."""
    warmup_steps: int
    warmup_fraction: float | None
    """None where steps were said."""
    decay_steps: int
    """Step at which the decay ends."""
    wsd_steps: int
    """Steps before it in which the rate falls, where it stays until then; else 0."""


def resolve_learning_rate(spec: JobSpec, sink: Sink) -> LearningRate:
    """Shares become steps, rounded down; X11 where the numbers contradict each other."""
    end = spec.lr_decay_steps or spec.steps
    fraction = spec.warmup_steps if isinstance(spec.warmup_steps, float) else None
    # A share of steps that is a whole number may lack the last bit of it.
    warmup = int(spec.warmup_steps if fraction is None else fraction * end + 1e-6)
    least = spec.min_learning_rate
    if least is None:
        least = float(f"{spec.learning_rate / LEAST_SHARE:.6g}")
    wsd = 0
    if spec.lr_decay == "wsd":
        wsd = spec.wsd_decay_steps or max(1, end // LEAST_SHARE)
    elif spec.wsd_decay_steps is not None:
        sink.report("X11", _no_wsd(spec), at="job.wsd_decay_steps")
    if least > spec.learning_rate:
        sink.report("X11", _rising(spec, least), at="job.min_learning_rate")
    if warmup >= end:
        sink.report("X11", _long_warmup(spec, warmup, end), at="job.warmup_steps")
    elif warmup == 0 and spec.lr_decay == "inverse-square-root":
        sink.report("X11", _no_warmup(), at="job.warmup_steps")
    elif warmup + wsd > end:
        sink.report("X11", _long_decay(warmup, wsd, end), at="job.wsd_decay_steps")
    return LearningRate(least, warmup, fraction, end, wsd)


def _no_wsd(spec: JobSpec) -> Finding:
    return Finding(
        f"job.wsd_decay_steps says nothing about lr_decay {spec.lr_decay}",
        label="would be ignored",
        help="lr_decay wsd holds the rate and lets it fall in these steps",
        fix="remove job.wsd_decay_steps",
        causes=(Cause("job.lr_decay", f"the rate falls as {spec.lr_decay}"),),
    )


def _rising(spec: JobSpec, least: float) -> Finding:
    return Finding(
        f"the learning rate would decay from {spec.learning_rate:g} up to {least:g}",
        label=f"{least:g} > {spec.learning_rate:g}",
        help=f"legal: 0 to {spec.learning_rate:g}",
        fix=f"job.min_learning_rate: {spec.learning_rate / LEAST_SHARE:g}",
        causes=(Cause("job.learning_rate", "the peak comes from here"),),
    )


def _end(spec: JobSpec) -> str:
    return "job.steps" if spec.lr_decay_steps is None else "job.lr_decay_steps"


def _long_warmup(spec: JobSpec, warmup: int, end: int) -> Finding:
    return Finding(
        f"a warm-up of {warmup} steps leaves none for the decay, which ends at step {end}",
        label=f"{warmup} >= {end}",
        help=f"legal: 0 to {end - 1}, or a share of the steps",
        fix="job.warmup_steps: 1%",
        causes=(Cause(_end(spec), f"the decay ends at step {end}"),),
    )


def _no_warmup() -> Finding:
    """Megatron, optimizer_param_scheduler.py, would take one sample for the length of it."""
    return Finding(
        "an inverse-square-root decay is measured by its warm-up, and there is none",
        label="0 steps, must be 1 or more",
        help="the rate is peak x sqrt(warmup_steps / step)",
        fix="job.warmup_steps: 1",
        causes=(Cause("job.lr_decay", "the form of the decay comes from here"),),
    )


def _long_decay(warmup: int, wsd: int, end: int) -> Finding:
    return Finding(
        f"{warmup} steps of warm-up and {wsd} of decay are more than {end}",
        label=f"{warmup} + {wsd} = {warmup + wsd} > {end}",
        help=f"legal: 1 to {end - warmup}",
        fix=f"job.wsd_decay_steps: {end - warmup}",
        causes=(Cause("job.warmup_steps", f"{warmup} steps"),),
    )

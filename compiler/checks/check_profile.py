"""Report steps and ranks to profile that the run does not have."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import Plan

AT = "launch.profile"


def check_profile(plan: Plan, sink: Sink) -> None:
    """Report the fields of ``launch.profile`` with which nothing would be recorded (X11)."""
    profile, steps, world = plan.problem.launch.profile, plan.problem.job.steps, plan.layout.world
    if profile is None:
        return
    for index, rank in enumerate(profile.ranks):
        if rank >= world:
            finding = Finding(
                f"rank {rank:,} does not exist: the plan has {format_count(world, 'rank')}",
                label=f"valid: 0 to {world - 1:,}",
                fix=f"{AT}.ranks: [0]",
            )
            sink.report("X11", finding, at=f"{AT}.ranks[{index}]")
    first, last = profile.first_step, profile.last_step
    cause = (Cause("job.steps", f"{steps:,} steps"),)
    if last > steps:
        finding = Finding(
            f"the recording would stop before step {last:,}, but the run has {steps:,} steps",
            label=f"valid: 2 to {steps:,}",
            fix=f"{AT}.last_step: {steps}",
            causes=cause,
        )
        sink.report("X11", finding, at=f"{AT}.last_step")
    elif first >= last:
        longer = first + 2
        finding = Finding(
            f"nothing is recorded from step {first:,} to the start of step {last:,}",
            label="last_step must be greater than first_step",
            fix=f"{AT}.last_step: {longer}"
            if longer <= steps
            else f"{AT}.first_step: {max(1, last - 2)}",
            causes=(Cause(f"{AT}.first_step", f"first step {first:,}"), *cause),
        )
        sink.report("X11", finding, at=f"{AT}.last_step")

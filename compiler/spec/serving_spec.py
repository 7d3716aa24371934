"""The whole spec of a job that serves."""

from __future__ import annotations

from parc.compiler.spec.service_spec import (
    ServiceSpec,
    ServingGoalsSpec,
    ServingLaunchSpec,
    ServingLayoutSpec,
)
from parc.compiler.spec.spec import TaskSpec


class ServingSpec(TaskSpec):
    """What to serve, on what, how, and what to emit."""

    job: ServiceSpec
    """What is served, the requests that arrive, and the number formats."""
    goals: ServingGoalsSpec = ServingGoalsSpec()
    """What decides between layouts, and what users must see."""
    layout: ServingLayoutSpec = ServingLayoutSpec()
    """Pins; what is not pinned is decided."""
    launch: ServingLaunchSpec = ServingLaunchSpec()
    """Ports, extra arguments and environment, and the Slurm directives."""

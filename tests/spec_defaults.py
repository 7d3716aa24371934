"""IR types with the defaults of the spec, for tests that build a problem without a spec.

The spec is the only home of defaults, so the helpers build the spec model and resolve it.
"""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Job, KubernetesJob, Launch
from parc.compiler.resolve.resolve_launch import resolve_kubernetes, resolve_launch
from parc.compiler.resolve.resolve_problem import resolve_job
from parc.compiler.resolve.resolve_targets import Targets
from parc.compiler.spec.job_spec import JobSpec
from parc.compiler.spec.launch_spec import KubernetesSpec, LaunchSpec


def job(**values: Any) -> Job:
    """Return the job of a spec whose section ``job`` has only ``values``."""
    sink = Sink()
    found = resolve_job(JobSpec(**values), sink)
    assert found is not None, sink.diagnostics
    return found


def launch(**values: Any) -> Launch:
    """Return the launch settings of a spec whose section ``launch`` has only ``values``."""
    targets = Targets(("slurm",), "megatron", (("slurm", "24.11"),))
    return resolve_launch(LaunchSpec(**values), targets, nvlink_spans_hosts=False)


def kubernetes_job(**values: Any) -> KubernetesJob:
    """Return the settings of a spec whose section ``launch.kubernetes`` has only ``values``."""
    return resolve_kubernetes(KubernetesSpec(**values), compute_domain=False)

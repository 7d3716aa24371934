"""The backend ``slurm``: a batch script that verifies the order of the hosts before the launch."""

from __future__ import annotations

from parc.backends.registry import engine
from parc.backends.shared.launch_rules import check_launch
from parc.backends.slurm.rules import check_engine_script, check_slurm
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Plan, ServingPlan


class Slurm:
    """The backend ``slurm``."""

    name = "slurm"
    versions = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report values that a batch script cannot contain or that would break the rank map."""
        check_launch(plan, sink)
        check_slurm(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return the job script, the script that it sources, and the host file, if any.

        The job runs ``torchrun/launch.sh``, or a copy of it in ``slurm/`` if the torchrun target is
        not emitted.
        """
        # Imported here, because checks emit no file.
        from parc.backends.shared.launch_script import launch_script
        from parc.backends.slurm.files import job_files

        own_launcher = "torchrun" not in plan.problem.emit
        launcher = "slurm/launch.sh" if own_launcher else "torchrun/launch.sh"
        artifacts = job_files(plan, launcher)
        if own_launcher:
            artifacts.append(launch_script(plan, "slurm", "hostfile"))
        return tuple(sorted(artifacts, key=lambda artifact: artifact.path))

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report values that the batch script cannot contain, and a missing engine script.

        Values that would break the rank map are reported, too.
        """
        check_launch(plan, sink)
        check_slurm(plan, sink)
        check_engine_script(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return the job script, the script that it sources, and the host file, if any.

        The job runs the engine's script on every host, in the order of the plan.
        """
        from parc.backends.slurm.files import job_files

        # vLLM's script starts all processes of a host itself, so that torchrun's launch script is
        # not used.
        launcher = engine(plan.problem.framework).host_script
        return tuple(sorted(job_files(plan, launcher), key=lambda artifact: artifact.path))


BACKEND = Slurm()

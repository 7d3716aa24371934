"""The backend ``slurm``: a batch script that verifies the order of the hosts before the launch."""

from __future__ import annotations

from itertools import chain
from textwrap import wrap

from parc.backends.registry import engine
from parc.backends.shared.launch_rules import check_launch
from parc.backends.shared.launch_script import (
    hosts_file_text,
    launch_command_of_plan,
    launch_script,
)
from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.backends.shared.render import render, shell_word
from parc.backends.slurm.rules import check_engine_script, check_slurm
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, Plan, ServingPlan, SlurmJob

APPTAINER_GPU_FLAGS = {"nvidia": "--nv", "amd": "--rocm"}
"""Vendor -> flag of apptainer exec that adds the libraries and devices of the driver."""
MAX_REQUEUES = 16
"""Maximum requeues, so that a job that always fails ends at some point."""


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
        own_launcher = "torchrun" not in plan.problem.emit
        launcher = "slurm/launch.sh" if own_launcher else "torchrun/launch.sh"
        artifacts = _job_files(plan, launcher)
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
        # vLLM's script starts all processes of a host itself, so that torchrun's launch script is
        # not used.
        launcher = engine(plan.problem.framework).host_script
        return tuple(sorted(_job_files(plan, launcher), key=lambda artifact: artifact.path))


def _job_files(plan: AnyPlan, launcher: str) -> list[Artifact]:
    """Return ``slurm/job.sbatch`` and the script ``slurm/order_hosts.sh``, which the job sources.

    If the hosts have names, ``slurm/hostfile`` lists them.
    """
    found = [
        Artifact("slurm/job.sbatch", _batch_script(plan, launcher), True),
        Artifact("slurm/order_hosts.sh", _order_script()),
    ]
    if plan.problem.cluster.named:
        found.append(Artifact("slurm/hostfile", hosts_file_text(plan)))
    return found


def _order_script() -> str:
    """Return the text of ``order_hosts.sh``, which is the same for all plans."""
    # Imported here, because checks do not need the table of directives.
    from parc.backends.slurm.directives import directive_table

    names = chain(*directive_table()["unset"].values())
    # Shorter lines would take more space than the rest of the script's head.
    values = {"unset": wrap(" ".join(names), 146), "max_requeues": MAX_REQUEUES}
    return render("slurm", "order_hosts.sh.j2", values)


def _batch_script(plan: AnyPlan, launcher: str) -> str:
    """Return the text of the batch script, which runs the script ``launcher`` on every host."""
    from parc.backends.slurm.directives import slurm_directives

    slurm = plan.problem.launch.slurm
    shape = contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts)
    values = {
        "directives": slurm_directives(plan),
        "inherited": plan.problem.launch.env_inherited,
        "gpus": plan.placement.ranks_per_node,
        "nodes": len(plan.placement.hosts),
        "launcher": launcher,
        "serves": isinstance(plan, ServingPlan),
        "log_dir": slurm.log_dir,
        "named": plan.problem.cluster.named,
        "shape": " ".join(f"{rack}:{hosts}" for rack, hosts in shape),
        "container": _container_words(slurm, plan.problem.cluster.gpu.vendor),
        "graceful_stop_test": ""
        if isinstance(plan, ServingPlan)
        else launch_command_of_plan(plan).graceful_stop_test,
    }
    return render("slurm", "job.sbatch.j2", values)


def _container_words(slurm: SlurmJob, vendor: str) -> tuple[str, ...]:
    """Return the lines of shell text between srun's flags and the program that start the container.

    These are further flags of srun (pyxis) or a command (Apptainer); empty without a container. The
    container contains the output folder at the same path.
    """
    if slurm.container_image is None:
        return ()
    mounts = ",".join(slurm.container_mounts)
    if slurm.container_runtime == "apptainer":
        return (
            f"apptainer exec {APPTAINER_GPU_FLAGS[vendor]}",
            *((f"--bind {shell_word(mounts)}",) if mounts else ()),
            '--bind "$PARC_DIR" --bind "$SLURM_SUBMIT_DIR" --cwd "$SLURM_SUBMIT_DIR"',
            shell_word(slurm.container_image),
        )
    return (
        f"--container-image={shell_word(slurm.container_image)}",
        '--container-mounts="$PARC_DIR:$PARC_DIR"' + (shell_word(f",{mounts}") if mounts else ""),
        # Flags of srun, not of sbatch: the batch script itself runs outside the container.
        "--no-container-mount-home --container-writable",
    )


BACKEND = Slurm()

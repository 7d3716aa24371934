"""Files of the backend ``slurm``: the batch script, the script that it sources, the host file."""

from __future__ import annotations

from itertools import chain
from textwrap import wrap

from parc.backends.base import LaunchCommand
from parc.backends.shared.launch_script import hosts_file_text, launch_command_of_plan
from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.backends.shared.render import render, shell_word
from parc.backends.slurm.directives import directive_table, slurm_directives
from parc.compiler.ir import AnyPlan, Artifact, JobStart, ServingPlan, SlurmJob

APPTAINER_GPU_FLAGS = {"nvidia": "--nv", "amd": "--rocm"}
"""Vendor -> flag of apptainer exec that adds the libraries and devices of the driver."""
MAX_REQUEUES = 16
"""Maximum requeues, so that a job that always fails ends at some point."""


def job_files(plan: AnyPlan, launcher: str) -> list[Artifact]:
    """Return ``slurm/job.sbatch`` and the script ``slurm/order_hosts.sh``, which the job sources.

    If the hosts have names, ``slurm/hostfile`` lists them.
    """
    command = None if isinstance(plan, ServingPlan) else launch_command_of_plan(plan)
    start = JobStart(
        "sbatch",
        program=command.relative_program if command else "",
        # Apptainer starts in the folder from which the job is submitted.
        in_image=plan.problem.launch.slurm.container_runtime == "pyxis",
    )
    found = [
        Artifact("slurm/job.sbatch", _batch_script(plan, launcher, command), True, start),
        Artifact("slurm/order_hosts.sh", _order_script()),
    ]
    if plan.problem.cluster.named:
        found.append(Artifact("slurm/hostfile", hosts_file_text(plan)))
    return found


def _order_script() -> str:
    """Return the text of ``order_hosts.sh``, which is the same for all plans."""
    names = chain(*directive_table()["unset"].values())
    # Shorter lines would take more space than the rest of the script's head.
    values = {"unset": wrap(" ".join(names), 146), "max_requeues": MAX_REQUEUES}
    return render("slurm", "order_hosts.sh.j2", values)


def _batch_script(plan: AnyPlan, launcher: str, command: LaunchCommand | None) -> str:
    """Return the text of the batch script, which runs the script ``launcher`` on every host.

    ``command`` starts the training program; None for services.
    """
    slurm = plan.problem.launch.slurm
    shape = contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts)
    values = {
        "directives": slurm_directives(plan),
        "inherited": plan.problem.launch.env_inherited,
        "gpus": plan.placement.ranks_per_node,
        "nodes": len(plan.placement.hosts),
        "launcher": launcher,
        "serves": command is None,
        "log_dir": slurm.log_dir,
        "named": plan.problem.cluster.named,
        "shape": " ".join(f"{rack}:{hosts}" for rack, hosts in shape),
        "container": _container_words(slurm, plan.problem.cluster.gpu.vendor),
        "graceful_stop_test": command.graceful_stop_test if command else "",
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

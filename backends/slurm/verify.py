"""Verifier of Slurm's batch script and host file, and of its copy of the launch script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from parc.backends.shared.verify_launch_script import (
    exported_devices,
    read_launch_script_settings,
    verify_launch_lines,
    verify_launch_script,
)
from parc.backends.slurm.verify_directives import JOB, SLURM, read_directive_settings
from parc.backends.slurm.verify_job import (
    ORDER,
    compare_job_script,
    compare_order_script,
    container_settings,
)
from parc.backends.verifier import (
    DerivedSetting,
    FileDependencies,
    JobShape,
    LauncherNumber,
    Verifier,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.launch_numbers import (
    line_of_first_match,
    verify_host_file,
    verify_numbers,
)
from parc.compiler.verify.read_emitted import read_number
from parc.compiler.verify.verify_program import verify_program
from parc.compiler.verify.verify_settings import PLAN, read_plan

HOSTFILE, SCRIPT = "slurm/hostfile", "slurm/launch.sh"
NODES = (
    LauncherNumber("--nodes", r"^#SBATCH --nodes[= ](\d+)", "nodes"),
    LauncherNumber("nodes", r"^[ \t]*nodes=(\d+)[ \t]*$", "nodes"),
)


class SlurmVerifier(Verifier):
    """Compares hosts, GPUs and rank counts with the rank map."""

    files = FileDependencies(
        always=(JOB, ORDER),
        always_serving=(JOB, ORDER),
        scripts=(SCRIPT, JOB),
        references={
            HOSTFILE: "/slurm/hostfile",
            ORDER: f"$PARC_DIR/{ORDER}",
            SCRIPT: f"$PARC_DIR/{SCRIPT}",
        },
    )

    not_in_files = MappingProxyType({f"{SLURM}.version": "selects the directives that exist"})

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the settings of the job script (directives, log folder, container).

        If Slurm has its own copy of the launch script, the settings of this copy follow.
        """
        if PLAN not in artifacts:
            return
        plan = read_plan(artifacts[PLAN])
        if JOB in artifacts:
            yield from read_directive_settings(artifacts[JOB], plan, artifacts)
            comparison = compare_job_script(plan, artifacts)
            if comparison is not None:
                yield from comparison.derive_settings(JOB, plan)
            yield from container_settings(artifacts[JOB])
        if SCRIPT in artifacts:
            yield from read_launch_script_settings(SCRIPT, plan, artifacts)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report commands that the plan does not need, and commands that are missing (A18)."""
        if PLAN not in artifacts:
            return
        plan = read_plan(artifacts[PLAN])
        if JOB in artifacts:
            comparison = compare_job_script(plan, artifacts)
            if comparison is not None:
                verify_program(JOB, comparison.found, comparison.expected, sink)
        if ORDER in artifacts:
            order = compare_order_script(artifacts[ORDER])
            verify_program(ORDER, order.found, order.expected, sink)
        if SCRIPT in artifacts:
            verify_launch_lines(SCRIPT, plan, artifacts, sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report differences from the rank map.

        These are other hosts (A02), and other numbers of nodes, ranks or GPUs (A07).
        """
        if HOSTFILE in artifacts:
            verify_host_file(HOSTFILE, artifacts[HOSTFILE], job.hosts, sink)
        if SCRIPT in artifacts:
            verify_launch_script(SCRIPT, artifacts[SCRIPT], job, sink)
        if JOB in artifacts:
            # The script repeats the number of nodes in a variable, which its own checks use.
            verify_numbers(JOB, artifacts[JOB], NODES, job, sink)
            _verify_gpus(artifacts[JOB], job.ranks_per_node, sink)

    def visible_devices(self, artifacts: Mapping[str, str]) -> list[str] | None:
        """Return the GPU indices that Slurm's copy of the launch script exports; None if none."""
        return exported_devices(artifacts.get(SCRIPT, ""))


def _verify_gpus(text: str, ranks_per_node: int, sink: Sink) -> None:
    """Report a job that requests fewer GPUs per host than the rank map has ranks (A07)."""
    pattern = r"^#SBATCH --gpus-per-node=(\d+)"
    found = read_number(text, pattern)
    # More GPUs are valid: jobs request whole hosts, and a plan may use only some GPUs of a host.
    if found is not None and found < ranks_per_node:
        message = f"--gpus-per-node is {found} in {JOB}, the rank map has {ranks_per_node} ranks"
        sink.report("A07", message, span=Span(JOB, line_of_first_match(text, pattern), 1))


VERIFIER = SlurmVerifier()

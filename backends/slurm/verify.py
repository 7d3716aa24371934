"""Verifier of Slurm's batch script and host file, and of its copy of the launch script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

from parc.backends.shared.verify_known_lines import (
    ExpectedValue,
    ScriptComparison,
    compare_lines,
    known_lines,
    read_script,
)
from parc.backends.shared.verify_launch_script import (
    DAMAGED,
    exported_devices,
    program_start,
    read_launch_script_settings,
    verify_launch_lines,
    verify_launch_script,
)
from parc.backends.slurm.verify_directives import (
    JOB,
    SLURM,
    rack_name_by_host,
    read_directive_settings,
    read_directives,
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
    verify_host_file,
    verify_numbers,
)
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.select_verifiers import engine_verifier, load_verifiers
from parc.compiler.verify.verify_program import verify_program
from parc.compiler.verify.verify_settings import PLAN, read_plan

HOSTFILE, SCRIPT = "slurm/hostfile", "slurm/launch.sh"
NODES = (LauncherNumber("nodes", r"^[ \t]*nodes=[\"']?(\d+)[\"']?[ \t]*$", "nodes"),)
"""Variable of the job script that repeats the number of nodes, for the checks of the script."""
PACKAGE, LINES = "parc.backends.slurm", "job.sbatch"
ORDER = "slurm/order_hosts.sh"


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
            verify_numbers(JOB, artifacts[JOB], NODES, job, sink)
            _verify_requested_hosts(artifacts[JOB], job, sink)

    def visible_devices(self, artifacts: Mapping[str, str]) -> list[str] | None:
        """Return the GPU indices that Slurm's copy of the launch script exports; None if none."""
        return exported_devices(artifacts.get(SCRIPT, ""))


def _verify_requested_hosts(text: str, job: JobShape, sink: Sink) -> None:
    """Report another number of nodes than the rank map has, and too few GPUs per host (A07)."""
    found, count = read_directives(text), len(job.hosts)
    value, line = found.get("nodes", ("", 1))
    if value != str(count):
        state = f"is {value:.20}" if value else "is missing"
        message = f"--nodes {state} in {JOB}, but the rank map has {count}"
        sink.report("A07", message, span=Span(JOB, line, 1))
    value, line = found.get("gpus-per-node", ("", 1))
    # More GPUs are valid: jobs request whole hosts, and a plan may use only some GPUs of a host.
    if re.fullmatch(r"[0-9]{1,9}", value) and int(value) < job.ranks_per_node:
        message = (
            f"--gpus-per-node is {value} in {JOB}, the rank map has {job.ranks_per_node} ranks"
        )
        sink.report("A07", message, span=Span(JOB, line, 1))


VERIFIER = SlurmVerifier()


def compare_job_script(
    plan: Mapping[str, Any], artifacts: Mapping[str, str]
) -> ScriptComparison | None:
    """Compare the commands of the job script with those that the plan needs.

    Returns None if the program that the job starts is unknown, because the framework or engine has
    no verifier.
    """
    try:
        stop_test, launcher = _sigterm_stop_test(plan, artifacts), _script_per_host(plan, artifacts)
        if stop_test is None or not launcher:
            return None
        homes = list(rack_name_by_host(plan, artifacts))
        racks = {home: str(number) for number, home in enumerate(dict.fromkeys(homes))}
        conditions = {*_script_conditions(plan), *(("stops",) if stop_test else ())}
        runs = (f"{racks[home]}:{len(list(run))}" for home, run in groupby(homes))
        inherited = plan["problem"]["launch"]["env_inherited"]
        vendor = plan["problem"]["cluster"]["gpu"]["vendor"]
        conditions |= {"inherited"} if inherited else set()
        texts = {
            "inherited": " ".join(map(shlex.quote, inherited)),
            "ranks": str(plan["placement"]["ranks_per_node"]),
            "launcher": launcher,
            "shape": shlex.quote(" ".join(runs)),
            "stop_test": stop_test,
            "gpu_support": "--rocm" if vendor == "amd" else "--nv",
        }
        values = _script_values(plan)
    except DAMAGED:
        raise MalformedFileError(
            PLAN, 1, f"a value in {SLURM} is missing or has the wrong type"
        ) from None
    known = known_lines(PACKAGE, LINES, conditions, texts)
    return compare_lines(read_script(artifacts[JOB]), known, values)


def compare_order_script(text: str) -> ScriptComparison:
    """Compare the commands of ``slurm/order_hosts.sh``, which are the same for all plans."""
    return compare_lines(read_script(text), known_lines(PACKAGE, "order_hosts.sh", (), {}), ())


def container_settings(text: str) -> Iterator[DerivedSetting]:
    """Yield the program that starts the container of a script.

    Without such a program, also yield that the script has neither an image nor mounts.
    """
    starts = {"apptainer": r"^ +apptainer exec ", "pyxis": r"^ +--container-image="}
    found = [name for name, start in starts.items() if re.search(start, text, re.M)]
    yield DerivedSetting(f"{SLURM}.container_runtime", next(iter(found), None), JOB)
    if not found:
        yield DerivedSetting(f"{SLURM}.container_image", None, JOB)
        yield DerivedSetting(f"{SLURM}.container_mounts", [], JOB)


def _script_values(plan: Mapping[str, Any]) -> tuple[ExpectedValue, ...]:
    slurm = plan["problem"]["launch"]["slurm"]
    mounts = ",".join(slurm["container_mounts"])
    if mounts and slurm["container_runtime"] == "pyxis":
        mounts = f",{mounts}"  # follows the mount of the output folder
    image = shlex.quote(slurm["container_image"] or "")
    return (
        ExpectedValue("nodes", str(len(plan["placement"]["hosts"]))),
        ExpectedValue("log_dir", shlex.quote(slurm["log_dir"]), f"{SLURM}.log_dir"),
        ExpectedValue("container_image", image, f"{SLURM}.container_image"),
        ExpectedValue(
            "container_mounts",
            shlex.quote(mounts) if mounts else "",
            f"{SLURM}.container_mounts",
        ),
    )


def _script_conditions(plan: Mapping[str, Any]) -> Iterator[str]:
    problem = plan["problem"]
    yield "named" if problem["cluster"]["named"] else "nameless"
    if _is_serving(plan):
        yield "serving"
    runtime = problem["launch"]["slurm"]["container_runtime"]
    if runtime is not None:
        yield str(runtime)
    if problem["launch"]["slurm"]["container_mounts"]:
        yield "mounts"


def _is_serving(plan: Mapping[str, Any]) -> bool:
    return "service" in plan["problem"]


def _script_per_host(plan: Mapping[str, Any], artifacts: Mapping[str, str]) -> str:
    """Return the script that the job runs on every host; empty if it is unknown."""
    problem = plan["problem"]
    if _is_serving(plan):
        names = (problem["framework"],)
        engine = engine_verifier(load_verifiers(names, artifacts), artifacts, names)
        return engine.file if engine is not None else ""
    return f"{'torchrun' if 'torchrun' in problem['emit'] else 'slurm'}/launch.sh"


def _sigterm_stop_test(plan: Mapping[str, Any], artifacts: Mapping[str, str]) -> str | None:
    """Return the shell test for a program that saves on SIGTERM; None if the test is unknown."""
    if _is_serving(plan):
        return ""
    start = program_start(plan, artifacts)
    return None if start is None else start.stop_test

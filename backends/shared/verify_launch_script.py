"""Verification of the launch script that starts the ranks of one host, and of its environment.

It is separate from ``launch_script.py`` because a verifier must not share code with the emitter.
The variables that the script must export are derived again from ``plan.json``. Sources: PyTorch
(torchrun, torch.distributed, CUDA allocator).

The commands of ``launch.setup`` are the user's own text, between two lines that PARC writes. They
are replaced by one line before the script is compared with known lines, so that no command of the
user, such as an export, is taken for a command of PARC.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from parc.backends.shared.verify_environment import network_variables
from parc.backends.shared.verify_known_lines import (
    ExpectedValue,
    ScriptComparison,
    ScriptLines,
    compare_lines,
    differing_variables,
    known_lines,
    read_script,
)
from parc.backends.verifier import (
    DerivedSetting,
    FrameworkVerifier,
    JobShape,
    LaunchedProgram,
    LauncherNumber,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.launch_numbers import verify_numbers, verify_rendezvous
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.select_verifiers import framework_verifier, load_verifiers
from parc.compiler.verify.shell_lines import without_trailing_comments
from parc.compiler.verify.verify_program import verify_program
from parc.compiler.verify.verify_settings import PLAN, planned_value

TORCHRUN = (
    LauncherNumber("--nnodes", r"--nnodes=(\d+)", "nodes"),
    LauncherNumber("--nproc-per-node", r"--nproc-per-node=(\d+)", "ranks_per_node"),
)
_DEVICES = re.compile(r"^export (?:CUDA|HIP)_VISIBLE_DEVICES='?([0-9,]+)'?$", re.MULTILINE)
PACKAGE, LINES = "parc.backends.shared", "launch.sh"
PROGRAM = "problem.launch.program"
ONLY_VALUES: dict[str, object] = {
    "problem.job.moment_precision": "fp32",
    "problem.job.fp8_recipe": "tensorwise",
    "problem.job.fused_loss": False,
    "problem.job.tp_overlap": False,
    "problem.job.async_checkpoint": False,
}
"""Path of the plan -> only value that a framework without flags for it supports (E11, E13)."""
HOSTS_FILES = {"torchrun": "hosts", "slurm": "hostfile", "deepspeed": "hostfile"}
"""Folder of a launch script -> name of the file that lists the hosts."""
DAMAGED = (TypeError, KeyError, AttributeError, ValueError, IndexError, ArithmeticError)
"""Exceptions that occur if fields of plan.json have values of the wrong type."""
DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that select GPUs; the column gpu of the rank map is compared with them."""
COMMON = {
    "PYTHONUNBUFFERED": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
}
MOST_THREADS = 8
"""Most CPU threads per rank."""
MARKER = "launch-setup"
"""Line that stands for the commands of ``launch.setup``."""
_BLOCK = re.compile(
    r"^set \+u # launch\.setup\b[^\n]*\n(?P<lines>(?:[^\n]*\n)*?)set -u # end of launch\.setup$",
    re.MULTILINE,
)
_INHERITED = re.compile(r"^for name in ([^\n;]+); do\n +export \"\$\{name\?\}\"$", re.MULTILINE)


def expected_environment(plan: Mapping[str, Any], framework: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the launch script must set, as name -> value.

    ``framework`` contains the variables that the framework requires. A variable of ``launch.env``
    replaces any other variable of the same name.
    """
    problem = plan["problem"]
    node = problem["cluster"]["node"]
    threads = node["cpu_cores"] // node["gpus"]
    found = {**COMMON, "OMP_NUM_THREADS": str(min(MOST_THREADS, max(1, threads)))}
    if problem["cluster"]["gpu"]["vendor"] == "nvidia":
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    # One host needs no network.
    if len(plan["placement"]["hosts"]) > 1:
        found |= network_variables(problem)
    found |= dict(framework) | dict(problem["launch"]["env"])
    # The environment of the launch determines the values of these.
    inherited = problem["launch"]["env_inherited"]
    return {name: value for name, value in found.items() if name not in inherited}


def replace_setup_by_marker(text: str) -> str:
    """Return the script with the line ``MARKER`` in place of the commands of ``launch.setup``.

    Blank lines are added so that the numbers of all other lines stay the same.
    """
    found = _BLOCK.search(text)
    if found is None:
        return text
    blank = "\n" * found[0].count("\n")
    return f"{text[: found.start()]}{MARKER}{blank}{text[found.end() :]}"


def inherited_names(text: str) -> list[str]:
    """Return the names of the variables that the script takes over from the calling shell."""
    found = _INHERITED.search(text)
    try:
        return shlex.split(found[1]) if found else []
    except ValueError:
        return []


def read_setup_settings(file: str, text: str) -> Iterator[DerivedSetting]:
    """Yield two settings of a launch script: ``launch.setup`` and ``launch.env_inherited``.

    The first contains the user's set-up commands. The second contains the names of the variables
    that the script takes over from the calling shell.
    """
    block = _BLOCK.search(text)
    lines = block["lines"].split("\n")[:-1] if block else []
    line = text.count("\n", 0, block.start()) + 1 if block else 1
    yield DerivedSetting("problem.launch.setup", lines, file, line, "set +u" if block else "")
    names = _INHERITED.search(text)
    line = text.count("\n", 0, names.start()) + 1 if names else 1
    setting = names[0].split("\n")[0] if names else ""
    yield DerivedSetting("problem.launch.env_inherited", inherited_names(text), file, line, setting)


def verify_launch_script(file: str, text: str, job: JobShape, sink: Sink) -> None:
    """Report rank counts and rendezvous hosts that differ from the rank map (A07).

    ``text`` is the content of the launch script ``file``.
    """
    verify_numbers(file, text, job.launcher or TORCHRUN, job, sink)
    verify_rendezvous(file, text, job.hosts, sink)


def exported_devices(text: str) -> list[str] | None:
    """Return the indices of the GPUs that the script makes visible; None if the script sets none.

    The position in the list is the local rank.
    """
    found = _DEVICES.search(without_trailing_comments(text))
    return found[1].split(",") if found else None


def program_start(plan: Mapping[str, Any], artifacts: Mapping[str, str]) -> LaunchedProgram | None:
    """Return how a launch script must start the program of the plan; None if this is unknown."""
    problem = plan["problem"]
    name, launch = problem["framework"], problem["launch"]
    verifiers = load_verifiers((name,), artifacts)
    own = cast(FrameworkVerifier | None, verifiers.get(name))
    framework = framework_verifier(verifiers, artifacts) or own
    start = framework.program_start(plan, artifacts) if framework is not None else None
    if start is None or name in problem["emit"]:
        return start
    # Without files of the framework, the user's program is started with launch.args; it still
    # needs the variables of the framework.
    words = shlex.join(launch["args"])
    program = shlex.quote(launch["program"])
    return LaunchedProgram(program=program, arguments=words, environment=start.environment)


def read_launch_script_settings(
    file: str,
    plan: Mapping[str, Any],
    artifacts: Mapping[str, str],
    launcher: tuple[str, ...] = (),
) -> Iterator[DerivedSetting]:
    """Yield the settings in a launch script: environment, program, arguments and port.

    ``launcher`` contains the words of the command that replaces torchrun; empty for torchrun.
    """
    start = _checked_program_start(plan, artifacts, launcher)
    if start is None:
        return
    script = read_script(replace_setup_by_marker(artifacts[file]))
    yield from read_setup_settings(file, artifacts[file])
    result = _compare_script_lines(file, plan, script, start)
    yield from result.derive_settings(file, plan)
    if not start.program:
        # The last command names the module instead; verify_launch_lines compares it.
        yield DerivedSetting(PROGRAM, planned_value(plan, PROGRAM), file)
    yield from read_environment_settings(file, script, plan, start.environment)


def verify_launch_lines(
    file: str,
    plan: Mapping[str, Any],
    artifacts: Mapping[str, str],
    sink: Sink,
    launcher: tuple[str, ...] = (),
) -> None:
    """Report commands of a launch script that are missing, or that the plan does not need (A18).

    ``launcher`` contains the words of the command that replaces torchrun; empty for torchrun.
    """
    start = _checked_program_start(plan, artifacts, launcher)
    if start is not None:
        script = read_script(replace_setup_by_marker(artifacts[file]))
        result = _compare_script_lines(file, plan, script, start)
        verify_program(file, result.found, result.expected, sink)


def _checked_program_start(
    plan: Mapping[str, Any], artifacts: Mapping[str, str], launcher: tuple[str, ...]
) -> LaunchedProgram | None:
    try:
        start = program_start(plan, artifacts)
        return replace(start, launcher=launcher) if start is not None and launcher else start
    except DAMAGED:
        raise MalformedFileError(
            PLAN, 1, "a value in problem.launch is missing or has the wrong type"
        ) from None


def read_environment_settings(
    file: str, script: ScriptLines, plan: Mapping[str, Any], framework: Mapping[str, str]
) -> Iterator[DerivedSetting]:
    """Yield the setting ``launch.env``, once for each variable that differs from the plan.

    Finally, ``launch.env`` and ``launch.network_interface`` are yielded with the values in the
    plan.
    """
    path = "problem.launch.env"
    try:
        expected = expected_environment(plan, framework)
    except DAMAGED:
        raise MalformedFileError(
            PLAN, 1, "a value in problem.cluster is missing or has the wrong type"
        ) from None
    found = {name: one for name, one in script.exports.items() if name not in DEVICES}
    wanted = {name: one for name, one in expected.items() if name not in DEVICES}
    # The shell computes the values of these, so that they are lines of their own.
    computed = {one.text.partition("=")[0]: one for one in script.lines}
    for name, text, needed, line in differing_variables(found, wanted):
        other = computed.get(f"export {name}")
        if not text and other is not None:
            text, line = other.text.removeprefix("export "), other.number
        yield DerivedSetting(
            path, text, file, line, f"export {name}" if text else "", needed=needed
        )
    yield DerivedSetting(path, planned_value(plan, path), file)
    yield DerivedSetting(
        "problem.launch.network_interface",
        planned_value(plan, "problem.launch.network_interface"),
        file,
    )


def _compare_script_lines(
    file: str, plan: Mapping[str, Any], script: ScriptLines, start: LaunchedProgram
) -> ScriptComparison:
    """Return a comparison of the commands in a launch script with those that the plan requires."""
    try:
        conditions = set(_script_conditions(plan, start))
        launch, each = plan["problem"]["launch"], plan["placement"]["ranks_per_node"]
        texts = {
            "node_count": str(len(plan["placement"]["hosts"])),
            "rank_count": "1 rank" if each == 1 else f"{each} ranks",
            "setup": "\n".join(start.setup),
            "inherited": " ".join(map(shlex.quote, launch["env_inherited"])),
            "launcher": " ".join(start.launcher),
            "start": f"-m {start.module}" if start.module else '"$program"',
            "hosts_file": HOSTS_FILES[file.partition("/")[0]],
        }
        values = (
            ExpectedValue("nodes", str(len(plan["placement"]["hosts"]))),
            ExpectedValue("ranks", str(plan["placement"]["ranks_per_node"])),
            ExpectedValue("master", shlex.quote(plan["placement"]["hosts"][0])),
            ExpectedValue("port", str(launch["master_port"]), "problem.launch.master_port"),
            ExpectedValue("program", start.program, PROGRAM),
            ExpectedValue("arguments", start.arguments, "problem.launch.args"),
        )
    except DAMAGED:
        raise MalformedFileError(
            PLAN, 1, "a value in problem.launch is missing or has the wrong type"
        ) from None
    known = known_lines(PACKAGE, LINES, conditions, texts)
    return compare_lines(script, known, values)


def _script_conditions(plan: Mapping[str, Any], start: LaunchedProgram) -> Iterator[str]:
    problem = plan["problem"]
    single = len(plan["placement"]["hosts"]) == 1
    yield "single" if single else "several"
    yield "named" if problem["cluster"]["named"] else "unnamed"
    yield "launcher" if start.launcher else "torchrun"
    yield "environment"
    if problem["launch"]["setup"]:
        yield "site"
    if problem["launch"]["env_inherited"]:
        yield "inherited"
    if start.program:
        yield "program"
    if start.setup:
        yield "setup"
    if not problem["job"]["data"]:
        yield "mock-data"
    # The hosts file of this launcher has more words after each name.
    yield "slots" if start.launcher[:1] == ("deepspeed",) else "no-slots"
    if "preflight" in problem["emit"]:
        yield "preflight"

"""Check a batch script for a variable without which Megatron stops at start-up (N08)."""

from __future__ import annotations

import re

from parc.backends.megatron.arguments.environment import variables_for_layout
from parc.backends.megatron.launch_files.facts import MegatronJobFacts
from parc.backends.megatron.launch_files.launch_flags import MegatronLaunch
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
WITHOUT = (
    *("--use-megatron-fsdp", "--use-torch-fsdp2", "--use-custom-fsdp"),
    "--overlap-moe-expert-parallel-comm",
)
"""Flags with which Megatron warns instead of stopping (arguments.py, validate_args)."""
SPLIT = ("--tensor-model-parallel-size", "--context-parallel-size")
_SET_ELSEWHERE = re.compile(
    r"^[ \t]*(?:source|\.)[ \t]+(?!\S*(?:/activate|conda\.sh|/etc/profile\S*|/etc/bashrc)\b)"
    r"|^[ \t]*eval[ \t]|--container-|--env|--export=(?!ALL\b)"
    r"|\b(?:singularity|apptainer|docker|podman|enroot|shifter)\b",
    re.M,
)
"""Matches a file or a container that may set variables."""


def check_unset_connections(
    script: LintedScript, launch: MegatronLaunch, facts: MegatronJobFacts, sink: ScriptSink
) -> None:
    """Report a batch script that never sets a variable which its layout needs (N08).

    A script that is not a batch script may get the variable from its caller. Raises
    ``UnknownFact`` if the script determines neither the GPU nor the sizes.
    """
    silent = (
        NAME in script.text
        or "#SBATCH" not in script.text
        or not launch.stock
        or launch.is_open
        or _SET_ELSEWHERE.search(script.text) is not None
        or any(flag.name in WITHOUT for flag in launch.flags)
    )
    flag = next((launch.sure[name] for name in SPLIT if _is_above_one(launch, name)), None)
    if silent or flag is None:
        return
    gpu, layout = facts.known_problem.cluster.gpu, facts.known_layout
    needed = dict(variables_for_layout(gpu, layout))
    if NAME not in needed:
        return
    finding = Finding(
        f"{NAME} is not set, but Megatron requires {needed[NAME]} for {flag.name} {flag.value}",
        label="Megatron stops at start-up, unless the environment of sbatch sets the variable",
        fix=f"export {NAME}={needed[NAME]}",
        causes=(Cause("cluster.gpu", f"{gpu.name} is a GPU of the generation {gpu.generation}"),),
    )
    sink.report("N08", finding, span=flag.word.span)


def _is_above_one(launch: MegatronLaunch, name: str) -> bool:
    flag = launch.sure.get(name)
    return flag is not None and flag.value not in ("", "0", "1")

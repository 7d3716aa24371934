"""Variables that Slurm sets in a batch script, as far as the directives determine them."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?:^|\s)(--[A-Za-z][\w-]*|-[A-Za-z])(?:=|\s+)?([^\s-][^\s]*)?")
_COUNT = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?([0-9]{1,6})")
_LINE = re.compile(r"^#SBATCH[ \t]+([^\n]{1,1000})", re.M)
_VARIABLES = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "-n": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--cpus-per-task": ("SLURM_CPUS_PER_TASK",),
    "-c": ("SLURM_CPUS_PER_TASK",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
}
"""Option of sbatch -> variables that it sets (sbatch(1), output environment variables)."""


def slurm_variables(text: str) -> dict[str, str]:
    """Return variable -> value for the ``#SBATCH`` directives of the script ``text``."""
    found: dict[str, str] = {}
    if "#SBATCH" not in text:
        return found
    options = (one for line in _LINE.finditer(text) for one in _OPTION.findall(line[1]))
    for name, value in options:
        number = _COUNT.fullmatch(value)
        if number is None or (name == "--gres" and not value.startswith("gpu")):
            continue
        for variable in _VARIABLES.get(name, ()):
            # SLURM_GPUS_PER_NODE contains the type of the GPUs as well.
            typed = variable == "SLURM_GPUS_PER_NODE" or ":" not in value
            found[variable] = value if typed else number[1]
    return found

"""Environment of the ranks: variables that a launch script must export, and ``launch.setup``.

The variables are derived again from ``plan.json``. No code is shared with the emitter. Sources:
PyTorch (torchrun, torch.distributed, CUDA allocator).

The commands of ``launch.setup`` are the user's own text, between two lines that PARC writes. They
are replaced by one line before the script is compared with known lines, so that no command of the
user, such as an export, is taken for a command of PARC.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.shared.verify_environment import network_variables
from parc.backends.verifier import DerivedSetting

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
_INHERITED = re.compile(r"^for name in ([^\n;]+); do\n +export \"\$name\"$", re.MULTILINE)


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

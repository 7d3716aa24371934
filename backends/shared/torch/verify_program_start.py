"""Starts of the programs of PyTorch frameworks, as their launch scripts must contain them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from parc.backends.shared.verify_emitted_program import users_program
from parc.backends.verifier import LaunchedProgram


def python_path_command(folder: str) -> str:
    """Return the shell command that lets Python import modules from ``folder`` of the output."""
    return f'export PYTHONPATH="$here/../{folder}${{PYTHONPATH:+:$PYTHONPATH}}"'


def start_of_program(
    plan: Mapping[str, Any], script: str, arguments: tuple[str, ...] = ()
) -> LaunchedProgram:
    """Return how the launch script starts the user's program, or ``script`` if the user has none.

    Args:
        plan: the parsed ``plan.json``.
        script: path of the emitted program in the output folder.
        arguments: shell words that precede those of ``launch.args``.
    """
    launch = plan["problem"]["launch"]
    own, words = users_program(plan), tuple(map(shlex.quote, launch["args"]))
    program = shlex.quote(own) if own else f'"$here/../{script}"'
    return LaunchedProgram(program=program, arguments=" ".join((*arguments, *words)))

"""The commands with which a user starts a job from the files of its plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import Artifact, JobStart

NO_START = "by no file of this plan: add slurm, kubernetes or torchrun to emit"


def start_lines(artifacts: Iterable[Artifact], directory: str) -> tuple[str, ...]:
    """Return a line for each file in ``directory`` that starts the job; NO_START without one.

    Scripts that run on every host are left out if another file starts them.
    """
    found = [(one.start, f"{directory}/{one.path}") for one in artifacts if one.start]
    whole = [one for one in found if not one[0].hosts]
    return tuple(_start_line(*one) for one in whole or found) or (NO_START,)


def _start_line(start: JobStart, path: str) -> str:
    line = f"{start.command} {shlex.quote(path)}".lstrip()
    if start.hosts > 1:
        line += f" on each of the {format_count(start.hosts, 'host')}"
    folder = "working folder of the image" if start.in_image else "working folder"
    return f"{line} ({folder}: that of {start.program})" if start.program else line

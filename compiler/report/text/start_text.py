"""The commands with which a user starts a job from the files of its plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, Artifact, JobStart, ServingPlan

NO_START = "by no file of this plan: add slurm, kubernetes or torchrun to emit"


def start_lines(plan: AnyPlan, artifacts: Iterable[Artifact], directory: str) -> tuple[str, ...]:
    """Return a line for each file in ``directory`` that starts the job; empty without one.

    Scripts that run on every host are left out if another file starts them. The script of an engine
    starts the job on each host even if its backend does not state this.
    """
    scripts = dict(_host_scripts(plan))
    starts = [(one.start or scripts.get(one.path), one.path) for one in artifacts]
    found = [(start, f"{directory}/{path}") for start, path in starts if start]
    whole = any(not start.hosts for start, _ in found)
    return tuple(
        _start_line(start, path)
        for start, path in found
        if not whole or start.beside or not start.hosts
    )


def describe_missing_start(plan: AnyPlan) -> str:
    """Return the text of the line ``start`` if no file of the plan is known to start the job."""
    from parc.backends.built_in import BUILT_IN

    built_in = {one.name for one in BUILT_IN}
    others = [name for name in plan.problem.emit if name not in built_in]
    if not others:
        return NO_START
    return f"see the documentation of {', '.join(others)}: its backend states no start command"


def _host_scripts(plan: AnyPlan) -> Iterator[tuple[str, JobStart]]:
    """Yield (path, start) of the script that the engine of each pool runs on each host."""
    if not isinstance(plan, ServingPlan):
        return
    from parc.backends.registry import engine

    script = engine(plan.problem.framework).host_script
    for one in plan.pools:
        folder = "" if plan.pair is None else f"{one.problem.service.setup.pool}/"
        yield f"{folder}{script}", JobStart(hosts=len(one.placement.hosts))


def _start_line(start: JobStart, path: str) -> str:
    line = f"{start.command} {shlex.quote(path)}".lstrip()
    if start.hosts > 1:
        line += f" on each of the {format_count(start.hosts, 'host')}"
    line += f" {start.place}" if start.place else ""
    if not start.program:
        return line
    where = "the image must start" if start.in_image else "run it"
    return f"{line} ({where} in the folder of {start.program})"

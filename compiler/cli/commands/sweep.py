"""Command ``parc sweep``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parc.compiler.cli import command_steps, options

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from parc.compiler.tools.sweep.run_sweep import Point
    from parc.compiler.tools.sweep.sweep import Limits, Sweep

DASK = "dask://"


@click.command("sweep")
@options.spec_argument
@click.option(
    "--vary",
    metavar="PATH=VALUES",
    multiple=True,
    help="Values of a field: V1,V2 or LOW..HIGH:STEP or LOW..HIGH:xFACTOR. Can be repeated; all "
    "combinations are points.",
)
@click.option(
    "--list",
    "listed",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV file with spec paths in its head, and one point per row; an empty cell keeps the "
    "value of SPEC.",
)
@options.set_option
@options.root_option
@options.format_option("table", "csv", "json")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write a page with charts of time against cost and of scaling efficiency.",
)
@click.option(
    "--best",
    type=click.Choice(["cost", "gpu-hours", "energy", "time", "gpus"]),
    help="Print the point with the smallest value; exit with 1 if there is none.",
)
@click.option("--within", metavar="DURATION", help="Longest run for --best, such as 30d.")
@click.option(
    "--max-cost", metavar="COST", type=click.FloatRange(min=0), help="Largest cost for --best."
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Processes; the default is one per core.",
)
@click.option(
    "--executor",
    "cluster",
    metavar="dask://HOST:PORT",
    help="Scheduler of a Dask cluster that runs the points; needs parc-compiler[dask].",
)
@click.pass_context
def command(ctx: click.Context, /, spec: str, style: str, **given: Any) -> None:
    """Estimate SPEC for a grid or a list of field values, and find the best point.

    Each point is planned, but no files are emitted. A point without a plan is reported with its
    first error. For example, the cheapest cluster that trains a model in 30 days:

        parc sweep SPEC --vary cluster.nodes=16..256:16 --best cost --within 30d
    """
    from parc.compiler.tools.sweep import sweep as sweeps
    from parc.compiler.tools.sweep import sweep_text

    limits = _parse_limits(given["within"], given["max_cost"])
    objective = given["best"]
    if objective is None and limits != sweeps.Limits():
        raise click.UsageError("--within and --max-cost need --best, such as --best cost")
    sweep = _run_points(spec, _parse_points(given["vary"], given["listed"]), **given)
    answer, found = "", bool(sweep.planned)
    if objective:
        answer, found = sweeps.describe_best(sweep, objective, limits)
    if given["html"]:
        from parc.compiler.tools.sweep.sweep_page import sweep_page

        given["html"].write_text(sweep_page(sweep, answer), "utf-8", newline="\n")
    if style == "json":
        best = sweep.best(objective, limits) if objective else None
        number = None if best is None else sweep.rows.index(best)
        command_steps.print_json({**sweep.to_json(), "best": number})
    else:
        show = sweep_text.sweep_csv if style == "csv" else sweep_text.sweep_text
        click.echo(show(sweep), nl=False)
        if answer:
            # standard output contains only rows if they are CSV
            click.echo(answer if style == "csv" else f"\n{answer}", err=style == "csv")
    ctx.exit(0 if found else command_steps.FOUND)


def _parse_limits(within: str | None, max_cost: float | None) -> Limits:
    """Return the limits of the best point; a UsageError if ``within`` is not a duration."""
    from pydantic import TypeAdapter, ValidationError

    from parc.compiler.spec.units import Duration
    from parc.compiler.tools.sweep.sweep import Limits

    if within is None:
        return Limits(None, max_cost)
    try:
        return Limits(TypeAdapter(Duration).validate_python(within), max_cost)
    except ValidationError as invalid:
        reason = invalid.errors()[0]["msg"]
        raise click.BadParameter(f"{within!r} {reason}", param_hint="--within") from None


def _parse_points(vary: tuple[str, ...], listed: tuple[Path, ...]) -> list[Point]:
    """Return the points of the options; a UsageError if an option is invalid."""
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.sweep.run_sweep import (
        SweepError,
        axis_of_list,
        axis_of_option,
        combine_axes,
    )

    if not vary and not listed:
        raise click.UsageError("nothing varies: add --vary PATH=VALUES or --list FILE")
    try:
        lists = [axis_of_list(read_source(str(path)).text) for path in listed]
        return combine_axes([*lists, *map(axis_of_option, vary)])
    except SweepError as error:
        raise click.UsageError(str(error)) from None


def _run_points(spec: str, points: list[Point], **given: Any) -> Sweep:
    """Return the evaluated sweep. On a terminal, standard error shows the progress."""
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.sweep.run_sweep import run_sweep
    from parc.compiler.tools.sweep.sweep import Sweep

    source = read_source(spec, root=given["root"])
    with (
        _open_executor(given["cluster"], len(points), given["jobs"]) as executor,
        _progress_bar(len(points)) as after,
    ):
        rows = run_sweep(
            source, points, overrides=given["overrides"], executor=executor, after=after
        )
    return Sweep(spec, tuple(rows))


@contextmanager
def _progress_bar(points: int) -> Iterator[Callable[[], object]]:
    """Yield a function to call after each point, which moves the progress bar."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=points, file=sys.stderr, label="sweep", show_pos=True) as bar:
        yield lambda: bar.update(1)


@contextmanager
def _open_executor(cluster: str | None, points: int, jobs: int | None) -> Iterator[Executor | None]:
    """Yield the executor that runs the points; None for this process."""
    from parc.compiler.tools.sweep.run_sweep import local_executor

    if cluster is None:
        pool = local_executor(points, jobs)
        if pool is None:
            yield None
            return
        with pool:
            yield pool
        return
    if not cluster.startswith(DASK):
        raise click.UsageError(f"--executor {cluster!r} is not {DASK}HOST:PORT")
    try:
        # By name, because type checkers would otherwise need the optional package.
        distributed = import_module("distributed")
    except ImportError:
        raise click.UsageError(
            "--executor dask:// needs Dask: pip install 'parc-compiler[dask]'"
        ) from None
    with distributed.Client(f"tcp://{cluster.removeprefix(DASK)}") as client:
        yield client.get_executor(pure=False)

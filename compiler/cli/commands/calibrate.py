"""Command ``parc calibrate``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from parc.compiler.cli import command_steps, options


@click.command("calibrate")
@click.argument("runs", metavar="RUNS")
@click.option(
    "--nccl",
    metavar="FILE",
    multiple=True,
    help="File with the output of nccl-tests on the same cluster. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the calibration to FILE, which a spec can name under cluster.calibration.",
)
@options.root_option
@options.format_option("text", "json")
def command(
    runs: str, nccl: tuple[str, ...], output: Path | None, root: Path | None, style: str
) -> None:
    """Fit the cost model to RUNS, a CSV of measured step times.

    Each row has the measured seconds per step and describes the run: either by a spec, or by a
    model, a node type and all parallel sizes. docs/calibrate.md lists the columns. A parameter that
    the runs cannot determine keeps its shipped value, and a warning describes the missing runs.
    """
    from parc.compiler.diagnostics import Sink
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.calibration import calibration_report
    from parc.compiler.tools.calibration.calibrate import calibrate
    from parc.compiler.writer import write_file

    sink = Sink()
    found = calibrate(read_source(runs, root=root), [read_source(name) for name in nccl], sink)
    if found is None:
        command_steps.exit_with_findings((sink,), style)
    assert found is not None
    if output is not None:
        text = calibration_report.calibration_file(found)
        write_file(output, text, calibration_report.HEAD)
    command_steps.show_findings((sink,), "text", sys.stderr)
    if style == "json":
        command_steps.print_json(calibration_report.calibration_json(found))
        return
    click.echo(calibration_report.calibration_text(found), nl=False)
    if output is not None:
        click.echo(f"\nwrote {output}")

"""Command ``parc calibrate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from parc.compiler.cli import command_steps, options


@click.command("calibrate")
@click.argument(
    "measured", metavar="RUNS", nargs=-1, required=True, shell_complete=options.complete_path
)
@click.option(
    "--spec",
    metavar="SPEC",
    help="Spec of the service that was measured. Only for results of serving benchmarks.",
)
@click.option(
    "--nccl",
    metavar="FILE",
    multiple=True,
    help="File with the output of nccl-tests on the same cluster. Can be repeated. Only for "
    "training runs.",
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
    measured: tuple[str, ...], spec: str | None, output: Path | None, style: str, **other: Any
) -> None:
    """Fit the cost model to RUNS: measured steps, or results of a serving benchmark.

    For training, RUNS is one CSV. Each row has the measured seconds per step and describes the run:
    either by a spec, or by a model, a node type and all parallel sizes. For a service, RUNS are
    result files of vllm bench serve, SGLang bench_serving, genai-perf, aiperf or InferenceX, or a
    CSV, and --spec names the spec of the service. docs/calibrate.md lists formats and columns. A
    parameter that the runs cannot determine keeps its shipped value, and a warning describes the
    missing runs.
    """
    from parc.compiler.diagnostics import Sink
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.calibration import calibration_report
    from parc.compiler.tools.calibration.calibrate import calibrate, calibrate_service
    from parc.compiler.tools.calibration.measured_services import MAX_RESULT_BYTES, is_service_table
    from parc.compiler.writer import write_file

    sink = Sink()
    root, nccl = other["root"], other["nccl"]
    sources = [read_source(name, MAX_RESULT_BYTES, root=root) for name in measured]
    if is_service_table(sources[0].text):
        if nccl:
            raise click.UsageError("--nccl is only for training runs.")
        service = None if spec is None else read_source(spec, root=root)
        found = calibrate_service(sources, service, sink)
    else:
        if spec is not None or len(sources) > 1:
            raise click.UsageError("Training runs are one CSV, whose rows name their specs.")
        found = calibrate(sources[0], [read_source(name) for name in nccl], sink)
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

"""Match the runs of a serving benchmark to the service of a spec.

The spec describes model, cluster, engine and number formats. The layout is the one that a run
states, or the plan of the spec; the load is the one that a run states, or that of the spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Traffic
from parc.compiler.pipeline import plan_job, resolve_spec
from parc.compiler.spec.reading.scalars import plain_scalar
from parc.compiler.spec.reading.source import SpecSource, UnreadableFileError, read_source
from parc.compiler.tools.calibration.benchmark_formats import BenchmarkRecord, read_benchmark
from parc.compiler.tools.calibration.measured_runs import CsvRow, read_table

PATHS: dict[str, str] = {
    "model": "model",
    "node": "cluster.node",
    "gpu": "cluster.gpu",
    "nodes": "cluster.nodes",
    "precision": "job.precision",
    "kv_precision": "job.kv_precision",
    "tp": "layout.tp",
    "pp": "layout.pp",
    "dp": "layout.dp",
    "ep": "layout.ep",
    "replicas": "layout.replicas",
}
"""Column of a table of services -> spec path of its cells."""
LOAD = ("input_tokens", "output_tokens", "concurrency", "request_rate")
MEASURED = ("ttft_ms", "tpot_ms", "tokens_per_second")
"""Columns with measured means; a row needs at least one of the latencies."""
MAX_RESULT_BYTES = 64 * 1024 * 1024
"""Size limit of a result file in bytes. Detailed results list the times of all requests."""
COLUMNS = ("run", "spec", *PATHS, *LOAD, *MEASURED)


@frozen
class MeasuredService:
    """Run of a serving benchmark, with the service and the load that it measured."""

    record: BenchmarkRecord
    problem: ServingProblem
    layout: ServingLayout
    traffic: Traffic

    @property
    def observations(self) -> tuple[tuple[str, float], ...]:
        """(quantity, measured value) of each mean to which factors are fitted.

        In a closed loop, the throughput follows from the two latencies, and under a request rate it
        is that rate; hence it is used only in place of a missing time per token.
        """
        record = self.record
        found = [("ttft", record.ttft_seconds), ("tpot", record.tpot_seconds)]
        if record.tpot_seconds is None and self.traffic.request_rate is None:
            found.append(("tokens/s", record.tokens_per_second))
        return tuple((name, value) for name, value in found if value is not None)


def is_service_table(text: str) -> bool:
    """Return True if ``text`` is a result of a serving benchmark, and no table of training runs."""
    lines = (line.strip() for line in text.splitlines())
    head = next((line for line in lines if line and not line.startswith("#")), "")
    if head.startswith(("{", "[")) or head.startswith(("Metric,", '"Metric"')):
        return True
    columns = {cell.strip(' "') for cell in head.split(",")}
    return bool(columns & set(MEASURED)) and "step_seconds" not in columns


def read_measured_services(
    sources: Sequence[SpecSource], spec: SpecSource | None, sink: Sink
) -> tuple[MeasuredService, ...]:
    """Return the valid runs in the files ``sources``; report errors in other runs.

    ``spec`` describes the service of all runs that name no spec of their own.
    """
    reader = _ServiceReader(spec, sink)
    return tuple(
        service
        for source in sources
        for record in _read_records(source, sink)
        if (service := reader.match(record, source)) is not None
    )


def _read_records(source: SpecSource, sink: Sink) -> Iterator[BenchmarkRecord]:
    head = source.text.lstrip("\ufeff \n")
    if head.startswith(("{", "[", "Metric,", '"Metric"')):
        yield from read_benchmark(source.text, source.name, sink)
        return
    for row in read_table(source.text, source.name, COLUMNS, sink):
        yield _record_of_row(row, sink)


def _record_of_row(row: CsvRow, sink: Sink) -> BenchmarkRecord:
    numbers = {name: _cell_number(row, name, sink) for name in (*LOAD, *MEASURED)}
    ttft, tpot = numbers["ttft_ms"], numbers["tpot_ms"]
    settings = {path: _parse(row.cell_text(name)) for name, path in PATHS.items()}
    return BenchmarkRecord(
        name=row.cell_text("run") or f"line {row.span.line}",
        span=row.span,
        settings={path: value for path, value in settings.items() if value is not None},
        ttft_seconds=ttft / 1e3 if ttft else None,
        tpot_seconds=tpot / 1e3 if tpot else None,
        spec=row.cell_text("spec"),
        tokens_per_second=numbers["tokens_per_second"],
        input_tokens=numbers["input_tokens"],
        output_tokens=numbers["output_tokens"],
        concurrency=numbers["concurrency"],
        request_rate=numbers["request_rate"],
    )


def _cell_number(row: CsvRow, column: str, sink: Sink) -> float | None:
    text = row.cell_text(column)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number < 1e12:
        return number
    finding = Finding(f"{column} is {text[:40]!r}", "expected a number above 0")
    sink.report("Q02", finding, span=row.cell_span(column))
    return None


def _parse(text: str) -> Any:
    if not text:
        return None
    try:
        return plain_scalar(text)
    except ValueError:
        return text


class _ServiceReader:
    """Reader that resolves and plans each service once, however many runs measured it."""

    def __init__(self, spec: SpecSource | None, sink: Sink) -> None:
        self.spec = spec
        self.sink = sink
        # Most runs of a benchmark differ only in their load.
        self.plan_once = cache(self._plan)

    def match(self, record: BenchmarkRecord, source: SpecSource) -> MeasuredService | None:
        """Return the run with its service; None after reporting what is missing (Q02, Q09)."""
        if record.ttft_seconds is None and record.tpot_seconds is None:
            finding = Finding(
                f"{record.name} has neither a mean time to the first token nor one per token",
                help="run the benchmark with streaming, so that it measures both",
            )
            self.sink.report("Q09", finding, span=record.span)
            return None
        spec = self._spec_of(record, source)
        if spec is None:
            return None
        edits = tuple(f"{path}={json.dumps(value)}" for path, value in record.settings.items())
        found = self.plan_once(spec, edits, record.span)
        if found is None:
            return None
        problem, layout = found
        traffic = self._traffic_of(record, problem)
        if traffic is None:
            return None
        self._warn_mismatch(record, problem)
        service = MeasuredService(record, problem, layout, traffic)
        return service if self._check_memory(service) else None

    def _check_memory(self, service: MeasuredService) -> bool:
        """Return True if the service fits into memory; otherwise report it (Q09)."""
        problem = service.problem
        deployment = build_deployment(
            problem.model, problem.cluster, problem.service.setup, service.layout
        )
        if estimate_deployment(deployment, service.traffic).fits:
            return True
        finding = Finding(
            f"{service.record.name}: by PARC's estimate, {problem.model.name} does not fit on "
            f"{service.layout.engine_gpus} x {problem.cluster.gpu.name}",
            help="check job.precision and layout in the spec of the service",
        )
        self.sink.report("Q09", finding, span=service.record.span)
        return False

    def _spec_of(self, record: BenchmarkRecord, source: SpecSource) -> SpecSource | None:
        if record.spec:
            try:
                folder = source.folder or Path()
                own = read_source(str(folder / record.spec), root=source.root)
            except UnreadableFileError as error:
                self.sink.report("Q02", str(error), span=record.span)
                return None
            return replace(own, name=record.spec)
        if self.spec is None:
            finding = Finding(
                f"{record.name} does not describe the cluster and the engine of the service",
                label="no spec of the service is given",
                help="parc calibrate RESULT --spec SPEC, where SPEC is the spec of the service; a "
                "table can name a spec per row in the column spec",
            )
            self.sink.report("Q09", finding, span=record.span)
        return self.spec

    def _plan(
        self, spec: SpecSource, edits: tuple[str, ...], span: Span
    ) -> tuple[ServingProblem, ServingLayout] | None:
        """Return the problem and the layout of a service; None after reporting errors.

        Factors are fitted relative to the shipped constants, hence without the calibration that the
        spec may name already.
        """
        own = Sink()
        problem = resolve_spec(spec, edits, own)
        if isinstance(problem, ServingProblem) and problem.calibration:
            problem = resolve_spec(spec, (*edits, "cluster.calibration=null"), own)
        if problem is not None and not isinstance(problem, ServingProblem):
            message = f"{spec.name} describes a training job; the benchmark measured a service"
            self.sink.report("Q02", Finding(message, "job.kind is not serve"), span=span)
            return None
        layout = None if problem is None else _layout_of(problem, own)
        if problem is None or layout is None:
            for each in own.diagnostics:
                if each.severity == "error":
                    # Positions in the spec are unknown to the sink of the measurements.
                    text = f"{spec.name}: {each.finding.message}"
                    causes = tuple(replace(cause, span=None) for cause in each.finding.causes)
                    finding = replace(each.finding, message=text, causes=causes)
                    self.sink.report(each.code.removeprefix("PARC-"), finding, span=span)
            return None
        return problem, layout

    def _traffic_of(self, record: BenchmarkRecord, problem: ServingProblem) -> Traffic | None:
        """Return the load of a run; None after reporting that neither run nor spec states it."""
        given = problem.service.traffic
        traffic = replace(
            given,
            input_tokens=record.input_tokens or given.input_tokens,
            output_tokens=record.output_tokens or given.output_tokens,
            burstiness=record.burstiness or given.burstiness,
        )
        if record.concurrency or record.request_rate:
            concurrency = record.concurrency
            rate = None if concurrency else record.request_rate
            traffic = replace(traffic, concurrency=concurrency, request_rate=rate, trace=None)
        if traffic.is_load_given:
            return traffic
        finding = Finding(
            f"{record.name} does not state its load",
            label="neither a maximum concurrency nor a finite request rate",
            help="run the benchmark with a maximum concurrency or a request rate (without both, "
            "all requests arrive at once), or set job.traffic.concurrency in the spec",
        )
        self.sink.report("Q09", finding, span=record.span)
        return None

    def _warn_mismatch(self, record: BenchmarkRecord, problem: ServingProblem) -> None:
        """Report a run whose model or GPU has a different name in the spec (Q10)."""
        names = (problem.model.name, problem.service.checkpoint)
        gpu = problem.cluster.gpu.name
        pairs = (
            ("model", record.model, names, record.model and not _is_same_name(record.model, names)),
            ("GPU", record.gpu, (gpu,), record.gpu and not _is_same_name(record.gpu, (gpu,))),
        )
        for what, measured, expected, differs in pairs:
            if differs:
                finding = Finding(
                    f"{record.name} measured the {what} {measured[:60]}, but the spec has "
                    f"{expected[-1]}",
                    help=f"check that --spec names the spec of this service; {what} names may "
                    "differ if the server uses an alias",
                )
                self.sink.report("Q10", finding, span=record.span)


def _is_same_name(name: str, others: Sequence[str]) -> bool:
    """Return True if ``name`` and one of ``others`` match, up to case, folders and punctuation."""

    def bare(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower().rstrip("/").rsplit("/", 1)[-1])

    mine = bare(name)
    return any(mine.startswith(bare(one)) or bare(one).startswith(mine) for one in others)


def _layout_of(problem: ServingProblem, sink: Sink) -> ServingLayout | None:
    """Return the layout that the spec sets, or that PARC plans for it; None after an error."""
    pins = problem.pins
    # A layout that ran needs no search, which might reject it for its limits.
    if pins.tp and pins.pp and pins.dp and pins.replicas and not pins.stages:
        ranks = pins.tp * pins.dp * (pins.pcp or 1)
        ep = ranks if pins.ep == "on" else pins.ep if isinstance(pins.ep, int) else 1
        return ServingLayout(
            pins.tp,
            pins.pp,
            pins.dp,
            ep if problem.model.experts else 1,
            pins.replicas,
            pins.pcp or 1,
            pins.dcp or 1,
        )
    plan = plan_job(problem, sink)
    layout = None if plan is None else plan.layout
    return layout if isinstance(layout, ServingLayout) else None

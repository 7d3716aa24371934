"""Readers of the result files of serving benchmarks.

A format is detected by its keys, not by the name of the tool: several tools write the same keys.

- Reports of load generators: one JSON object, or one per line, with ``mean_ttft_ms``,
  ``mean_tpot_ms``, ``total_input_tokens``, ``completed``, ``max_concurrency``, ``request_rate``
  (vLLM's ``bench serve --save-result``, SGLang's ``bench_serving --output-file``).
- Profiles: a JSON object with ``time_to_first_token: {unit, avg}`` and ``inter_token_latency``
  (genai-perf, aiperf), or their CSV export, whose first cell is ``Metric``.
- Rows of dashboards: ``mean_ttft`` and ``mean_tpot`` in seconds, with ``conc``, ``isl``, ``osl``
  and parallel sizes (InferenceX, utils/process_result.py).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import inf, isfinite
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen

FORMATS = (
    "JSON of a load generator (mean_ttft_ms), JSON or CSV of a profile (time_to_first_token), "
    "JSON of dashboard rows (mean_ttft, conc), or CSV with the columns of docs/calibrate.md"
)
SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}
"""Unit of a time in a profile -> seconds."""
LAYOUT_KEYS = {
    "tp": ("tp", "tp_size", "tensor_parallel_size"),
    "pp": ("pp", "pp_size", "pipeline_parallel_size"),
    "dp": ("dp", "dp_size", "data_parallel_size"),
}
"""Field of ``layout`` -> keys under which results state it. Other sizes depend on the engine."""
SATURATED = 0.8
"""Mean number of requests in the system, divided by the maximum concurrency of the benchmark, from
which the benchmark counts as a closed loop although it also has a request rate."""
MAX_RECORDS = 1000


@frozen
class BenchmarkRecord:
    """Run of a serving benchmark; values that the file does not state are None or empty."""

    name: str
    span: Span
    model: str = ""
    gpu: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Spec path -> value that replaces the value of the spec."""
    input_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    request_rate: float | None = None
    burstiness: float | None = None
    ttft_seconds: float | None = None
    """Mean time to the first token."""
    tpot_seconds: float | None = None
    """Mean time per output token after the first one."""
    tokens_per_second: float | None = None
    """Output tokens per second of the whole service."""
    spec: str = ""
    """Path of the spec of the service, relative to the file."""


def read_benchmark(text: str, file: str, sink: Sink) -> tuple[BenchmarkRecord, ...]:
    """Return the runs in the result file ``file``; report an unknown format (Q09)."""
    if text.lstrip("\ufeff \n").startswith(("Metric,", '"Metric"')):
        return (_profile_record(_profile_of_csv(text), file, Span(file, 1, 1)),)
    found = tuple(_parse_records(text, file))[: MAX_RECORDS + 1]
    if not found or any(one is None for one in found):
        finding = Finding(
            f"{file} is not a result of a serving benchmark that PARC can read",
            help=f"valid formats: {FORMATS}",
        )
        sink.report("Q09", finding, span=Span(file, 1, 1))
        return ()
    if len(found) > MAX_RECORDS:
        sink.report("Q09", f"{file} has more than {MAX_RECORDS} runs", span=Span(file, 1, 1))
        return ()
    return tuple(one for one in found if one is not None)


def _parse_records(text: str, file: str) -> Iterator[BenchmarkRecord | None]:
    """Yield a record per JSON object of the text; None for an object without known keys."""
    for number, tree in _json_objects(text):
        span = Span(file, number, 1)
        if not isinstance(tree, dict):
            yield None
        elif "mean_ttft_ms" in tree or "mean_tpot_ms" in tree:
            yield _report_record(tree, file, span)
        elif isinstance(tree.get("time_to_first_token"), dict):
            yield _profile_record(tree, file, span)
        elif "mean_ttft" in tree and "conc" in tree:
            yield _dashboard_record(tree, file, span)
        else:
            yield None


def _json_objects(text: str) -> Iterator[tuple[int, Any]]:
    """Yield (line, object) of a JSON text, of the elements of a list, or of JSON Lines."""
    try:
        whole = json.loads(text)
    except ValueError:
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None
        return
    yield from ((1, one) for one in (whole if isinstance(whole, list) else [whole]))


def _report_record(tree: Mapping[str, Any], file: str, span: Span) -> BenchmarkRecord:
    completed = _positive_number(tree.get("completed"))
    rate, most = (
        _positive_number(tree.get("request_rate")),
        _positive_number(tree.get("max_concurrency")),
    )
    # By Little's law, requests in the system = throughput x time of a request.
    latency = _positive_number(tree.get("mean_e2el_ms")) or _positive_number(
        tree.get("mean_e2e_latency_ms")
    )
    throughput = _positive_number(tree.get("request_throughput"))
    present = (throughput or 0.0) * (latency or 0.0) / 1e3
    is_closed = most is not None and (rate is None or present >= SATURATED * most)
    server = tree.get("server_info")
    model = tree.get("model_id") or (server.get("model_path") if isinstance(server, dict) else "")
    return BenchmarkRecord(
        name=_name(file, span),
        span=span,
        model=str(model or ""),
        settings=_layout_settings(tree),
        input_tokens=_ratio(_positive_number(tree.get("total_input_tokens")), completed),
        output_tokens=_ratio(_positive_number(tree.get("total_output_tokens")), completed),
        concurrency=most if is_closed else None,
        request_rate=None if is_closed else rate,
        burstiness=_positive_number(tree.get("burstiness")),
        ttft_seconds=_ratio(_positive_number(tree.get("mean_ttft_ms")), 1e3),
        tpot_seconds=_ratio(_positive_number(tree.get("mean_tpot_ms")), 1e3),
        tokens_per_second=_positive_number(tree.get("output_throughput")),
    )


def _dashboard_record(tree: Mapping[str, Any], file: str, span: Span) -> BenchmarkRecord:
    tp = _positive_number(tree.get("tp")) or 1.0
    settings = _layout_settings(tree)
    per_gpu = _positive_number(tree.get("output_tput_per_gpu"))
    if str(tree.get("dp_attention")).lower() == "true":
        # All ranks are data-parallel ranks of attention; tp counts them.
        settings |= {"layout.tp": 1, "layout.dp": int(tp)}
    else:
        settings.setdefault("layout.dp", 1)
    settings |= {"layout.pp": 1, "layout.replicas": 1}
    if (_positive_number(tree.get("ep")) or 1.0) > 1:
        settings["layout.ep"] = "on"
    return BenchmarkRecord(
        name=_name(file, span),
        span=span,
        model=str(tree.get("model") or ""),
        gpu=str(tree.get("hw") or ""),
        settings=settings,
        input_tokens=_positive_number(tree.get("isl")),
        output_tokens=_positive_number(tree.get("osl")),
        concurrency=_positive_number(tree.get("conc")),
        ttft_seconds=_positive_number(tree.get("mean_ttft")),
        tpot_seconds=_positive_number(tree.get("mean_tpot")),
        tokens_per_second=per_gpu * tp if per_gpu else None,
    )


def _profile_record(tree: Mapping[str, Any], file: str, span: Span) -> BenchmarkRecord:
    config = tree.get("input_config")
    model = _first_value(config, ("model_names", "model"))
    concurrency = _positive_number(_first_value(config, ("concurrency",)))
    rate = _positive_number(_first_value(config, ("request_rate",)))
    return BenchmarkRecord(
        name=_name(file, span),
        span=span,
        model=str((model[0] if isinstance(model, list) and model else model) or ""),
        input_tokens=_profile_mean(tree, "input_sequence_length"),
        output_tokens=_profile_mean(tree, "output_sequence_length"),
        concurrency=concurrency,
        request_rate=None if concurrency else rate,
        ttft_seconds=_profile_mean(tree, "time_to_first_token"),
        tpot_seconds=_profile_mean(tree, "inter_token_latency"),
        tokens_per_second=_profile_mean(tree, "output_token_throughput"),
    )


def _profile_mean(tree: Mapping[str, Any], name: str) -> float | None:
    """Return the mean of a quantity of a profile; a time is converted to seconds."""
    part = tree.get(name)
    if not isinstance(part, dict):
        return None
    return _ratio(_positive_number(part.get("avg")), 1 / SECONDS.get(str(part.get("unit")), 1.0))


def _profile_of_csv(text: str) -> dict[str, Any]:
    """Return the quantities of the CSV export of a profile like those of its JSON export."""
    # A row starts with a name and a unit, such as ``Time To First Token (ms)``; the mean follows.
    found: dict[str, Any] = {}
    for row in csv.reader(text.splitlines()):
        if len(row) > 1 and row[0] != "Metric":
            name, _, unit = row[0].partition(" (")
            key = name.strip().lower().replace(" ", "_")
            found[key] = {"unit": unit.rstrip(")"), "avg": row[1].replace(",", "")}
    return found


def _layout_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parallel sizes that a result states, by spec path."""
    found: dict[str, Any] = {}
    for axis, keys in LAYOUT_KEYS.items():
        size = next((size for key in keys if (size := _positive_number(tree.get(key)))), None)
        if size is not None:
            found[f"layout.{axis}"] = int(size)
    return found


def _first_value(tree: Any, names: tuple[str, ...]) -> Any:
    """Return the first value under one of ``names`` in a nested mapping; None if there is none."""
    if not isinstance(tree, dict):
        return None
    for name in names:
        if tree.get(name):
            return tree[name]
    nested = (_first_value(value, names) for value in tree.values())
    return next((value for value in nested if value), None)


def _name(file: str, span: Span) -> str:
    return file if span.line == 1 else f"{file}:{span.line}"


def _positive_number(value: Any) -> float | None:
    """Return a positive finite number, also from text; otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = inf
    return number if isfinite(number) and number > 0 else None


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value and by else None

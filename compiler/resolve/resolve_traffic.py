"""Traffic of a service: lengths, load, and the recorded requests of a trace file."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from parc.compiler.catalog.library import FileRule, TextReader, read_user_file
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.serving import Lengths, Pool, Trace, TraceRequest, Traffic
from parc.compiler.spec.service_spec import LengthsSpec, TrafficSpec

AT = "job.traffic"
DEFAULT_RANGE_RATIO = 0.1
"""Deviation of lengths from their mean if the spec does not set it, as in InferenceX benchmarks.
With equal lengths and a given concurrency, all requests would start and end at the same time."""
TRACE_BLOCK = 512
"""Prompt tokens per entry of hash_ids in a trace of Mooncake (arXiv:2407.00079)."""
TRACE_FILE = FileRule(
    limit_bytes=64 * 1024 * 1024,
    advice="the simulation serves a few thousand requests, so a part of the trace is enough: "
    "head -n 200000 TRACE > PART",
)
"""Rule for a trace: about a million requests without hash_ids."""
FORMATS = (
    '{"seconds": 0.5, "input_tokens": 900, "output_tokens": 120}',
    '{"timestamp": 500, "input_length": 900, "output_length": 120, "hash_ids": [0, 1]}',
    "TIMESTAMP,ContextTokens,GeneratedTokens",
)
"""Example lines of the formats: PARC, Mooncake (milliseconds), Azure (head of the CSV file)."""

IGNORED: dict[str, tuple[str, ...]] = {
    "concurrency": ("burstiness",),
    "trace": ("input_tokens", "output_tokens", "lengths", "burstiness", "prefix_hit"),
}
"""Setting -> settings that have no effect together with it."""


def resolve_traffic(spec: TrafficSpec, library: TextReader, sink: Sink) -> Traffic | None:
    """Return the requests that the service must handle; None after reporting an error.

    Lengths, rate and prefix hits that the spec does not set are the means of the trace. Errors:
    a length is missing (X08), settings contradict each other (V34), or the trace cannot be read
    (K07) or is invalid (V35).
    """
    _check_combination(spec, sink)
    trace = None if spec.trace is None else _read_trace(spec.trace, library, sink)
    if spec.input_tokens is not None and spec.output_tokens is not None:
        lengths = float(spec.input_tokens), float(spec.output_tokens)
    elif trace is not None:
        lengths = _mean_lengths(trace)
    else:
        if spec.trace is None:
            _report_missing_lengths(spec, sink)
        return None
    if spec.trace is not None and trace is None:
        return None
    found = Traffic(
        *lengths,
        concurrency=spec.concurrency,
        request_rate=spec.request_rate,
        burstiness=spec.burstiness,
        lengths=_resolve_lengths(spec.lengths),
        prefix_hit=spec.prefix_hit,
    )
    return found if trace is None else _with_trace(found, trace)


def _resolve_lengths(spec: LengthsSpec) -> Lengths:
    """Return the distribution of the lengths."""
    ratio = spec.range_ratio
    if ratio is None:
        ratio = 0.0 if spec.input_cv or spec.output_cv else DEFAULT_RANGE_RATIO
    return Lengths(spec.input_cv, spec.output_cv, ratio)


def with_longest_prompt(
    traffic: Traffic, max_model_len: int | Literal["auto"], context: int
) -> Traffic:
    """Return the traffic with lognormal prompts that fit into ``max_model_len`` and ``context``.

    An answer of mean length must fit too.
    """
    longest = context if max_model_len == "auto" else min(max_model_len, context)
    lengths = traffic.lengths
    if not lengths.input_cv and not lengths.output_cv:
        return traffic
    # Requests of mean length above this length are an error (V24).
    most = max((longest - traffic.output_tokens) / traffic.input_tokens, 1.0)
    return replace(traffic, lengths=replace(lengths, input_most=most))


def _with_trace(traffic: Traffic, trace: Trace) -> Traffic:
    """Return the traffic with a trace, and with the rate and prefix hits of the trace."""
    rate = traffic.request_rate
    if rate is None and traffic.concurrency is None:
        # n requests have n - 1 times between arrivals.
        rate = (trace.count - 1) / trace.seconds
    return replace(traffic, request_rate=rate, prefix_hit=_prefix_hit(trace), trace=trace)


def without_prefix_hits(traffic: Traffic) -> Traffic:
    """Return the traffic of an engine without a prefix cache, which computes all prompt tokens."""
    trace = traffic.trace
    if trace is not None:
        requests = tuple(replace(one, blocks=()) for one in trace.requests)
        trace = replace(trace, requests=requests)
    return replace(traffic, prefix_hit=0.0, trace=trace)


def traffic_of_pool(pool: Pool, traffic: Traffic) -> Traffic:
    """Return the part of the traffic that the engines of ``pool`` process.

    Prompts end with one token in the prefill pool. The decode pool receives the KV cache of a
    prompt, and computes only its last token, as if the other tokens were in its prefix cache.
    """
    if pool == "prefill":
        lengths = replace(traffic.lengths, output_cv=0.0)
        return replace(traffic, output_tokens=1.0, lengths=lengths)
    if pool == "decode":
        return replace(traffic, prefix_hit=1 - 1 / traffic.input_tokens)
    return traffic


def _check_combination(spec: TrafficSpec, sink: Sink) -> None:
    """Report settings that contradict each other (V34)."""
    written = spec.model_fields_set
    lengths = spec.lengths
    if (lengths.input_cv or lengths.output_cv) and lengths.range_ratio:
        finding = Finding(
            "job.traffic.lengths sets both coefficients of variation and range_ratio",
            label="lengths are either lognormal or uniform",
            fix="remove job.traffic.lengths.range_ratio",
        )
        sink.report("V34", finding, at=f"{AT}.lengths.range_ratio", key=True)
    for owner, names in IGNORED.items():
        for name in names:
            if owner not in written or name not in written:
                continue
            finding = Finding(
                f"job.traffic sets both {owner} and {name}",
                label=f"{name} has no effect together with {owner}",
                fix=f"remove job.traffic.{name}",
                causes=(Cause(f"{AT}.{owner}", f"{owner} is set here"),),
            )
            sink.report("V34", finding, at=f"{AT}.{name}", key=True)


def _report_missing_lengths(spec: TrafficSpec, sink: Sink) -> None:
    """Report the mean lengths that a spec without a trace must set (X08)."""
    for name, example in (("input_tokens", 1000), ("output_tokens", 500)):
        if getattr(spec, name) is None:
            finding = Finding(
                f"{name} is missing in job.traffic",
                label=f"{name} must be a whole number of at least 1",
                help="or set job.traffic.trace to a file of recorded requests",
                fix=f"set job.traffic.{name}, for example job.traffic.{name}: {example}",
            )
            sink.report("X08", finding, at=AT)


def _mean_lengths(trace: Trace) -> tuple[float, float]:
    """Return the mean lengths of prompts and answers of a trace, in tokens."""
    prompts = sum(one.input_tokens for one in trace.requests)
    answers = sum(one.output_tokens for one in trace.requests)
    return prompts / trace.count, answers / trace.count


def _prefix_hit(trace: Trace) -> float:
    """Return the fraction of prompt tokens that an unlimited prefix cache would already contain."""
    seen: set[int] = set()
    hits = 0
    for one in trace.requests:
        known = next((n for n, block in enumerate(one.blocks) if block not in seen), None)
        blocks = len(one.blocks) if known is None else known
        hits += min(blocks * TRACE_BLOCK, one.input_tokens - 1)
        seen.update(one.blocks)
    return hits / sum(one.input_tokens for one in trace.requests)


class _TraceError(ValueError):
    """Error in one line of a trace."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def _read_trace(path: str, library: TextReader, sink: Sink) -> Trace | None:
    """Return the trace in the file at ``path``; None after reporting an error (K07, V35)."""
    at = f"{AT}.trace"
    text = read_user_file(path, library, sink, at, TRACE_FILE)
    if text is None:
        return None
    try:
        requests = tuple(_parse_lines(text))
    except _TraceError as error:
        finding = Finding(
            f"line {error.line} of {path[:200]} is not a recorded request: {error}",
            label="expected a line of one of the formats below",
            help="; or ".join(FORMATS),
        )
        sink.report("V35", finding, at=at, span=Span(path, error.line, 1))
        return None
    first = requests[0].seconds if requests else 0.0
    seconds = requests[-1].seconds - first if requests else 0.0
    if seconds <= 0:
        finding = Finding(
            f"{path[:200]} covers 0 s (number of requests: {len(requests)})",
            label="a trace needs at least two requests with different times",
        )
        sink.report("V35", finding, at=at)
        return None
    moved = tuple(replace(one, seconds=one.seconds - first) for one in requests)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Trace(path, digest, len(requests), seconds, moved)


def _parse_lines(text: str) -> Iterator[TraceRequest]:
    """Yield the requests of a trace.

    Raises:
        _TraceError: a line is invalid, or earlier than the line before it.
    """
    lines = text.splitlines()
    found = _parse_csv(lines) if text[:1] not in ("{", "") else _parse_json(lines)
    previous = None
    for line, one in found:
        if previous is not None and one.seconds < previous:
            message = "its time is earlier than the time of the line above; sort by time"
            raise _TraceError(line, message)
        previous = one.seconds
        yield one


def _parse_csv(lines: list[str]) -> Iterator[tuple[int, TraceRequest]]:
    """Yield (line number, request) of the rows of a CSV file of Azure."""
    head = FORMATS[2].split(",")
    if lines[0].split(",") != head:
        raise _TraceError(1, f"a CSV file starts with {FORMATS[2]}")
    for line, row in enumerate(csv.reader(lines[1:]), start=2):
        if len(row) != len(head):
            raise _TraceError(line, f"{len(row)} columns instead of {len(head)}")
        try:
            # Azure writes seven digits of a second, of which Python reads six.
            time = datetime.fromisoformat(row[0][:26]).replace(tzinfo=UTC).timestamp()
            lengths = int(row[1]), int(row[2])
        except ValueError as error:
            raise _TraceError(line, "the time or a length is invalid") from error
        yield line, _read_request(line, time, lengths)


def _parse_json(lines: list[str]) -> Iterator[tuple[int, TraceRequest]]:
    """Yield (line number, request) of JSON lines, in the format of PARC or Mooncake."""
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _TraceError(line, "the line is not JSON") from error
        if not isinstance(value, dict):
            raise _TraceError(line, "the line is not a JSON object")
        if "input_length" in value:
            keys, unit = ("timestamp", "input_length", "output_length"), 1e-3
        else:
            keys, unit = ("seconds", "input_tokens", "output_tokens"), 1.0
        time, *lengths = (_read_number(line, value, key) for key in keys)
        blocks = value.get("hash_ids", ())
        if not isinstance(blocks, list | tuple) or not all(type(one) is int for one in blocks):
            raise _TraceError(line, "hash_ids is not a list of integers")
        yield line, _read_request(line, time * unit, lengths, tuple(blocks))


def _read_number(line: int, value: Mapping[str, Any], key: str) -> float:
    """Return the number that a JSON object has for ``key``."""
    number: Any = value.get(key)
    # JSON allows integers that are too large for a float, and Python also reads Infinity.
    if type(number) not in (int, float) or not -1e15 < number < 1e15:
        raise _TraceError(line, f"{key} is missing or is not a number")
    return float(number)


def _read_request(
    line: int, seconds: float, lengths: Iterable[float], blocks: tuple[int, ...] = ()
) -> TraceRequest:
    prompt, answer = lengths
    # A request with an empty answer was canceled; its prompt was computed.
    if not 1 <= prompt <= 1e9 or not 0 <= answer <= 1e9:
        raise _TraceError(line, "a length is not between 1 and 10^9 tokens")
    return TraceRequest(seconds, int(prompt), max(int(answer), 1), blocks)

"""Traffic of a service: trace files in three formats, their means, and invalid lines."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.ir.serving import Traffic
from parc.compiler.resolve.resolve_traffic import resolve_traffic
from parc.compiler.spec.service_spec import TrafficSpec


class OneFile:
    """Reader of a single file."""

    def __init__(self, content: str) -> None:
        self.content = content

    def text(self, path: str, limit_bytes: int = 0) -> str:
        if path != "trace":
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.content


def resolved(content: str, **settings: object) -> tuple[Traffic | None, Sink]:
    sink = Sink()
    spec = TrafficSpec.model_validate({"trace": "trace", **settings})
    return resolve_traffic(spec, OneFile(content), sink), sink


PLAIN = """\
{"seconds": 10, "input_tokens": 100, "output_tokens": 10}

{"seconds": 10.5, "input_tokens": 300, "output_tokens": 30}
{"seconds": 12, "input_tokens": 200, "output_tokens": 0}
"""
MOONCAKE = """\
{"timestamp": 10000, "input_length": 100, "output_length": 10}
{"timestamp": 10500, "input_length": 300, "output_length": 30, "hash_ids": []}
{"timestamp": 12000, "input_length": 200, "output_length": 0}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.5000000,100,10
2023-11-16 18:15:47.0000000,300,30
2023-11-16 18:15:48.5000000,200,0
"""


@pytest.mark.parametrize("content", [PLAIN, MOONCAKE, AZURE], ids=["plain", "mooncake", "azure"])
def test_a_trace_in_any_format_gives_times_lengths_and_rate(content: str) -> None:
    found, sink = resolved(content)
    assert not sink.diagnostics
    assert found is not None
    assert found.trace is not None
    assert [one.seconds for one in found.trace.requests] == pytest.approx([0, 0.5, 2])
    assert [one.input_tokens for one in found.trace.requests] == [100, 300, 200]
    # An empty answer counts as one token.
    assert [one.output_tokens for one in found.trace.requests] == [10, 30, 1]
    assert found.input_tokens == 200
    assert found.output_tokens == pytest.approx(41 / 3)
    assert found.request_rate == pytest.approx(1.0)


def test_the_load_of_a_spec_replaces_that_of_its_trace() -> None:
    faster, _ = resolved(PLAIN, request_rate=8.0)
    closed, _ = resolved(PLAIN, concurrency=4)
    assert faster is not None
    assert closed is not None
    assert faster.request_rate == 8.0
    assert (closed.request_rate, closed.concurrency) == (None, 4)


def test_prefixes_that_were_seen_before_are_hits() -> None:
    lines = [
        '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}',
        '{"timestamp": 1, "input_length": 1500, "output_length": 1, "hash_ids": [1, 2, 3]}',
        '{"timestamp": 2, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}',
        '{"timestamp": 3, "input_length": 1024, "output_length": 1, "hash_ids": [9, 2]}',
    ]
    found, _ = resolved("\n".join(lines))
    assert found is not None
    # At least the last token of a prompt is computed.
    assert found.prefix_hit == pytest.approx((1024 + 1023) / (3 * 1024 + 1500))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello\n", "line 1 of trace is not a recorded request: a CSV file starts with"),
        (AZURE + "2023-11-16 18:15:49.0,7\n", "line 5 of trace"),
        (AZURE + "yesterday,7,7\n", "the time or a length is invalid"),
        (
            AZURE + "2023-11-16 18:15:40.0,7,7\n",
            "its time is earlier than the time of the line above; sort by time",
        ),
        (PLAIN + "{\n", "line 5 of trace is not a recorded request: the line is not JSON"),
        (PLAIN + "[]\n", "the line is not a JSON object"),
        (PLAIN + '{"seconds": 13, "input_tokens": 7}\n', "output_tokens is missing"),
        (PLAIN + '{"seconds": NaN, "input_tokens": 7, "output_tokens": 7}\n', "seconds is missing"),
        (PLAIN + '{"seconds": 13, "input_tokens": 0, "output_tokens": 7}\n', "between 1 and 10^9"),
        (MOONCAKE + MOONCAKE.splitlines()[2][:-1] + ', "hash_ids": ["a"]}', "hash_ids is not"),
        ("", "trace covers 0 s (number of requests: 0)"),
        (PLAIN.splitlines()[0], "trace covers 0 s (number of requests: 1)"),
    ],
)
def test_an_invalid_trace_is_reported_with_its_line(content: str, words: str) -> None:
    found, sink = resolved(content)
    assert found is None
    assert [one.code for one in sink.diagnostics] == ["PARC-V35"]
    assert words in sink.diagnostics[0].finding.message


def test_a_missing_trace_is_reported_where_the_spec_names_it() -> None:
    sink = Sink()
    found = resolve_traffic(TrafficSpec(trace="absent"), OneFile(""), sink)
    assert found is None
    assert [(one.code, one.path) for one in sink.diagnostics] == [("PARC-K07", "job.traffic.trace")]


@pytest.mark.parametrize(
    ("lengths", "ratio"),
    [
        ({}, 0.1),
        ({"range_ratio": 0.0}, 0.0),
        ({"output_cv": 1.0}, 0.0),
        ({"range_ratio": 0.3}, 0.3),
    ],
)
def test_lengths_vary_a_little_unless_the_spec_says_otherwise(
    lengths: dict[str, float], ratio: float
) -> None:
    spec = TrafficSpec.model_validate({"input_tokens": 10, "output_tokens": 10, "lengths": lengths})
    found = resolve_traffic(spec, OneFile(""), Sink())
    assert found is not None
    assert found.lengths.range_ratio == ratio

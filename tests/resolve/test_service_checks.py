"""Checks of a serving spec against its trace."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.registry import engine
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.serving import Trace, TraceRequest, Traffic
from parc.compiler.resolve.check_service import check_service
from parc.compiler.resolve.resolve_traffic import TRACE_FILE, resolve_traffic
from parc.compiler.spec.service_spec import TrafficSpec
from tests.search import serving_specs


class LongFile:
    """Reader that reports each file as longer than the limit."""

    def __init__(self) -> None:
        self.limit_bytes = 0

    def text(self, path: str, limit_bytes: int = 0) -> str:
        self.limit_bytes = limit_bytes
        raise OSError(27, "the file is too long", path)


def test_the_longest_request_of_a_trace_must_fit_not_only_the_mean() -> None:
    problem = serving_specs.problem_of(serving_specs.spec("llama-3.1-8b", "dgx-h100"))
    requests = (TraceRequest(0, 100, 10), TraceRequest(1, 130_000, 2_000))
    trace = Trace("requests.jsonl", "", 2, 1.0, requests)
    traffic = Traffic(65_050, 1_005, request_rate=1.0, trace=trace)
    sink = Sink()
    service = replace(problem.service, traffic=traffic)
    check_service(service, engine("vllm"), problem.cluster.gpu, sink)
    (found,) = sink.diagnostics
    assert found.code == "PARC-V24"
    assert found.finding.message == (
        "the longest requests of the trace of 132000 tokens (input + output) exceed the maximum "
        "of 131072"
    )


def test_a_trace_may_be_longer_than_other_files_and_a_longer_one_has_a_way_out() -> None:
    reader, sink = LongFile(), Sink()
    resolve_traffic(TrafficSpec.model_validate({"trace": "long.csv"}), reader, sink)
    assert reader.limit_bytes == TRACE_FILE.limit_bytes == 64 * 2**20
    assert "head -n" in sink.diagnostics[0].finding.help

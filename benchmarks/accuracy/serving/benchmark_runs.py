"""Benchmarks of services that no fit uses, predicted in steady state and as the benchmark ran.

python -m benchmarks.accuracy.serving.benchmark_runs

``published/serving_benchmarks.csv`` has outputs of benchmark_serving.py, ``vllm bench serve``,
``sglang.bench_serving`` and LLMPerf from issues, pull requests and documentation, in the format of
the table of percentiles. Its rows were entered by these rules before any of them was predicted:

- Times are means. In a closed loop of one request whose mean time to the first token is more than
  twice the median, the first request compiled kernels: the time is the median, and the throughput
  is blank.
- ``requests``: number of requests that the benchmark sent. Without concurrency and rate, all of
  them arrived at once, and only the throughput is entered, because their mean times are those of
  the queue. Benchmarks that send 50 requests at 10 per second "for a fast ramp up" are closed
  loops of 50 requests with one round.
- Poisson arrivals have no throughput, because it equals the offered load.
- Lengths of ShareGPT have the coefficients of variation of the table of percentiles. SGLang's
  ``random`` data set draws uniform lengths from 1 token to twice the mean.
- Rows are left out if their document does not state the GPU or the layout, states it twice
  differently, or reports a misconfiguration, and if speculative decoding was on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from pathlib import Path

from benchmarks.accuracy.serving.percentiles import PercentileRow, read_percentiles, simulate_run
from parc.compiler.cost.serving.simulation.front_end import serve
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestSample,
    request_maker,
)
from parc.compiler.cost.serving.simulation.scheduler import Request
from parc.compiler.cost.serving.simulation.simulate import (
    Served,
    front_end,
    idle_engines,
    rank_limits,
    service_statistics,
)
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.ir.serving import ServiceStatistics

PUBLISHED = Path(__file__).parent.parent / "published" / "serving_benchmarks.csv"
SEED = 1


def simulate_benchmark(one: PercentileRow) -> ServiceStatistics | None:
    """Return the statistics of all requests of a benchmark, from its first to its last.

    The result is None if the KV cache is too small for a request, or if the source does not state
    the number of requests.
    """
    deployment, traffic = one.deployment, one.row.traffic
    estimate = estimate_deployment(deployment, traffic)
    if not estimate.fits or not one.requests:
        return None
    if traffic.request_rate is not None:
        return simulate_run(deployment, traffic, one.requests, SEED)
    limits, replicas = rank_limits(deployment, traffic, estimate), deployment.layout.replicas
    engines = idle_engines(deployment, traffic, limits, replicas)
    maker = request_maker(
        traffic,
        RequestSample(traffic, SEED),
        limits.longest_request,
        PrefixCaches(limits.cache_tokens),
    )
    present = min(int(traffic.concurrency or one.requests), one.requests)
    later = iter(range(one.requests - present))

    def renew(now: float) -> Request:
        # After the last request of the benchmark, none arrives.
        return Request(inf, 1, 1) if next(later, None) is None else maker(now)

    front = front_end(deployment, traffic, replicas, is_closed=True, seed=SEED)
    done = list(serve(engines, front, map(maker, repeat(0.0, present)), renew))
    tokens = sum(request.output for request in done)
    return service_statistics(Served(done, done[-1].finish, len(done), tokens), engines, 1.0)

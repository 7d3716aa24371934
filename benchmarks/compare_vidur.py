"""Percentiles of PARC's event simulation and of Vidur's, for the same requests and step times.

    python -m benchmarks.compare_vidur CHECKOUT [--requests N]

CHECKOUT is a checkout of github.com/microsoft/vidur, which is not part of this project. Its
requests, events and Sarathi scheduler (chunked prompts, decoding first, preemption) run unchanged.
Its times of batches are replaced by PARC's time of a step, evaluated for each batch without PARC's
tables, so that differences come from the two simulations and not from the cost model. Vidur counts
the cache in blocks of 16 tokens, PARC in tokens.

The services differ in model, layout, lengths, tokens per step, size of the cache, and load. Each
simulation serves the same requests from the first one to the last one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import islice
from math import inf
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

from benchmarks.accuracy.pages.page_tables import markdown
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.simulation.front_end import FrontEnd, serve
from parc.compiler.cost.serving.simulation.requests import (
    PrefixCaches,
    RequestSample,
    open_arrivals,
    request_maker,
)
from parc.compiler.cost.serving.simulation.scheduler import RankLimits, Request
from parc.compiler.cost.serving.simulation.simulate import (
    idle_engines,
    rank_limits,
    sample_distribution,
)
from parc.compiler.cost.serving.simulation.stop_rule import request_latency
from parc.compiler.cost.serving.step import (
    StepBatch,
    mean_visible_prompt_keys,
    seconds_through_all_stages,
)
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serving import Distribution, Lengths, Traffic
from parc.compiler.ir.serving_goals import LatencyName
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource

BLOCK_TOKENS = 16
PERCENTILES = ("p50", "p90", "p99")
LATENCIES: tuple[LatencyName, ...] = ("ttft", "tpot", "e2e")
ABSENT = ("numpy", "pandas", "wandb", "plotly_express", "ddsketch", "scipy", "sklearn", "fasteners")
"""Packages that Vidur imports for metrics, plots, and its own times of batches."""


@dataclass(frozen=True, slots=True)
class Service:
    """Service with one engine, and its load."""

    model: str
    node: str
    tp: int
    input_tokens: int
    output_tokens: int
    variation: float
    """Coefficient of variation of both lengths; 0: all requests are equally long."""
    utilization: float
    """Request rate divided by the estimated largest rate of the engine."""
    step_tokens: int = 8192
    cache_share: float = 1.0
    """Share of the cache that the engine may use. A small one leads to preemption."""

    @property
    def text(self) -> str:
        """Model, layout, lengths, step and load of the service."""
        return (
            f"{self.model}, {self.node}, tp {self.tp}, {self.input_tokens} + {self.output_tokens} "
            f"tokens (CV {self.variation}), {self.step_tokens} per step, "
            f"{100 * self.cache_share:.0f} % of the cache, load {self.utilization}"
        )


SERVICES = (
    Service("llama-3.1-8b", "dgx-h100", 1, 1000, 200, 0.0, 0.5),
    Service("llama-3.1-8b", "dgx-h100", 1, 1000, 200, 0.8, 0.8),
    Service("llama-3.1-8b", "dgx-a100", 1, 4000, 100, 0.5, 0.9, 2048),
    Service("llama-3.1-8b", "dgx-a100", 1, 500, 400, 0.8, 0.9, 2048, 0.3),
    Service("llama-3.1-70b", "dgx-h100", 4, 2000, 300, 0.8, 0.7, 512),
    Service("llama-3.1-70b", "hgx-h200", 8, 8000, 100, 0.5, 0.8),
    Service("qwen2.5-32b", "dgx-h100", 2, 1000, 300, 0.8, 0.9),
    Service("qwen2.5-32b", "dgx-h100", 2, 1000, 300, 1.0, 0.6, 2048, 0.5),
    Service("mixtral-8x7b", "dgx-h100", 4, 2000, 200, 0.8, 0.8),
    Service("gpt-oss-20b", "l40s-8", 1, 1000, 150, 0.5, 0.8, 1024),
)


def deployment_of(service: Service) -> Deployment:
    """Return the engine of ``service``."""
    spec = {
        "parc": 1,
        "name": "one-engine",
        "model": service.model,
        "cluster": {"node": service.node, "nodes": 1},
        "job": {
            "kind": "serve",
            "precision": "mxfp4" if service.model.startswith("gpt-oss") else "bf16",
            "checkpoint": "/models/own",
            "max_num_batched_tokens": service.step_tokens,
            "traffic": {
                "input_tokens": service.input_tokens,
                "output_tokens": service.output_tokens,
                "request_rate": 0.01,
            },
        },
        "layout": {"tp": service.tp, "pp": 1, "dp": 1, "replicas": 1},
    }
    sink = Sink()
    plan = plan_spec(SpecSource("service.yaml", json.dumps(spec), None), (), sink)
    if not isinstance(plan, ServingPlan):
        raise SystemExit(f"{service} has no plan: {[one.code for one in sink.diagnostics]}")
    problem = plan.problem
    return build_deployment(problem.model, problem.cluster, problem.service.setup, plan.layout)


def traffic_of(service: Service, deployment: Deployment) -> Traffic:
    """Return the traffic of ``service`` at its share of the largest request rate."""
    full = Traffic(service.input_tokens, service.output_tokens, None, None)
    full = replace(full, lengths=Lengths(service.variation, service.variation, 0.0))
    rate = estimate_deployment(deployment, full).requests_per_second * service.utilization
    return replace(full, request_rate=rate)


def requests_of(traffic: Traffic, longest: int, count: int) -> list[Request]:
    """Return the first ``count`` requests of ``traffic``; none has more than ``longest`` tokens."""
    sample = RequestSample(traffic, f"vidur {traffic}")
    maker = request_maker(traffic, sample, longest, PrefixCaches(inf))
    return list(islice(open_arrivals(traffic.request_rate or 0.0, sample, maker), count))


def serve_with_parc(
    deployment: Deployment, traffic: Traffic, limits: RankLimits, requests: Sequence[Request]
) -> list[Request]:
    """Serve copies of ``requests`` with PARC's simulation, and return them."""
    copies = [Request(one.arrival, one.prompt, one.output) for one in requests]
    engines = idle_engines(deployment, traffic, limits, 1)
    return list(serve(engines, FrontEnd(0.0, 0.0), iter(copies)))


class _AbsentPackages(MetaPathFinder, Loader):
    """Finder of empty modules in place of the packages that the comparison does not need."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _NoMetrics:
    """Store of metrics that ignores all of them."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclass(frozen=True, slots=True)
class _Predictor:
    """PARC's time of a step, as Vidur asks for it."""

    deployment: Deployment

    def get_execution_time(self, batch: Any, _stage: int) -> SimpleNamespace:
        """Return the time of a batch of Vidur, which contains requests and their tokens."""
        decode = context = prompt = keys = 0.0
        for request, tokens in zip(batch.requests, batch.num_tokens, strict=True):
            done = request.num_processed_tokens
            if request.is_prefill_complete:
                decode, context = decode + 1, context + done
            else:
                visible = self.visible_keys(done + tokens) - self.visible_keys(done)
                prompt, keys = prompt + tokens, keys + visible
        step = StepBatch(
            decode, context / decode if decode else 0.0, prompt, keys / prompt if prompt else 0.0
        )
        seconds = seconds_through_all_stages(self.deployment, step).total_seconds
        return SimpleNamespace(total_time=seconds, model_time=seconds)

    def visible_keys(self, tokens: int) -> float:
        """Return the sum of the keys that the first ``tokens`` tokens of a prompt attend to."""
        return tokens * mean_visible_prompt_keys(self.deployment.model, tokens) if tokens else 0.0


def serve_with_vidur(
    deployment: Deployment, limits: RankLimits, requests: Sequence[Request]
) -> list[Request]:
    """Serve copies of ``requests`` with Vidur's events and Sarathi scheduler, and return them."""
    schedulers = "vidur.scheduler.replica_scheduler.sarathi_replica_scheduler"
    stages = import_module("vidur.scheduler.replica_stage_scheduler")
    events = import_module("vidur.events.request_arrival_event")
    request_type = import_module("vidur.entities.request").Request
    fleet = import_module("vidur.scheduler.global_scheduler.round_robin_global_scheduler")
    # The constructors plan memory and fit times of batches, both of which PARC provides.
    rank = object.__new__(import_module(schedulers).SarathiReplicaScheduler)
    rank._config = SimpleNamespace(
        block_size=BLOCK_TOKENS,
        num_blocks=int(limits.cache_tokens / BLOCK_TOKENS),
        batch_size_cap=limits.running,
        chunk_size=limits.step_tokens,
    )
    rank._replica_id, rank._num_stages, rank._num_running_batches = 0, 1, 0
    rank._max_micro_batch_size, rank._watermark_blocks = limits.running, 0
    rank._preempted_requests, rank._request_queue = [], []
    rank._num_allocated_blocks, rank._allocation_map = 0, {}
    predictor = _Predictor(deployment)
    rank._replica_stage_schedulers = {0: stages.ReplicaStageScheduler(0, 0, True, predictor)}
    whole = object.__new__(fleet.RoundRobinGlobalScheduler)
    whole._request_queue, whole._request_counter = [], 0
    whole._num_replicas, whole._replica_schedulers = 1, {0: rank}
    coming = [request_type(one.arrival, one.prompt, one.output) for one in requests]
    queue = [events.RequestArrivalEvent(one.arrived_at, one) for one in coming]
    heap = [(event._priority_number, event) for event in queue]
    heapq.heapify(heap)
    while heap:
        _, event = heapq.heappop(heap)
        for follower in event.handle_event(whole, _NoMetrics()):
            heapq.heappush(heap, (follower._priority_number, follower))
    done = []
    for one, found in zip(requests, coming, strict=True):
        copy = Request(one.arrival, one.prompt, one.output)
        copy.first, copy.finish = found.prefill_completed_at, found.completed_at
        done.append(copy)
    return done


def distributions(done: Sequence[Request]) -> dict[LatencyName, Distribution]:
    """Return the distribution of each latency of ``done``."""
    several = [one for one in done if one.output > 1]
    return {
        name: sample_distribution(
            request_latency(one, name) for one in (several if name == "tpot" else done)
        )
        for name in LATENCIES
    }


def ratios(service: Service, count: int) -> dict[tuple[LatencyName, str], float]:
    """Return (latency, percentile) -> PARC's value divided by Vidur's, for ``service``."""
    deployment = deployment_of(service)
    traffic = traffic_of(service, deployment)
    limits = rank_limits(deployment, traffic)
    limits = replace(limits, cache_tokens=limits.cache_tokens * service.cache_share)
    requests = requests_of(traffic, limits.longest_request, count)
    own = distributions(serve_with_parc(deployment, traffic, limits, requests))
    other = distributions(serve_with_vidur(deployment, limits, requests))
    return {
        (name, share): getattr(own[name], share) / getattr(other[name], share)
        for name in LATENCIES
        for share in PERCENTILES
    }


def report(found: Mapping[Service, Mapping[tuple[LatencyName, str], float]]) -> str:
    """Return a table of the differences in percent by service, and a line about all of them."""
    keys = [(name, share) for name in LATENCIES for share in PERCENTILES]
    rows = [
        (service.text, *(f"{100 * (one[key] - 1):+.1f}" for key in keys))
        for service, one in found.items()
    ]
    table = markdown(("service", *(f"{name.upper()} {share}" for name, share in keys)), rows)
    apart = [abs(one[key] - 1) for one in found.values() for key in keys]
    within = sum(one <= 0.05 for one in apart) / len(apart)
    return (
        f"{table}\n\n{len(apart)} percentiles: median difference {100 * median(apart):.1f} %, "
        f"largest {100 * max(apart):.1f} %, at most 5 %: {100 * within:.0f} %."
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(options.checkout))
    sys.meta_path.append(_AbsentPackages())
    found = {service: ratios(service, options.requests) for service in SERVICES}
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The layout that serves best: every legal division of the GPUs, priced and compared.

Rules are those of the engines: heads divide by tp, key-value heads divide or are divided by it,
experts by ep, the widths that are split by their ranks, and an engine takes whole hosts or a part
of one. Every layout that a rule drops is counted under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from parc.compiler.cost.serving import estimate_serving
from parc.compiler.cost.serving_types import (
    ServingEstimate,
    ServingLayout,
    ServingSetup,
    Traffic,
)
from parc.compiler.ir import Cluster, Model

TIE = 0.03
"""Predictions this close are ties; the simpler layout wins."""
SUSTAINED = 0.97
"""Share of the request rate that must be served."""
MAX_PP = 16
BLOCKS = {"fp8": 128, "int4": 128, "nvfp4": 16}
"""Weights that share a scale along the split width (DeepSeek's fp8, AWQ and GPTQ, NVIDIA)."""

Goal = Literal["throughput", "latency", "fewest-gpus"]


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What users must see; None where there is no limit."""

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    gpus: int | None = None
    """Most GPUs to use; None: those of the cluster."""


@dataclass(frozen=True, slots=True)
class ServingSearch:
    """Layouts that meet every limit, best first, and how many each rule dropped."""

    ranked: tuple[ServingEstimate, ...]
    dropped: tuple[tuple[str, int], ...]
    """(rule, layouts), most first."""

    @property
    def best(self) -> ServingEstimate | None:
        """The choice; None where nothing meets the limits."""
        return self.ranked[0] if self.ranked else None


@dataclass(frozen=True, slots=True)
class ServingTask:
    """What is to be served, on what, for what."""

    model: Model
    cluster: Cluster
    setup: ServingSetup
    traffic: Traffic
    limits: ServingLimits = ServingLimits()
    goal: Goal = "throughput"


def search_serving(task: ServingTask) -> ServingSearch:
    """Price every legal layout of ``task`` and rank those that meet its limits."""
    gpus = min(task.limits.gpus or task.cluster.gpus, task.cluster.gpus)
    dropped: Counter[str] = Counter()
    kept: list[ServingEstimate] = []
    for layout in engine_layouts(task.model, task.cluster, gpus):
        rule = _illegal(task, layout)
        if rule is not None:
            dropped[rule] += 1
            continue
        found = _sized(task, layout, gpus)
        rule = _missed(task, found)
        if rule is None:
            kept.append(found)
        else:
            dropped[rule] += 1
    order = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return ServingSearch(tuple(_ranked(task, kept)), tuple(order))


def engine_layouts(model: Model, cluster: Cluster, gpus: int) -> Iterator[ServingLayout]:
    """Layouts of one engine on at most ``gpus`` GPUs, legal or not.

    A dense model has no dp inside an engine: copies of it are replicas.
    """
    for tp in _divisors(model.attention.heads, gpus):
        for pp in range(1, min(gpus // tp, model.layers, MAX_PP) + 1):
            widest = gpus // (tp * pp) if model.experts else 1
            degrees = ((dp, ep) for dp in range(1, widest + 1) for ep in _shares(model, tp * dp))
            yield from (ServingLayout(tp, pp, dp, ep) for dp, ep in degrees)


def _divisors(number: int, limit: int) -> list[int]:
    return [value for value in range(1, min(number, limit) + 1) if number % value == 0]


def _shares(model: Model, ranks: int) -> list[int]:
    """Expert-parallel degrees over ``ranks``; [1] for a dense model."""
    return _divisors(ranks, ranks) if model.experts else [1]


def _illegal(task: ServingTask, layout: ServingLayout) -> str | None:
    """The first rule that ``layout`` breaks."""
    model, cluster, weights = task.model, task.cluster, task.setup.weights
    heads, experts = model.attention.kv_heads, model.experts
    latent = model.attention.latent is not None
    if not latent and heads % layout.tp and layout.tp % heads:
        return "key-value heads do not divide by tp"
    if model.ffn.size % layout.tp:
        return "MLP width does not divide by tp"
    if experts and experts.count % layout.ep:
        return "experts do not divide by ep"
    if experts and experts.size % layout.expert_tp:
        return "expert width does not divide"
    block = BLOCKS.get(weights, 1)
    if experts and experts.size // layout.expert_tp % block:
        return "quantisation blocks do not divide the expert width"
    if not _aligned(layout, max(cluster.node.gpus, cluster.node.nvlink_domain)):
        return "engine straddles hosts"
    return None


def _aligned(layout: ServingLayout, host: int) -> bool:
    """Whether engines and stages fill a part of a host (NVLink rack) evenly, or whole ones."""
    engine, stage = layout.engine_gpus, layout.tp * layout.dp
    if engine <= host:
        return host % engine == 0
    return engine % host == 0 and (host % stage == 0 or stage % host == 0)


def _sized(task: ServingTask, layout: ServingLayout, gpus: int) -> ServingEstimate:
    """``layout`` with as many replicas as fit, or as few as meet the limits."""
    most = max(gpus // layout.engine_gpus, 1)
    found = _estimate(task, layout, most)
    if task.goal != "fewest-gpus" or _missed(task, found):
        return found
    low, high = 1, most  # more replicas never hurt: bisect
    while low < high:
        middle = (low + high) // 2
        tried = _estimate(task, layout, middle)
        low, high = (middle + 1, high) if _missed(task, tried) else (low, middle)
        found = found if high != middle else tried
    return found


def _estimate(task: ServingTask, layout: ServingLayout, replicas: int) -> ServingEstimate:
    placed = replace(layout, replicas=replicas)
    return estimate_serving(task.model, task.cluster, task.setup, placed, task.traffic)


def _missed(task: ServingTask, found: ServingEstimate) -> str | None:
    """The first limit that ``found`` misses."""
    limits, traffic = task.limits, task.traffic
    if not found.fits:
        return "no request fits in memory"
    if limits.ttft_seconds is not None and found.ttft_seconds > limits.ttft_seconds:
        return "time to first token"
    if limits.tpot_seconds is not None and found.tpot_seconds > limits.tpot_seconds:
        return "time per output token"
    if traffic.concurrency is not None and found.layout.replicas > traffic.concurrency:
        return "more replicas than requests"
    rate = traffic.request_rate
    if rate is not None and found.requests_per_second < SUSTAINED * rate:
        return "request rate"
    return None


def _scores(task: ServingTask, found: ServingEstimate) -> tuple[float, float]:
    """What to make small, and what decides among equals."""
    later = max(task.traffic.output_tokens - 1, 0.0)
    latency = found.ttft_seconds + later * found.tpot_seconds
    speed = 1 / found.tokens_per_second
    if task.goal == "fewest-gpus":
        return float(found.layout.gpus), latency if task.traffic.request_rate else speed
    if task.goal == "latency" or task.traffic.request_rate is not None:
        return latency, latency
    return speed, speed


def _ranked(task: ServingTask, kept: list[ServingEstimate]) -> list[ServingEstimate]:
    """By score; those within TIE of the best come first, the simplest of them ahead."""
    ordered = sorted(kept, key=lambda found: _scores(task, found))
    if not ordered:
        return []
    primary, secondary = _scores(task, ordered[0])
    slack = 1.0 if task.goal == "fewest-gpus" else 1 + TIE

    def tied(found: ServingEstimate) -> bool:
        first, second = _scores(task, found)
        return first <= primary * slack and second <= secondary * (1 + TIE)

    ties = sorted((found for found in ordered if tied(found)), key=_effort)
    return ties + [found for found in ordered if not tied(found)]


def _effort(found: ServingEstimate) -> tuple[int, ...]:
    """Axes in use, then stages, ranks that wait for one another, and replicas."""
    layout = found.layout
    axes = sum(degree > 1 for degree in (layout.tp, layout.pp, layout.dp, layout.ep))
    return axes, layout.pp, layout.tp * layout.dp, layout.replicas

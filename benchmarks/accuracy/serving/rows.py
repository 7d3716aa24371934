"""Published measurements of serving deployments, converted to inputs of the cost model.

``published/serving.csv`` has one measurement per row. Cells are blank if the source does not state
the value.

- ``engine``: a name of ``ENGINES``. ``+triton`` means that the requests go through Triton Inference
  Server, whose front end is native code, and ``+loadgen`` that MLPerf's load generator runs in the
  process of the engine. The delays of both are not published and taken as 0. ``+sync`` means that
  the GPU waits for the host in each step (vLLM before 0.14 without ``--async-scheduling``).
- ``model``, ``node``: catalog names, or the additional models that ``model_named`` defines.
- ``gpus``: total number; more than one engine needs means replicas.
- ``apart``: 1 if prompts run on other GPUs, which ``gpus`` then excludes.
- ``share``: mean over nominal length, if lengths are drawn uniformly up to the nominal length.
- ``wait_steps``: decode steps by which options of the benchmark delay new requests.
- ``sweep``: name of a group of rows that differ only in layout.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from benchmarks.accuracy.serving.engines import ENGINES
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import (
    KvPrecision,
    Lengths,
    ServingLayout,
    ServingSetup,
    Traffic,
    WeightPrecision,
)
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.cluster_spec import ClusterSpec

PUBLISHED = Path(__file__).parent.parent / "published" / "serving.csv"
HOSTS = 18
"""Hosts of the cluster that the estimate uses: a rack of NVL72, more than any deployment needs."""
WEIGHTS: dict[str, WeightPrecision] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4": "int4",
}
CACHES: dict[str, KvPrecision] = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
OPT = {
    "opt-6.7b": (32, 4096, 32),
    "opt-13b": (40, 5120, 40),
    "opt-30b": (48, 7168, 56),
    "opt-66b": (64, 9216, 72),
}
"""(layers, hidden size, attention heads) of each OPT model."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured values; 0 if the source does not state them."""

    ttft_seconds: float
    tpot_seconds: float
    tokens_per_second_per_gpu: float


@dataclass(frozen=True, slots=True)
class ServingRow:
    """A measurement with the deployment and traffic that it belongs to."""

    name: str
    model: Model
    cluster: Cluster
    setup: ServingSetup
    layout: ServingLayout
    traffic: Traffic
    measured: Measured
    sweep: str
    source: str
    kind: Literal["served", "step"] = "served"
    """``step``: the time per token is the duration of a single decode step."""

    @property
    def group(self) -> tuple[str, str, str, str, str]:
        """Model, GPU, engine, weight format and source: one line of the report."""
        gpu = self.cluster.gpu.name
        setup = self.setup
        return self.model.name, gpu, setup.engine.name, setup.weights, self.source


def read_published(path: Path = PUBLISHED) -> Iterator[ServingRow]:
    """Yield the rows of the project's table."""
    with path.open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            row = row_of(record)
            if row is not None:
                yield row


def row_of(record: Mapping[str, str]) -> ServingRow | None:
    """Return a row of the published format, or None if its model, node or format is unknown."""
    model, cluster = model_named(record["model"]), cluster_of(record["node"])
    known = record["weights"] in WEIGHTS and record["kv"] in CACHES
    if model is None or cluster is None or not known:
        return None
    tp, pp, dp, ep = (int(record[axis] or 1) for axis in ("tp", "pp", "dp", "ep"))
    replicas = max(int(record["gpus"] or 1) // (tp * pp * dp), 1)
    return ServingRow(
        name=record["id"],
        model=model,
        cluster=cluster,
        setup=setup_of(record),
        layout=ServingLayout(tp, pp, dp, ep if model.experts else 1, replicas),
        traffic=traffic_of(record),
        measured=Measured(
            parse_number(record["ttft_ms"]) / 1e3,
            parse_number(record["tpot_ms"]) / 1e3,
            parse_number(record["output_tokens_per_second_per_gpu"]),
        ),
        sweep=record["sweep"],
        source=record["source"],
        kind="step" if record["kind"] == "step" else "served",
    )


def setup_of(record: Mapping[str, str]) -> ServingSetup:
    """Return number formats and engine."""
    name, *options = record["engine"].split("+")
    engine = ENGINES[name]
    arrivals = replace(engine.arrivals, option_steps=parse_number(record["wait_steps"]))
    if set(options) - {"sync"}:
        arrivals = replace(arrivals, front_seconds=0.0)
    if "sync" in options:
        engine = replace(engine, scheduling=replace(engine.scheduling, overlaps_host=False))
    return ServingSetup(
        weights=WEIGHTS[record["weights"]],
        kv=CACHES[record["kv"]],
        engine=replace(engine, arrivals=arrivals),
        prefill_apart=record["apart"] == "1",
    )


def traffic_of(record: Mapping[str, str]) -> Traffic:
    """Return mean lengths and load. Without concurrency and rate the load is an offline batch."""
    share = parse_number(record["share"]) or 1.0
    return Traffic(
        parse_number(record["input_tokens"]) * share,
        parse_number(record["output_tokens"]) * share,
        parse_number(record["concurrency"]) or None,
        parse_number(record["request_rate"]) or None,
        lengths=Lengths(range_ratio=1 / share - 1),
    )


def parse_number(text: str) -> float:
    """Parse ``text``; return 0 if it is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if abs(value) < float("inf") else 0.0


@cache
def cluster_of(node: str) -> Cluster | None:
    """Return HOSTS hosts of a node type. ``gh200-1 gh200-144gb`` replaces the node's GPU."""
    kind, _, gpu = node.partition(" ")
    if kind not in Library().names("nodes"):
        return None
    parts = {"node": kind, "nodes": HOSTS, **({"gpu": gpu} if gpu else {})}
    spec = ClusterSpec.model_validate(parts)
    return resolve_cluster(spec, Library(), Sink())


@cache
def model_named(name: str) -> Model | None:
    """Return a catalog model, or one of the models below that the catalog lacks."""
    if name in Library().names("models"):
        return resolve_model(name, Library(), Sink())
    if name == "llama-4-scout":
        return _llama4_scout_model(name)
    return _opt_model(name) if name in OPT else None


def _opt_model(name: str) -> Model | None:
    """Return OPT of another size: OPT-175B with other widths (arXiv:2205.01068, table 1)."""
    base = model_named("opt-175b")
    if base is None:
        return None
    layers, hidden, heads = OPT[name]
    attention = replace(base.attention, heads=heads, kv_heads=heads, head_dim=hidden // heads)
    ffn = replace(base.ffn, size=4 * hidden)
    return replace(base, name=name, layers=layers, hidden=hidden, attention=attention, ffn=ffn)


def _llama4_scout_model(name: str) -> Model | None:
    """Return the text model of Llama 4 Scout: top-1 of 16 experts and a shared one in every layer.

    Attention is chunked by 8,192 tokens, except in every fourth layer.
    """
    base = model_named("mixtral-8x7b")
    if base is None or base.experts is None:
        return None
    attention = replace(
        base.attention, heads=40, kv_heads=8, head_dim=128, window=8192, full_attention_every=4
    )
    experts = replace(
        base.experts, count=16, top_k=1, size=8192, shared_size=8192, pattern=(True,) * 48
    )
    return replace(
        base,
        name=name,
        layers=48,
        hidden=5120,
        vocab=202048,
        attention=attention,
        experts=experts,
    )

"""Spec of a serving job: ``job``, ``goals``, ``layout`` and ``launch``."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Count, Port, PositiveFloat, PositiveInt, Strict
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import Auto, AxisLimit
from parc.compiler.spec.spec import TaskSpec
from parc.compiler.spec.units import Percent, Seconds


class TrafficSpec(Strict):
    """Requests that arrive, with at most one of concurrency and request_rate.

    If neither is set, as many requests run at a time as fit in memory.
    """

    input_tokens: PositiveInt
    """Mean length of a prompt."""
    output_tokens: PositiveInt
    """Mean length of an answer."""
    concurrency: Count | None = None
    """Requests in the system at all times; each is replaced when it ends."""
    request_rate: PositiveFloat | None = None
    """Requests per second, Poisson arrivals."""


class ServiceSpec(Strict):
    """Model to serve, its number formats, and the traffic."""

    kind: Literal["serve"]
    """serve: the job answers requests."""
    traffic: TrafficSpec
    """Lengths and number of the requests."""
    precision: Literal["bf16", "fp16", "fp8", "int4", "nvfp4"] = "bf16"
    """Number format of the weights in the checkpoint."""
    quantize: bool = False
    """With precision fp8: the checkpoint has 16 bit, and the engine quantizes it while it loads."""
    kv_precision: Literal["auto", "bf16", "fp16", "fp8"] = "auto"
    """Number format of the key-value cache; auto: the format of the activations."""
    checkpoint: str | None = None
    """Repository on a model hub, or folder that exists on all hosts, from which the engine loads
    the model; absent: the repository that the catalog names as the model's source."""
    max_model_len: PositiveInt | Auto = "auto"
    """Maximum tokens per request, prompt and answer; auto: the context, or as many as fit."""
    max_num_seqs: Count | Auto = "auto"
    """Maximum number of requests that one data-parallel rank runs at a time; auto: the engine's
    default."""
    max_num_batched_tokens: PositiveInt | Auto = "auto"
    """Maximum number of tokens per step; auto: the engine's default."""
    block_tokens: Literal[1, 8, 16, 32, 64, 128] = 16
    """Tokens per block of the cache."""


class ServingLimitsSpec(Strict):
    """Limits on the parallel sizes; pins must satisfy them too."""

    tp: AxisLimit | None = None
    """Tensor parallelism."""
    pp: AxisLimit | None = None
    """Pipeline parallelism."""
    dp: AxisLimit | None = None
    """Data parallelism of attention, inside an engine."""
    ep: AxisLimit | None = None
    """Expert parallelism."""
    pcp: AxisLimit | None = None
    """Prefill context parallelism, if it is auto."""
    dcp: AxisLimit | None = None
    """Decode context parallelism."""
    replicas: AxisLimit | None = None
    """Independent engines."""


class ServingGoalsSpec(Strict):
    """Objective of the search, and limits on latency and memory."""

    maximize: Literal["throughput", "fewest-gpus", "latency"] = "throughput"
    """Objective among layouts that are valid, fit and meet the limits."""
    ttft: Seconds | None = None
    """Longest mean time to the first token: 300ms."""
    tpot: Seconds | None = None
    """Longest mean time per output token: 20ms."""
    memory_headroom: Percent = 0.08
    """Share of device memory that the engine must not use."""
    limits: ServingLimitsSpec | None = None
    """Bounds and bans by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""


class ServingLayoutSpec(Strict):
    """Pins of a serving job. PARC decides values that are absent or auto."""

    tp: Count | Auto = "auto"
    """Tensor parallelism."""
    pp: Count | Auto = "auto"
    """Pipeline parallelism."""
    dp: Count | Auto = "auto"
    """Data parallelism of attention inside one engine; models with experts only."""
    ep: Count | Literal["auto", "on", "off"] = "auto"
    """Expert parallelism: on, off, or its degree; vLLM supports only tp x pcp x dp."""
    pcp: Count | Auto = 1
    """Prefill context parallelism; models with latent attention only."""
    dcp: Count | Auto = "auto"
    """Decode context parallelism: number of ranks that share a request's cache."""
    replicas: Count | Auto = "auto"
    """Independent engines behind a load balancer."""
    stage_layers: tuple[Count, ...] | Auto = "auto"
    """Decoder layers per pipeline stage: [19, 21, 21, 19]."""
    all2all: Literal[
        "auto",
        "allgather_reducescatter",
        "deepep_high_throughput",
        "deepep_low_latency",
        "nixl_ep",
        "flashinfer_nvlink_one_sided",
        "flashinfer_nvlink_two_sided",
    ] = "auto"
    """Backend of the all-to-all exchange to experts, by vLLM's name for it; auto: its default."""
    redundant_experts: int | None = None
    """Number of copies of busy experts. If set, the engine balances experts by load (EPLB)."""


class ServingLaunchSpec(LaunchSpec):
    """Ports, load balancing and start of the servers."""

    master_port: Port = 29501
    """Port over which the hosts of one engine connect."""
    port: Port = 8000
    """Port of the first API server of a host; further servers count up."""
    load_balancer: Literal["internal", "hybrid", "external"] = "internal"
    """Load balancing over data-parallel ranks: internal has one API server for all ranks, hybrid
    one per host, external one per rank."""


class ServingSpec(TaskSpec):
    """Model to serve, hardware, layout, start, and files to emit."""

    job: ServiceSpec
    """Model, number formats and traffic."""
    goals: ServingGoalsSpec = ServingGoalsSpec()
    """Objective of the search, and limits on latency and memory."""
    layout: ServingLayoutSpec = ServingLayoutSpec()
    """Pins; PARC decides the other values."""
    launch: ServingLaunchSpec = ServingLaunchSpec()
    """Ports, extra arguments and environment, and the Slurm directives."""

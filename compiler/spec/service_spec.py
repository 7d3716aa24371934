"""``job:``, ``goals:`` and ``launch:`` of a job that serves a model."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Strict
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import Auto
from parc.compiler.spec.limits_spec import AxisLimit
from parc.compiler.spec.numbers import Count, Port, PositiveFloat, PositiveInt
from parc.compiler.spec.units import Percent, Seconds


class TrafficSpec(Strict):
    """The requests that arrive. Exactly one of concurrency and request_rate."""

    input_tokens: PositiveInt
    """Mean length of a prompt."""
    output_tokens: PositiveInt
    """Mean length of an answer."""
    concurrency: Count | None = None
    """Requests in the system at all times; one that ends is replaced."""
    request_rate: PositiveFloat | None = None
    """Requests a second, Poisson arrivals."""


class ServiceSpec(Strict):
    """What is served, to whom, in which formats."""

    kind: Literal["serve"]
    """serve: the job answers requests."""
    traffic: TrafficSpec
    """How long requests are, and how many arrive."""
    precision: Literal["bf16", "fp16", "fp8", "int4", "nvfp4"] = "bf16"
    """Number format of the weights in the checkpoint."""
    quantize: bool = False
    """With precision fp8: the checkpoint has 16 bit, and the engine quantises while it loads."""
    kv_precision: Literal["auto", "bf16", "fp16", "fp8"] = "auto"
    """Number format of the key-value cache; auto: that of the activations."""
    checkpoint: str | None = None
    """What the engine loads: a repository on a model hub, or a folder that every host sees;
    absent: the repository that the catalog names as the model's source."""
    max_model_len: PositiveInt | Auto = "auto"
    """Longest request in tokens, prompt and answer; auto: the model's context, or what fits."""
    max_num_seqs: Count | Auto = "auto"
    """Most requests that one data-parallel rank runs at a time; auto: vLLM's own default."""
    max_num_batched_tokens: PositiveInt | Auto = "auto"
    """Most tokens of one step; auto: vLLM's own default."""
    block_tokens: Literal[1, 8, 16, 32, 64, 128] = 16
    """Tokens of a block of the cache."""


class ServingLimitsSpec(Strict):
    """Limits of the axes that the search decides; a pin must keep them too."""

    tp: AxisLimit | None = None
    """Tensor parallelism."""
    pp: AxisLimit | None = None
    """Pipeline parallelism."""
    dp: AxisLimit | None = None
    """Data parallelism of attention, inside an engine."""
    ep: AxisLimit | None = None
    """Expert parallelism."""
    pcp: AxisLimit | None = None
    """Prefill context parallelism, where it is auto."""
    dcp: AxisLimit | None = None
    """Decode context parallelism."""
    replicas: AxisLimit | None = None
    """Independent engines."""


class ServingGoalsSpec(Strict):
    """What to maximise, and what users must see."""

    maximize: Literal["throughput", "fewest-gpus", "latency"] = "throughput"
    """What decides between layouts that are legal, fit and keep the limits."""
    ttft: Seconds | None = None
    """Longest mean time to the first token: 300ms."""
    tpot: Seconds | None = None
    """Longest mean time per output token: 20ms."""
    memory_headroom: Percent = 0.08
    """Device memory that the engine leaves alone; gpu-memory-utilization is the rest."""
    limits: ServingLimitsSpec | None = None
    """Bounds and bans by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""


class ServingLayoutSpec(Strict):
    """Pins of a serving job. What is absent or auto is decided."""

    tp: Count | Auto = "auto"
    """Tensor parallelism."""
    pp: Count | Auto = "auto"
    """Pipeline parallelism."""
    dp: Count | Auto = "auto"
    """Data parallelism of attention inside one engine; models with experts only."""
    ep: Count | Literal["auto", "on", "off"] = "auto"
    """Expert parallelism: on, off, or its degree, which vLLM derives as tp x pcp x dp."""
    pcp: Count | Auto = 1
    """Prefill context parallelism; models with latent attention only."""
    dcp: Count | Auto = "auto"
    """Decode context parallelism: ranks of tp that share a request's cache."""
    replicas: Count | Auto = "auto"
    """Independent engines behind a load balancer."""
    stage_layers: tuple[Count, ...] | Auto = "auto"
    """Decoder layers of every pipeline stage: [19, 21, 21, 19]."""
    all2all: Literal[
        "auto",
        "allgather_reducescatter",
        "deepep_high_throughput",
        "deepep_low_latency",
        "nixl_ep",
        "flashinfer_nvlink_one_sided",
        "flashinfer_nvlink_two_sided",
    ] = "auto"
    """How tokens travel to experts; auto: vLLM's default."""
    redundant_experts: int | None = None
    """Copies of busy experts; set: the engine balances experts by load (EPLB)."""


class ServingLaunchSpec(LaunchSpec):
    """How the servers start."""

    master_port: Port = 29501
    """Port on which the hosts of one engine meet."""
    port: Port = 8000
    """Port of the first API server of a host; others count up."""
    load_balancer: Literal["internal", "hybrid", "external"] = "internal"
    """Over data-parallel ranks: one API server for all, one a host, or one a rank."""

"""Models of a serving spec: ``job``, ``goals``, ``layout``, ``launch``, and its optional features.

The features are ``speculative``, ``lora`` and ``kv_offload``.
"""

from typing import Annotated, Literal

from parc.compiler.spec.base import (
    Beta,
    Count,
    NonNegativeFloat,
    NotBool,
    Port,
    PositiveFloat,
    PositiveInt,
    StrictModel,
)
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import Auto, ParallelSizeLimit
from parc.compiler.spec.spec import TaskSpec
from parc.compiler.spec.units import Gigabytes, Percent, Seconds, Share


class SpeculativeSpec(StrictModel):
    """Speculative decoding: a cheap draft proposes tokens, and each step verifies all of them."""

    method: Literal["mtp", "eagle", "eagle3", "draft-model", "ngram"]
    """Source of the draft tokens: the multi-token-prediction layer of the checkpoint (mtp), a
    trained head (eagle, eagle3), a small model (draft-model), or repetitions of the prompt
    (ngram)."""
    tokens: Count = 3
    """Number of draft tokens per request and step."""
    acceptance: Percent | Auto = "auto"
    """Percentage of the draft tokens that the model accepts if it has accepted all tokens before
    them. auto is 85 % for mtp, 75 % for eagle3, 65 % for eagle and draft-model, and 40 % for ngram;
    measure it with your requests, because it depends on them."""
    checkpoint: str | None = None
    """Checkpoint of the draft: a repository on a model hub, or a folder that exists on all hosts.
    Required for eagle, eagle3 and draft-model."""
    model: str | None = None
    """Architecture of the small model of draft-model: an entry of the catalog, or the path of a
    config.json."""


class LoraSpec(StrictModel):
    """LoRA adapters that the engine applies to the model, each for the requests that name it."""

    adapters: dict[str, str]
    """Name of each adapter in requests -> its checkpoint: a repository on a model hub, or a folder
    that exists on all hosts: {sql: /models/sql-adapter}."""
    active: Count | Auto = "auto"
    """Maximum number of adapters that the requests of one step use, and that GPU memory stores.
    auto stores all adapters."""
    rank: Count = 16
    """Largest rank of the adapters. vLLM supports only 1, 8, 16, 32, 64, 128, 256, 320 and 512."""


class KvOffloadSpec(StrictModel):
    """Copies of the KV cache in host memory, from which prefixes are loaded again."""

    size: Gigabytes
    """Host memory for the copies per data-parallel rank, over all of its GPUs: 200GB."""
    prefix_hit: Percent = 0.0
    """Percentage of the tokens of each prompt that are found in host memory, in addition to those
    in GPU memory (traffic.prefix_hit). With a trace, PARC simulates both memories instead."""


class LengthsSpec(StrictModel):
    """Distribution of request lengths around their means, which the simulation uses.

    Set either the coefficients of variation, for lognormal lengths, or range_ratio, for uniform
    lengths.
    """

    input_cv: NonNegativeFloat = 0.0
    """Coefficient of variation (standard deviation / mean) of lognormal prompt lengths: 0.8."""
    output_cv: NonNegativeFloat = 0.0
    """Coefficient of variation of lognormal answer lengths: 1.2."""
    range_ratio: Beta | None = None
    """Largest deviation of uniform lengths from their mean, divided by the mean, as in vllm bench
    serve --random-range-ratio. If no field of lengths is set, 0.1; 0 makes all requests equally
    long."""


class TrafficSpec(StrictModel):
    """Lengths and arrival pattern of requests.

    Set at most one of concurrency and request_rate. If neither is set and goals has a limit on
    latency, PARC searches for the largest request rate within the limits. Without limits, PARC
    assumes as many concurrent requests as fit in memory.
    """

    input_tokens: PositiveInt | None = None
    """Mean length of a prompt, in tokens. Required without a trace."""
    output_tokens: PositiveInt | None = None
    """Mean length of an answer, in tokens. Required without a trace."""
    concurrency: Count | None = None
    """Number of requests in the system at any time. A new request replaces each one that ends."""
    request_rate: PositiveFloat | None = None
    """Mean number of requests per second. Arrivals are Poisson-distributed, unless burstiness or
    trace is set. If absent with a trace, the rate of the trace."""
    burstiness: PositiveFloat = 1.0
    """Shape of the gamma distribution of the times between arrivals, as in vllm bench serve
    --burstiness. 1 is a Poisson process; smaller values are bursts of requests. The simulation uses
    it."""
    lengths: LengthsSpec = LengthsSpec.with_defaults()
    """Distribution of the lengths of prompts and answers around their means."""
    prefix_hit: Percent = 0.0
    """Percentage of the tokens of each prompt that the prefix cache stores, so that they are not
    computed, such as `30%`."""
    trace: str | None = None
    """File with recorded requests, relative to the spec, whose times and lengths the simulation
    replays: JSON lines with seconds, input_tokens and output_tokens; JSON lines of Mooncake
    (timestamp, input_length, output_length, hash_ids); or CSV of Azure (TIMESTAMP, ContextTokens,
    GeneratedTokens)."""


class ServingLayoutSpec(StrictModel):
    """Fixed values of a serving layout. PARC decides values that are absent or auto."""

    tp: Count | Auto = "auto"
    """Tensor parallel size: number of ranks that split each weight matrix."""
    pp: Count | Auto = "auto"
    """Pipeline parallel size: number of pipeline stages."""
    dp: Count | Auto = "auto"
    """Data parallel size of attention inside one engine. Only valid for models with experts."""
    ep: Count | Literal["auto", "on", "off"] = "auto"
    """Expert parallelism: on, off, or the number of ranks over which experts are distributed. vLLM
    supports only the number tp x pcp x dp."""
    pcp: Count | Auto = 1
    """Prefill context parallel size: number of ranks that share the tokens of a prompt. Values
    above 1 are only valid for models with latent attention."""
    dcp: Count | Auto = "auto"
    """Decode context parallel size: number of ranks that share the KV cache of a request."""
    replicas: Count | Auto = "auto"
    """Number of independent engines behind a load balancer."""
    stage_layers: tuple[Count, ...] | Auto = "auto"
    """Number of decoder layers on each pipeline stage: [19, 21, 21, 19]."""
    all2all: Literal[
        "auto",
        "allgather_reducescatter",
        "deepep_high_throughput",
        "deepep_low_latency",
        "nixl_ep",
        "flashinfer_nvlink_one_sided",
        "flashinfer_nvlink_two_sided",
    ] = "auto"
    """Backend of the all-to-all exchange with experts, under vLLM's name for it. auto uses vLLM's
    default."""
    redundant_experts: int | None = None
    """Number of additional copies of experts that receive many tokens. If set, the engine balances
    the load of the experts (EPLB)."""


class PoolSpec(StrictModel):
    """Hosts and layout of one pool of a disaggregated service."""

    hosts: Count | str | tuple[str, ...] | None = None
    """Hosts on which the pool is planned: their number, or their names as host lists. A number
    counts hosts in the order of the spec, after the named hosts of the other pool and, for the
    decode pool, after those of the prefill pool. If absent, the hosts that the other pool
    leaves."""
    layout: ServingLayoutSpec = ServingLayoutSpec.with_defaults()
    """Fixed values of the layout of the pool, which take precedence over those of the section
    layout: {tp: 8, replicas: 2}."""


class DisaggregateSpec(StrictModel):
    """Prefill pool and decode pool of a disaggregated service."""

    prefill: PoolSpec = PoolSpec.with_defaults()
    """Engines that compute the KV cache of prompts."""
    decode: PoolSpec = PoolSpec.with_defaults()
    """Engines that read this cache over the network and generate the answers."""


class ServiceSpec(StrictModel):
    """Serving job: checkpoint, number formats, traffic, and limits of the engine."""

    kind: Literal["serve"]
    """Kind of the job. A job of kind serve answers requests."""
    traffic: TrafficSpec
    """Lengths and arrival pattern of the requests."""
    precision: Literal["auto", "bf16", "fp16", "fp8", "int4", "nvfp4", "mxfp4"] = "auto"
    """Number format in which the weights are served. The checkpoint has this format too, unless
    quantize is true. auto uses the format of checkpoint; without checkpoint, it uses bf16, or the
    first format of the catalog for a model that is only published in other formats."""
    quantize: bool = False
    """Let the engine quantize a 16-bit checkpoint to fp8 while it loads the weights. Only valid
    with precision: fp8."""
    kv_precision: Literal["auto", "bf16", "fp16", "fp8"] = "auto"
    """Number format of the KV cache. auto uses fp8 if the quantization_config of the model states
    an fp8 KV cache, as engines do, and otherwise the format of the activations."""
    checkpoint: str | None = None
    """Checkpoint from which the engine loads the model: a repository on a model hub, or a folder
    that exists on all hosts. If absent, the catalog's checkpoint of the model in the format of
    precision: the one that is tuned for instructions, if there is one. precision must be set if
    neither the catalog nor the name of the checkpoint contains the format of its weights."""
    max_model_len: PositiveInt | Auto = "auto"
    """Maximum number of tokens per request, prompt and answer together. auto uses the context
    length of the model, or less if the KV cache cannot store that many tokens."""
    max_num_seqs: Count | Auto = "auto"
    """Maximum number of requests that one data-parallel rank runs at a time. auto uses the default
    of the engine."""
    max_num_batched_tokens: PositiveInt | Auto = "auto"
    """Maximum number of tokens per engine step. auto uses the default of the engine, or, if goals
    limit a latency and vLLM serves the model, a number that PARC searches."""
    block_tokens: Annotated[Literal[1, 8, 16, 32, 64, 128, 256], NotBool] = 16
    """Number of tokens per block of the KV cache."""
    prefix_caching: bool = True
    """Let the engine keep the KV cache of prompts, so that later prompts with the same beginning
    are not computed again."""
    pool: Literal["both", "prefill", "decode"] = "both"
    """Phase of requests that the engines process. both serves whole requests. prefill and decode
    are the two pools of a disaggregated service, each planned with a spec of its own: the prefill
    pool computes the KV cache of prompts, and the decode pool reads it over the network and
    generates the answers. goals.ttft limits the part of the time to the first token that the pool
    needs: the prompt, or the transfer and one step."""
    disaggregate: bool | Auto | DisaggregateSpec = False
    """Disaggregation into a prefill pool and a decode pool, which PARC plans together. true lets
    PARC decide both pools. auto uses two pools only if they are better by goals.maximize than
    engines that serve whole requests. A mapping fixes hosts and layout of the pools: {prefill:
    {hosts: 2, layout: {tp: 4}}, decode: {layout: {tp: 8}}}."""
    speculative: SpeculativeSpec | None = None
    """Speculative decoding; absent: each step yields one token per request."""
    lora: LoraSpec | None = None
    """LoRA adapters; absent: all requests use the model itself."""
    kv_offload: KvOffloadSpec | None = None
    """Copies of the KV cache in host memory; absent: only GPU memory stores prefixes."""


class ServingLimitsSpec(StrictModel):
    """Limits on the parallel sizes, by axis. Sizes that layout fixes must meet the limits too."""

    tp: ParallelSizeLimit | None = None
    """Limit on the tensor parallel size."""
    pp: ParallelSizeLimit | None = None
    """Limit on the pipeline parallel size."""
    dp: ParallelSizeLimit | None = None
    """Limit on the data parallel size of attention inside an engine."""
    ep: ParallelSizeLimit | None = None
    """Limit on the expert parallel size."""
    pcp: ParallelSizeLimit | None = None
    """Limit on the prefill context parallel size, used if layout.pcp is auto."""
    dcp: ParallelSizeLimit | None = None
    """Limit on the decode context parallel size."""
    replicas: ParallelSizeLimit | None = None
    """Limit on the number of independent engines."""


class LatencyLimitSpec(StrictModel):
    """Upper limits on the mean and on percentiles of a latency, over all requests."""

    mean: Seconds | None = None
    """Upper limit on the mean: 500ms."""
    p50: Seconds | None = None
    """Upper limit on the median: 500ms."""
    p90: Seconds | None = None
    """Upper limit on the 90th percentile: 1s."""
    p99: Seconds | None = None
    """Upper limit on the 99th percentile: 2s."""


class ServingGoalsSpec(StrictModel):
    """Objective by which the search ranks layouts, and limits on latency and memory."""

    maximize: Literal["auto", "throughput", "fewest-gpus", "lowest-cost", "latency"] = "auto"
    """Objective by which PARC ranks the layouts that are valid, fit in memory and meet the limits.
    auto is fewest-gpus if job.traffic sets concurrency or request_rate, else throughput.
    lowest-cost minimizes the cost per hour if job.traffic sets a load, else the cost per token; it
    compares the clusters of a list by cluster.price_per_gpu_hour."""
    ttft: Seconds | LatencyLimitSpec | None = None
    """Upper limit on the mean time to the first token: 300ms. A mapping limits percentiles: {p99:
    2s}."""
    tpot: Seconds | LatencyLimitSpec | None = None
    """Upper limit on the mean time per output token after the first one: 20ms, or {p90: 50ms}."""
    e2e: Seconds | LatencyLimitSpec | None = None
    """Upper limit on the mean time from the arrival of a request to its last token: 10s, or {p99:
    20s}."""
    goodput: Share | None = None
    """Minimum percentage of requests that must meet all limits, such as `95%`. If set, single
    values of ttft, tpot and e2e, such as ttft: 2s, limit each request instead of the mean."""
    memory_headroom: Percent = 0.08
    """Percentage of device memory that the engine must leave free, such as `8%`. If it is not set,
    PARC increases the default where the buffers of an engine need more."""
    limits: ServingLimitsSpec | None = None
    """Limits on the parallel sizes, by axis: {tp: {max: 4}, pp: {ban: [3, 6]}}."""


class ServingLaunchSpec(LaunchSpec):
    """Ports, load balancing, and launch settings of the API servers."""

    master_port: Port = 29501
    """Port over which the hosts of one engine connect."""
    port: Port = 8000
    """Port of the first API server on a host. Each further server uses the next port."""
    router_port: Port = 30000
    """Port of the router that distributes requests over several engines, if PARC writes one."""
    load_balancer: Literal["internal", "hybrid", "external"] = "internal"
    """Load balancing over data-parallel ranks. internal has one API server for all ranks, hybrid
    one API server per host, external one API server per rank."""


class ServingSpec(TaskSpec):
    """Spec of a serving job: model, hardware, service, layout, launch, and backends to emit."""

    job: ServiceSpec
    """Serving job: checkpoint, number formats, traffic, and limits of the engine."""
    goals: ServingGoalsSpec = ServingGoalsSpec.with_defaults()
    """Objective of the search, and limits on latency and memory."""
    layout: ServingLayoutSpec = ServingLayoutSpec.with_defaults()
    """Fixed values of the layout. PARC decides all other values."""
    launch: ServingLaunchSpec = ServingLaunchSpec.with_defaults()
    """Ports, extra arguments, environment, and settings of the schedulers."""

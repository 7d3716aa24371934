"""Resolve a serving spec, its model and its cluster to a ``ServingProblem`` with all defaults.

The engine is accepted only if its backend declares all constants and mesh axes that PARC needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from parc.backends.base import Engine
from parc.backends.registry import backend_declaration, engine
from parc.compiler.catalog.find_model import Library
from parc.compiler.cost.serving.calibrated_service import calibrated_service
from parc.compiler.cost.serving.memory import overhead_bytes
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Cluster, Gpu, Model, SizeLimit
from parc.compiler.ir.engine_constants import EngineConstants, UndeclaredConstantsError
from parc.compiler.ir.serving import KvPrecision, ServingLayout, ServingSetup, Traffic
from parc.compiler.ir.serving_goals import LATENCIES, LatencyLimit, ServingGoals
from parc.compiler.ir.serving_plan import Endpoint, Service, ServingPins, ServingProblem
from parc.compiler.resolve.check_service import (
    check_keys,
    check_service,
)
from parc.compiler.resolve.check_unused_settings import check_unused_settings
from parc.compiler.resolve.resolve_calibration import resolve_service_factors
from parc.compiler.resolve.resolve_checkpoint import resolve_checkpoint
from parc.compiler.resolve.resolve_features import (
    check_features,
    check_prefix_caching,
    resolve_lora,
    with_kv_offload,
)
from parc.compiler.resolve.resolve_launch import (
    check_command_words,
    resolve_launch,
    spec_as_json,
    spec_digest,
)
from parc.compiler.resolve.resolve_speculative import resolve_speculative, with_speculative
from parc.compiler.resolve.resolve_targets import reserved_by, resolve_targets
from parc.compiler.resolve.resolve_traffic import (
    resolve_traffic,
    traffic_of_pool,
    with_longest_prompt,
    without_prefix_hits,
)
from parc.compiler.spec.layout_spec import ParallelSizeLimit
from parc.compiler.spec.service_spec import (
    LatencyLimitSpec,
    ServiceSpec,
    ServingGoalsSpec,
    ServingLimitsSpec,
    ServingSpec,
)

_STATISTICS: tuple[Literal["mean", "p50", "p90", "p99"], ...] = ("mean", "p50", "p90", "p99")


def resolve_service(
    spec: ServingSpec, model: Model, cluster: Cluster, library: Library, sink: Sink
) -> ServingProblem | None:
    """Return the problem that the serving search solves; None if an error leaves it incomplete.

    ``library`` reads the trace of the traffic, the model of a draft, and the calibration file.
    """
    check_keys(spec, sink)
    _check_latency_limits(spec.goals, sink)
    targets = resolve_targets(spec, sink)
    checkpoint = resolve_checkpoint(spec.job, model, sink)
    traffic = _resolve_traffic_of_engines(spec.job, library, sink)
    speculative = resolve_speculative(spec.job.speculative, model, library, sink)
    if targets is None or checkpoint is None or traffic is None:
        return None
    resolved = resolve_engine(targets.framework, model, sink)
    if resolved is None:
        return None
    engine, constants = resolved
    factors = resolve_service_factors(spec.cluster, cluster, targets.framework, library, sink)
    calibrated, constants = calibrated_service(cluster, constants, factors)
    setup = _resolve_number_formats_and_limits(
        spec, model, engine.default_batch(cluster.gpu), constants
    )
    setup = with_speculative(setup, speculative, spec.job.max_num_seqs == "auto")
    setup = replace(setup, lora=resolve_lora(spec.job.lora, sink))
    setup, traffic = with_kv_offload(setup, traffic, spec.job.kv_offload, cluster.node, sink)
    headroom = _memory_headroom(spec.goals, model, setup, cluster.gpu)
    service = Service(
        checkpoint=checkpoint,
        traffic=with_longest_prompt(traffic, spec.job.max_model_len, engine.context_tokens(model)),
        setup=_with_headroom(setup, headroom),
        quantize=spec.job.quantize,
        max_model_len=None if spec.job.max_model_len == "auto" else spec.job.max_model_len,
        context=engine.context_tokens(model),
        block_tokens=spec.job.block_tokens,
        prefix_caching=spec.job.prefix_caching,
    )
    spans = cluster.node.nvlink_spans_hosts
    check_features(spec.job, engine, model, sink)
    check_service(service, engine, cluster.gpu, sink)
    check_command_words(spec, sink)
    check_unused_settings(spec, targets, sink)
    return ServingProblem(
        name=spec.name,
        model=model,
        cluster=calibrated,
        launch=resolve_launch(spec.launch, targets, nvlink_spans_hosts=spans),
        emit=targets.emit,
        framework=targets.framework,
        versions=targets.versions,
        digest=spec_digest(spec, (*_digested_objects(model, calibrated, service), *factors)),
        spec_json=spec_as_json(spec),
        service=service,
        goals=_resolve_goals(spec.goals, service.traffic, headroom),
        pins=_resolve_pins(spec),
        endpoint=Endpoint(spec.launch.port, spec.launch.load_balancer, spec.launch.router_port),
        calibration=factors,
        reserved=reserved_by(targets.emit),
    )


def _with_headroom(setup: ServingSetup, headroom: float) -> ServingSetup:
    """Return ``setup`` with the share of the device memory that ``headroom`` leaves."""
    # The share is emitted as a flag, so binary rounding errors must not show.
    return replace(setup, memory_share=round(1 - headroom, 4))


def _resolve_traffic_of_engines(job: ServiceSpec, library: Library, sink: Sink) -> Traffic | None:
    """Return the part of the traffic that the engines process; None after reporting errors."""
    traffic = resolve_traffic(job.traffic, library, sink)
    if traffic is None:
        return None
    if not job.prefix_caching:
        check_prefix_caching(job, sink)
        traffic = without_prefix_hits(traffic)
    return traffic_of_pool(job.pool, traffic)


def _digested_objects(model: Model, cluster: Cluster, service: Service) -> tuple[object, ...]:
    """Return the objects, other than the spec itself, on which the plan depends."""
    draft, trace = service.setup.speculative, service.traffic.trace
    own = None if draft is None else draft.model
    return (model, cluster, *(one for one in (trace, own) if one is not None))


def _resolve_number_formats_and_limits(
    spec: ServingSpec, model: Model, default_batch: tuple[int, int], engine: EngineConstants
) -> ServingSetup:
    """Return the number formats and batch limits of the service.

    Limits that the spec does not set come from ``default_batch``, which is (requests per step,
    tokens per step) of the engine.
    """
    job = spec.job
    assert job.precision != "auto"  # see resolve_weight_format
    # Published fp8 checkpoints of Mamba models have one scale per tensor (nvidia/Nemotron-*-FP8).
    scale_per_tensor = job.precision == "fp8" and model.mamba is not None
    seqs, tokens = default_batch
    seqs = seqs if job.max_num_seqs == "auto" else job.max_num_seqs
    tokens = tokens if job.max_num_batched_tokens == "auto" else job.max_num_batched_tokens
    if job.max_num_batched_tokens == "auto":
        tokens = max(tokens, seqs)  # each running request needs a token per step (V04)
    elif job.max_num_seqs == "auto":
        seqs = min(tokens, seqs)
    activations: KvPrecision = "fp16" if job.precision == "fp16" else "bf16"
    return ServingSetup(
        engine=engine,
        weights=job.precision,
        pool=job.pool,
        kv=activations if job.kv_precision == "auto" else job.kv_precision,
        max_running=seqs,
        max_batched_tokens=tokens,
        block=1 if job.quantize or scale_per_tensor else None,
    )


def _memory_headroom(spec: ServingGoalsSpec, model: Model, setup: ServingSetup, gpu: Gpu) -> float:
    """Return the fraction of device memory that weights and cache leave free.

    If the share of memory that an engine takes is for weights and cache only, activations and
    buffers need the rest. On a small GPU this is more than the default, which is then increased to
    whole percents that are enough without tensor parallelism.
    """
    if "memory_headroom" in spec.model_fields_set or setup.engine.memory.budget != "static":
        return spec.memory_headroom
    needed = overhead_bytes(model, setup, tp=1) / gpu.memory_bytes
    return max(spec.memory_headroom, math.ceil(100 * needed) / 100)


def _resolve_goals(spec: ServingGoalsSpec, traffic: Traffic, headroom: float) -> ServingGoals:
    """Return the goals of the search.

    They contain a size limit for each axis that ``goals.limits`` of the spec sets.
    """
    maximize = spec.maximize
    if maximize == "auto":
        # GPUs beyond those that the load needs cost money without serving more requests.
        maximize = "fewest-gpus" if traffic.is_load_given else "throughput"
    limits = []
    for axis in ServingLimitsSpec.model_fields if spec.limits else ():
        limit: ParallelSizeLimit | None = getattr(spec.limits, axis)
        if limit is not None:
            limits.append(SizeLimit(axis, limit.min or 1, limit.max, limit.only, limit.ban))
    return ServingGoals(
        maximize,
        tuple(_resolve_latency_limits(spec)),
        spec.goodput,
        headroom,
        tuple(limits),
    )


def _check_latency_limits(spec: ServingGoalsSpec, sink: Sink) -> None:
    """Report limits without a value, and a share of requests without a limit (X08)."""
    for latency in LATENCIES:
        written = getattr(spec, latency)
        if isinstance(written, LatencyLimitSpec) and not written.model_fields_set:
            finding = Finding(
                f"goals.{latency} has no limit",
                help=f"valid keys: {', '.join(LatencyLimitSpec.model_fields)}",
                fix=f"set a limit, for example goals.{latency}: {{p99: 2s}}",
            )
            sink.report("X08", finding, at=f"goals.{latency}")
    if spec.goodput is not None and not any(
        one.statistic == "each" for one in _resolve_latency_limits(spec)
    ):
        finding = Finding(
            "goals.goodput needs a limit that each request must meet",
            help="set goals.ttft, goals.tpot or goals.e2e to a time, without a statistic",
            fix="set a limit, for example goals.ttft: 2s",
        )
        sink.report("X08", finding, at="goals.goodput")


def _resolve_latency_limits(spec: ServingGoalsSpec) -> Iterator[LatencyLimit]:
    """Yield the latency limits of the spec, the mean of a latency before its percentiles."""
    for latency in LATENCIES:
        written: float | LatencyLimitSpec | None = getattr(spec, latency)
        if isinstance(written, LatencyLimitSpec):
            values = ((one, getattr(written, one)) for one in _STATISTICS)
            yield from (LatencyLimit(latency, one, limit) for one, limit in values if limit)
        elif written is not None:
            yield LatencyLimit(latency, "mean" if spec.goodput is None else "each", written)


def _resolve_pins(spec: ServingSpec) -> ServingPins:
    """Return the sizes and batch limits that the spec fixes; ``auto`` becomes None."""
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp", "replicas", "all2all")
    written = {name: getattr(spec.layout, name) for name in names}
    written |= {
        name: getattr(spec.job, name) for name in ("max_num_seqs", "max_num_batched_tokens")
    }
    stages = spec.layout.stage_layers
    return ServingPins(
        **{name: None if value == "auto" else value for name, value in written.items()},
        stages=None if stages == "auto" else stages,
        redundant_experts=spec.layout.redundant_experts,
    )


# Distinct primes, so that the size of a merged axis cannot equal that of another axis.
PROBE_LAYOUT = ServingLayout(tp=2, pcp=3, pp=5, dp=7, replicas=11)
"""Layout with a different size on each axis, so that a size identifies its axis."""
REQUIRED_AXES = {
    "tp": PROBE_LAYOUT.tp,
    "cp": PROBE_LAYOUT.pcp,
    "pp": PROBE_LAYOUT.pp,
    "dp": PROBE_LAYOUT.dp,
    "replica": PROBE_LAYOUT.replicas,
}
"""Axes that an engine's mesh must have, with their sizes for ``PROBE_LAYOUT``. Placement, rank map
and reports look axes up by these names."""


def resolve_engine(name: str, model: Model, sink: Sink) -> tuple[Engine, EngineConstants] | None:
    """Return (engine called ``name``, its constants); None if its declaration is incomplete.

    Missing constants (V32) and missing mesh axes (V33) are errors: an estimate with the constants
    of another engine, or a rank map over other axes, would be wrong.
    """
    target = engine(name)
    has_axes = _has_required_axes(target, sink)
    constants = _engine_constants(target, model, sink)
    return (target, constants) if constants is not None and has_axes else None


def _engine_constants(target: Engine, model: Model, sink: Sink) -> EngineConstants | None:
    """Return the constants of the engine ``target``; None after reporting missing ones (V32)."""
    missing = ""
    try:
        constants = target.constants()
    except UndeclaredConstantsError as error:
        missing = str(error)
    else:
        if not isinstance(constants, EngineConstants):
            missing = f"constants() returns {type(constants).__name__}, not EngineConstants"
        elif constants.name != target.name:
            missing = f"constants() returns the constants of {constants.name}"
        elif not _plans_states(constants) and any(kind.recurrent for kind in model.kinds):
            sink.report("V32", _explain_unplanned_states(target, model), at="emit")
            return None
        else:
            return constants
    finding = Finding(
        f"{target.name} does not declare valid constants for its estimate",
        label=missing,
        help="declare the constants in constants.yaml of "
        f"{backend_declaration(target.name).package}; "
        "EngineConstants in compiler/ir/engine_constants.py defines the keys",
    )
    sink.report("V32", finding, at="emit")
    return None


def _plans_states(constants: EngineConstants) -> bool:
    """Return True if PARC can plan the states of recurrent layers in the engine's cache."""
    return constants.states.pages is not None


def _explain_unplanned_states(target: Engine, model: Model) -> Finding:
    from parc.backends.registry import built_in_backends

    names = [one.name for one in built_in_backends("engine")]
    able = [name for name in names if _plans_states(engine(name).constants())]
    return Finding(
        f"PARC cannot plan the recurrent layers of {model.name} in {target.name}",
        label="states.pages of its constants is null: their states are not in blocks of the cache",
        help=f"engines with such a plan: {', '.join(able) or 'none'}",
        fix=f"emit: [{able[0]}]" if able else "",
    )


def _has_required_axes(target: Engine, sink: Sink) -> bool:
    """Return True if the mesh of ``target`` has the axes ``REQUIRED_AXES`` in a valid order.

    Otherwise report each axis that is missing or has a wrong size, or the order (V33).
    """
    axes = target.mesh(PROBE_LAYOUT).axes
    sizes = {axis.name: axis.size for axis in axes}
    if sizes == REQUIRED_AXES:
        return _has_supported_order(target.name, [axis.name for axis in axes], sink)
    missing = [f"{axis} is missing" for axis in REQUIRED_AXES if axis not in sizes]
    wrong = [
        f"{axis} has size {size}" for axis, size in sizes.items() if REQUIRED_AXES.get(axis) != size
    ]
    degrees = {
        "tp": PROBE_LAYOUT.tp,
        "pcp": PROBE_LAYOUT.pcp,
        "pp": PROBE_LAYOUT.pp,
        "dp": PROBE_LAYOUT.dp,
        "replicas": PROBE_LAYOUT.replicas,
    }
    finding = Finding(
        f"the mesh of {target.name} does not have the axes {', '.join(REQUIRED_AXES)}",
        label=", ".join([*missing, *wrong]),
        help=f"for {_format_sizes(degrees)}, mesh() must return "
        f"{_format_sizes(REQUIRED_AXES)}, in the engine's rank order and including axes of size 1",
    )
    sink.report("V33", finding, at="emit")
    return False


def _has_supported_order(name: str, axes: list[str], sink: Sink) -> bool:
    """Return True if tp varies fastest, then cp, and replica slowest; otherwise report V33."""
    if axes[:2] == ["tp", "cp"] and axes[-1] == "replica":
        return True
    finding = Finding(
        f"the ranks of {name} vary along {', '.join(axes)}, the fastest axis first",
        label="PARC can only estimate ranks that vary along tp first, then cp, and replica last",
        help="other tensor-parallel groups span more hosts than PARC assumes; if the engine starts "
        "its ranks in the required order, correct mesh()",
    )
    sink.report("V33", finding, at="emit")
    return False


def _format_sizes(sizes: dict[str, int]) -> str:
    """Return sizes as text, such as "tp 2, pp 5"."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())

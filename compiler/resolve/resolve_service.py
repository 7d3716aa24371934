"""Serving problem and the engine that it names.

Spec, model and cluster -> serving problem: formats, limits and traffic, complete.

Engine name -> engine whose declaration is complete: its constants and the axes of its mesh.
"""

from __future__ import annotations

import re

from parc.backends.base import Engine
from parc.backends.registry import declaration, engine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Cluster, Limit, Model
from parc.compiler.ir.engine_constants import EngineConstants, UndeclaredConstantsError
from parc.compiler.ir.serving import KvPrecision, ServingLayout, ServingSetup, Traffic
from parc.compiler.ir.serving_plan import (
    Endpoint,
    Service,
    ServingGoals,
    ServingPins,
    ServingProblem,
)
from parc.compiler.resolve.check_service import check_service, check_training_keys
from parc.compiler.resolve.resolve_launch import resolve_launch, spec_digest
from parc.compiler.resolve.resolve_targets import resolve_targets
from parc.compiler.spec.layout_spec import AxisLimit
from parc.compiler.spec.service_spec import (
    ServiceSpec,
    ServingGoalsSpec,
    ServingLayoutSpec,
    ServingLimitsSpec,
    ServingSpec,
    TrafficSpec,
)

_REPOSITORY = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")


def resolve_service(
    spec: ServingSpec, model: Model, cluster: Cluster, sink: Sink
) -> ServingProblem | None:
    """Return the problem that the search solves; None if an error leaves it incomplete."""
    check_training_keys(spec, sink)
    targets = resolve_targets(spec, sink)
    checkpoint = _checkpoint(spec.job, model, sink)
    if targets is None or checkpoint is None:
        return None
    resolved = resolve_engine(targets.framework, model, sink)
    if resolved is None:
        return None
    engine, constants = resolved
    job = spec.job
    service = Service(
        checkpoint=checkpoint,
        traffic=_traffic(job.traffic),
        setup=_setup(spec, model, engine.default_batch(cluster.gpu), constants),
        quantize=job.quantize,
        max_model_len=None if job.max_model_len == "auto" else job.max_model_len,
        context=engine.context_tokens(model),
        block_tokens=job.block_tokens,
    )
    check_service(service, engine, cluster.gpu, sink)
    return ServingProblem(
        name=spec.name,
        model=model,
        cluster=cluster,
        launch=resolve_launch(spec.launch, targets),
        emit=targets.emit,
        framework=targets.framework,
        versions=targets.versions,
        digest=spec_digest(spec, (model, cluster)),
        service=service,
        goals=_goals(spec.goals),
        pins=_pins(spec.layout),
        endpoint=Endpoint(spec.launch.port, spec.launch.load_balancer),
    )


def _checkpoint(job: ServiceSpec, model: Model, sink: Sink) -> str | None:
    """Return what the engine loads; None after X08 if neither spec nor catalog name it."""
    if job.checkpoint is not None:
        return job.checkpoint
    repository = _REPOSITORY.fullmatch(model.source.strip())
    if repository is not None:
        return repository[1]
    finding = Finding(
        "checkpoint is missing in job",
        label=f"the source of {model.name} is not a repository that an engine can load",
        help="a repository on a model hub, or a folder that exists on every host",
        fix="job.checkpoint: /models/my-model",
    )
    sink.report("X08", finding, at="job.kind")
    return None


def _traffic(spec: TrafficSpec) -> Traffic:
    return Traffic(
        float(spec.input_tokens), float(spec.output_tokens), spec.concurrency, spec.request_rate
    )


def _setup(
    spec: ServingSpec, model: Model, default_batch: tuple[int, int], engine: EngineConstants
) -> ServingSetup:
    """Return number formats and limits, with the engine's defaults filled in.

    ``default_batch`` has the engine's default numbers of requests and of tokens per step.
    """
    job = spec.job
    # Published fp8 checkpoints of Mamba models have one scale per tensor (nvidia/Nemotron-*-FP8).
    scale_per_tensor = job.precision == "fp8" and model.mamba is not None
    seqs, tokens = default_batch
    seqs = seqs if job.max_num_seqs == "auto" else job.max_num_seqs
    tokens = tokens if job.max_num_batched_tokens == "auto" else job.max_num_batched_tokens
    if job.max_num_batched_tokens == "auto":
        tokens = max(tokens, seqs)
    elif job.max_num_seqs == "auto":
        seqs = min(tokens, seqs)
    activations: KvPrecision = "fp16" if job.precision == "fp16" else "bf16"
    return ServingSetup(
        engine=engine,
        weights=job.precision,
        kv=activations if job.kv_precision == "auto" else job.kv_precision,
        memory_share=round(1 - spec.goals.memory_headroom, 4),
        max_running=seqs,
        max_batched_tokens=tokens,
        block=1 if job.quantize or scale_per_tensor else None,
    )


def _goals(spec: ServingGoalsSpec) -> ServingGoals:
    limits = []
    for axis in ServingLimitsSpec.model_fields if spec.limits else ():
        limit: AxisLimit | None = getattr(spec.limits, axis)
        if limit is not None:
            limits.append(Limit(axis, limit.min or 1, limit.max, limit.only, limit.ban))
    return ServingGoals(spec.maximize, spec.ttft, spec.tpot, spec.memory_headroom, tuple(limits))


def _pins(spec: ServingLayoutSpec) -> ServingPins:
    """Return the pinned axes; ``auto`` becomes None."""
    names = ("tp", "pp", "dp", "ep", "pcp", "dcp", "replicas", "all2all")
    written = {name: getattr(spec, name) for name in names}
    return ServingPins(
        **{name: None if value == "auto" else value for name, value in written.items()},
        stages=None if spec.stage_layers == "auto" else spec.stage_layers,
        redundant_experts=spec.redundant_experts,
    )


PROBE = ServingLayout(tp=2, pcp=3, pp=5, dp=7, replicas=11)
"""Layout whose degrees all differ, so that the size of an axis identifies it."""
AXES = {"tp": PROBE.tp, "cp": PROBE.pcp, "pp": PROBE.pp, "dp": PROBE.dp, "replica": PROBE.replicas}
"""Axes that placement, rank map and reports require of an engine's mesh, with their sizes."""


def resolve_engine(name: str, model: Model, sink: Sink) -> tuple[Engine, EngineConstants] | None:
    """Return the engine ``name`` and its constants; None after V32 or V33.

    An incomplete declaration is refused: an estimate with the constants of another engine, or a
    rank map over other axes, would be wrong without notice.
    """
    target = engine(name)
    has_axes = _check_mesh(target, sink)
    constants = _declared_constants(target, model, sink)
    return (target, constants) if constants is not None and has_axes else None


def _declared_constants(target: Engine, model: Model, sink: Sink) -> EngineConstants | None:
    """Return the constants of ``target``; None after V32."""
    missing = ""
    try:
        constants = target.constants()
    except UndeclaredConstantsError as error:
        missing = str(error)
    else:
        if not isinstance(constants, EngineConstants):
            missing = f"constants() returns {type(constants).__name__}, not EngineConstants"
        elif constants.states.pages is None and any(k.mixer != "attention" for k in model.kinds):
            missing = f"states.pages is null, but {model.name} has recurrent layers"
        else:
            return constants
    finding = Finding(
        f"{target.name} does not declare the constants that its estimate needs",
        label=missing,
        help=f"declare them in constants.yaml of {declaration(target.name).package}; "
        "EngineConstants in compiler/ir/engine_constants.py defines the keys",
    )
    sink.report("V32", finding, at="emit")
    return None


def _check_mesh(target: Engine, sink: Sink) -> bool:
    """Return True if the mesh of ``target`` has the required axes; report V33 otherwise."""
    sizes = {axis.name: axis.size for axis in target.mesh(PROBE).axes}
    if sizes == AXES:
        return True
    missing = [f"{axis} is missing" for axis in AXES if axis not in sizes]
    wrong = [f"{axis} has size {size}" for axis, size in sizes.items() if AXES.get(axis) != size]
    degrees = {"tp": PROBE.tp, "pcp": PROBE.pcp, "pp": PROBE.pp, "dp": PROBE.dp}
    finding = Finding(
        f"the mesh of {target.name} does not have the axes {', '.join(AXES)}",
        label=", ".join([*missing, *wrong]),
        help=f"for {_words(degrees | {'replicas': PROBE.replicas})}, mesh() must return "
        f"{_words(AXES)}, in the engine's rank order and including axes of size 1",
    )
    sink.report("V33", finding, at="emit")
    return False


def _words(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())

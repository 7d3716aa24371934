"""Spec + Model + Cluster -> ServingProblem: formats, limits of the engine and traffic, complete."""

from __future__ import annotations

import re

from parc.backends.registry import engine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Cluster, Limit, Model
from parc.compiler.ir.serving import KvPrecision, ServingSetup, Traffic
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
from parc.compiler.spec.limits_spec import AxisLimit
from parc.compiler.spec.service_spec import (
    ServiceSpec,
    ServingGoalsSpec,
    ServingLayoutSpec,
    ServingLimitsSpec,
)
from parc.compiler.spec.serving_spec import ServingSpec

_REPOSITORY = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")


def resolve_service(
    spec: ServingSpec, model: Model, cluster: Cluster, sink: Sink
) -> ServingProblem | None:
    """The question that the search answers; None where an error leaves it incomplete."""
    check_training_keys(spec, sink)
    targets = resolve_targets(spec, sink)
    checkpoint = _checkpoint(spec.job, model, sink)
    if targets is None or checkpoint is None:
        return None
    headroom = spec.goals.memory_headroom
    setup = _setup(spec.job, model, cluster, (targets.framework, headroom))
    service = Service(
        checkpoint=checkpoint,
        traffic=Traffic(
            float(spec.job.traffic.input_tokens),
            float(spec.job.traffic.output_tokens),
            spec.job.traffic.concurrency,
            spec.job.traffic.request_rate,
        ),
        setup=setup,
        quantize=spec.job.quantize,
        max_model_len=None if spec.job.max_model_len == "auto" else spec.job.max_model_len,
        context=model_context(model),
        block_tokens=spec.job.block_tokens,
    )
    check_service(spec.job, service, cluster.gpu, sink)
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


def model_context(model: Model) -> int:
    """Tokens that the model's positions reach, as vLLM derives them from the config.

    Rotary scaling multiplies the length, save the kinds whose config states the scaled one
    already: llama3, longrope, yarn (vllm/config/model.py, _get_and_verify_max_len).
    """
    position = model.position
    if position.scaling in ("linear", "dynamic"):
        return int(position.max_positions * position.scaling_factor)
    return position.max_positions


def _checkpoint(job: ServiceSpec, model: Model, sink: Sink) -> str | None:
    """What the engine loads; X08 where neither the spec nor the catalog names it."""
    if job.checkpoint is not None:
        return job.checkpoint
    named = _REPOSITORY.fullmatch(model.source.strip())
    if named is not None:
        return named[1]
    finding = Finding(
        "checkpoint is missing in job",
        label=f"{model.name} names no repository that an engine could load",
        help="a repository on a model hub, or a folder that every host sees",
        fix="job.checkpoint: /models/my-model",
    )
    sink.report("X08", finding, at="job.kind")
    return None


def _setup(
    job: ServiceSpec, model: Model, cluster: Cluster, target: tuple[str, float]
) -> ServingSetup:
    """Formats and limits, none left to the engine; ``target``: its name, and the headroom."""
    name, headroom = target
    # Published fp8 checkpoints of Mamba models have a scale a tensor (nvidia/Nemotron-*-FP8).
    whole = job.precision == "fp8" and model.mamba is not None
    seqs, tokens = engine(name).default_batch(cluster.gpu)
    kv: KvPrecision = "fp16" if job.precision == "fp16" else "bf16"
    seqs = seqs if job.max_num_seqs == "auto" else job.max_num_seqs
    tokens = tokens if job.max_num_batched_tokens == "auto" else job.max_num_batched_tokens
    if job.max_num_batched_tokens == "auto":
        tokens = max(tokens, seqs)
    elif job.max_num_seqs == "auto":
        seqs = min(tokens, seqs)
    return ServingSetup(
        weights=job.precision,
        kv=kv if job.kv_precision == "auto" else job.kv_precision,
        engine="vllm",
        memory_share=round(1 - headroom, 4),
        max_running=seqs,
        max_batched_tokens=tokens,
        block=1 if job.quantize or whole else None,
    )


def _goals(spec: ServingGoalsSpec) -> ServingGoals:
    limits = []
    for axis in ServingLimitsSpec.model_fields if spec.limits else ():
        limit: AxisLimit | None = getattr(spec.limits, axis)
        if limit is not None:
            limits.append(Limit(axis, limit.min or 1, limit.max, limit.only, limit.ban))
    return ServingGoals(spec.maximize, spec.ttft, spec.tpot, spec.memory_headroom, tuple(limits))


def _pins(spec: ServingLayoutSpec) -> ServingPins:
    """``auto`` becomes None."""
    auto = {
        name: None if (value := getattr(spec, name)) == "auto" else value
        for name in ("tp", "pp", "dp", "ep", "pcp", "dcp", "replicas", "all2all")
    }
    return ServingPins(
        **auto,
        stages=None if spec.stage_layers == "auto" else spec.stage_layers,
        redundant_experts=spec.redundant_experts,
    )

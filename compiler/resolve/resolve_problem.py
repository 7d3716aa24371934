"""Resolve a training spec, its model and its cluster to a ``Problem`` for the layout search.

The number formats of the job are checked against the GPU (R03) and against each other (R04).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.recompute_fields import (
    explain_contradictory_fields,
    has_contradictory_fields,
)
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_RECOMPUTE,
    Cluster,
    Goals,
    Job,
    LoraAdapters,
    Model,
    Offload,
    Pins,
    Precision,
    Problem,
    Recompute,
    SizeLimit,
    ZeroPlus,
)
from parc.compiler.resolve.check_dependent_settings import (
    check_checkpoints,
    check_data,
    resolve_adapters,
)
from parc.compiler.resolve.check_unused_settings import check_unused_settings
from parc.compiler.resolve.resolve_calibration import Calibration
from parc.compiler.resolve.resolve_kernels import has_efficiency_factors
from parc.compiler.resolve.resolve_launch import (
    check_command_words,
    resolve_launch,
    spec_as_json,
    spec_digest,
)
from parc.compiler.resolve.resolve_learning_rate import resolve_learning_rate
from parc.compiler.resolve.resolve_targets import Targets, reserved_by, resolve_targets
from parc.compiler.spec.job_spec import DEFAULT_STEPS, BatchInTokens, GoalsSpec, JobSpec
from parc.compiler.spec.layout_spec import (
    LayoutSpec,
    LimitsSpec,
    OffloadSpec,
    ParallelSizeLimit,
    RecomputeSpec,
)
from parc.compiler.spec.spec import Spec

RECOMPUTE: dict[str, Recompute] = {
    "none": NO_RECOMPUTE,
    "selective": Recompute.selective(("core_attn",)),
    "full": Recompute("full", (), "uniform", 1),
}
"""Meaning of each short value of ``layout.recompute``."""


def resolve_problem(
    spec: Spec,
    model: Model,
    cluster: Cluster,
    sink: Sink,
    calibration: Calibration = Calibration(),  # noqa: B008 - frozen
) -> Problem | None:
    """Return the problem that the layout search solves; None if an error leaves it incomplete.

    The job, the context length and the number formats are checked here. Whether the layout values
    that the spec fixes are valid together is checked later, by the rules of the framework.
    """
    lora = resolve_adapters(spec.job, model, sink)
    job = resolve_job(spec.job, sink, lora)
    _check_context_length(spec.job, model, sink)
    check_precision(spec.job.precision, cluster, sink)
    check_gradient_precision(spec.job.precision, spec.job.gradient_precision, sink)
    targets = resolve_targets(spec, sink)
    if (
        targets is None
        or not has_efficiency_factors(targets.framework, cluster, calibration, sink)
        or job is None
    ):
        return None
    program = _default_program(targets, model)
    check_command_words(spec, sink)
    check_unused_settings(spec, targets, sink, program)
    return Problem(
        name=spec.name,
        model=_without_unused_scaling(model, job.sequence_length),
        cluster=cluster,
        job=job,
        goals=_resolve_goals(spec.goals),
        pins=_resolve_pins(spec.layout, sink),
        launch=resolve_launch(
            spec.launch, targets, program, nvlink_spans_hosts=cluster.node.nvlink_spans_hosts
        ),
        emit=targets.emit,
        framework=targets.framework,
        versions=targets.versions,
        # An empty calibration is left out, so that it does not change the digests of older plans.
        digest=spec_digest(
            spec, (model, cluster, calibration.values) if calibration.values else (model, cluster)
        ),
        calibration=calibration.values,
        reserved=reserved_by(targets.emit),
        spec_json=spec_as_json(spec),
    )


def _default_program(targets: Targets, model: Model) -> str:
    """Return the training program that the framework starts if the spec names no program."""
    from parc.backends.registry import framework

    version = dict(targets.versions)[targets.framework]
    return framework(targets.framework).default_program(model, version)


def _resolve_goals(spec: GoalsSpec) -> Goals:
    """Return the goals of the search.

    They contain a size limit for each axis that ``goals.limits`` of the spec sets.
    """
    limits = []
    for axis in LimitsSpec.model_fields if spec.limits else ():
        limit: ParallelSizeLimit | None = getattr(spec.limits, axis)
        if limit is not None:
            limits.append(SizeLimit(axis, limit.min or 1, limit.max, limit.only, limit.ban))
    return Goals(spec.maximize, spec.memory_headroom, spec.tie, spec.idle_hosts, tuple(limits))


def resolve_job(spec: JobSpec, sink: Sink, lora: LoraAdapters | None = None) -> Job | None:
    """Return the section ``job`` with all defaults; None if batch or adapters have an error.

    ``lora`` is the result of ``resolve_adapters``.
    """
    global_batch = _sequences_per_step(spec, sink)
    assert spec.kind != "serve"  # such a job is a ServiceSpec
    steps = _resolve_steps(spec, global_batch or 1, sink)
    check_checkpoints(spec, steps, sink)
    check_data(spec.data, sink)
    rate = resolve_learning_rate(spec, steps, sink)
    if global_batch is None or (spec.lora is not None and lora is None):
        return None
    return Job(
        kind=spec.kind,
        sequence_length=spec.sequence_length,
        global_batch=global_batch,
        precision=spec.precision,
        gradient_precision=spec.gradient_precision,
        moment_precision=spec.moment_precision,
        fp8_recipe=spec.fp8_recipe,
        fused_loss=spec.fused_loss,
        tp_overlap=spec.tp_overlap,
        async_checkpoint=spec.async_checkpoint,
        moe_dispatcher=spec.moe_dispatcher,
        moe_overlap=spec.moe_overlap,
        moe_imbalance=spec.moe_imbalance,
        steps=steps,
        learning_rate=spec.learning_rate,
        min_learning_rate=rate.minimum,
        warmup_steps=rate.warmup_steps,
        warmup_fraction=rate.warmup_fraction,
        lr_decay=spec.lr_decay,
        lr_decay_steps=rate.decay_steps,
        wsd_decay_steps=rate.wsd_steps,
        weight_decay=spec.weight_decay,
        adam_beta1=spec.adam_beta1,
        adam_beta2=spec.adam_beta2,
        adam_epsilon=spec.adam_epsilon,
        gradient_clipping=spec.gradient_clipping,
        seed=spec.seed,
        data=spec.data,
        tokenizer_type=spec.tokenizer,
        tokenizer_model=spec.tokenizer_model,
        checkpoint_dir=spec.checkpoint_dir,
        # The best interval depends on the step time, which is known after the search.
        checkpoint_interval=None
        if spec.checkpoint_interval == "auto"
        else spec.checkpoint_interval,
        load_dir=spec.load_dir,
        lora=lora,
    )


def _sequences_per_step(spec: JobSpec, sink: Sink) -> int | None:
    """Return the global batch in sequences.

    None after an error: a batch in tokens is not divisible by the sequence length (X20).
    """
    if not isinstance(spec.global_batch, BatchInTokens):
        return spec.global_batch
    tokens, length = spec.global_batch.tokens, spec.sequence_length
    if tokens % length == 0:
        return tokens // length
    sink.report("X20", _uneven_batch_finding(tokens, length), at="job.global_batch.tokens")
    return None


def _resolve_steps(spec: JobSpec, global_batch: int, sink: Sink) -> int:
    """Return the number of steps of the run.

    Report a spec with both steps and tokens (X25), and tokens that do not fill one step (X29).
    """
    if spec.tokens is None:
        return spec.steps or DEFAULT_STEPS
    step_tokens = global_batch * spec.sequence_length
    steps = -(-spec.tokens // step_tokens)
    if spec.tokens < step_tokens:
        finding = Finding(
            f"job.tokens is {spec.tokens:,}, which is less than one step",
            label=f"one step has {global_batch:,} sequences x {spec.sequence_length:,} tokens = "
            f"{step_tokens:,} tokens",
            help="the run has one step; a letter for thousands, millions, billions or trillions "
            "may be missing, as in 300B or 1T",
        )
        sink.report("X29", finding, at="job.tokens")
    if spec.steps is not None:
        # The fix keeps the longer run, because a run that is too short may go unnoticed.
        extra, other = "job.steps", "job.tokens"
        if spec.steps >= steps:
            extra, other = other, extra
        finding = Finding(
            f"job.steps is {spec.steps:,}, but job.tokens needs {steps:,} steps",
            label="sets the length of the run a second time",
            help=f"{spec.tokens:,} tokens / ({global_batch:,} sequences x "
            f"{spec.sequence_length:,} tokens) = {steps:,} steps, rounded up",
            fix=f"remove {extra}",
            causes=(Cause(other, "the other setting"),),
        )
        sink.report("X25", finding, at=extra)
    return steps


def _uneven_batch_finding(tokens: int, length: int) -> Finding:
    """Return a finding about a batch in tokens that is not divisible by the sequence length."""
    below = tokens // length
    near = [sequences for sequences in (below, below + 1) if sequences > 0]
    choices = ", ".join(f"{count * length} ({count} sequences)" for count in near)
    return Finding(
        f"a global batch of {tokens} tokens is not divisible by the sequence length {length}",
        label=f"{tokens} % {length} = {tokens % length}, must be 0",
        help=f"nearest valid values: {choices}",
        fix=_suggest_binary_prefix(tokens, length) or f"job.global_batch: {near[-1]}",
        causes=(Cause("job.sequence_length", "the sequence length is set here"),),
    )


def _suggest_binary_prefix(tokens: int, length: int) -> str:
    """Return a fix that replaces the decimal prefix of a batch in tokens by the binary prefix.

    For example, users who write 16M tokens often mean 16Mi = 2^24. The fix is empty if the binary
    number is not divisible by ``length`` either.
    """
    for decimal, binary, prefix in ((10**9, 2**30, "Gi"), (10**6, 2**20, "Mi"), (1000, 1024, "Ki")):
        count = tokens // decimal
        # Only a round decimal number, such as 16M, can stand for the binary one, 16Mi.
        if tokens % decimal == 0 and (count * binary) % length == 0:
            sequences = count * binary // length
            return f"job.global_batch.tokens: {count}{prefix}   ({sequences} sequences)"
    return ""


def _without_unused_scaling(model: Model, length: int) -> Model:
    """Return ``model`` without a dynamic scaling that no sequence of ``length`` tokens uses.

    Dynamic scaling changes the rotary base only in sequences that are longer than max_positions
    (transformers, modeling_rope_utils.py, _compute_dynamic_ntk_parameters).
    """
    position = model.position
    if position.scaling != "dynamic" or length > position.max_positions:
        return model
    return replace(model, position=replace(position, scaling="none", scaling_factor=1.0))


def _check_context_length(spec: JobSpec, model: Model, sink: Sink) -> None:
    """Report sequences that are longer than the context length of the model.

    With learned positions this is an error, because their table ends there (S12). With other
    positions, only the quality of the model suffers (S16).
    """
    position, length = model.position, spec.sequence_length
    limit = position.max_positions
    if position.scaling != "none" and position.original_max_positions == limit:
        # Without a length before scaling, max_positions is the length before scaling. With one, it
        # is the context that the model was trained for, which may be shorter than their product:
        # Llama 3.2 has 131072 tokens, 8192 before scaling, and the factor 32.
        limit = int(limit * position.scaling_factor)
    if position.kind == "none" or length <= limit:
        return
    learned = position.kind == "learned"
    finding = Finding(
        f"sequence length {length} exceeds the context length {limit} of {model.name}",
        label=f"{length} > {limit} tokens",
        help=f"valid values: up to {limit}"
        + ("" if learned or position.scaling != "none" else ", or use rotary scaling"),
        # No fix: a shorter length is not what the user asked for.
        causes=(Cause("model", "the model sets the context length"),),
    )
    sink.report("S12" if learned else "S16", finding, at="job.sequence_length")


def _resolve_pins(spec: LayoutSpec, sink: Sink) -> Pins:
    """Return the layout values that the spec fixes; ``auto`` becomes None.

    Recompute settings that contradict each other are reported (R08).
    """
    # LayoutSpec and Pins use the same field names.
    written = {field.name: getattr(spec, field.name) for field in fields(Pins)}
    pins = {name: None if value == "auto" else value for name, value in written.items()}
    recompute = pins["recompute"] = _resolve_recompute(spec.recompute)
    if recompute is not None and has_contradictory_fields(recompute):
        sink.report("R08", explain_contradictory_fields(recompute), at="layout.recompute")
        pins["recompute"] = None  # no rule of a framework repeats the mistake
    pins["offload"] = _resolve_offload(spec.offload)
    pins["zero_plus"] = ZeroPlus(**spec.zero_plus.model_dump()) if spec.zero_plus else None
    return Pins(**pins)


def _resolve_recompute(spec: str | RecomputeSpec) -> Recompute | None:
    """Return the recompute level that the spec fixes; None for ``auto``."""
    if isinstance(spec, RecomputeSpec):
        if spec == RecomputeSpec(granularity="selective"):
            return RECOMPUTE["selective"]
        return Recompute(spec.granularity, spec.modules, spec.method, spec.layers)
    return RECOMPUTE.get(spec)


def _resolve_offload(spec: str | OffloadSpec) -> Offload | None:
    """Return the offload that the spec fixes; None for ``auto``."""
    if isinstance(spec, OffloadSpec):
        path = spec.nvme_path if spec.uses_nvme else ""
        return Offload(spec.optimizer, spec.parameters, path, spec.activations)
    return {"none": NO_OFFLOAD, "cpu": replace(NO_OFFLOAD, optimizer="cpu")}.get(spec)


def _best_substitute_precision(precision: Precision, valid: Sequence[str]) -> str:
    """Return the precision in ``valid`` that is the best substitute for ``precision``.

    This is fp8 for block-scaled formats if fp8 is valid; otherwise bf16 if bf16 is valid; otherwise
    the last precision in ``valid``.
    """
    scaled = precision in ("mxfp8", "nvfp4")
    preferred = ("fp8", "bf16") if scaled else ("bf16",)
    return next((name for name in preferred if name in valid), valid[-1])


def check_precision(precision: Precision, cluster: Cluster, sink: Sink) -> None:
    """Report a ``precision`` that the matrix units of the cluster's GPUs do not support (R03)."""
    gpu, valid = cluster.gpu, cluster.precisions
    if precision in valid:
        return
    finding = Finding(
        f"{gpu.name} does not support {precision} matrix multiplication",
        label=f"GPU generation {gpu.generation} has no matrix units for {precision}"
        if precision not in cluster.generation.precisions
        else f"other GPUs of generation {gpu.generation} do, but this one has no rate for it",
        help=f"valid values on this GPU: {', '.join(valid) or 'none'}",
        fix=f"job.precision: {_best_substitute_precision(precision, valid)}" if valid else "",
        causes=(Cause("cluster.gpu", "the GPU is set here"),),
    )
    sink.report("R03", finding, at="job.precision")


def check_gradient_precision(precision: Precision, gradients: str, sink: Sink) -> None:
    """Report an fp16 job that sums gradients in bf16 (R04)."""
    if precision != "fp16" or gradients != "bf16":
        return
    finding = Finding(
        "a job with precision fp16 cannot sum gradients in bf16",
        label="loss scaling assumes gradients in fp16",
        help="with fp16, set gradient_precision to fp32: gradients are stored in 16 bits and "
        "summed in fp32",
        fix="job.gradient_precision: fp32",
        causes=(Cause("job.precision", "the precision is fp16"),),
    )
    sink.report("R04", finding, at="job.gradient_precision")

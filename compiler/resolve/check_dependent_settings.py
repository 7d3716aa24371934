"""Report settings that another setting makes useless or wrong.

Settings without an effect get E14; checkpoints, data and LoRA adapters of a training run have codes
of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

from parc.compiler.cost.counts.adapters import (
    ALL_LINEAR,
    ATTENTION,
    adaptable_projections,
    projection_widths,
    unadaptable_parts,
)
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import LoraAdapters, Model, Projection
from parc.compiler.ir.field_paths import is_path_in_fields
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.check_unused_settings import paths_of_set_fields
from parc.compiler.spec.job_spec import JobSpec, LoraTrainingSpec
from parc.compiler.spec.spec import Spec, TaskSpec


@frozen
class Dependency:
    """Condition under which fields of a spec have no effect."""

    paths: tuple[str, ...]
    """Spec paths of the fields; a section stands for all fields below it."""
    is_unused: Callable[[Any, Model], bool]
    """Function of the spec and its model."""
    reason: str


CONSTANT_RATE = "the learning rate is constant after the warm-up"
NO_EXPERTS = "the model has no experts"
MODEL = (
    Dependency(
        ("model.full_attention_every",),
        lambda spec, model: model.attention.window is None,
        "the model has no window",
    ),
    Dependency(
        tuple(
            f"model.position.{name}"
            for name in ("scaling_factor", "original_max_positions", "mscale", "mscale_all_dim")
        ),
        lambda spec, model: model.position.scaling == "none" and model.position.kind != "yarn",
        "the positions have no scaling",
    ),
    Dependency(
        ("model.position.percent",),
        lambda spec, model: model.attention.latent is not None,
        "latent.qk_rope_dim is the rotated part of a head with latent attention",
    ),
    Dependency(
        ("model.experts.shared_gate",),
        lambda spec, model: model.experts is not None and not model.experts.shared_size,
        "the model has no shared experts",
    ),
)
TRAINING = (
    *MODEL,
    Dependency(
        (
            *("job.moe_dispatcher", "job.moe_overlap", "job.moe_imbalance"),
            *("goals.limits.ep", "goals.limits.etp"),
        ),
        lambda spec, model: model.experts is None,
        NO_EXPERTS,
    ),
    Dependency(
        ("job.fp8_recipe",),
        lambda spec, model: spec.job.precision != "fp8",
        "the precision is not fp8",
    ),
    Dependency(
        ("job.async_checkpoint", "job.checkpoint_interval"),
        lambda spec, model: spec.job.checkpoint_dir is None,
        "no checkpoint_dir is set",
    ),
    Dependency(
        ("job.min_learning_rate",),
        lambda spec, model: spec.job.lr_decay == "constant",
        CONSTANT_RATE,
    ),
    Dependency(
        ("job.lr_decay_steps",),
        # A warm-up that is a fraction is a fraction of these steps.
        lambda spec, model: (
            spec.job.lr_decay == "constant" and not isinstance(spec.job.warmup_steps, float)
        ),
        CONSTANT_RATE,
    ),
)
SERVING = (
    *MODEL,
    Dependency(("goals.limits.ep",), lambda spec, model: model.experts is None, NO_EXPERTS),
    Dependency(
        ("job.traffic.burstiness", "job.traffic.lengths.output_cv"),
        # A trace has its own arrivals and lengths (V34).
        lambda spec, model: (
            spec.job.traffic.request_rate is None
            and spec.job.traffic.trace is None
            and all(getattr(spec.goals, limit) is None for limit in ("ttft", "tpot", "e2e"))
        ),
        "requests are simulated only with a request_rate or a limit on latency",
    ),
)


def check_dependent_settings(spec: TaskSpec, model: Model, sink: Sink) -> None:
    """Report fields that have no effect although the spec changes their defaults (E14)."""
    dependencies = TRAINING if isinstance(spec, Spec) else SERVING
    unused = [one for one in dependencies if one.is_unused(spec, model)]
    if not unused:
        return
    for path in paths_of_set_fields(spec, only_changed=True):
        for one in unused:
            if is_path_in_fields(path, one.paths):
                finding = Finding(f"{path} has no effect", label=one.reason, fix=f"remove {path}")
                sink.report("E14", finding, at=path, key=True)


def check_checkpoints(spec: JobSpec, steps: int, sink: Sink) -> None:
    """Report fine-tuning without a base of its own (X19), and too long an interval (X27).

    ``steps`` is the number of steps of the run.
    """
    if spec.kind == "finetune" and spec.load_dir is None:
        sink.report("X19", _NO_BASE, at="job.kind")
    folders = {(one or "").rstrip("/") for one in (spec.load_dir, spec.checkpoint_dir)}
    if spec.kind == "finetune" and len(folders) == 1 and spec.load_dir:
        sink.report("X19", _explain_same_folder(spec.load_dir), at="job.checkpoint_dir")
    interval = spec.checkpoint_interval
    if spec.checkpoint_dir is None or interval == "auto" or interval <= steps:
        return
    length = "job.tokens" if spec.tokens else "job.steps" if spec.steps else ""
    finding = Finding(
        f"a run of {steps:,} steps has no checkpoint every {interval:,} steps",
        label=f"{interval:,} > {steps:,} steps: only the end of the run is saved",
        help=f"valid values: 1 to {steps:,}, or auto",
        fix="job.checkpoint_interval: auto",
        causes=(Cause(length, "the length of the run is set here"),) if length else (),
    )
    sink.report("X27", finding, at="job.checkpoint_interval")


def _explain_same_folder(folder: str) -> Finding:
    return Finding(
        f"a finetune job saves to the folder of the checkpoint that it starts from, {folder}",
        label="the run would continue from the checkpoint instead of starting at step 0",
        help="valid: another folder; or job.kind pretrain, to continue the run in this folder",
        fix=f"job.checkpoint_dir: {folder.rstrip('/')}-finetuned",
        causes=(Cause("job.load_dir", "the checkpoint to start from is set here"),),
    )


_NO_BASE = Finding(
    "a finetune job needs a checkpoint to start from, in job.load_dir",
    label="job.load_dir is not set",
    fix="job.load_dir: /path/to/checkpoint",
)


def resolve_adapters(spec: JobSpec, model: Model, sink: Sink) -> LoraAdapters | None:
    """Return the adapters that ``job.lora`` describes; None without any, or after an error (X31).

    Errors are a job that trains all weights, targets that ``model`` lacks, and a rank that is not
    smaller than both widths of each projection.
    """
    lora = spec.lora
    if lora is None:
        return None
    finding, at = _check_targets(lora, model)
    targets = tuple(one for one in adaptable_projections(model) if one in _target_names(lora))
    if spec.kind != "finetune":
        finding, at = _explain_pretraining(spec), "job.lora"
    elif finding is None:
        finding, at = _check_rank(lora.rank, targets, model), "job.lora.rank"
    if finding is not None:
        sink.report("X31", finding, at=at, key=at == "job.lora")
        return None
    return LoraAdapters(lora.rank, lora.alpha or 2 * lora.rank, lora.dropout, targets)


def _target_names(lora: LoraTrainingSpec) -> tuple[Projection, ...]:
    """Return the projections that ``job.lora.targets`` selects, which a model may lack."""
    if isinstance(lora.targets, str):
        return ATTENTION if lora.targets == "attention" else ALL_LINEAR
    return lora.targets


def _explain_pretraining(spec: JobSpec) -> Finding:
    load = "" if spec.load_dir else ", job.load_dir: /path/to/checkpoint"
    return Finding(
        f"job.lora is set, but a job of kind {spec.kind} trains all weights",
        label="adapters are trained on the frozen weights of a checkpoint",
        help="set job.kind to finetune, and job.load_dir to the checkpoint; or remove job.lora",
        fix=f"job.kind: finetune{load}",
        causes=(Cause("job.kind", "the kind of the job is set here"),),
    )


def _check_targets(lora: LoraTrainingSpec, model: Model) -> tuple[Finding | None, str]:
    """Return the finding about targets that ``model`` lacks, if any, and its place."""
    at, valid, names = "job.lora.targets", adaptable_projections(model), _target_names(lora)
    others = tuple(unadaptable_parts(model))
    cause = (Cause("model", "the model is set here"),)
    if lora.targets == "all-linear" and others:
        attention = set(ATTENTION) <= set(valid)
        finding = Finding(
            f"PARC plans no LoRA adapters for all linear layers of {model.name}",
            label=f"not supported: {', '.join(others)}",
            help=f"valid projections: {', '.join(valid) or 'none'}",
            fix=f"{at}: attention" if attention else "",
            causes=cause,
        )
        return finding, at if attention else "job.lora"
    missing = [] if lora.targets == "all-linear" else [one for one in names if one not in valid]
    if missing or not names or not valid:
        finding = Finding(
            f"{model.name} has no {', '.join(missing)} that can have a LoRA adapter"
            if missing
            else f"job.lora.targets selects no projection of {model.name}",
            label=f"not supported: {', '.join(others)}" if others else "no such linear layer",
            help=f"valid projections: {', '.join(valid) or 'none'}",
            fix=f"{at}: all-linear" if valid and not others else "",
            causes=cause,
        )
        return finding, at
    return None, at


def _check_rank(rank: int, targets: tuple[Projection, ...], model: Model) -> Finding | None:
    """Return the finding about a rank for which an adapter is no smaller than its projection."""
    widths = {
        min(pair): name
        for kind in model.kinds
        for name, pair in projection_widths(model, kind).items()
        if name in targets
    }
    least = min(widths)
    if rank < least:
        return None
    return Finding(
        f"LoRA rank {rank} is not smaller than {widths[least]} of {model.name}",
        label=f"{rank} >= {least}, the smaller width of the projection",
        help=f"valid: 1 to {least - 1}; common ranks are 8 to 64",
        fix=f"job.lora.rank: {min(64, least - 1)}",
        causes=(Cause("model", "the model is set here"),),
    )


def check_data(data: tuple[str, ...], sink: Sink) -> None:
    """Report a list of training data in which weights and paths do not alternate (X28).

    Frameworks read a list as weights and paths if every second word is a number, and otherwise as
    paths (megatron/core/datasets/utils.py, get_blend_from_list).
    """
    weights = {
        place: weight for place, one in enumerate(data) if (weight := _number(one)) is not None
    }
    if not weights:
        return
    wrong = next((place for place in range(len(data)) if (place in weights) == place % 2), None)
    if wrong is None and len(data) % 2:
        wrong = len(data) - 1
    valid = "valid: paths alone, or a positive weight before each path"
    if wrong is None:
        at = next((place for place, weight in weights.items() if not 0 < weight < inf), None)
        if at is not None:
            message = f"the weight {data[at]} of training data is not a positive number"
            label = f"weight of {data[at + 1]}"
            sink.report("X28", Finding(message, label=label, help=valid), at=f"job.data[{at}]")
        return
    after = f" after {data[wrong - 1]}" if wrong else ""
    expected = "a path" if wrong in weights else "a weight"
    if wrong in weights and wrong % 2 == 0:
        message = f"the weight {data[wrong]} of training data has no path"
        label = "the list ends here; a path must follow"
    else:
        message = f"job.data[{wrong}] is {data[wrong]}, expected {expected}{after}"
        label = f"{len(weights)} of {len(data)} words of the list are numbers"
    pairs = [
        one
        for place in range(0, len(data) - 1, 2)
        if place in weights and place + 1 not in weights
        for one in data[place : place + 2]
    ]
    fix = f"job.data: {json.dumps(pairs, ensure_ascii=False)}" if pairs else ""
    sink.report("X28", Finding(message, label=label, help=valid, fix=fix), at=f"job.data[{wrong}]")


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None

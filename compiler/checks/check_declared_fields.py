"""Settings of a spec that a plugin does not declare to use.

PARC would include them in the estimate, but the job would run without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from parc.backends.registry import engine, fields_without_effect
from parc.backends.spec_fields import (
    SERVING_SETTINGS,
    SpecFields,
    declared_spec_fields,
    spec_field,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import AnyProblem, Model
from parc.compiler.ir.field_paths import is_path_in_fields
from parc.compiler.resolve.check_unused_settings import paths_of_set_fields
from parc.compiler.resolve.resolve_model import plain_model
from parc.compiler.spec.spec import Spec, TaskSpec

if TYPE_CHECKING:
    # pydantic builds the models of serving on import, which takes 1 % of a command
    from parc.compiler.spec.service_spec import ServingSpec

    AnySpec = Spec | ServingSpec

CAPABILITIES = frozenset(
    {
        *("job.kind", "job.precision", "job.gradient_precision", "job.moment_precision"),
        *("job.fp8_recipe", "job.fused_loss", "job.tp_overlap", "job.async_checkpoint"),
        *("job.moe_dispatcher", "job.moe_overlap", "job.quantize", "job.kv_precision"),
        *("job.max_model_len", "job.max_num_seqs", "job.max_num_batched_tokens"),
        *("layout.all2all", "layout.stage_layers"),
    }
)
"""Fields whose default needs no setting of the framework: spelling it out changes nothing."""
CHECKED_ELSEWHERE = (
    # PARC alone uses these for estimates, or V40 and the strategies (E08) cover them.
    *("job.moe_imbalance", "job.traffic", "job.disaggregate", "job.pool", "job.speculative"),
    *("job.lora", "job.kv_offload"),
    # These describe the checkpoint and the model instead of setting anything.
    *("model.base", "model.name", "model.family", "model.source", "model.extra_weights"),
    *("model.position.max_positions", "model.checkpoints"),
)
"""Fields and sections that a plugin need not declare."""
CHECKED_SERVING = (*SERVING_SETTINGS, "job.traffic.prefix_hit")
"""Fields of a serving spec that an engine must declare; its rules and strategies cover others."""
SET_BY = {
    "job.tokens": "job.steps",
    "job.traffic.prefix_hit": "job.prefix_caching",
    "model.experts.every": "model.experts.first_dense_layers",
}
"""Spec field -> field that a plugin declares for it."""
REQUIRED = ("job.sequence_length", "job.global_batch", "job.global_batch.tokens")
"""Fields that a spec cannot leave out."""


def has_declared_fields(
    spec: TaskSpec, problem: AnyProblem | None, sink: Sink, *, needs_all: bool = True
) -> bool:
    """Return True if the framework or engine of ``problem`` declares all settings of ``spec``.

    Otherwise report the others (E11). Changes to a model that an engine reads from its checkpoint
    are only warnings (E14). The result is True for the backends of PARC, because their rules reject
    what they cannot express. Without ``needs_all``, the program builds the model from its
    config.json, so that it has all properties of the model.
    """
    declared = None if problem is None else declared_spec_fields(problem.framework)
    if problem is None or declared is None:
        return True
    spec = cast("AnySpec", spec)
    found, name = Sink(sink.positions), problem.framework
    if declared.used:
        _check_settings(spec, name, declared, found, needs_all=needs_all)
        if isinstance(spec, Spec) and needs_all:
            known = {*_settings(spec), *_excused(name)}
            _check_model(problem.model, name, declared, known, found)
    else:
        found.report("E11", _explain_no_declaration(name), at="emit")
    sink.extend(found)
    return not found.failed()


def _excused(name: str) -> set[str]:
    """Return the fields and sections that the plugin ``name`` need not declare."""
    return {*fields_without_effect(name), *CHECKED_ELSEWHERE}


def _check_settings(
    spec: AnySpec, name: str, declared: SpecFields, sink: Sink, *, needs_all: bool
) -> None:
    """Report settings of the spec that the plugin does not declare (E11, E14)."""
    excused = _excused(name)
    if not isinstance(spec, Spec) and "ep" not in engine(name).strategies:
        excused |= {"layout.all2all", "layout.redundant_experts"}  # refused as a strategy (E08)
    for path in _settings(spec):
        if _is_excused(path, excused) or _is_declared(path, declared):
            continue
        if path.startswith("model.") and not isinstance(spec, Spec):
            _report_unread_model_field(spec, name, path, sink)
        elif needs_all or not path.startswith("model."):
            sink.report("E11", _explain(name, path, declared), at=path, key=True)


def _settings(spec: AnySpec) -> list[str]:
    """Return the paths of the fields of ``spec`` that a plugin must declare."""
    changed = set(paths_of_set_fields(spec, only_changed=True))
    given = [path for path in paths_of_set_fields(spec) if path.startswith(("job.", "model."))]
    if not isinstance(spec, Spec):
        given = [path for path in paths_of_set_fields(spec) if path in CHECKED_SERVING] + [
            path for path in given if path.startswith("model.")
        ]
        changed.discard("job.traffic.prefix_hit" if not spec.job.traffic.prefix_hit else "")
    return [path for path in given if path in changed or path not in CAPABILITIES]


def _check_model(
    model: Model, name: str, declared: SpecFields, known: set[str], sink: Sink
) -> None:
    """Report properties of a catalog model that the plugin does not declare (E11)."""
    undeclared = [
        path
        for path in dict.fromkeys(_model_fields(model, plain_model(), "model"))
        if not _is_excused(path, known) and not _is_declared(path, declared)
    ]
    if not undeclared:
        return
    finding = Finding(
        f"{name} does not use {', '.join(undeclared)}, which {model.name} needs",
        label="the program would train another model than the one that PARC estimates",
        help=_HELP.format(name=name),
        targets=(name,),
    )
    sink.report("E11", finding, at="model")


def _model_fields(value: Any, plain: Any, path: str) -> Iterator[str]:
    """Yield the spec fields in which the model ``value`` differs from ``plain``."""
    for field in fields(plain):
        found, default = getattr(value, field.name), getattr(plain, field.name)
        own = f"{path}.{field.name}"
        if is_dataclass(found) and is_dataclass(default):
            yield from _model_fields(found, default, own)
        elif found is not None and found != default and not _follows_from_others(value, field.name):
            yield spec_field(own)


def _follows_from_others(value: Any, name: str) -> bool:
    """Return True if the field ``name`` of a part of a model has the value that others imply."""
    if name == "kv_heads":
        return bool(value.kv_heads == value.heads)
    if name == "original_max_positions":
        return bool(value.original_max_positions == value.max_positions)
    # The pattern of experts is a list with a value per layer, and the head dim usually follows from
    # the hidden size.
    return (name == "pattern" and all(value.pattern)) or name in ("head_dim", "left_out")


def _is_declared(path: str, declared: SpecFields) -> bool:
    # A required field is a mapping if it is given in tokens.
    path = SET_BY.get(path, path).removesuffix(".tokens")
    return declared.uses(path)


def _is_excused(path: str, sections: set[str]) -> bool:
    """Return True if ``sections`` has ``path`` or, unless ``SET_BY`` has it, a section above."""
    return path in sections if path in SET_BY else is_path_in_fields(path, sections)


_HELP = (
    "if the files of {name} contain it, its plugin must declare the field: in spec_fields of its "
    "Declaration, or in its table of fields"
)


def _explain(name: str, path: str, declared: SpecFields) -> Finding:
    """Return the finding about a setting that the plugin does not declare."""
    reason = declared.ignored.get(path)
    return Finding(
        f"{name} does not use {path}",
        label=reason or f"the plugin {name} does not declare this field, so its job would lack it",
        help=_HELP.format(name=name),
        fix="" if path in REQUIRED else f"remove {path}",
        targets=(name,),
    )


def _explain_no_declaration(name: str) -> Finding:
    """Return the finding about a plugin that declares no fields."""
    return Finding(
        f"the plugin {name} does not declare which fields of the spec it uses",
        label="PARC cannot tell which settings reach its files",
        help="its author lists them in spec_fields of the Declaration, such as "
        "(job.steps, job.seed, model), or in the table fields.yaml or flags.yaml of the package",
        targets=(name,),
    )


def _report_unread_model_field(spec: ServingSpec, name: str, path: str, sink: Sink) -> None:
    """Report a change to a catalog model that an engine reads from its checkpoint (E14)."""
    is_change = not isinstance(spec.model, str) and spec.model.base is not None
    if spec.job.checkpoint is not None or not is_change:
        return
    finding = Finding(
        f"{name} does not use {path}",
        label=f"{name} reads the model from its checkpoint",
        help="set job.checkpoint if the checkpoint has the change",
        fix=f"remove {path}",
        targets=(name,),
    )
    sink.report("E14", finding, at=path, key=True)

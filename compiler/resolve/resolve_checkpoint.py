"""Choice of the checkpoint that an engine serves, and check of the number format of its weights.

A plan assumes one format of the weights. An engine serves the format of the checkpoint, so a
checkpoint of another or of an unknown format is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from parc.compiler.catalog.checkpoints import catalog_checkpoints
from parc.compiler.catalog.huggingface.checkpoint_precision import StatedFormat
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model
from parc.compiler.ir.hub import hub_repository
from parc.compiler.spec.service_spec import ServiceSpec

_IN_NAME = (
    (re.compile(r"mxfp4", re.IGNORECASE), "mxfp4"),
    (re.compile(r"nvfp4|[-_]fp4\b", re.IGNORECASE), "nvfp4"),  # nvidia/DeepSeek-R1-FP4
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"int4|awq|gptq|w4a16", re.IGNORECASE), "int4"),
)
"""Text in repository names -> format of the weights in such repositories."""
_FORMATS_16_BIT = ("bf16", "fp16")
KEY_16_BIT = "bf16"
"""Key of the catalog for both 16-bit formats, because an engine converts one into the other."""


@cache
def _known_repositories() -> Mapping[str, tuple[str, Mapping[str, str]]]:
    """Return repository -> its format, and all checkpoints of its model by format.

    The checkpoint of a format is the one for instructions, if there is one.
    """
    return {
        repository: (form, {**uses.get("base", {}), **uses.get("instruct", {})})
        for uses in catalog_checkpoints().values()
        for forms in uses.values()
        for form, repository in forms.items()
    }


def weight_format(checkpoint: str) -> str | None:
    """Return the format of the weights in a checkpoint, from the catalog or else from its name.

    The result is ``bf16`` for all 16-bit formats, and None if the format is unknown.
    """
    if checkpoint in _known_repositories():
        return _known_repositories()[checkpoint][0]
    return next((form for text, form in _IN_NAME if text.search(checkpoint)), None)


def with_checkpoint_of_model(job: ServiceSpec, named: object, model: Model) -> ServiceSpec:
    """Return ``job`` with the repository that the spec names as its model, as the checkpoint.

    ``named`` is the value of ``model`` in the spec. Nothing changes if it is not a repository, or
    if the job sets a checkpoint.
    """
    repository = hub_repository(model.source)
    if job.checkpoint is not None or not repository or repository != named:
        return job
    chosen = job.model_copy(update={"checkpoint": repository})
    # The digest of a spec covers what the user wrote.
    chosen.model_fields_set.discard("checkpoint")
    return chosen


def unplanned_format_finding(stated: StatedFormat) -> Finding:
    """Return the finding that the weights of a checkpoint have a format that no job can have."""
    return Finding(
        "the weights of the checkpoint have a format that PARC cannot plan",
        label=f"its quantization_config: {stated.text}" if stated.text else "",
        help="set job.checkpoint to another checkpoint, and model to its config.json; valid "
        "formats: bf16, fp16, fp8, int4, nvfp4, mxfp4",
    )


def resolve_weight_format(
    job: ServiceSpec, model: Model, found: StatedFormat | None, sink: Sink
) -> ServiceSpec | None:
    """Return ``job`` with the number format that ``precision: auto`` stands for.

    ``found`` is the format of quantized weights that the files of the model state. Returns None
    after reporting that the format of the checkpoint is unknown (X08), another one than the plan
    has, or not the 16-bit one that ``quantize`` needs (F06).
    """
    checkpoint, known = _named_checkpoint(job, model), _catalog_formats(model)
    stated = found.precision if found is not None else None
    job = _with_stated_cache(job, checkpoint, found)
    if checkpoint is None or weight_format(checkpoint) is not None:
        stated = None  # the name of the checkpoint decides
    if _is_already_quantized(job, checkpoint, stated, sink):
        return None
    if job.precision != "auto":
        if stated is not None and job.precision != stated:
            _report_other_format(job, stated, "model", "its config.json", sink)
            return None
        return job
    if job.quantize:
        form: str | None = "fp8"
    elif checkpoint is not None:
        form = stated or weight_format(checkpoint)
    else:
        # resolve_checkpoint reports a model without a checkpoint.
        form = KEY_16_BIT if KEY_16_BIT in known or not known else next(iter(known))
    if form is not None:
        chosen = job.model_copy(update={"precision": form})
        # The digest of a spec covers what the user wrote.
        chosen.model_fields_set.discard("precision")
        return chosen
    finding = Finding(
        "job.precision is not set",
        label=f"the format of the weights in {checkpoint!r:.80} is unknown",
        help="valid values: bf16, fp16, fp8, int4, nvfp4, mxfp4",
        fix=f"job.precision: {KEY_16_BIT}",
    )
    at = "job.checkpoint" if job.checkpoint else "model"
    if found is not None and stated is not None:
        finding = unplanned_format_finding(found)
    sink.report("X08", finding, at=at)
    return None


def _with_stated_cache(
    job: ServiceSpec, checkpoint: str | None, found: StatedFormat | None
) -> ServiceSpec:
    """Return ``job`` with the format of the KV cache that its checkpoint states, if it sets none.

    The files of the model may be those of another checkpoint, whose name states another format.
    """
    named = weight_format(checkpoint) if checkpoint is not None else None
    other = checkpoint is None or (found is not None and named not in (None, found.precision))
    if found is None or other or not found.fp8_cache or job.kv_precision != "auto":
        return job
    chosen = job.model_copy(update={"kv_precision": "fp8"})
    # The digest of a spec covers what the user wrote.
    chosen.model_fields_set.discard("kv_precision")
    return chosen


def _is_already_quantized(
    job: ServiceSpec, checkpoint: str | None, stated: str | None, sink: Sink
) -> bool:
    """Return True after reporting that ``quantize`` is set for a quantized checkpoint (F06)."""
    if not job.quantize or checkpoint is None:
        return False
    found = weight_format(checkpoint) if stated is None else stated
    if found in (None, KEY_16_BIT):
        return False
    named = stated is None and job.checkpoint is not None
    path, name = ("job.checkpoint", checkpoint) if named else ("model", "the config.json")
    has = f"has {found} weights" if found else "has weights of another format"
    finding = Finding(
        f"job.quantize needs a 16-bit checkpoint, but {checkpoint} {has}",
        label="the engine quantizes 16-bit weights to fp8 while it loads them",
        help="remove job.quantize to serve the checkpoint in its own format, or set job.checkpoint "
        "to a checkpoint with 16-bit weights",
        fix="remove job.quantize",
        causes=(Cause(path, f"{name} states the format"),),
    )
    sink.report("F06", finding, at="job.quantize")
    return True


def _named_checkpoint(job: ServiceSpec, model: Model) -> str | None:
    """Return ``job.checkpoint``, or else the model's repository if the catalog does not have it."""
    repository = hub_repository(model.source)
    if job.checkpoint is None and repository and repository not in _known_repositories():
        return repository
    return job.checkpoint


def _catalog_formats(model: Model) -> Mapping[str, str]:
    """Return format -> checkpoint of ``model`` in the catalog; empty if it has none."""
    return _known_repositories().get(hub_repository(model.source), ("", {}))[1]


def resolve_checkpoint(job: ServiceSpec, model: Model, sink: Sink) -> str | None:
    """Return the path or repository name of the checkpoint that the engine loads.

    Without ``job.checkpoint``, it is the catalog's checkpoint of the model in the planned format,
    and the one that is tuned for instructions if there is one. Returns None after reporting that
    there is no such checkpoint (F06), or that the model is not from the catalog (X08).
    """
    checkpoint = _named_checkpoint(job, model)
    if checkpoint is not None:
        _check_format(job, checkpoint, sink)
        return checkpoint
    if known := _catalog_formats(model):
        return _choose_checkpoint(job, model, known, sink)
    finding = Finding(
        "job.checkpoint is not set",
        label=f"the source of {model.name} is not a repository that an engine can load",
        help="valid values: a repository on a model hub, or a folder that exists on every host",
        fix="set the checkpoint, for example job.checkpoint: /models/my-model",
    )
    sink.report("X08", finding, at="job.kind")
    return None


def _choose_checkpoint(
    job: ServiceSpec, model: Model, known: Mapping[str, str], sink: Sink
) -> str | None:
    """Return the checkpoint of the planned format; None after reporting that there is none (F06).

    ``known`` contains the model's checkpoints in the catalog, by format.
    """
    wanted = KEY_16_BIT if job.quantize or job.precision in _FORMATS_16_BIT else job.precision
    if wanted in known:
        return known[wanted]
    listed = ", ".join(f"{_format_text(form)} {name}" for form, name in known.items())
    fix = "job.quantize: true" if job.precision == "fp8" and KEY_16_BIT in known else ""
    if wanted == KEY_16_BIT:
        fix = "remove job.quantize" if job.quantize else f"job.precision: {next(iter(known))}"
    finding = Finding(
        f"the catalog has no checkpoint of {model.name} with {_format_text(wanted)} weights",
        label=f"checkpoints of the catalog: {listed}",
        help=f"set job.checkpoint to a checkpoint with {_format_text(wanted)} weights, or "
        "job.precision to a format of the catalog",
        fix=fix,
        causes=(Cause("model", model.name),),
    )
    sink.report("F06", finding, at="job.quantize" if job.quantize else "job.precision")
    return None


def _check_format(job: ServiceSpec, checkpoint: str, sink: Sink) -> None:
    """Report a ``checkpoint`` whose weight format differs from the plan (F06).

    A checkpoint whose format is in neither the catalog nor its name is taken to have the planned
    format.
    """
    found = weight_format(checkpoint)
    if found is None:
        return
    planned, is_16_bit = job.precision, found == KEY_16_BIT
    if planned == found or (is_16_bit and (planned in _FORMATS_16_BIT or job.quantize)):
        return
    cause = "job.checkpoint" if job.checkpoint else "model"
    _report_other_format(job, found, cause, checkpoint, sink)


def _report_other_format(job: ServiceSpec, found: str, path: str, name: str, sink: Sink) -> None:
    """Report that the checkpoint has the format ``found``, as ``name`` at ``path`` states (F06)."""
    planned, is_16_bit = job.precision, found == KEY_16_BIT
    # The fix keeps the format that the user chose, if the engine can convert the weights to it.
    fix = "job.quantize: true" if is_16_bit and planned == "fp8" else f"job.precision: {found}"
    has = f"has {_format_text(found)} weights" if found else "states a format PARC cannot plan"
    finding = Finding(
        f"the plan has {planned} weights, but {name} {has}",
        label="the engine serves the format of the checkpoint",
        help=f"set job.checkpoint to a checkpoint with {planned} weights, or job.precision to the "
        "format of this checkpoint",
        fix=fix if found else "",
        causes=(Cause(path, name),),
    )
    sink.report("F06", finding, at="job.precision")


def _format_text(form: str) -> str:
    return "16-bit" if form == KEY_16_BIT else form

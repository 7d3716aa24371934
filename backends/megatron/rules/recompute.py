"""Rules on recompute settings that Megatron rejects, or silently interprets in another way."""

from __future__ import annotations

from parc.backends.megatron.capabilities import core_version, has_separate_norms
from parc.backends.megatron.programs import has_grouped_gemm
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.recompute_fields import (
    explain_contradictory_fields,
    has_contradictory_fields,
)
from parc.compiler.diagnostics.wording import format_words
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

MODULES = (
    *("core_attn", "gdn_norm_out", "layernorm", "mla_up_proj", "mlp"),
    *("moe", "moe_act", "shared_experts"),
)
"""Valid ``--recompute-modules`` for GPT models (transformer_config.py, __post_init__)."""
SINCE = {"gdn_norm_out": (0, 19)}
"""Module -> first Megatron version that can recompute the module, if not all versions can."""
AT = "layout.recompute"


def _violates_recompute_fields(problem: Problem, layout: Layout) -> bool:
    # TransformerConfig: full needs method and layers; selective forbids both.
    return has_contradictory_fields(layout.recompute)


def _explain_recompute_fields(problem: Problem, layout: Layout) -> Finding:
    return explain_contradictory_fields(layout.recompute)


def max_layers_per_chunk(layout: Layout) -> int:
    """Return the largest number of decoder layers in one model chunk."""
    return max(chunk.layers for row in layout.split.chunks for chunk in row)


def _violates_recompute_layers(problem: Problem, layout: Layout) -> bool:
    layers = layout.recompute.layers
    # Megatron's parser does not check this bound.
    return layers is not None and layers > max_layers_per_chunk(layout)


def _explain_recompute_layers(problem: Problem, layout: Layout) -> Finding:
    layers, most = layout.recompute.layers, max_layers_per_chunk(layout)
    return Finding(
        message=f"recompute of {layers} layers exceeds the {most} layers of the longest chunk",
        label=f"layers {layers}, must be at most {most}; Megatron would silently recompute all",
        help=f"valid layers: 1 to {most}",
        fix=f"layout.recompute.layers: {most}",
    )


def _recomputable_modules(problem: Problem) -> list[str]:
    """Return the modules that the problem's version of Megatron can recompute."""
    version = parse_version(core_version(problem))
    return [module for module in MODULES if version >= SINCE.get(module, ())]


def _violates_module_names(problem: Problem, layout: Layout) -> bool:
    modules = layout.recompute.modules
    return bool(modules) and not set(modules).issubset(_recomputable_modules(problem))


def _explain_module_names(problem: Problem, layout: Layout) -> Finding:
    from difflib import get_close_matches

    known = _recomputable_modules(problem)
    bad = next(module for module in layout.recompute.modules if module not in known)
    near = get_close_matches(bad, known, 1)
    return Finding(
        message=f"Megatron cannot recompute the module {bad!r}",
        label=f"{bad!r} is not a module of --recompute-modules",
        help=f"valid modules: {', '.join(known)}",
        fix=f"layout.recompute.modules: [{near[0]}]" if near else "",
    )


def _missing_requirements(problem: Problem, layout: Layout) -> list[tuple[str, str]]:
    """Return (module, requirement) for each recomputed module whose requirement is not met.

    A requirement is a feature of the model or of the GPU, such as experts.
    """
    model, lacks = problem.model, []
    dense = model.experts is None
    for module in layout.recompute.modules:
        if module in ("moe", "moe_act") and dense:
            lacks.append((module, "a model with experts"))
        elif module == "moe_act" and not has_grouped_gemm(problem):
            lacks.append((module, "grouped GEMM, compute capability 8.0 or newer"))
        elif module == "shared_experts" and (dense or not model.experts.shared_size):  # type: ignore[union-attr]
            lacks.append((module, "shared experts"))
        elif module == "gdn_norm_out" and model.linear is None:
            lacks.append((module, "linear attention"))
        elif module == "mla_up_proj" and model.attention.latent is None:
            lacks.append((module, "multi-head latent attention"))
    return lacks


def _violates_module_requirements(problem: Problem, layout: Layout) -> bool:
    return bool(layout.recompute.modules) and bool(_missing_requirements(problem, layout))


def _explain_module_requirements(problem: Problem, layout: Layout) -> Finding:
    module, what = _missing_requirements(problem, layout)[0]
    good = [name for name in layout.recompute.modules if name != module]
    return Finding(
        message=f"recompute of {module} requires {what}",
        label=f"not available in this plan: {what}",
        help=f"valid modules in this list: {format_words(good)}",
        fix=f"layout.recompute.modules: [{', '.join(good) or 'core_attn'}]",
    )


def _violates_offload(problem: Problem, layout: Layout) -> bool:
    return bool(layout.offload.activations) and _offload_conflict(problem, layout)[0] != ""


def _offload_conflict(problem: Problem, layout: Layout) -> tuple[str, str]:
    """Return (part, reason) of the first part whose offload Megatron rejects or ignores.

    Both texts are empty if there is no such part.
    """
    recompute = layout.recompute
    for part in layout.offload.activations:
        if recompute.granularity == "full":
            return part, "with full recompute, only the inputs of layers are saved"
        if part == "experts" and not problem.model.moe_layers:
            return part, "the model has no experts"
        if part == "experts" and not has_grouped_gemm(problem):
            return part, "it requires grouped GEMM, compute capability 8.0 or newer"
        if part == "experts" and "moe" in recompute.modules:
            return part, "with recompute of moe, the activations of experts are not saved"
        if part == "norms" and not has_separate_norms(problem.model):
            return part, "all norms of the model are fused with projections"
        if part == "attention" and not any(kind.attends for kind in problem.model.kinds):
            return part, "the model has no attention layers"
    return "", ""


def _explain_offload(problem: Problem, layout: Layout) -> Finding:
    part, reason = _offload_conflict(problem, layout)
    good = [name for name in layout.offload.activations if name != part]
    return Finding(
        message=f"Megatron cannot offload the activations of {part}: {reason}",
        label=f"{part} cannot be in this list",
        help=f"valid parts in this list: {format_words(good)}",
        fix=f"layout.offload.activations: [{', '.join(good)}]",
    )


RECOMPUTE_RULES: tuple[Rule, ...] = (
    Rule(
        "M11",
        ("layout.offload.activations", "layout.offload", AT),
        _violates_offload,
        _explain_offload,
        ("offload", "recompute"),
    ),
    Rule("R08", (AT,), _violates_recompute_fields, _explain_recompute_fields, ("recompute",)),
    Rule(
        "R12",
        (f"{AT}.modules", AT),
        _violates_module_names,
        _explain_module_names,
        ("recompute",),
    ),
    Rule(
        "M11",
        (f"{AT}.modules", AT, "model"),
        _violates_module_requirements,
        _explain_module_requirements,
        ("recompute",),
    ),
    Rule(
        "R08",
        (f"{AT}.layers", AT),
        _violates_recompute_layers,
        _explain_recompute_layers,
        ("recompute", "split"),
    ),
)

"""Values of flags that say how positions enter. Each function: problem -> value."""

from __future__ import annotations

from parc.backends.megatron.arguments.derived_model import has_latent
from parc.compiler.ir import Problem

ROTARY = ("rope", "yarn")


def is_yarn(problem: Problem) -> bool:
    """YaRN, said as the kind or as the scaling."""
    return "yarn" in (problem.model.position.kind, problem.model.position.scaling)


def position_type(problem: Problem) -> str:
    """Latent attention takes rope and reads --rope-type."""
    if is_yarn(problem) and not has_latent(problem):
        return "yarn"
    kind = problem.model.position.kind
    return {"learned": "learned_absolute", "yarn": "rope"}.get(kind, kind)


def rotary_base(problem: Problem) -> int | None:
    """A whole number (E04 refuses others)."""
    position = problem.model.position
    return int(position.base) if position.kind in ROTARY else None


def rotary_percent(problem: Problem) -> float | None:
    """Share of the head dim that is rotated; latent attention has dims for it."""
    position = problem.model.position
    return position.percent if position.kind in ROTARY and not has_latent(problem) else None


def llama3_scaling(problem: Problem) -> bool:
    """The frequency-dependent scaling of Llama 3.1."""
    return problem.model.position.scaling == "llama3"


def llama3_factor(problem: Problem) -> float | None:
    """Its factor."""
    return problem.model.position.scaling_factor if llama3_scaling(problem) else None


def linear_factor(problem: Problem) -> int | None:
    """Linear interpolation of positions."""
    position = problem.model.position
    return int(position.scaling_factor) if position.scaling == "linear" else None


def latent_rope_type(problem: Problem) -> str | None:
    """Latent attention takes yarn by default."""
    if not has_latent(problem):
        return None
    return "yarn" if is_yarn(problem) else "rope"


def unfused_rope(problem: Problem) -> bool:
    """The fused kernel of latent attention knows yarn only (MLATransformerConfig)."""
    return latent_rope_type(problem) == "rope"


def yarn_factor(problem: Problem) -> float | None:
    """Context after scaling over context before."""
    return problem.model.position.scaling_factor if is_yarn(problem) else None


def yarn_mscale(problem: Problem) -> float | None:
    """Attention scale."""
    return problem.model.position.mscale if is_yarn(problem) else None


def yarn_mscale_all_dim(problem: Problem) -> float | None:
    """Attention scale over all dims."""
    return problem.model.position.mscale_all_dim if is_yarn(problem) else None


def yarn_original(problem: Problem) -> int | None:
    """Context before scaling; latent attention has no flag for it and takes 4096."""
    if has_latent(problem) or not is_yarn(problem):
        return None
    return problem.model.position.original_max_positions


def max_positions(problem: Problem) -> int:
    """At least the sequence length, which validate_args demands."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)

"""Flag values of the position encoding, computed from the problem; None and False omit a flag."""

from __future__ import annotations

from parc.backends.megatron.arguments.derived_model import has_latent
from parc.compiler.ir import Problem

ROTARY = ("rope", "yarn")


def is_yarn(problem: Problem) -> bool:
    """Return True for YaRN, which the spec sets as kind or as scaling."""
    return "yarn" in (problem.model.position.kind, problem.model.position.scaling)


def position_type(problem: Problem) -> str:
    """Return Megatron's position type; latent attention uses rope, with YaRN in --rope-type."""
    if is_yarn(problem) and not has_latent(problem):
        return "yarn"
    kind = problem.model.position.kind
    return {"learned": "learned_absolute", "yarn": "rope"}.get(kind, kind)


def rotary_base(problem: Problem) -> int | None:
    """Return the rotary base as an integer; rule E04 rejects other values."""
    position = problem.model.position
    return int(position.base) if position.kind in ROTARY else None


def rotary_percent(problem: Problem) -> float | None:
    """Return the rotated share of the head dim; latent attention has separate rotary dims."""
    position = problem.model.position
    return position.percent if position.kind in ROTARY and not has_latent(problem) else None


def llama3_scaling(problem: Problem) -> bool:
    """Use the frequency-dependent scaling of Llama 3.1."""
    return problem.model.position.scaling == "llama3"


def llama3_factor(problem: Problem) -> float | None:
    """Return the factor of Llama 3.1's scaling."""
    return problem.model.position.scaling_factor if llama3_scaling(problem) else None


def linear_factor(problem: Problem) -> int | None:
    """Return the factor of linear interpolation of positions."""
    position = problem.model.position
    return int(position.scaling_factor) if position.scaling == "linear" else None


def latent_rope_type(problem: Problem) -> str | None:
    """Return the rope type of latent attention, for which Megatron's default is yarn."""
    if not has_latent(problem):
        return None
    return "yarn" if is_yarn(problem) else "rope"


def unfused_rope(problem: Problem) -> bool:
    """Disable the fused kernel of latent attention without YaRN (MLATransformerConfig)."""
    return latent_rope_type(problem) == "rope"


def yarn_factor(problem: Problem) -> float | None:
    """Return the ratio of context lengths after and before scaling."""
    return problem.model.position.scaling_factor if is_yarn(problem) else None


def yarn_mscale(problem: Problem) -> float | None:
    """Return YaRN's attention scale."""
    return problem.model.position.mscale if is_yarn(problem) else None


def yarn_mscale_all_dim(problem: Problem) -> float | None:
    """Return YaRN's attention scale over all dims."""
    return problem.model.position.mscale_all_dim if is_yarn(problem) else None


def yarn_original(problem: Problem) -> int | None:
    """Return the context length before scaling; latent attention has no flag and uses 4096."""
    if has_latent(problem) or not is_yarn(problem):
        return None
    return problem.model.position.original_max_positions


def max_positions(problem: Problem) -> int:
    """Return the maximum position, at least the sequence length, as validate_args requires."""
    return max(problem.model.position.max_positions, problem.job.sequence_length)

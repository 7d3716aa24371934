"""Functions that compute flags of the position encoding; None and False omit a flag."""

from __future__ import annotations

from parc.backends.megatron.arguments.derived_model import has_latent
from parc.compiler.ir import Problem

ROTARY = ("rope", "yarn")


def is_yarn(problem: Problem) -> bool:
    """Return True if positions use YaRN, which the spec sets as ``kind`` or as ``scaling``."""
    return "yarn" in (problem.model.position.kind, problem.model.position.scaling)


def position_type(problem: Problem) -> str:
    """Return Megatron's position type, such as "rope" or "yarn".

    For latent attention the type is rope even with YaRN, because another flag (--rope-type) selects
    YaRN.
    """
    if is_yarn(problem) and not has_latent(problem):
        return "yarn"
    kind = problem.model.position.kind
    return {"learned": "learned_absolute", "yarn": "rope"}.get(kind, kind)


def rotary_base(problem: Problem) -> int | None:
    """Return the base of rotary positions as an integer; None for other positions.

    Rule E04 rejects bases that are not integers.
    """
    position = problem.model.position
    return int(position.base) if position.kind in ROTARY else None


def rotary_percent(problem: Problem) -> float | None:
    """Return the fraction of a head's dims that rotary positions rotate.

    None for other positions, and for latent attention, which has separate rotary dims.
    """
    position = problem.model.position
    return position.percent if position.kind in ROTARY and not has_latent(problem) else None


def llama3_scaling(problem: Problem) -> bool:
    """Return True if positions have the frequency-dependent scaling of Llama 3.1."""
    return problem.model.position.scaling == "llama3"


def llama3_factor(problem: Problem) -> float | None:
    """Return the factor of Llama 3.1's position scaling; None for other scalings."""
    return problem.model.position.scaling_factor if llama3_scaling(problem) else None


def linear_factor(problem: Problem) -> int | None:
    """Return the factor of linear position interpolation; None for other scalings."""
    position = problem.model.position
    return int(position.scaling_factor) if position.scaling == "linear" else None


def latent_rope_type(problem: Problem) -> str | None:
    """Return the rope type of latent attention, "yarn" or "rope"; None for other attention.

    PARC always emits the flag for latent attention, because Megatron's default is yarn.
    """
    if not has_latent(problem):
        return None
    return "yarn" if is_yarn(problem) else "rope"


def unfused_rope(problem: Problem) -> bool:
    """Return True to disable the fused rope kernel.

    The kernel does not support latent attention without YaRN. Source: Megatron's
    MLATransformerConfig.
    """
    return latent_rope_type(problem) == "rope"


def yarn_factor(problem: Problem) -> float | None:
    """Return the factor by which YaRN extends the context length; None without YaRN."""
    return problem.model.position.scaling_factor if is_yarn(problem) else None


def yarn_mscale(problem: Problem) -> float | None:
    """Return YaRN's attention scale, ``mscale``; None without YaRN."""
    return problem.model.position.mscale if is_yarn(problem) else None


def yarn_mscale_all_dim(problem: Problem) -> float | None:
    """Return YaRN's attention scale over all dims, ``mscale_all_dim``; None without YaRN."""
    return problem.model.position.mscale_all_dim if is_yarn(problem) else None


def yarn_original_context(problem: Problem) -> int | None:
    """Return the context length before YaRN scaling; None without YaRN.

    Also None for latent attention, for which Megatron has no such flag and uses 4096.
    """
    # MLATransformerConfig has the constant 4096; rule E04 rejects other lengths for latent
    # attention.
    if has_latent(problem) or not is_yarn(problem):
        return None
    return problem.model.position.original_max_positions


def max_positions(problem: Problem) -> int:
    """Return the model's maximum number of positions, or the sequence length if it is larger.

    Megatron's ``validate_args`` rejects a number of positions below the sequence length.
    """
    return max(problem.model.position.max_positions, problem.job.sequence_length)

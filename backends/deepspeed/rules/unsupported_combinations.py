"""Rules on combinations (E09) and single settings (E08) that DeepSpeed does not support."""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.deepspeed.capabilities import VERSIONS
from parc.backends.deepspeed.derived_config import uses_autotp
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.rule import Rule

AUTOTP_SINCE = "0.17"
"""First minor version in which every release supports AutoTP for training."""


@frozen
class ExclusiveSizes:
    """Two parallel sizes that DeepSpeed cannot combine: at least one of the two sizes must be 1."""

    first: str
    """Layout field of the first parallel size."""
    second: str
    """Layout field of the second parallel size, which the suggested fix sets to 1."""
    names: tuple[str, str]
    """Names of the two strategies, as they appear in messages."""
    reason: str


# PipeModelDataParallelTopology has only the axes pipe, data and model (runtime/pipe/topology.py).
EXCLUSIVE_SIZES: tuple[ExclusiveSizes, ...] = (
    ExclusiveSizes(
        "cp",
        "tp",
        ("Ulysses (cp)", "tensor parallelism"),
        "DeepSpeed accepts both, but creates the groups of only one",
    ),
    ExclusiveSizes(
        "cp", "pp", ("Ulysses (cp)", "a pipeline"), "the topology has no axis for sequences"
    ),
)


def _violates_exclusive_sizes(pair: ExclusiveSizes) -> Callable[[Problem, Layout], bool]:
    """Return a function that returns True if a layout sets both sizes of ``pair`` above 1."""

    def exceeds_one_in_both(problem: Problem, layout: Layout) -> bool:
        return bool(getattr(layout, pair.first) > 1 and getattr(layout, pair.second) > 1)

    return exceeds_one_in_both


def _explain_exclusive_sizes(pair: ExclusiveSizes) -> Callable[[Problem, Layout], Finding]:
    """Return a function that explains why DeepSpeed cannot combine the two sizes of ``pair``."""

    def explain_both(problem: Problem, layout: Layout) -> Finding:
        one, other = getattr(layout, pair.first), getattr(layout, pair.second)
        return Finding(
            message=f"deepspeed cannot combine {pair.names[0]} and {pair.names[1]}",
            label=f"{pair.first} {one} with {pair.second} {other}: {pair.reason}",
            help=f"set {pair.first} or {pair.second} to 1",
            fix=f"layout.{pair.second}: 1",
            targets=("deepspeed",),
        )

    return explain_both


def _violates_cp_with_experts(problem: Problem, layout: Layout) -> bool:
    # Expert groups are slices of consecutive ranks (_get_expert_parallel_ranks), but with Ulysses
    # consecutive ranks share a sequence.
    return problem.model.experts is not None and layout.cp > 1


def _explain_cp_with_experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="deepspeed cannot combine Ulysses (cp) and experts",
        label=f"cp {layout.cp} with experts: expert groups would cross sequence groups",
        help="valid cp for a model with experts: 1",
        fix="layout.cp: 1",
        targets=("deepspeed",),
    )


def _violates_autotp_version(problem: Problem, layout: Layout) -> bool:
    version = problem.version("deepspeed")
    return uses_autotp(problem, layout) and not is_in_range(version, AUTOTP_SINCE, None)


def _explain_autotp_version(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed {problem.version('deepspeed')} cannot split tensors (AutoTP)",
        label=f"tp {layout.tp} needs tensor_parallel.autotp_size, added in {AUTOTP_SINCE}",
        help=f"use tp 1, or deepspeed {AUTOTP_SINCE} or later",
        fix=f'versions.deepspeed: "{VERSIONS[-1]}"',
        targets=("deepspeed",),
    )


def _violates_recompute_blocks(problem: Problem, layout: Layout) -> bool:
    again = layout.recompute
    # Only pipelines have a key for layers per block (pipeline.activation_checkpoint_interval).
    return again.method == "block" or (layout.pp == 1 and (again.layers or 1) > 1)


def _explain_recompute_blocks(problem: Problem, layout: Layout) -> Finding:
    again = layout.recompute
    return Finding(
        message="deepspeed recomputes either all layers or none",
        label=f"recompute has method {again.method} and layers {again.layers}",
        help="valid recompute: method uniform with layers 1 (any number of layers if pp > 1)",
        fix="layout.recompute: full",
        targets=("deepspeed",),
    )


COMBINATION_RULES: tuple[Rule, ...] = (
    *(
        Rule(
            "E09",
            (f"layout.{pair.first}", f"layout.{pair.second}"),
            _violates_exclusive_sizes(pair),
            _explain_exclusive_sizes(pair),
            (pair.first, pair.second),
        )
        for pair in EXCLUSIVE_SIZES
    ),
    Rule(
        "E09", ("layout.cp", "model"), _violates_cp_with_experts, _explain_cp_with_experts, ("cp",)
    ),
    Rule(
        "E08",
        ("layout.tp", "versions.deepspeed"),
        _violates_autotp_version,
        _explain_autotp_version,
        ("tp", "pp"),
    ),
    Rule(
        "E08",
        ("layout.recompute",),
        _violates_recompute_blocks,
        _explain_recompute_blocks,
        ("recompute", "pp"),
    ),
)

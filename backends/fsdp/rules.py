"""Rules of fsdp in addition to those that all torch backends share."""

from __future__ import annotations

from parc.backends.shared.common_rules import SEQUENCE_SHARD
from parc.backends.shared.torch.emitted_program import program_rules
from parc.backends.shared.torch.rules import (
    MEGATRON_PINS,
    STAGE_PINS,
    interleaving_rule,
    recompute_blocks_rule,
    replicas_need_shards_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.backends.shared.unsupported_features import unsupported_model_features
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

NAME = "fsdp"


def fsdp_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that layouts for ``problem`` must satisfy under FSDP2 or DDP."""
    found = [
        *torch_rules(problem, NAME),
        SEQUENCE_SHARD,
        _SEQUENCE_PARALLEL,
        recompute_blocks_rule(NAME),
        interleaving_rule({}),
    ]
    found += [replicas_need_shards_rule(NAME, "DistributedDataParallel wraps whole parameters")]
    found += unsupported_pin_rules(problem, NAME, (*MEGATRON_PINS, *STAGE_PINS))
    return (*found, *program_rules(problem, NAME, unsupported_model_features))


def _violates_sequence_parallel(problem: Problem, layout: Layout) -> bool:
    # The TENSOR_PLAN in parallelize.py always shards norms and the residual stream over the
    # sequence (torch's SequenceParallel).
    return layout.sequence_parallel != (layout.tp > 1)


def _explain_sequence_parallel(problem: Problem, layout: Layout) -> Finding:
    right = str(layout.tp > 1).lower()
    return Finding(
        message="parallelize.py uses sequence parallelism if, and only if, tp is above 1",
        label=f"sequence_parallel is {str(layout.sequence_parallel).lower()} with tp={layout.tp}",
        help="valid: sequence_parallel true with tp > 1, false with tp 1",
        fix=f"layout.sequence_parallel: {right}",
        targets=(NAME,),
    )


_SEQUENCE_PARALLEL = Rule(
    "E11",
    ("layout.sequence_parallel",),
    _violates_sequence_parallel,
    _explain_sequence_parallel,
    ("sequence_parallel", "tp"),
)

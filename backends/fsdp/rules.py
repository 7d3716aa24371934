"""Rules of fsdp in addition to those that all torch backends share."""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.shared.common_rules import SEQUENCE_SHARD
from parc.backends.shared.torch.adapter_rules import adapter_rules
from parc.backends.shared.torch.emitted_program import program_kind, program_rules
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
        recompute_blocks_rule(NAME),
        interleaving_rule({}),
    ]
    kind = program_kind(problem, unsupported_model_features)
    if kind:  # parallelize.py supports both in the user's program
        found.append(_sequence_parallel_rule(kind == "decoder"))
    found += [replicas_need_shards_rule(NAME, "DistributedDataParallel wraps whole parameters")]
    found += unsupported_pin_rules(problem, NAME, (*MEGATRON_PINS, *STAGE_PINS))
    found += adapter_rules(problem, NAME)
    return (*found, *program_rules(problem, NAME, unsupported_model_features))


def _explain_sequence_parallel(is_supported: bool) -> Callable[[Problem, Layout], Finding]:
    """Return the function that explains the rule of ``_sequence_parallel_rule``."""
    plan = (
        "train.py uses sequence parallelism if, and only if, tp is above 1"
        if is_supported
        else "the tensor-parallel plans of transformers have no sequence parallelism"
    )
    valid = "true with tp > 1, false with tp 1" if is_supported else "false"

    def explain(problem: Problem, layout: Layout) -> Finding:
        del problem
        return Finding(
            message=plan,
            label=f"sequence_parallel is {str(layout.sequence_parallel).lower()} with "
            f"tp={layout.tp}",
            help=f"valid: sequence_parallel {valid}",
            fix=f"layout.sequence_parallel: {str(is_supported and layout.tp > 1).lower()}",
            targets=(NAME,),
        )

    return explain


def _sequence_parallel_rule(is_supported: bool) -> Rule:
    """Return the rule on sequence parallelism.

    If ``is_supported``, exactly the layouts with tp > 1 must have it; otherwise no layout may.
    """
    return Rule(
        "E11",
        ("layout.sequence_parallel",),
        lambda _, layout: layout.sequence_parallel != (is_supported and layout.tp > 1),
        _explain_sequence_parallel(is_supported),
        ("sequence_parallel", "tp"),
    )

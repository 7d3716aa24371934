"""What a legal layout keeps, beside what every framework of torch asks."""

from __future__ import annotations

from parc.backends.shared.plain_decoder import explain_unsupported_model, unsupported_parts
from parc.backends.shared.plain_rules import SEQUENCE_SHARD, always_violated
from parc.backends.shared.torch.rules import (
    MEGATRON_PINS,
    STAGE_PINS,
    layer_blocks_rule,
    replicas_rule,
    stages_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

NAME = "fsdp"


def rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that bear on ``problem``."""
    found = [
        *torch_rules(problem, NAME),
        SEQUENCE_SHARD,
        _BESIDE,
        layer_blocks_rule(NAME),
        stages_rule({}),
    ]
    found += [replicas_rule(NAME, "DistributedDataParallel wraps whole parameters")]
    found += unsupported_pin_rules(problem, NAME, (*MEGATRON_PINS, *STAGE_PINS))
    lacks = unsupported_parts(problem.model)
    if lacks and not problem.launch.program:
        finding = explain_unsupported_model(problem.model.name, lacks, NAME)
        found.append(always_violated("E10", ("model", "launch.program"), finding))
    return tuple(found)


def _beside_broken(problem: Problem, layout: Layout) -> bool:
    return layout.sequence_parallel != (layout.tp > 1)


def _beside(problem: Problem, layout: Layout) -> Finding:
    right = str(layout.tp > 1).lower()
    return Finding(
        message="the tensor-parallel plan of parallelize.py splits norms over tokens",
        label=f"sequence_parallel {str(layout.sequence_parallel).lower()} with tp={layout.tp}",
        help="legal: sequence_parallel true with tp > 1, false with tp 1",
        fix=f"layout.sequence_parallel: {right}",
        targets=(NAME,),
    )


_BESIDE = Rule(
    "E11",
    ("layout.sequence_parallel",),
    _beside_broken,
    _beside,
    ("sequence_parallel", "tp"),
)

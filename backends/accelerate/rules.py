"""What a legal layout keeps for Accelerate, beside what every framework of torch asks.

Source: accelerate 1.15.0, parallelism_config.py and utils/dataclasses.py.
"""

from __future__ import annotations

from parc.backends.shared.plain_decoder import explain_unsupported_model, unsupported_parts
from parc.backends.shared.plain_rules import CONTEXT_CHUNKS, always_violated
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

NAME = "accelerate"


def rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that bear on ``problem``."""
    found = [*torch_rules(problem, NAME), CONTEXT_CHUNKS, layer_blocks_rule(NAME), stages_rule({})]
    found += [_PLAIN_REPLICAS, _NOTHING, _GRADIENTS, _DDP_RECOMPUTE]
    found.append(replicas_rule(NAME, "ParallelismConfig asks for a dp_shard_size above 1"))
    found += unsupported_pin_rules(problem, NAME, (*MEGATRON_PINS, *STAGE_PINS))
    if not problem.launch.program:
        found.append(_OWN_PROGRAM)
    return (*found, *model_rules(problem))


def model_rules(problem: Problem) -> tuple[Rule, ...]:
    """The model that the emitted program builds, whatever spreads it."""
    model = problem.model
    lacks = [part for part in unsupported_parts(model) if part != "tied embeddings"]
    lacks += ["biases of queries, keys and values"] if model.attention.qkv_bias else []
    if problem.launch.program or not lacks:
        return ()
    finding = explain_unsupported_model(model.name, lacks, NAME)
    return (always_violated("E10", ("model", "launch.program"), finding),)


def _plain_broken(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 0 and (layout.tp > 1 or layout.cp > 1)


def _plain(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate's tp and cp need FSDP2",
        label=f"zero_stage 0 with tp {layout.tp}, cp {layout.cp}",
        help="legal: zero_stage 2 or 3, or tp 1 and cp 1",
        fix="layout.zero_stage: 3",
        targets=(NAME,),
    )


def _nothing_broken(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage > 0 and layout.dp_shard * layout.cp == 1


def _nothing(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate's FSDP2 has no ranks to shard over",
        label=f"dp_shard {layout.dp_shard} x cp {layout.cp} = 1, must be more",
        help="legal: a dp_shard above 1, or zero_stage 0 with tp 1",
        fix="layout.dp_shard: auto" if layout.dp > 1 else "layout.zero_stage: 0",
        targets=(NAME,),
    )


def _gradients_broken(problem: Problem, layout: Layout) -> bool:
    wanted = "bf16" if layout.zero_stage else "fp32"
    return problem.job.gradient_precision != wanted


def _gradients(problem: Problem, layout: Layout) -> Finding:
    wanted = "bf16" if layout.zero_stage else "fp32"
    kind = "FSDP2 with mixed_precision bf16" if layout.zero_stage else "DDP"
    return Finding(
        message=f"Accelerate's {kind} reduces gradients in {wanted}",
        label=f"gradient_precision {problem.job.gradient_precision}, must be {wanted}",
        help="fp32 with FSDP2: emit fsdp or torchtitan",
        fix=f"job.gradient_precision: {wanted}",
        targets=(NAME,),
    )


def _recompute_broken(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 0 and layout.recompute.granularity != "none"


def _recompute(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="Accelerate's setting for recompute belongs to FSDP",
        label="zero_stage 0 has no fsdp_config",
        help="legal: recompute none, or zero_stage 2 or 3",
        fix="layout.recompute: none",
        targets=(NAME,),
    )


def _own_broken(problem: Problem, layout: Layout) -> bool:
    return layout.tp > 1 or layout.cp > 1


def _own(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the emitted program loads no tp_plan and cuts no sequences",
        label=f"tp {layout.tp}, cp {layout.cp}, must be 1",
        help="legal: tp 1 and cp 1; or a program of your own, which loads the model with tp_plan "
        "and enters accelerator.maybe_context_parallel",
        fix="launch.program: train.py",
        targets=(NAME,),
    )


_PLAIN_REPLICAS = Rule(
    "E11", ("layout.zero_stage",), _plain_broken, _plain, ("zero_stage", "tp", "cp")
)
_NOTHING = Rule(
    "E11",
    ("layout.dp_shard", "layout.zero_stage", "layout.dp"),
    _nothing_broken,
    _nothing,
    ("zero_stage", "dp_shard", "cp"),
)
_GRADIENTS = Rule(
    "E11", ("job.gradient_precision",), _gradients_broken, _gradients, ("zero_stage",)
)
_DDP_RECOMPUTE = Rule(
    "E11", ("layout.recompute",), _recompute_broken, _recompute, ("zero_stage", "recompute")
)
_OWN_PROGRAM = Rule("E10", ("layout.tp", "layout.cp"), _own_broken, _own, ("tp", "cp"))

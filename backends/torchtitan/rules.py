"""Rules of torchtitan, in addition to those that all torch backends share.

Source: torchtitan 0.3.0, trainer.py, distributed/parallel_dims.py, models/common/decoder.py.
"""

from __future__ import annotations

from parc.backends.shared.common_rules import (
    CONTEXT_CHUNKS,
    EXPERT_COUNT,
    always_violated_rule,
    decay_rule,
)
from parc.backends.shared.torch.mesh import replicate_and_shard_sizes
from parc.backends.shared.torch.rules import (
    MEGATRON_PINS,
    fp32_gradients_rule,
    replicas_need_shards_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.backends.shared.valid_values import (
    divisors,
    filter_valid,
    format_setting,
    format_values,
    nearest_multiples,
    nearest_value,
)
from parc.backends.torchtitan.flavors import (
    Flavor,
    explain_unknown_model,
    find_registered_flavor,
    missing_model_features,
    paths_of_unknown_model,
)
from parc.backends.torchtitan.rules_pipeline import pipeline_rules
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD_FIELDS, Rule

NAME = "torchtitan"


def torchtitan_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that torchtitan's layouts for ``problem`` must satisfy."""
    found = [
        *torch_rules(problem, NAME),
        CONTEXT_CHUNKS,
        _SEQUENCE,
        _RECOMPUTE,
        *pipeline_rules(problem),
    ]
    found.append(
        replicas_need_shards_rule(NAME, "it also shards weights over context ranks", ("cp",))
    )
    found.append(fp32_gradients_rule(NAME, "training.mixed_precision_reduce supports only float32"))
    found += [decay_rule(NAME, DECAYS), _DECAY_END]
    found += unsupported_pin_rules(problem, NAME, MEGATRON_PINS)
    if problem.model.experts is not None:
        found += [EXPERT_COUNT, _EXPERT_MESH, _EXPERT_TENSOR]
    if missing_model_features(problem.model):
        paths = paths_of_unknown_model(problem.model)
        found.append(always_violated_rule("E12", paths, explain_unknown_model(problem)))
    flavor = find_registered_flavor(problem.model)
    if flavor is not None and problem.job.sequence_length > flavor.positions:
        found.append(
            always_violated_rule(
                "S12", ("job.sequence_length",), _explain_too_long_sequence(problem, flavor)
            )
        )
    return tuple(found)


def _explain_too_long_sequence(problem: Problem, flavor: Flavor) -> Finding:
    """Return the finding that the sequences of the job are longer than ``flavor`` supports."""
    length, most = problem.job.sequence_length, flavor.positions
    return Finding(
        message=f"torchtitan's {flavor.module} {flavor.name} supports up to {most} tokens",
        label=f"sequence_length {length} > {most} tokens",
        help=f"valid sequence_length: up to {most}",
        # No fix: a shorter length is not what the user asked for.
        targets=(NAME,),
    )


DECAYS = ("cosine", "linear", "constant", "wsd")
"""Decays that torchtitan's LRSchedulersContainer supports."""


def _violates_decay_end(problem: Problem, layout: Layout) -> bool:
    # After the last step of the schedule torchtitan extrapolates the decay, so that the rate would
    # not stay at its minimum (LRSchedulersContainer).
    job = problem.job
    return job.lr_decay != "constant" and job.lr_decay_steps < job.steps


def _explain_decay_end(problem: Problem, layout: Layout) -> Finding:
    job = problem.job
    return Finding(
        message="torchtitan cannot keep the learning rate constant after the decay ends at step "
        f"{job.lr_decay_steps}",
        label=f"lr_decay_steps {job.lr_decay_steps} < {job.steps} steps of the run",
        help=f"valid lr_decay_steps: {job.steps} or more",
        fix=f"job.lr_decay_steps: {job.steps}",
        causes=(Cause("job.steps", f"the run has {job.steps} steps"),),
        targets=(NAME,),
    )


_DECAY_END = Rule(
    "E11", ("job.lr_decay_steps", "job.steps"), _violates_decay_end, _explain_decay_end, ()
)


def _sequence_length_divisor(layout: Layout) -> int:
    """Return the number that must divide the sequence length.

    Sequence parallelism splits the sequence into tp parts. Context parallelism splits it into two
    chunks per rank.
    """
    shards = layout.tp if layout.sequence_parallel else 1
    return shards * (2 * layout.cp if layout.cp > 1 else 1)


def _violates_sequence_length(problem: Problem, layout: Layout) -> bool:
    return problem.job.sequence_length % _sequence_length_divisor(layout) != 0


def _explain_sequence_length(problem: Problem, layout: Layout) -> Finding:
    length, step = problem.job.sequence_length, _sequence_length_divisor(layout)
    below, above = nearest_multiples(length, step)
    return Finding(
        message=f"a sequence of {length} tokens cannot be split over tp={layout.tp}, "
        f"cp={layout.cp}",
        label=f"{length} % {step} = {length % step}, must be 0",
        help=f"nearest valid sequence lengths: {format_values(sorted({below, above}))}",
        fix=format_setting("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _ranks_per_stage_and_replica(layout: Layout) -> int:
    """Return the number of ranks in one pipeline stage of one replica: dp_shard x cp x tp."""
    # torchtitan folds cp and tp into the expert mesh, but never dp_replicate or pp.
    return replicate_and_shard_sizes(layout)[1] * layout.cp * layout.tp


def _violates_expert_mesh(problem: Problem, layout: Layout) -> bool:
    return _ranks_per_stage_and_replica(layout) % layout.ep != 0


def _explain_expert_mesh(problem: Problem, layout: Layout) -> Finding:
    inner, ep = _ranks_per_stage_and_replica(layout), layout.ep
    count = problem.model.experts.count if problem.model.experts else 1
    good = filter_valid(divisors(inner), lambda n: count % n == 0)
    return Finding(
        message=f"{inner} ranks per stage and replica are not divisible by ep={ep}",
        label=f"(dp_shard {inner // (layout.cp * layout.tp)} x cp {layout.cp} x "
        f"tp {layout.tp}) % {ep} = {inner % ep}, must be 0",
        help=f"valid ep: {format_values(good)}",
        fix=format_setting("layout.ep", nearest_value(good, ep)),
        targets=(NAME,),
    )


def _uses_expert_tensor_parallelism(problem: Problem, layout: Layout) -> bool:
    return layout.etp > 1


def _explain_expert_tensor_parallelism(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torchtitan cannot split a single expert over ranks",
        label=f"etp {layout.etp}, must be 1",
        help="valid etp: 1; increase ep instead, at most to dp_shard x cp x tp",
        fix="layout.etp: 1",
        targets=(NAME,),
    )


OPERATORS = ("op",)
"""Valid ``modules`` of selective recomputation: SelectiveAC selects operators, not modules."""


def _violates_recompute(problem: Problem, layout: Layout) -> bool:
    again = layout.recompute
    if again.granularity == "selective":
        return again.modules != OPERATORS
    return again.granularity == "full" and (again.method, again.layers) != ("uniform", 1)


def _explain_recompute(problem: Problem, layout: Layout) -> Finding:
    again = layout.recompute
    chosen = ", ".join(again.modules) or f"method {again.method}, layers {again.layers}"
    return Finding(
        message="torchtitan recomputes operators or single layers, not modules or blocks of layers",
        label=f"{again.granularity}: {chosen}",
        help="valid: none, full, or selective with modules [op], which recomputes every second "
        "matrix product and all cheap operators",
        fix="layout.recompute: {granularity: selective, modules: [op]}",
        targets=(NAME,),
    )


_SEQUENCE = Rule(
    "S02",
    ("layout.tp", "layout.cp", "job.sequence_length"),
    _violates_sequence_length,
    _explain_sequence_length,
    ("tp", "cp", "sequence_parallel"),
)
_EXPERT_MESH = Rule(
    "D16",
    ("layout.ep", "layout.dp_shard"),
    _violates_expert_mesh,
    _explain_expert_mesh,
    ("ep", "zero_stage", *WORLD_FIELDS),
)
_EXPERT_TENSOR = Rule(
    "E11",
    ("layout.etp",),
    _uses_expert_tensor_parallelism,
    _explain_expert_tensor_parallelism,
    ("etp",),
)
_RECOMPUTE = Rule(
    "E11",
    ("layout.recompute.modules", "layout.recompute"),
    _violates_recompute,
    _explain_recompute,
    ("recompute",),
)

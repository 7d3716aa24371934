"""What a legal layout keeps for torchtitan, beside what every framework of torch asks.

Source: torchtitan 0.3.0, trainer.py, distributed/parallel_dims.py, models/common/decoder.py.
"""

from __future__ import annotations

from parc.backends.shared.plain_rules import (
    CONTEXT_CHUNKS,
    EXPERT_COUNT,
    always_violated,
    decay_rule,
)
from parc.backends.shared.torch.mesh import replicate_and_shard
from parc.backends.shared.torch.rules import (
    MEGATRON_PINS,
    gradients_rule,
    replicas_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.backends.shared.valid_values import (
    divisors,
    format_pin,
    format_values,
    nearest,
    nearest_multiples,
    valid,
)
from parc.backends.torchtitan.flavors import Flavor, flavor_of, missing, unknown_model
from parc.backends.torchtitan.rules_pipeline import pipeline_rules
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD_FIELDS, Rule

NAME = "torchtitan"


def rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that bear on ``problem``."""
    found = [
        *torch_rules(problem, NAME),
        CONTEXT_CHUNKS,
        _SEQUENCE,
        _RECOMPUTE,
        *pipeline_rules(problem),
    ]
    found.append(replicas_rule(NAME, "its context ranks shard weights as well", ("cp",)))
    found.append(gradients_rule(NAME, "training.mixed_precision_reduce is float32 alone"))
    found += [decay_rule(NAME, DECAYS), _DECAY_END]
    found += unsupported_pin_rules(problem, NAME, MEGATRON_PINS)
    if problem.model.experts is not None:
        found += [EXPERT_COUNT, _EXPERT_MESH, _EXPERT_TENSOR]
    if missing(problem.model):
        found.append(always_violated("E12", ("model",), unknown_model(problem.model)))
    flavor = flavor_of(problem.model)
    if flavor is not None and problem.job.sequence_length > flavor.positions:
        found.append(always_violated("S12", ("job.sequence_length",), _too_long(problem, flavor)))
    return tuple(found)


def _too_long(problem: Problem, flavor: Flavor) -> Finding:
    length, most = problem.job.sequence_length, flavor.positions
    return Finding(
        message=f"torchtitan's {flavor.module} {flavor.name} takes sequences of {most} tokens",
        label=f"{length} > {most}",
        help=f"legal: up to {most}",
        fix=f"job.sequence_length: {most}",
        targets=(NAME,),
    )


DECAYS = ("cosine", "linear", "constant", "wsd")
"""Decays that LRSchedulersContainer can be told."""


def _decay_end_broken(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return job.lr_decay != "constant" and job.lr_decay_steps < job.steps


def _decay_end(problem: Problem, layout: Layout) -> Finding:
    job = problem.job
    return Finding(
        message="torchtitan's learning rate does not stay where its decay ended",
        label=f"{job.lr_decay_steps} < {job.steps} steps",
        help=f"legal: {job.steps} and more",
        fix=f"job.lr_decay_steps: {job.steps}",
        causes=(Cause("job.steps", f"the run has {job.steps} steps"),),
        targets=(NAME,),
    )


_DECAY_END = Rule("E11", ("job.lr_decay_steps", "job.steps"), _decay_end_broken, _decay_end, ())


def _step(layout: Layout) -> int:
    """Tokens of a sequence are a multiple of this."""
    shards = layout.tp if layout.sequence_parallel else 1
    return shards * (2 * layout.cp if layout.cp > 1 else 1)


def _sequence_broken(problem: Problem, layout: Layout) -> bool:
    return problem.job.sequence_length % _step(layout) != 0


def _sequence(problem: Problem, layout: Layout) -> Finding:
    length, step = problem.job.sequence_length, _step(layout)
    below, above = nearest_multiples(length, step)
    return Finding(
        message=f"a sequence of {length} tokens cannot be split over tp={layout.tp}, "
        f"cp={layout.cp}",
        label=f"{length} % {step} = {length % step}, must be 0",
        help=f"nearest legal sequence lengths: {format_values(sorted({below, above}))}",
        fix=format_pin("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _inner(layout: Layout) -> int:
    """Ranks of one replica of a pipeline stage."""
    return replicate_and_shard(layout)[1] * layout.cp * layout.tp


def _mesh_broken(problem: Problem, layout: Layout) -> bool:
    return _inner(layout) % layout.ep != 0


def _mesh(problem: Problem, layout: Layout) -> Finding:
    inner, ep = _inner(layout), layout.ep
    count = problem.model.experts.count if problem.model.experts else 1
    good = valid(divisors(inner), lambda n: count % n == 0)
    return Finding(
        message=f"ep={ep} does not divide the {inner} ranks of a replica of a stage",
        label=f"(dp_shard {_inner(layout) // (layout.cp * layout.tp)} x cp {layout.cp} x "
        f"tp {layout.tp}) % {ep} = {inner % ep}, must be 0",
        help=f"legal ep: {format_values(good)}",
        fix=format_pin("layout.ep", nearest(good, ep)),
        targets=(NAME,),
    )


def _tensor_broken(problem: Problem, layout: Layout) -> bool:
    return layout.etp > 1


def _tensor(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torchtitan does not split a single expert",
        label=f"etp {layout.etp}, must be 1",
        help="legal etp: 1; ranks of tp hold other experts instead (ep up to dp_shard x cp x tp)",
        fix="layout.etp: 1",
        targets=(NAME,),
    )


OPERATORS = ("op",)
"""What SelectiveAC chooses from: operators, not modules."""


def _recompute_broken(problem: Problem, layout: Layout) -> bool:
    again = layout.recompute
    if again.granularity == "selective":
        return again.modules != OPERATORS
    return again.granularity == "full" and (again.method, again.layers) != ("uniform", 1)


def _recompute(problem: Problem, layout: Layout) -> Finding:
    again = layout.recompute
    chosen = ", ".join(again.modules) or f"method {again.method}, layers {again.layers}"
    return Finding(
        message="torchtitan recomputes operators or whole layers, not modules or blocks",
        label=f"{again.granularity}: {chosen}",
        help="legal: none, full, or selective with modules [op]: every second matrix product and "
        "all that is cheap",
        fix="layout.recompute: {granularity: selective, modules: [op]}",
        targets=(NAME,),
    )


_SEQUENCE = Rule(
    "S02",
    ("layout.tp", "layout.cp", "job.sequence_length"),
    _sequence_broken,
    _sequence,
    ("tp", "cp", "sequence_parallel"),
)
_EXPERT_MESH = Rule(
    "D16",
    ("layout.ep", "layout.dp_shard"),
    _mesh_broken,
    _mesh,
    ("ep", "zero_stage", *WORLD_FIELDS),
)
_EXPERT_TENSOR = Rule("E11", ("layout.etp",), _tensor_broken, _tensor, ("etp",))
_RECOMPUTE = Rule(
    "E11",
    ("layout.recompute.modules", "layout.recompute"),
    _recompute_broken,
    _recompute,
    ("recompute",),
)

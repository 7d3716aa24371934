"""Rules of torchtitan, in addition to those that all torch backends share.

Source: torchtitan 0.3.0, trainer.py, distributed/parallel_dims.py, models/common/decoder.py. The
rules on pipelines are limits of the schedules in torch.distributed.pipelining.
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
    interleaving_rule,
    replicas_need_shards_rule,
    torch_rules,
    unsupported_pin_rules,
)
from parc.backends.shared.valid_values import (
    filter_valid,
    format_setting,
    nearest_multiples,
    nearest_value,
)
from parc.backends.torchtitan.file_rules import file_rules
from parc.backends.torchtitan.flavors import (
    Flavor,
    explain_unknown_model,
    find_registered_flavor,
    missing_model_features,
    paths_of_unknown_model,
)
from parc.backends.torchtitan.split import find_split, why_no_split
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule

NAME = "torchtitan"
SCHEDULE_READS = ("schedule", "pp", "vpp", "micro_batch", "dp_replicate", "dp_shard")


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
    found += file_rules(problem)
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


def pipeline_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules on pipeline parallelism for layouts of ``problem``.

    The rules on the split of the layers (P02, P04) are included only if the spec sets pp, vpp, or
    the layers of the first or last stage. Otherwise they are not needed, because the search skips
    every pp and vpp without a valid split.
    """
    pins = problem.pins
    found = [interleaving_rule({"1f1b": ""}), _CHUNKS, _COUNT, _TIED]
    if pins.pp or pins.vpp or pins.first_stage_layers or pins.last_stage_layers:
        found += [
            _split_rule("P04", ("layout.first_stage_layers", "layout.last_stage_layers")),
            _split_rule("P02", ("layout.vpp", "layout.pp")),
        ]
    return tuple(found)


def _split_rule(code: str, fields: tuple[str, ...]) -> Rule:
    """Return a rule that rejects layouts for which no pipeline split is valid.

    The rule applies only if ``why_no_split`` gives ``code`` as the reason. ``fields`` are the spec
    paths that findings refer to.
    """

    def has_no_split_for_this_reason(problem: Problem, layout: Layout) -> bool:
        if find_split(problem, layout.pp, layout.vpp) is not None:
            return False
        return why_no_split(problem, layout.pp, layout.vpp).code == code

    def explain_split(problem: Problem, layout: Layout) -> Finding:
        return why_no_split(problem, layout.pp, layout.vpp).finding

    return Rule(code, fields, has_no_split_for_this_reason, explain_split, ("pp", "vpp"))


def _has_too_few_chunks(problem: Problem, layout: Layout) -> bool:
    return layout.pp > 1 and layout.schedule == "zb-h1" and layout.vpp < 2


def _explain_too_few_chunks(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torch's schedule zb-h1 (InterleavedZeroBubble) needs two or more stages per rank",
        label=f"vpp={layout.vpp}, must be 2 or more",
        help="valid vpp: 2 or more; or use schedule 1f1b",
        fix="layout.vpp: 2",
        causes=(Cause("layout.schedule", f"the schedule is {layout.schedule}"),),
        targets=("torchtitan",),
    )


def min_micro_batches(layout: Layout) -> int:
    """Return the smallest number of micro-batches per step that the pipeline schedule supports.

    Source: torch/distributed/pipelining/schedules.py.
    """
    return {"1f1b": layout.pp, "dualpipe-v": 2 * layout.pp}.get(layout.schedule, 1)


def rounds_of_schedule(layout: Layout, count: int) -> int:
    """Return the number of rounds that the schedule needs for ``count`` micro-batches.

    All rounds have the same size, so the number of rounds must divide ``count``. Interleaved
    schedules run max(1, count // pp) rounds (torch/distributed/pipelining/schedules.py,
    number_of_rounds), other schedules a single round.
    """
    if layout.schedule in ("interleaved", "zb-h1"):
        return max(1, count // layout.pp)
    return 1


def _violates_micro_batch_count(problem: Problem, layout: Layout) -> bool:
    if layout.pp == 1:
        return False
    count = layout.micro_batches(problem.job.global_batch)
    return count < min_micro_batches(layout) or count % rounds_of_schedule(layout, count) != 0


def _explain_micro_batch_count(problem: Problem, layout: Layout) -> Finding:
    step = layout.micro_batch * layout.dp
    count = layout.micro_batches(problem.job.global_batch)
    least = min_micro_batches(layout)
    # A multiple of pp is valid for every schedule, so that the suggestion always works.
    below, above = nearest_multiples(max(count, least), layout.pp)
    good = sorted({max(below, least) * step, above * step})
    label = f"{count} micro-batches, must be {least} or more"
    if count >= least:
        group = rounds_of_schedule(layout, count)
        label = f"{count} % {group} = {count % group}, must be 0"
    return Finding(
        message=f"schedule {layout.schedule} over pp={layout.pp} cannot run {count} micro-batches",
        label=label,
        help=f"nearest valid global batches: {format_values(good)}",
        fix=format_setting("job.global_batch", good[-1]),
        causes=(
            Cause(
                "job.global_batch",
                f"global batch {problem.job.global_batch} / (micro-batch {layout.micro_batch} "
                f"x dp {layout.dp}) = {count} micro-batches",
            ),
        ),
        targets=("torchtitan",),
    )


def _violates_tied_embeddings(problem: Problem, layout: Layout) -> bool:
    # The embedding is on the first stage, the head on the last: two ranks cannot share one tensor.
    return problem.model.tied_embeddings and layout.pp > 1


def _explain_tied_embeddings(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torchtitan cannot tie embeddings across pipeline stages",
        label=f"pp {layout.pp}, must be 1 for {problem.model.name}",
        help="valid pp: 1; or set model.tied_embeddings to false",
        fix="layout.pp: 1",
        causes=(Cause("model", "the embeddings are tied"),),
        targets=("torchtitan",),
    )


_CHUNKS = Rule(
    "P20",
    ("layout.vpp", "layout.schedule"),
    _has_too_few_chunks,
    _explain_too_few_chunks,
    ("pp", "vpp", "schedule"),
)
_COUNT = Rule(
    "P07",
    ("job.global_batch", "layout.schedule", "layout.pp"),
    _violates_micro_batch_count,
    _explain_micro_batch_count,
    SCHEDULE_READS,
)
_TIED = Rule(
    "E11", ("layout.pp", "model"), _violates_tied_embeddings, _explain_tied_embeddings, ("pp",)
)

"""Rules that all training frameworks share: heads, GPU count, batch, sequence length, experts."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from parc.backends.shared.valid_degrees import valid_tp
from parc.backends.shared.valid_values import (
    filter_valid,
    format_setting,
    nearest_multiples,
    nearest_value,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import (
    describe_indivisible,
    describe_missing_experts,
    format_values,
)
from parc.compiler.ir import Experts, Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def always_violated_rule(code: str, paths: tuple[str, ...], finding: Finding) -> Rule:
    """Return a rule that every layout violates.

    It rejects a spec that the framework cannot express, whatever the layout is.
    """
    return Rule(code, paths, lambda problem, layout: True, lambda problem, layout: finding, ())


class Conflict(NamedTuple):
    """Setting of a plan that excludes another setting."""

    found: str
    """What the plan has, such as ``full recompute``."""
    valid: str
    """Values with which both settings work, for the help."""
    fix: str = ""
    """Edit of the spec; empty if the rule has one fix for all conflicts."""


def conflict_rule(
    code: str,
    paths: tuple[str, ...],
    find: Callable[[Problem, Layout], Conflict | None],
    explain: Callable[[Problem, Layout, Conflict], Finding],
    fields: tuple[str, ...],
) -> Rule:
    """Return a rule that a layout violates if ``find`` returns a conflict; see ``Rule``."""

    def explain_conflict(problem: Problem, layout: Layout) -> Finding:
        conflict = find(problem, layout)
        assert conflict is not None, f"{code} explains a layout that does not violate it"
        return explain(problem, layout, conflict)

    return Rule(
        code, paths, lambda problem, layout: bool(find(problem, layout)), explain_conflict, fields
    )


def experts_of(problem: Problem) -> Experts:
    """Return the experts of the model of ``problem``.

    Raises:
        ValueError: the model has no experts.
    """
    if problem.model.experts is None:
        raise ValueError("a rule about experts was evaluated for a dense model")
    return problem.model.experts


def _violates_head_count(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.heads % layout.tp != 0


def _explain_head_count(problem: Problem, layout: Layout) -> Finding:
    heads, tp = problem.model.attention.heads, layout.tp
    good = valid_tp(problem)
    return Finding(
        message=describe_indivisible(heads, "attention heads", f"tp={layout.tp}"),
        label=f"{heads} % {tp} = {heads % tp}, must be 0",
        help=f"valid tp within one NVLink domain: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause("model.heads", f"the model has {heads} attention heads"),),
    )


def _violates_gpu_count(problem: Problem, layout: Layout) -> bool:
    gpus, world = problem.cluster.gpus, layout.world
    if world == gpus:
        return False
    # A fixed dp, or the goal of few GPUs, shows that idle GPUs are intended.
    free = problem.pins.dp is not None or problem.goals.maximize == "fewest-gpus"
    return world > gpus or not free


def gpu_count_rule(tensor_degrees: Callable[[Problem], list[int]]) -> Rule:
    """Return rule D09: tp x cp x pp x dp must equal the number of GPUs of the cluster.

    A smaller product is valid if the spec sets dp, or if it sets ``maximize: fewest-gpus``. The
    help of the finding suggests tp sizes; ``tensor_degrees`` is the function that returns these
    sizes.
    """

    def explain_gpu_count(problem: Problem, layout: Layout) -> Finding:
        return _explain_gpu_count(problem, layout, tensor_degrees(problem))

    paths = ("layout.dp", "layout.pp", "layout.tp", "cluster")
    return Rule("D09", paths, _violates_gpu_count, explain_gpu_count, WORLD_FIELDS)


def _explain_gpu_count(problem: Problem, layout: Layout, tensor_degrees: list[int]) -> Finding:
    gpus, block = problem.cluster.gpus, layout.tp * layout.cp * layout.pp
    causes = (Cause("cluster", f"the cluster has {gpus} usable GPUs"),)
    sizes = _conflicting_sizes(problem, layout)
    degrees = " x ".join(f"{name} {size}" for name, size in sizes.items())
    if gpus % block == 0:
        return Finding(
            f"{degrees} x dp {layout.dp} needs {layout.world} GPUs, the cluster has {gpus}",
            label=f"{block} x dp {layout.dp} = {layout.world}, must be {gpus}",
            help=f"valid dp with {degrees}: {gpus // block}",
            fix=format_setting("layout.dp", gpus // block),
            causes=causes,
        )
    block = prod(sizes.values())
    good, edit = _suggest_size(problem, sizes, tensor_degrees)
    product = f" = {block}" if len(sizes) > 1 else ""
    return Finding(
        f"{gpus} GPUs are not divisible by {degrees}{product}",
        label=f"{gpus} % {block} = {gpus % block}, must be 0",
        help=good,
        fix=edit,
        causes=causes,
    )


def _conflicting_sizes(problem: Problem, layout: Layout) -> dict[str, int]:
    """Return the sizes of tp, cp and pp whose product does not divide the number of GPUs.

    These are the sizes that the spec fixes, if they suffice: the user cannot know the others, which
    the search chose. Otherwise all three sizes are returned.
    """
    names = ("tp", "cp", "pp")
    fixed = {name: getattr(layout, name) for name in names if getattr(problem.pins, name)}
    if fixed and problem.cluster.gpus % prod(fixed.values()):
        return fixed
    return {name: getattr(layout, name) for name in names}


def _suggest_size(
    problem: Problem, sizes: dict[str, int], tensor_degrees: list[int]
) -> tuple[str, str]:
    """Return (help text with the valid values of tp or pp, edit that sets the nearest of them).

    The help text lists values of tp if tp x cp does not divide the number of GPUs, because then no
    pp is valid. Otherwise it lists values of pp, because pp is easier to change than tp. Only the
    parallel sizes in ``sizes`` count.
    """
    gpus, others = problem.cluster.gpus, {"tp": sizes.get("tp", 1), "cp": sizes.get("cp", 1)}
    if gpus % prod(others.values()):
        name, cp = "tp", others.pop("cp")
        others = {"cp": cp}
        good = filter_valid(tensor_degrees, lambda value: gpus % (value * cp) == 0)
    else:
        name = "pp"
        most = problem.model.layers
        good = [one for one in divisors(gpus // prod(others.values())) if one <= most]
    given = " and ".join(f"{key} {size}" for key, size in others.items() if key in sizes)
    text = f"valid {name}{' with ' if given else ''}{given}: {format_values(good)}"
    return text, format_setting(f"layout.{name}", nearest_value(good, sizes.get(name, 1)))


def _violates_batch_split(problem: Problem, layout: Layout) -> bool:
    step = layout.micro_batch * layout.dp
    return problem.job.global_batch % step != 0


def _explain_batch_split(problem: Problem, layout: Layout) -> Finding:
    batch, micro, dp = problem.job.global_batch, layout.micro_batch, layout.dp
    step = micro * dp
    below, above = nearest_multiples(batch, step)
    good = filter_valid(divisors(batch), lambda value: batch % (value * dp) == 0)
    free = not good and problem.pins.dp is None
    idle = f"; or set a dp that divides {batch}, which leaves GPUs idle" if free else ""
    gpus = problem.cluster.gpus
    # A dp that divides neither number is the mistake, and not the batch.
    fitting = filter_valid(divisors(gpus), lambda value: batch % (value * micro) == 0)
    near = nearest_value(fitting, dp) if problem.pins.dp is not None and gpus % dp else None
    return Finding(
        message=f"global batch {batch} is not divisible by micro-batch {micro} x dp {dp}"
        + (f", and {gpus} GPUs are not divisible by dp {dp}" if near else ""),
        label=f"{batch} % ({micro} * {dp}) = {batch % step}, must be 0",
        help=f"nearest valid global batches: {format_values(sorted({below, above}))}; "
        f"valid micro-batches at dp {dp}: {format_values(good)}{idle}",
        # Never a batch of many times the size: then the micro-batch is the mistake.
        fix=format_setting("layout.dp", near)
        if near
        else format_setting("layout.micro_batch", nearest_value(good, micro))
        if good and step > batch
        else format_setting("job.global_batch", above),
        causes=(Cause("job.global_batch", f"{batch} sequences"), Cause("layout.dp", f"dp {dp}")),
    )


def _violates_sequence_shard(problem: Problem, layout: Layout) -> bool:
    return layout.sequence_parallel and (problem.job.sequence_length // layout.cp) % layout.tp != 0


def _explain_sequence_shard(problem: Problem, layout: Layout) -> Finding:
    length, cp, tp = problem.job.sequence_length, layout.cp, layout.tp
    # x 2 with context parallelism, so that the suggestion satisfies CONTEXT_CHUNKS as well.
    below, above = nearest_multiples(length, cp * tp * (2 if cp > 1 else 1))
    good = valid_tp(problem)
    # A tp that also divides no heads is the mistake, and not the sequence length.
    wrong_tp = tp not in good and any(length // cp % value == 0 for value in good)
    return Finding(
        message=f"{length // cp} tokens per context-parallel rank are not divisible by tp={tp}",
        label=f"({length} / {cp}) % {tp} = {length // cp % tp}, must be 0",
        help=f"valid tp within one NVLink domain: {format_values(good)}"
        if wrong_tp
        else f"nearest valid sequence lengths: {format_values(sorted({below, above}))}",
        fix=format_setting("layout.tp", nearest_value(good, tp))
        if wrong_tp
        else format_setting("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _violates_context_chunks(problem: Problem, layout: Layout) -> bool:
    # Context-parallel rank r has the chunks r and 2 cp - 1 - r of the sequence, so that all ranks
    # have the same work with causal attention.
    return layout.cp > 1 and problem.job.sequence_length % (2 * layout.cp) != 0


def _explain_context_chunks(problem: Problem, layout: Layout) -> Finding:
    length, cp = problem.job.sequence_length, layout.cp
    below, above = nearest_multiples(length, 2 * cp)
    good = filter_valid(range(1, 65), lambda value: value == 1 or length % (2 * value) == 0)
    return Finding(
        message=f"sequence length {length} is not divisible by 2 x cp = {2 * cp} chunks",
        label=f"{length} % (2 * {cp}) = {length % (2 * cp)}, must be 0",
        help=f"valid cp: {format_values(good)}; nearest valid lengths: {below}, {above}",
        fix=format_setting("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


def _violates_expert_count(problem: Problem, layout: Layout) -> bool:
    return experts_of(problem).count % layout.ep != 0


def expert_count_rule(ranks: Callable[[Problem, Layout], int]) -> Rule:
    """Return rule D08: the number of experts must be divisible by ep.

    ``ranks`` returns the number of ranks over which a layout can distribute the experts. The help
    of the finding suggests only values of ep that divide this number too.
    """

    def explain_expert_count(problem: Problem, layout: Layout) -> Finding:
        return _explain_expert_count(problem, layout, ranks(problem, layout))

    return Rule(
        "D08",
        ("layout.ep", "model.experts.count"),
        _violates_expert_count,
        explain_expert_count,
        ("ep",),
    )


def _explain_expert_count(problem: Problem, layout: Layout, ranks: int) -> Finding:
    count, ep = experts_of(problem).count, layout.ep
    good = filter_valid(divisors(count), lambda value: ranks % value == 0)
    return Finding(
        message=f"{count} experts are not divisible by ep={ep}",
        label=f"{count} % {ep} = {count % ep}, must be 0",
        help=f"valid ep: {format_values(good)}",
        fix=format_setting("layout.ep", nearest_value(good, ep)),
        causes=(Cause("model.experts.count", f"the model has {count} experts"),),
    )


def _violates_ep_without_experts(problem: Problem, layout: Layout) -> bool:
    return layout.ep > 1


def _explain_ep_without_experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=describe_missing_experts(layout.ep),
        label=f"ep {layout.ep} with 0 experts, must be 1",
        help="valid ep: 1",
        fix="layout.ep: 1",
        causes=(Cause("model", f"{problem.model.name} is dense"),),
    )


DP = ("dp_replicate", "dp_shard", "gtp")
"""Layout fields that determine ``Layout.dp``."""

HEADS = Rule(
    "D01", ("layout.tp", "model.heads"), _violates_head_count, _explain_head_count, ("tp",)
)
GPU_COUNT = gpu_count_rule(valid_tp)
BATCH = Rule(
    "B01",
    ("job.global_batch", "layout.micro_batch", "layout.dp"),
    _violates_batch_split,
    _explain_batch_split,
    ("micro_batch", *DP),
)
CONTEXT_CHUNKS = Rule(
    "S04",
    ("layout.cp", "job.sequence_length"),
    _violates_context_chunks,
    _explain_context_chunks,
    ("cp",),
)
SEQUENCE_SHARD = Rule(
    "S02",
    ("layout.tp", "layout.cp", "job.sequence_length"),
    _violates_sequence_shard,
    _explain_sequence_shard,
    ("sequence_parallel", "cp", "tp"),
)
EXPERT_COUNT = expert_count_rule(lambda problem, layout: problem.cluster.gpus)
NO_EXPERTS = Rule(
    "M01",
    ("layout.ep", "model"),
    _violates_ep_without_experts,
    _explain_ep_without_experts,
    ("ep",),
)


def decay_rule(framework: str, valid_decays: tuple[str, ...]) -> Rule:
    """Return rule E11: ``framework`` supports only the learning-rate decays in ``valid_decays``."""

    def has_unsupported_decay(problem: Problem, layout: Layout) -> bool:
        return problem.job.lr_decay not in valid_decays

    def explain_decay(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            message=f"{framework} does not support learning-rate decay {problem.job.lr_decay}",
            label=f"lr_decay must be one of {', '.join(valid_decays)}",
            help=f"valid lr_decay: {', '.join(valid_decays)}",
            fix=f"job.lr_decay: {valid_decays[0]}",
            targets=(framework,),
        )

    return Rule("E11", ("job.lr_decay",), has_unsupported_decay, explain_decay, ())


ONLY_VALUES: dict[str, tuple[object, str]] = {
    "moment_precision": ("fp32", "stores the moments of Adam in fp32, not in {}"),
    "fp8_recipe": ("tensorwise", "scales fp8 operands per tensor from present values, not {}"),
    "fused_loss": (False, "has no separate fused kernels for the loss"),
    "tp_overlap": (False, "does not overlap tensor-parallel collectives with user buffers"),
    "async_checkpoint": (False, "writes checkpoints before training continues"),
}
"""Job field -> (only value that all frameworks support, what a framework does instead of another
value)."""


def only_value_rules(framework: str) -> tuple[Rule, ...]:
    """Return rules E11: ``framework`` supports only one value of each field in ONLY_VALUES."""
    return tuple(_only_value_rule(framework, name) for name in ONLY_VALUES)


def _only_value_rule(framework: str, name: str) -> Rule:
    valid, does = ONLY_VALUES[name]
    shown = str(valid).lower()

    def has_other_value(problem: Problem, layout: Layout) -> bool:
        return bool(getattr(problem.job, name) != valid)

    def explain_value(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            message=f"{framework} {does.format(getattr(problem.job, name))}",
            label=f"{framework} would ignore job.{name}",
            help=f"valid {name}: {shown}",
            fix=f"job.{name}: {shown}",
            targets=(framework,),
        )

    return Rule("E11", (f"job.{name}",), has_other_value, explain_value, ())

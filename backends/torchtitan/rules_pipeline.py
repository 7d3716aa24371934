"""Pipeline rules of torchtitan: limits of the schedules in torch.distributed.pipelining."""

from __future__ import annotations

from parc.backends.shared.torch.rules import interleaving_rule
from parc.backends.shared.valid_values import format_setting, format_values, nearest_multiples
from parc.backends.torchtitan.split import find_split, why_no_split
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

SCHEDULE_READS = ("schedule", "pp", "vpp", "micro_batch", "dp_replicate", "dp_shard")


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
        return why_no_split(problem, layout.pp, layout.vpp)[0] == code

    def explain_split(problem: Problem, layout: Layout) -> Finding:
        return why_no_split(problem, layout.pp, layout.vpp)[2]

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

"""Family P for torchtitan: what the schedules of torch.distributed.pipelining take."""

from __future__ import annotations

from parc.backends.shared.torch.rules import stages_rule
from parc.backends.shared.valid_values import format_pin, format_values, nearest_multiples
from parc.backends.torchtitan.split import find_split, why_no_split
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

SCHEDULE_READS = ("schedule", "pp", "vpp", "micro_batch", "dp_replicate", "dp_shard")


def pipeline_rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that bear on ``problem``; those on pinned stages only where stages are pinned."""
    pins = problem.pins
    found = [stages_rule({"1f1b": ""}), _CHUNKS, _COUNT, _TIED]
    if pins.pp or pins.vpp or pins.first_stage_layers or pins.last_stage_layers:
        found += [
            _split_rule("P04", ("layout.first_stage_layers", "layout.last_stage_layers")),
            _split_rule("P02", ("layout.vpp", "layout.pp")),
        ]
    return tuple(found)


def _split_rule(code: str, fields: tuple[str, ...]) -> Rule:
    """Broken where there is no split, and for this reason."""

    def broken(problem: Problem, layout: Layout) -> bool:
        if find_split(problem, layout.pp, layout.vpp) is not None:
            return False
        return why_no_split(problem, layout.pp, layout.vpp)[0] == code

    def explain(problem: Problem, layout: Layout) -> Finding:
        return why_no_split(problem, layout.pp, layout.vpp)[2]

    return Rule(code, fields, broken, explain, ("pp", "vpp"))


def _chunks_broken(problem: Problem, layout: Layout) -> bool:
    return layout.pp > 1 and layout.schedule == "zb-h1" and layout.vpp < 2


def _chunks(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torch runs the zero bubble schedule H1 on two stages a rank or more",
        label=f"vpp={layout.vpp}, must be 2 or more (InterleavedZeroBubble)",
        help="legal vpp: 2 or more; or schedule 1f1b",
        fix="layout.vpp: 2",
        causes=(Cause("layout.schedule", f"the schedule is {layout.schedule}"),),
        targets=("torchtitan",),
    )


def fewest(layout: Layout) -> int:
    """Micro-batches that the schedule needs at least."""
    return {"1f1b": layout.pp, "dualpipe-v": 2 * layout.pp}.get(layout.schedule, 1)


def rounds(layout: Layout, count: int) -> int:
    """Micro-batches are a multiple of this: rounds of about as many as there are ranks."""
    if layout.schedule in ("interleaved", "zb-h1"):
        return max(1, count // layout.pp)
    return 1


def _count_broken(problem: Problem, layout: Layout) -> bool:
    if layout.pp == 1:
        return False
    count = layout.micro_batches(problem.job.global_batch)
    return count < fewest(layout) or count % rounds(layout, count) != 0


def _count(problem: Problem, layout: Layout) -> Finding:
    step = layout.micro_batch * layout.dp
    count = layout.micro_batches(problem.job.global_batch)
    least = fewest(layout)
    below, above = nearest_multiples(max(count, least), layout.pp)
    good = sorted({max(below, least) * step, above * step})
    label = f"{count} < {least}, must not be less"
    if count >= least:
        group = rounds(layout, count)
        label = f"{count} % {group} = {count % group}, must be 0"
    return Finding(
        message=f"schedule {layout.schedule} over pp={layout.pp} cannot run {count} micro-batches",
        label=label,
        help=f"nearest legal global batches: {format_values(good)}",
        fix=format_pin("job.global_batch", good[-1]),
        causes=(
            Cause(
                "job.global_batch",
                f"{problem.job.global_batch} / (micro-batch {layout.micro_batch} x dp {layout.dp})",
            ),
        ),
        targets=("torchtitan",),
    )


def _tied_broken(problem: Problem, layout: Layout) -> bool:
    return problem.model.tied_embeddings and layout.pp > 1


def _tied(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="torchtitan does not tie embeddings over pipeline stages",
        label=f"pp {layout.pp}, must be 1 for {problem.model.name}",
        help="legal pp: 1; or model.tied_embeddings false",
        fix="layout.pp: 1",
        causes=(Cause("model", "the embeddings are tied"),),
        targets=("torchtitan",),
    )


_CHUNKS = Rule(
    "P20", ("layout.vpp", "layout.schedule"), _chunks_broken, _chunks, ("pp", "vpp", "schedule")
)
_COUNT = Rule(
    "P07",
    ("job.global_batch", "layout.schedule", "layout.pp"),
    _count_broken,
    _count,
    SCHEDULE_READS,
)
_TIED = Rule("E11", ("layout.pp", "model"), _tied_broken, _tied, ("pp",))

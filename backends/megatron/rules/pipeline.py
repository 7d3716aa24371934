"""Rules on pipelines: number of layers and model chunks, interleaving, micro-batches."""

from __future__ import annotations

from parc.backends.megatron.stages.split import SplitPins
from parc.backends.shared.common_rules import BATCH, DP
from parc.backends.shared.valid_values import (
    filter_valid,
    format_setting,
    nearest_multiples,
    nearest_value,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import Rule


def _violates_interleaving(problem: Problem, layout: Layout) -> bool:
    return layout.vpp > 1 and layout.pp == 1


def _explain_interleaving(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"vpp={layout.vpp} interleaves pipeline stages, but pp is 1",
        label="vpp > 1 requires pp > 1",
        help="use vpp 1, or pp > 1",
        fix="layout.vpp: 1",
        causes=(Cause("layout.pp", "pp 1"),),
    )


def count_assigned_layers(layout: Layout) -> tuple[int, int, int, int]:
    """Return the numbers of (decoder layers, MTP layers, embeddings, losses) in all chunks."""
    layers = mtp = embeddings = losses = 0
    for row in layout.split.chunks:
        for chunk in row:
            layers += chunk.layers
            mtp += chunk.mtp_layers
            embeddings += chunk.embedding
            losses += chunk.loss
    return layers, mtp, embeddings, losses


def _violates_layer_count(problem: Problem, layout: Layout) -> bool:
    return count_assigned_layers(layout) != (problem.model.layers, problem.model.mtp_layers, 1, 1)


def _explain_layer_count(problem: Problem, layout: Layout) -> Finding:
    layers, mtp, embeddings, losses = count_assigned_layers(layout)
    ends = (mtp, embeddings, losses) == (problem.model.mtp_layers, 1, 1)
    if ends and SplitPins.from_pins(problem.pins).is_unrestricted:
        return _explain_uneven_split(problem.model.layers, layout.pp, layout.vpp)
    return Finding(
        message=f"the stages have {layers} decoder layers; the model has {problem.model.layers}",
        label=f"decoder layers {layers} of {problem.model.layers}, MTP layers {mtp} of "
        f"{problem.model.mtp_layers}, embedding {embeddings} of 1, loss {losses} of 1",
        help="every layer must be in exactly one stage",
        fix="remove layout.pipeline_layout, so that PARC chooses the split",
        causes=(Cause("model.layers", f"{problem.model.layers} layers"),),
    )


def _explain_uneven_split(layers: int, pp: int, vpp: int) -> Finding:
    """Return the finding that stages of equal size cannot have all layers."""
    at, value, chunks = ("pp", pp, pp) if layers % pp else ("vpp", vpp, pp * vpp)
    others = pp if at == "vpp" else 1
    good = filter_valid(divisors(layers), lambda n: layers % (n * others) == 0)
    sizes = f"pp={pp}" if at == "pp" else f"pp={pp} x vpp={vpp}"
    given = f" with pp {pp}" if at == "vpp" else ""
    return Finding(
        f"{layers} layers are not divisible by {sizes}",
        label=f"{layers} % {chunks} = {layers % chunks}, must be 0",
        help=f"valid {at}{given}: {format_values(good)}",
        fix=format_setting(f"layout.{at}", nearest_value(good, value)),
        causes=(Cause("model.layers", f"{layers} layers"),),
    )


def _violates_chunk_count(problem: Problem, layout: Layout) -> bool:
    chunks = layout.split.chunks
    return len(chunks) != layout.pp or any(len(row) != layout.vpp for row in chunks)


def _explain_chunk_count(problem: Problem, layout: Layout) -> Finding:
    have = sum(len(row) for row in layout.split.chunks)
    good = vpp_for_even_split(problem, layout.pp)
    return Finding(
        message=f"the split has {have} chunks, but pp {layout.pp} x vpp {layout.vpp} requires "
        f"{layout.pp * layout.vpp}",
        label=f"{layout.pp} * {layout.vpp} = {layout.pp * layout.vpp} chunks, not {have}",
        help=f"valid vpp for an even split over pp {layout.pp}: {format_values(good)}",
        fix=format_setting("layout.vpp", nearest_value(good, layout.vpp)),
    )


def vpp_for_even_split(problem: Problem, pp: int) -> tuple[int, ...]:
    """Return the values of vpp that split the layers evenly over ``pp`` ranks; 1 if none does."""
    layers = problem.model.layers
    return (1,) if pp == 1 or layers % pp else divisors(layers // pp)


def _violates_interleaved_micro_batches(problem: Problem, layout: Layout) -> bool:
    if layout.vpp == 1:
        return False
    count = layout.micro_batches(problem.job.global_batch)
    # The interleaved schedule runs micro-batches in groups of pp (schedules.py); it fails in the
    # first step otherwise.
    return count < layout.pp or count % layout.pp != 0


def _explain_interleaved_micro_batches(problem: Problem, layout: Layout) -> Finding:
    batch, step = problem.job.global_batch, layout.micro_batch * layout.dp
    count = layout.micro_batches(batch)
    below, above = nearest_multiples(count, layout.pp)
    return Finding(
        message=f"interleaving requires a multiple of pp={layout.pp} micro-batches, not {count}",
        label=f"{count} % {layout.pp} = {count % layout.pp}, must be 0, and {count} >= {layout.pp}",
        help="nearest valid global batches: "
        f"{format_values(sorted({below * step, above * step}))}; or use vpp 1",
        fix=format_setting("job.global_batch", above * step),
        causes=(
            Cause(
                "job.global_batch", f"{batch} / (micro-batch {layout.micro_batch} x dp {layout.dp})"
            ),
        ),
    )


PIPELINE_RULES: tuple[Rule, ...] = (
    Rule(
        "P06",
        ("layout.vpp", "layout.pp"),
        _violates_interleaving,
        _explain_interleaving,
        ("vpp", "pp"),
    ),
    Rule(
        "P02",
        ("layout.vpp", "layout.pp"),
        _violates_chunk_count,
        _explain_chunk_count,
        ("split", "pp", "vpp"),
    ),
    Rule(
        "P01",
        ("layout.pipeline_layout", "layout.pp"),
        _violates_layer_count,
        _explain_layer_count,
        ("split",),
    ),
    BATCH,
    Rule(
        "P07",
        ("layout.vpp", "job.global_batch", "layout.pp"),
        _violates_interleaved_micro_batches,
        _explain_interleaved_micro_batches,
        ("vpp", "micro_batch", "pp", *DP),
    ),
)

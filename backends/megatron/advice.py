"""Warnings and advice on a chosen plan: legal, but it costs something."""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.megatron.arguments.vocab import MULTIPLE, padded_vocab
from parc.backends.megatron.recomputes import has_own_norms
from parc.backends.megatron.stages.split import SplitPins, depth
from parc.backends.shared.valid_values import nearest_multiples
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Layout, Plan, Problem
from parc.compiler.ir.layout import bubble_fraction

MOST_PADDING = 0.05
"""Share of the embedding that may be padding (heuristic)."""
MOST_BUBBLE = 0.10
"""Share of a step that a pipeline may idle (heuristic)."""
MOST_IMBALANCE = 1.10
"""Load of the longest stage over the mean (heuristic)."""


def advise(plan: Plan, sink: Sink) -> None:
    """Report everything that a reviewer should weigh."""
    for advice in ADVICE:
        advice(plan.problem, plan.layout, sink)


def _copied_heads(problem: Problem, layout: Layout, sink: Sink) -> None:
    attention, tp = problem.model.attention, layout.tp
    if attention.latent is not None or tp <= attention.kv_heads:
        return
    finding = Finding(
        message=f"{attention.kv_heads} key-value heads over tp={tp}: each is kept "
        f"{tp // attention.kv_heads} times",
        label=f"tp {tp} > {attention.kv_heads} key-value heads",
        help=f"no copies up to tp {attention.kv_heads}",
        fix=f"layout.tp: {attention.kv_heads}",
        causes=(Cause("model.kv_heads", f"{attention.kv_heads} key-value heads"),),
    )
    sink.report("D21", finding, at="layout.tp")


def _idle_recompute(problem: Problem, layout: Layout, sink: Sink) -> None:
    """Recompute of norms that are parts of products, which keep what they put out."""
    if "layernorm" not in layout.recompute.modules or has_own_norms(problem.model):
        return
    rest = [name for name in layout.recompute.modules if name != "layernorm"]
    finding = Finding(
        message=f"recompute of layernorm frees nothing in {problem.model.name}",
        label="every norm is a part of the linear layer behind it",
        help="Megatron computes again only norms before experts and before latent attention",
        fix=f"layout.recompute.modules: [{', '.join(rest) or 'mlp'}]",
    )
    sink.report("R20", finding, at="layout.recompute.modules")


def _padding(problem: Problem, layout: Layout, sink: Sink) -> None:
    model = problem.model
    rows = padded_vocab(model, layout.tp)
    waste = (rows - model.vocab) / rows
    if waste <= MOST_PADDING:
        return
    finding = Finding(
        message=f"{waste:.0%} of the embedding is padding at tp={layout.tp}",
        label=f"ceil({model.vocab} / ({MULTIPLE} * {layout.tp})) * {MULTIPLE * layout.tp} = {rows}",
        help="less tp pads less",
        causes=(Cause("model.vocab", f"{model.vocab} tokens"),),
    )
    sink.report("D04", finding, at="layout.tp")


def _bubble(problem: Problem, layout: Layout, sink: Sink) -> None:
    count = layout.micro_batches(problem.job.global_batch)
    share = bubble_fraction(layout.pp, layout.vpp, count)
    if layout.pp == 1 or share <= MOST_BUBBLE:
        return
    numbers = f"({layout.pp} - 1) / ({count} * {layout.vpp}) = {share:.2f}"
    step = layout.micro_batch * layout.dp
    wanted = nearest_multiples(int(10 * (layout.pp - 1) / layout.vpp) or 1, layout.pp)[1]
    better = bubble_fraction(layout.pp, layout.vpp, wanted)
    finding = Finding(
        message=f"the pipeline idles: pp={layout.pp} with {count} micro-batches",
        label=f"{numbers}, {MOST_BUBBLE:.2f} is good",
        help=f"a global batch of {wanted * step} gives {better:.2f}; vpp helps",
        causes=(Cause("job.global_batch", f"{count} micro-batches a pipeline"),),
    )
    sink.report("P08" if count < layout.pp else "P16", finding, at="layout.pp")


def _imbalance(problem: Problem, layout: Layout, sink: Sink) -> None:
    deep, loads = depth(problem.model), []
    if layout.pp == 1:
        return
    for row in layout.split.chunks:
        loads.append(sum(deep.load(chunk) for chunk in row))
    ratio = max(loads) * len(loads) / sum(loads)
    stage = loads.index(max(loads))
    if ratio <= MOST_IMBALANCE:
        return
    finding = Finding(
        message=f"stage {stage} carries {ratio:.2f} times the mean load",
        label=f"{max(loads):.4g} layers of work, the mean is {sum(loads) / len(loads):.1f}; "
        f"the loss counts as {deep.loss_load}"
        + (f", an MTP layer as {deep.mtp_load}" if deep.mtp_layers else ""),
        help=_less_work(problem, layout, stage),
    )
    sink.report("P17", finding, at="layout.pp")


def _less_work(problem: Problem, layout: Layout, stage: int) -> str:
    """How ``stage`` gets less; stages of a pattern are as even as its layers allow."""
    if problem.model.pattern and SplitPins.of(problem.pins).free:
        return "its layers cannot be cut more evenly; a smaller pp may"
    which = "the last stage" if stage == layout.pp - 1 else f"stage {stage}"
    return f"give {which} fewer layers"


ADVICE: tuple[Callable[[Problem, Layout, Sink], None], ...] = (
    _copied_heads,
    _padding,
    _bubble,
    _imbalance,
    _idle_recompute,
)
"""In the order in which they are asked."""

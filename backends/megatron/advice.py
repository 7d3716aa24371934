"""Warnings and advice on a chosen plan: settings that are valid but cost time or memory."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from parc.backends.megatron.capabilities import has_separate_norms
from parc.backends.megatron.stages.split import (
    NO_PINS,
    SplitPins,
    layers_of_lighter_end,
    model_depth,
    stage_loads,
)
from parc.backends.megatron.tokenizers import VOCAB_MULTIPLE, padded_vocab, tokenizer_vocab_size
from parc.backends.shared.valid_values import nearest_multiples
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Layout, Plan, Problem
from parc.compiler.ir.layout import bubble_fraction

MOST_PADDING = 0.05
"""Fraction of embedding rows that may be padding without a warning (heuristic)."""
MOST_BUBBLE = 0.10
"""Pipeline bubble, as a fraction of the computing time, up to which PARC does not warn
(heuristic)."""
MOST_IMBALANCE = 1.10
"""Load of the most loaded stage, relative to the mean, up to which PARC does not warn
(heuristic)."""


def report_advice(plan: Plan, sink: Sink) -> None:
    """Report settings of ``plan`` that are valid but cost time or memory."""
    for advice in ADVICE:
        advice(plan.problem, plan.layout, sink)
    # The search has compared splits with estimated times, which are better than loads.
    is_searched = plan.search.ranked and SplitPins.from_pins(plan.problem.pins) == NO_PINS
    if not is_searched:
        _warn_stage_imbalance(plan.problem, plan.layout, sink)


def _warn_copied_kv_heads(problem: Problem, layout: Layout, sink: Sink) -> None:
    attention, tp = problem.model.attention, layout.tp
    # Latent attention has no key-value heads that ranks could copy.
    if attention.latent is not None or tp <= attention.kv_heads:
        return
    # The estimate includes the copies, so a search that chose tp found smaller ones worse.
    if problem.pins.tp is None:
        return
    finding = Finding(
        message=f"{attention.kv_heads} key-value heads over tp={tp}: "
        f"{tp // attention.kv_heads} ranks store the same head",
        label=f"tp {tp} > {attention.kv_heads} key-value heads",
        help=f"with tp up to {attention.kv_heads}, every head is stored once",
        fix=f"layout.tp: {attention.kv_heads}",
        causes=(Cause("model.kv_heads", f"{attention.kv_heads} key-value heads"),),
    )
    sink.report("D21", finding, at="layout.tp")


def _warn_useless_recompute(problem: Problem, layout: Layout, sink: Sink) -> None:
    """Report that recompute of layernorm saves nothing (R20) if every norm is fused.

    A linear layer with a fused norm stores the output of the norm for the backward pass anyway.
    """
    if "layernorm" not in layout.recompute.modules or has_separate_norms(problem.model):
        return
    rest = [name for name in layout.recompute.modules if name != "layernorm"]
    finding = Finding(
        message=f"recompute of layernorm saves no memory in {problem.model.name}",
        label="every norm of this model is fused into a linear layer",
        help="Megatron recomputes only the norms before experts and before latent attention",
        fix=f"layout.recompute.modules: [{', '.join(rest) or 'mlp'}]",
    )
    sink.report("R20", finding, at="layout.recompute.modules")


def _warn_vocab_padding(problem: Problem, layout: Layout, sink: Sink) -> None:
    model = problem.model
    rows, tokens = padded_vocab(problem, layout.tp), tokenizer_vocab_size(problem)
    waste = (rows - tokens) / rows
    if waste <= MOST_PADDING:
        return
    finding = Finding(
        message=f"{100 * waste:.0f} % of the embedding rows are padding with tp={layout.tp}",
        label=f"ceil({tokens} / ({VOCAB_MULTIPLE} * {layout.tp})) * "
        f"{VOCAB_MULTIPLE * layout.tp} = {rows} rows for {tokens} tokens",
        help="a smaller tp needs less padding",
        causes=(Cause("model.vocab", f"{model.vocab} tokens"),),
    )
    sink.report("D04", finding, at="layout.tp")


def _warn_pipeline_bubble(problem: Problem, layout: Layout, sink: Sink) -> None:
    count = layout.micro_batches(problem.job.global_batch)
    share = bubble_fraction(layout.pp, layout.vpp, count)
    if layout.pp == 1 or share <= MOST_BUBBLE:
        return
    formula = f"({layout.pp} - 1) / ({count} * {layout.vpp}) = {share:.2f}"
    step = layout.micro_batch * layout.dp
    # (pp - 1) / (m vpp) <= 0.1 gives m >= 10 (pp - 1) / vpp; interleaving also requires a multiple
    # of pp micro-batches.
    least = ceil(10 * (layout.pp - 1) / layout.vpp)
    better_count = nearest_multiples(least, layout.pp)[1]
    better = bubble_fraction(layout.pp, layout.vpp, better_count)
    pins = problem.pins
    # With another batch, the search may choose other sizes, unless the spec fixes them.
    fixed = all((pins.tp, pins.cp, pins.pp, pins.micro_batch)) and pins.vpp == layout.vpp
    larger = (
        f"a larger vpp, or a global batch of {better_count * step}, which reduces the bubble to "
        f"{better:.2f}"
        if fixed
        else "a larger vpp or a larger global batch; `parc search --set "
        f"job.global_batch={better_count * step}` shows the best layouts for such a batch"
    )
    finding = Finding(
        message=f"pipeline bubble of {100 * share:.0f} %: "
        f"pp={layout.pp} with {count} micro-batches",
        label=f"bubble {formula}, aim for {MOST_BUBBLE:.2f} or less",
        help=f"use {larger}",
        causes=(Cause("job.global_batch", f"{count} micro-batches per pipeline"),),
    )
    # P08: some stages are idle at any time. P16: stages are idle at the start and the end of a
    # step.
    sink.report("P08" if count < layout.pp else "P16", finding, at="layout.pp")


def _warn_stage_imbalance(problem: Problem, layout: Layout, sink: Sink) -> None:
    depth = model_depth(problem.model)
    if layout.pp == 1:
        return
    loads = stage_loads(depth, layout.split)
    ratio = max(loads) * len(loads) / sum(loads)
    stage = loads.index(max(loads))
    if ratio <= MOST_IMBALANCE:
        return
    most = MOST_IMBALANCE * sum(loads) / len(loads)
    last = layers_of_lighter_end(problem, layout, most) if stage == layout.pp - 1 else None
    finding = Finding(
        message=f"pipeline stage {stage} has {ratio:.2f} times the mean load of a stage",
        label=f"{max(loads):.4g} layers of work, the mean is {sum(loads) / len(loads):.1f}; "
        f"the loss counts as {depth.loss_load}"
        + (f", an MTP layer as {depth.mtp_load}" if depth.mtp_layers else ""),
        help=_suggest_less_work(problem, layout, stage),
        fix="" if last is None else f"layout.last_stage_layers: {last}",
    )
    sink.report("P17", finding, at="layout.pp")


def _suggest_less_work(problem: Problem, layout: Layout, stage: int) -> str:
    """Return advice on how to reduce the load of ``stage``.

    If PARC chooses the split of a layer pattern, the stages are already balanced. Only another pp
    can then help.
    """
    if problem.model.pattern and SplitPins.from_pins(problem.pins).is_unrestricted:
        return "the pattern cannot be split more evenly; a smaller pp may be more even"
    which = "the last stage" if stage == layout.pp - 1 else f"stage {stage}"
    return f"give {which} fewer layers"


ADVICE: tuple[Callable[[Problem, Layout, Sink], None], ...] = (
    _warn_copied_kv_heads,
    _warn_vocab_padding,
    _warn_pipeline_bubble,
    _warn_useless_recompute,
)
"""Functions that report advice, in the order of their reports."""

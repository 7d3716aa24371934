"""Finding for a search in which no layout fits into memory: by how much, and what helps most."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import ceil

from parc.compiler.cost.memory.peak import stage_memory
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import EqualStageGroup
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.codes import code_title
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.ir import Layout, Problem, StageMemory

GIB = 2**30

SPLIT_BY: Mapping[str, tuple[str, ...]] = {
    "weights": ("tp", "pp", "ep"),
    "gradients": ("tp", "pp", "ep"),
    "optimizer state": ("tp", "pp", "ep"),
}
"""Title of a memory term -> parallel sizes that divide it, for terms of the model state."""
DIVIDED = 0.75
"""A size divides a term if doubling the size leaves less than this fraction, halfway between the
half of a divided term and an undivided one."""
NEVER = 4
"""ZeRO stage that does not exist."""
SHARDED_FROM: Mapping[str, int] = {"optimizer state": 1, "gradients": 2, "weights": 3}
"""Title of a memory term -> lowest ZeRO stage that shards it over the replicas."""

OVERSIZED = "R17"
"""Diagnostic code that counts layouts that do not fit into memory."""


def explain_oversized(
    cost_model: CostModel,
    layout: Layout,
    dropped: Mapping[str, int],
    sink: Sink,
    *,
    splits: Set[str] | None = None,
) -> None:
    """Report that no layout fits into memory (R17), and how much memory ``layout`` needs.

    ``dropped`` maps a diagnostic code to the number of layouts that were rejected for this reason.
    ``splits`` contains the parallel sizes that exceed 1 in some valid layout; None if ``layout`` is
    the only layout, because a launch script sets all its values.
    """
    problem, limit_bytes = cost_model.problem, memory_limit_bytes(cost_model)
    fullest, kind = max(
        (
            (stage_memory(cost_model, layout, kind.load, kind.first), kind)
            for kind in cost_model.equal_stage_groups(layout.split)
        ),
        key=lambda pair: pair[0].total_bytes,
    )
    title = memory_terms(fullest)[0][0]
    sizes = SPLIT_BY.get(title) or _sizes_that_divide(cost_model, layout, kind, title)
    need, gpu = fullest.total_bytes, problem.cluster.gpu
    degrees = f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, ep {layout.ep}, dp {layout.dp}"
    finding = Finding(
        message=(
            f"{problem.model.name} does not fit into memory: the "
            f"{'layout' if splits is None else 'smallest layout'} needs "
            f"{need / GIB:.1f} GiB per GPU on pipeline stage {fullest.stage}, "
            f"the limit is {limit_bytes / GIB:.1f} GiB"
        ),
        label=f"{degrees}, micro-batch {layout.micro_batch}, recompute "
        f"{layout.recompute.granularity}: {_format_largest_terms(fullest)}",
        help=_suggest_remedy(problem, layout, (title, sizes), need / limit_bytes, splits)
        + _name_most_violated_rule(dropped),
        causes=(
            Cause(
                "goals.memory_headroom",
                f"{gpu.name} has {gpu.memory_bytes / GIB:.1f} GiB, of which "
                f"{100 * problem.goals.memory_headroom:.0f} % stays free as headroom",
            ),
        ),
    )
    at = "layout" if sink.positions.is_path_in_spec("layout") else "cluster"
    sink.report(OVERSIZED, finding, at=at)


def memory_terms(stage: StageMemory) -> list[tuple[str, float]]:
    """Return (title, bytes) of each memory term of a pipeline stage, largest first."""
    rows = [
        (term.title, getattr(stage, name)) for name, term in TERMS.items() if term.unit == "bytes"
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _format_largest_terms(stage: StageMemory) -> str:
    """Return the three largest memory terms of a pipeline stage as text."""
    return ", ".join(f"{title} {nbytes / GIB:.1f} GiB" for title, nbytes in memory_terms(stage)[:3])


def _name_most_violated_rule(dropped: Mapping[str, int]) -> str:
    """Return a clause for a help text that names the rule that rejected the most layouts.

    Some of these layouts might need less memory, but their memory was not estimated. Returns "" if
    no rule rejected a layout.
    """
    # Layouts that are oversized or were replaced by a sibling violate no rule.
    rules = [code for code in dropped if code not in (OVERSIZED, "recompute") and dropped[code] > 0]
    if not rules:
        return ""
    code = max(rules, key=lambda one: (dropped[one], one))
    return f"; {dropped[code]:,} other layouts violate PARC-{code} ({code_title(code)})"


def _sizes_that_divide(
    cost_model: CostModel, layout: Layout, kind: EqualStageGroup, title: str
) -> tuple[str, ...]:
    """Return the parallel sizes that divide the memory term ``title``.

    Which sizes divide activations and logits depends on the framework, so these terms are estimated
    with doubled sizes.
    """

    def term_bytes(other: Layout) -> float:
        return dict(memory_terms(stage_memory(cost_model, other, kind.load, kind.first)))[title]

    return tuple(
        name
        for name in ("tp", "cp")
        if term_bytes(replace(layout, **{name: 2 * getattr(layout, name)}))
        < DIVIDED * term_bytes(layout)
    )


def _suggest_remedy(
    problem: Problem,
    layout: Layout,
    term: tuple[str, tuple[str, ...]],
    excess: float,
    splits: Set[str] | None,
) -> str:
    """Return advice on how to reduce a memory term.

    ``term`` is its title, and the parallel sizes that divide it. ``excess`` is the needed memory as
    a multiple of the limit. ``splits`` is that of ``explain_oversized``. The search has tried all
    values that the spec leaves open, so only values that the spec sets, more GPUs and a shorter
    sequence can help.
    """
    title, sizes = term
    pins = problem.pins
    is_activation = title in ("activations", "logits and loss")

    def is_fixed(name: str) -> bool:
        return splits is None or getattr(pins, name) is not None

    if title in SHARDED_FROM and not layout.zero_stage and layout.dp > 1:
        return f"with zero_stage 0 each replica stores all {title}: increase zero_stage"
    choices = [f"a larger {name}" for name in sizes if is_fixed(name)]
    if is_activation and layout.micro_batch > 1 and is_fixed("micro_batch"):
        choices.append("a smaller micro_batch")
    if is_activation and layout.recompute.granularity != "full" and is_fixed("recompute"):
        choices.append("recompute: full")
    is_split = splits is None or (not is_activation and not sizes) or not splits.isdisjoint(sizes)
    # With one GPU, no target can split anything.
    is_split |= problem.cluster.gpus == 1
    if is_split or layout.zero_stage >= SHARDED_FROM.get(title, NEVER):
        choices.append(f"more GPUs ({_format_sufficient_hosts(problem, excess)})")
    if is_activation:
        choices.append("a shorter sequence_length")
    if not choices or (is_activation and not is_split and not any(map(is_fixed, sizes))):
        choices.append(f"a target that splits the {title} of this model over ranks")
    text = f"use {', '.join(choices[:-1])} or {choices[-1]}" if choices[1:] else f"use {choices[0]}"
    return text


def _format_sufficient_hosts(problem: Problem, excess: float) -> str:
    """Return the number of hosts with ``excess`` times the memory of all GPUs, as text."""
    hosts = ceil(excess * problem.cluster.nodes)
    return f"about {hosts:,} hosts of this type have enough memory"

"""Regret of choosing layouts by prediction, over published sweeps of one model on one machine.

    regret = measured(layout predicted to be fastest) / measured(fastest layout) - 1

Only scored runs count: a source that warns of 40 % between repeated runs does not rank layouts.
Repeated runs of a layout count once, with their median time. A sweep needs at least three layouts.
``tied_regret`` is the regret of the layout that a search picks: the simplest of those whose
predictions are tied with the fastest.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.naive import naive_seconds
from benchmarks.accuracy.pages.row_lines import describe_layout
from benchmarks.accuracy.predict import estimate_step
from benchmarks.accuracy.problems import MEGATRON
from parc.compiler.cost.memory.peak import peak_bytes
from parc.compiler.ir import Layout
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import LayoutPoint
from parc.compiler.search.rank_layouts import simplicity_key
from parc.compiler.spec.job_spec import DEFAULT_TIE

MIN_LAYOUTS = 3
"""Smallest number of layouts in a sweep."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep, and the layouts chosen in it."""

    name: str
    layouts: int
    regret: float
    tied_regret: float
    """Regret of the simplest layout whose prediction is tied with the fastest."""
    naive_regret: float
    picked: str
    best: str
    agreement: float
    """Share of pairs of layouts with times at least 3 % apart that predictions order correctly."""
    out_of_memory: int
    """Number of layouts that ran out of memory."""
    oom_missed: int
    """Number of these that are predicted to fit and to be faster than the slowest that ran."""


@dataclass(frozen=True, slots=True)
class _Layout:
    words: str
    measured: float
    predicted: float
    naive: float
    simplicity: tuple[int, ...]


def sweeps(cases: Sequence[Case]) -> list[Sweep]:
    """Return every sweep with at least three layouts, sorted by name."""
    names = sorted({case.run.sweep for case in cases if case.run.sweep})
    found = [
        _evaluate_sweep(name, [case for case in cases if case.run.sweep == name]) for name in names
    ]
    return [sweep for sweep in found if sweep is not None]


def mean_and_worst(regrets: Sequence[float]) -> tuple[float, float]:
    """Return (mean, largest), or zeros if there is no sweep."""
    return (fmean(regrets), max(regrets)) if regrets else (0.0, 0.0)


def scatter_of_micro_batches(
    cases: Sequence[Case], ratios: Mapping[str, float]
) -> tuple[int, float, float]:
    """Return (rows, their mean error, mean error left by the other rows of the same sizes).

    Only rows count that have at least two others of the same sweep and parallel sizes. These rows
    differ in the micro-batch alone. The last number is the error of predictions that know the
    median of predicted / measured (``ratios``) of these others: smooth models do not go below it.
    """
    groups: dict[Hashable, list[float]] = {}
    for case in cases:
        one = case.layout
        sizes = (one.tp, one.cp, one.pp, one.vpp, one.ep, one.etp, one.dp, one.dp_shard)
        setting = (case.problem.model.name, case.run.source, case.run.gpus, _batch(case))
        groups.setdefault((*setting, *sizes, one.recompute), []).append(ratios[case.run.id])
    errors, left = [], []
    for group in groups.values():
        for index, ratio in enumerate(group):
            others = [*group[:index], *group[index + 1 :]]
            if len(others) > 1:
                errors.append(abs(ratio - 1))
                left.append(abs(ratio / median(others) - 1))
    return (len(errors), fmean(errors), fmean(left)) if errors else (0, 0.0, 0.0)


def _evaluate_sweep(name: str, cases: list[Case]) -> Sweep | None:
    layouts = _distinct_layouts([case for case in cases if case.scored])
    if len(layouts) < MIN_LAYOUTS:
        return None
    failed = [case for case in cases if case.run.oom]
    fastest = min(layouts, key=lambda layout: layout.measured)
    picked = min(layouts, key=lambda layout: layout.predicted)
    naive = min(layouts, key=lambda layout: layout.naive)
    slowest = max(layout.predicted for layout in layouts)
    tied = [
        layout for layout in layouts if layout.predicted <= (1 + DEFAULT_TIE) * picked.predicted
    ]
    simplest = min(tied, key=lambda layout: (layout.simplicity, layout.predicted))
    return Sweep(
        name=name,
        layouts=len(layouts),
        regret=picked.measured / fastest.measured - 1,
        tied_regret=simplest.measured / fastest.measured - 1,
        naive_regret=naive.measured / fastest.measured - 1,
        picked=picked.words,
        best=fastest.words,
        agreement=_pair_agreement(layouts),
        out_of_memory=len(failed),
        oom_missed=sum(
            _is_predicted_to_fit(case) and estimate_step(case).total_seconds < slowest
            for case in failed
        ),
    )


def _distinct_layouts(cases: list[Case]) -> list[_Layout]:
    """Return the distinct layouts in the order of their first runs, with seconds per sequence."""
    groups: dict[Hashable, list[Case]] = {}
    for case in cases:
        groups.setdefault(_layout_key(case), []).append(case)
    naive = dict(zip(map(id, cases), naive_seconds(cases, cases), strict=True)) if cases else {}
    return [
        _Layout(
            words=describe_layout(group[0]),
            # seconds per sequence, because runs of a sweep may differ in batch size
            measured=median(case.seconds / _batch(case) for case in group),
            predicted=estimate_step(group[0]).total_seconds / _batch(group[0]),
            naive=naive[id(group[0])] / _batch(group[0]),
            simplicity=_simplicity(group[0].layout),
        )
        for group in groups.values()
    ]


def _simplicity(layout: Layout) -> tuple[int, ...]:
    """Return the search's measure of simplicity, which ignores the ZeRO stage."""
    effort = ("none", "selective", "full").index(layout.recompute.granularity)
    mesh = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.etp)
    return simplicity_key(0, LayoutPoint(*mesh, layout.vpp, layout.micro_batch), effort)


def _batch(case: Case) -> int:
    return case.problem.job.global_batch


def _layout_key(case: Case) -> Hashable:
    """Return the key that distinguishes two layouts of a sweep; they use the same hosts."""
    layout = case.layout
    degrees = (layout.tp, layout.cp, layout.pp, layout.vpp, layout.ep, layout.etp, layout.dp)
    rest = (layout.micro_batch, layout.recompute, layout.zero_stage, layout.dp_shard)
    return (degrees, rest, layout.sequence_parallel, case.run.global_batch)


def _pair_agreement(layouts: Sequence[_Layout]) -> float:
    right = pairs = 0
    for i, one in enumerate(layouts):
        for other in layouts[i + 1 :]:
            if abs(one.measured / other.measured - 1) >= 0.03:
                pairs += 1
                right += (one.measured < other.measured) == (one.predicted < other.predicted)
    return right / pairs if pairs else 1.0


def _is_predicted_to_fit(case: Case) -> bool:
    peak = peak_bytes(cost_model_for(case.problem, MEGATRON), case.layout)
    return peak <= case.problem.cluster.gpu.memory_bytes

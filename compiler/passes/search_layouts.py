"""Enumerate, drop the illegal, drop the oversized, price the rest, rank them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from parc.compiler.cost.flops import model_flops
from parc.compiler.cost.memory import peak_bytes
from parc.compiler.cost.pricing import Pricing
from parc.compiler.cost.step_time import step_time
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Candidate, Layout, Search
from parc.compiler.ir.rule import Rule
from parc.compiler.passes.drop_illegal import all_rules, explain_illegal
from parc.compiler.passes.drop_oversized import OVERSIZED, explain_oversized
from parc.compiler.passes.enumerate_layouts import enumerate_layouts
from parc.compiler.passes.estimate_layout import memory_limit

TIE = 0.03
"""Predictions closer than this are ties (run-to-run noise of published sweeps)."""
KEEP = 20
"""Candidates kept in the plan."""
EXAMPLES = 512
"""Illegal layouts kept to explain an empty result."""


@dataclass
class Sieve:
    """What became of every layout so far."""

    pricing: Pricing
    rules: tuple[Rule, ...]
    limit_bytes: float
    enumerated: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    priced: list[tuple[float, float, Layout]] = field(default_factory=list)
    """(step seconds, peak bytes, layout)."""
    illegal: list[Layout] = field(default_factory=list)
    smallest: tuple[float, Layout] | None = None
    """The oversized layout that misses the limit by the least."""

    def sift(self, family: tuple[Layout, ...]) -> None:
        """Keep the first of ``family`` that is legal and fits: its siblings are only slower."""
        self.enumerated += len(family)
        for index, layout in enumerate(family):
            if self._passes(layout):
                self.dropped["recompute"] += len(family) - index - 1
                return

    def _passes(self, layout: Layout) -> bool:
        problem = self.pricing.problem
        code = next((rule.code for rule in self.rules if rule.broken(problem, layout)), None)
        if code:
            self.dropped[code] += 1
            if len(self.illegal) < EXAMPLES:
                self.illegal.append(layout)
            return False
        peak = peak_bytes(self.pricing, layout)
        if peak > self.limit_bytes:
            self.dropped[OVERSIZED] += 1
            if self.smallest is None or peak < self.smallest[0]:
                self.smallest = (peak, layout)
            return False
        seconds = step_time(self.pricing, layout).total_seconds
        self.priced.append((seconds, peak, layout))
        return True


def search_layouts(pricing: Pricing, sink: Sink) -> Search | None:
    """The ranked candidates, or None with a diagnostic that says what stands in the way.

    Every enumerated layout is a candidate, or is counted under the first rule that dropped it,
    or lost to a sibling with less recompute (counted as ``recompute``).
    """
    problem = pricing.problem
    sieve = Sieve(pricing, all_rules(problem, pricing.framework), memory_limit(pricing))
    for family in enumerate_layouts(problem, pricing.framework):
        sieve.sift(family)
    if not sieve.priced:
        if sieve.smallest is not None:
            explain_oversized(pricing, sieve.smallest[1], sieve.limit_bytes, sink)
        else:
            explain_illegal(problem, pricing.framework, sieve.illegal, sink)
        return None
    return Search(
        enumerated=sieve.enumerated,
        dropped=tuple(sorted((code, count) for code, count in sieve.dropped.items() if count)),
        ranked=tuple(_candidates(pricing, rank_layouts(sieve.priced, problem.goals.maximize))),
    )


def rank_layouts(
    priced: list[tuple[float, float, Layout]], goal: str
) -> list[tuple[float, float, Layout]]:
    """Best first; the simplest of those within 3 % of the best leads.

    Total order: (GPUs where fewer are the goal), seconds, simplicity. Of predicted ties the
    simplest is moved to the front, the others keep their order.
    """
    few = goal == "fewest-gpus"
    ordered = sorted(
        priced, key=lambda row: (row[2].world if few else 0, row[0], simplicity(row[2]))
    )
    best = ordered[0]
    ties = [
        row
        for row in ordered
        if row[0] <= best[0] * (1 + TIE) and (not few or row[2].world == best[2].world)
    ]
    winner = min(ties, key=lambda row: simplicity(row[2]))
    return [winner, *(row for row in ordered if row is not winner)][:KEEP]


def simplicity(layout: Layout) -> tuple[int, ...]:
    """Smaller is simpler: fewer axes, no recompute, less of cp, pp, tp, ep and vpp, then the rest.

    The last entries make the order total.
    """
    degrees = (layout.tp, layout.cp, layout.pp, layout.ep)
    recompute = ("none", "selective", "full").index(layout.recompute.granularity)
    return (
        sum(degree > 1 for degree in degrees),
        recompute,
        layout.vpp,
        layout.cp,
        layout.pp,
        layout.tp,
        layout.ep,
        layout.etp,
        -layout.micro_batch,
    )


def _candidates(pricing: Pricing, ranked: list[tuple[float, float, Layout]]) -> Iterator[Candidate]:
    problem = pricing.problem
    tokens = problem.job.global_batch * problem.job.sequence_length
    flops = model_flops(problem.model, tokens, problem.job.sequence_length)
    gpu = problem.cluster.gpu
    peak = gpu.peak(problem.job.precision) or gpu.peak("bf16") or gpu.peak("fp16") or 1.0
    for seconds, peak_memory, layout in ranked:
        mfu = flops / (seconds * layout.world * peak * 1e12)
        yield Candidate(layout, seconds, peak_memory, mfu)

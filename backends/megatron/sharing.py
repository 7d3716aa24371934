"""Numbers of ranks that share weights, for a search that may choose them (``gtp: auto``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.backends.shared.valid_values import divisors
from parc.compiler.ir import LayoutVariant, Problem


def sharing_variants(problem: Problem, plain: LayoutVariant) -> Iterator[LayoutVariant]:
    """Yield copies of ``plain`` with each pair of gtp and egtp to compare.

    Sharing ranks exchange all weights in every micro-batch, so that they are compared only within
    one NVLink domain: the divisors of its number of GPUs. Experts are whole, or shared by as many
    ranks as the other weights.
    """
    pins, node = problem.pins, problem.cluster.node
    sizes = divisors(max(node.nvlink_domain, node.gpus))
    for gtp in (pins.gtp,) if pins.gtp is not None else sizes:
        shared = {1, gtp} if problem.model.experts else {1}
        for egtp in (pins.egtp,) if pins.egtp is not None else sorted(shared):
            yield replace(plain, gtp=gtp, egtp=egtp)

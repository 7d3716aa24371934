"""Layouts of a problem in the order of the search."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.base import Framework
from parc.compiler.ir import Layout, Problem
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts


def enumerate_layouts(problem: Problem, framework: Framework) -> Iterator[tuple[Layout, ...]]:
    """Yield tuples of layouts that differ only in recomputation, variant by variant.

    The context-parallel exchange is the variant's, or a ring if the variant leaves it open.
    """
    for variant in framework.layout_variants(problem):
        yield from sibling_layouts(LayoutSpace.for_variant(problem, framework, variant))

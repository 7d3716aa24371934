"""All layouts of a problem, as the search enumerates them."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.base import Framework
from parc.compiler.ir import Layout, Problem
from parc.compiler.search.layout_space import LayoutSpace, sibling_layouts


def enumerate_layouts(problem: Problem, framework: Framework) -> Iterator[tuple[Layout, ...]]:
    """Variant by variant, families that differ in recompute alone; rings where none is pinned."""
    for variant in framework.variants(problem):
        yield from sibling_layouts(LayoutSpace.of(problem, framework, variant))

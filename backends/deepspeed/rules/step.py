"""Families P and B: every layer stands on one stage, every sequence in one micro-batch."""

from __future__ import annotations

from parc.backends.deepspeed.split import find_split, why_no_split
from parc.backends.shared.plain_rules import BATCH
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _split_broken(problem: Problem, layout: Layout) -> bool:
    return find_split(problem, layout.pp, layout.vpp) is None


def _split(problem: Problem, layout: Layout) -> Finding:
    return why_no_split(problem, layout.pp, layout.vpp)[2]


STEP_RULES: tuple[Rule, ...] = (
    Rule("P01", ("layout.pp", "model.layers"), _split_broken, _split, ("pp", "vpp")),
    BATCH,
)

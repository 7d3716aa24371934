"""Rules P01 and B01: each layer is on one stage, each sequence in one micro-batch."""

from __future__ import annotations

from parc.backends.deepspeed.split import find_split, why_no_split
from parc.backends.shared.plain_rules import BATCH
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_stage_split(problem: Problem, layout: Layout) -> bool:
    return find_split(problem, layout.pp, layout.vpp) is None


def _explain_stage_split(problem: Problem, layout: Layout) -> Finding:
    return why_no_split(problem, layout.pp, layout.vpp)[2]


STEP_RULES: tuple[Rule, ...] = (
    Rule(
        "P01",
        ("layout.pp", "model.layers"),
        _violates_stage_split,
        _explain_stage_split,
        ("pp", "vpp"),
    ),
    BATCH,
)

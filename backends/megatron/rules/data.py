"""Rule on the paths of the training data (E11)."""

from __future__ import annotations

import json

from parc.backends.shared.common_rules import always_violated_rule
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule

SUFFIXES = (".bin", ".idx")
"""Suffixes of the two files of a data set, which Megatron adds (core/datasets/indexed_dataset.py,
get_bin_path and get_idx_path)."""


def data_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rule that a path of ``job.data`` violates, if there is one."""
    data = problem.job.data
    files = [path for path in data if path.endswith(SUFFIXES)]
    if not files:
        return ()
    prefixes = [path[:-4] if path in files else path for path in data]
    finding = Finding(
        message="a data path of Megatron is the prefix of two files, without .bin or .idx",
        label=f"Megatron would open {files[0]}.bin and {files[0]}.idx",
        help=f"valid: {files[0][:-4]}",
        fix=f"job.data: {json.dumps(prefixes, ensure_ascii=False)}",
    )
    return (always_violated_rule("E11", ("job.data",), finding),)

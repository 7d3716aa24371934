"""Serving specs as mappings, and the plans and problems that they become."""

from __future__ import annotations

import json
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan, ServingProblem
from parc.compiler.pipeline import plan_spec, resolve_spec
from parc.compiler.spec.source import Source

Tree = dict[str, Any]
CHAT: Tree = {"input_tokens": 1000, "output_tokens": 500, "concurrency": 64}


def spec(model: str, node: Any, nodes: int = 1, **parts: Tree) -> Tree:
    """A spec; ``parts`` are merged into its sections."""
    tree: Tree = {
        "parc": 1,
        "name": "served",
        "model": model,
        "cluster": {"node": node, "nodes": nodes},
        "job": {"kind": "serve", "traffic": CHAT, **parts.pop("job", {})},
    }
    return tree | parts


def source(tree: Tree) -> Source:
    """The tree as text: JSON is YAML."""
    return Source("spec.yaml", json.dumps(tree, indent=1), None)


def problem_of(tree: Tree) -> ServingProblem:
    """The problem of a sound spec."""
    sink = Sink()
    problem = resolve_spec(source(tree), (), sink)
    assert isinstance(problem, ServingProblem), sink.diagnostics
    return problem


def planned(tree: Tree) -> tuple[ServingPlan | None, Sink]:
    """What compiling gives, and what was said."""
    sink = Sink()
    plan = plan_spec(source(tree), (), sink)
    assert plan is None or isinstance(plan, ServingPlan)
    return plan, sink


def plan_of(tree: Tree) -> ServingPlan:
    """The plan of a spec that compiles."""
    plan, sink = planned(tree)
    assert plan is not None, [found.finding.message for found in sink.diagnostics]
    return plan


def codes(tree: Tree) -> list[str]:
    """Short codes of what is said about a spec, sorted by place."""
    return [found.code.removeprefix("PARC-") for found in planned(tree)[1].diagnostics]

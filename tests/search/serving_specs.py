"""Serving specs as mappings, and the plans and problems that they become."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan, ServingProblem
from tests import compiled

Tree = dict[str, Any]
CHAT: Tree = {"input_tokens": 1000, "output_tokens": 500, "concurrency": 64}
SERVE: Tree = {"kind": "serve", "traffic": CHAT, "precision": "bf16", "checkpoint": "/models/own"}


def spec(model: str | Tree, node: Any, nodes: int = 1, **parts: Tree) -> Tree:
    """A spec; ``parts`` are merged into its sections.

    Its checkpoint is a folder, so that the weights may have any format.
    """
    tree: Tree = {
        "parc": 1,
        "name": "served",
        "model": model,
        "cluster": {"node": node, "nodes": nodes},
        "job": {**SERVE, **parts.pop("job", {})},
    }
    return tree | parts


def problem_of(tree: Tree) -> ServingProblem:
    """The problem of a sound spec."""
    problem, sink = compiled.resolved(tree)
    assert isinstance(problem, ServingProblem), compiled.messages_of(sink)
    return problem


def planned(tree: Tree) -> tuple[ServingPlan | None, Sink]:
    """Return the plan of ``spec`` and its findings."""
    plan, sink = compiled.planned(tree)
    assert plan is None or isinstance(plan, ServingPlan)
    return plan, sink


def plan_of(tree: Tree) -> ServingPlan:
    """The plan of a spec that compiles."""
    plan, sink = planned(tree)
    assert plan is not None, compiled.messages_of(sink)
    return plan


def codes(tree: Tree) -> list[str]:
    """Short codes of what is said about a spec, sorted by place."""
    return [found.code.removeprefix("PARC-") for found in planned(tree)[1].diagnostics]

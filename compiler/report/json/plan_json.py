"""plan.json (everything decided) and parc.lock (the decisions, their origin, what was written)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any

from parc import __version__
from parc.compiler.ir import (
    AnyPlan,
    AnyProblem,
    Artifact,
    Layout,
    Placement,
    Plan,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.estimate import STAGE_TOTALS
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.json.cluster_json import cluster_document, out_of_use
from parc.compiler.report.json.serving_json import service_document, serving_parts
from parc.compiler.report.numbers import json_text, rounded_tree

FORMAT = 1
PLAN_PATH = "plan.json"
LOCK_PATH = "parc.lock"
_EMPTY = '"lock_digest": ""'


def plan_artifact(plan: AnyPlan) -> Artifact:
    """plan.json; its schema is schemas/plan.schema.json."""
    return Artifact(PLAN_PATH, json_text(plan_document(plan)))


def lock_artifact(plan: AnyPlan, others: Sequence[Artifact]) -> Artifact:
    """parc.lock; its schema is schemas/lock.schema.json.

    It has a digest of each of ``others``, which are all other files, and one of itself: of its own
    text with that digest left empty. They stand beside the decisions, which --locked compares: a
    new version of PARC may write the same decisions in other words.
    """
    files = {artifact.path: _digest(artifact.text) for artifact in others}
    text = json_text({**lock_document(plan), "files": files, "lock_digest": ""})
    return Artifact(LOCK_PATH, text.replace(_EMPTY, f'{_EMPTY[:-1]}{_digest(text)}"'))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def plan_document(plan: AnyPlan) -> dict[str, Any]:
    """The plan as JSON types: hosts by name, derived figures spelled out, floats rounded."""
    document = {
        "format": FORMAT,
        "parc": __version__,
        "problem": _problem(plan.problem),
        "placement": _placement(plan.placement),
        **(serving_parts(plan) if isinstance(plan, ServingPlan) else _parts(plan)),
    }
    return dict(rounded_tree(document))


def _problem(problem: AnyProblem) -> dict[str, Any]:
    names = (field.name for field in fields(problem) if field.name != "cluster")
    rest = {name: as_json(getattr(problem, name)) for name in names}
    if isinstance(problem, ServingProblem):
        rest["service"] = service_document(problem.service)
    return {**rest, "cluster": cluster_document(problem.cluster)}


def _parts(plan: Plan) -> dict[str, Any]:
    """What the plan of a job that trains has of its own."""
    return {
        "layout": _layout(plan.layout, plan.problem.job.global_batch),
        "estimate": _estimate(plan),
        "placement": {**_placement(plan.placement), **_weighed(plan.placement)},
        "search": _search(plan),
    }


def lock_document(plan: AnyPlan) -> dict[str, Any]:
    """The decisions under ``decisions``; the rest says what they were made from."""
    placement = plan.placement
    decisions = {
        "versions": dict(plan.problem.versions),
        "layout": as_json(plan.layout),
        "order": placement.order,
        "ranks_per_node": placement.ranks_per_node,
        "hosts": [host.name for host in placement.hosts],
        **out_of_use(plan.problem.cluster),
    }
    if isinstance(plan, ServingPlan):
        decisions["limits"] = as_json(plan.limits)
    else:
        decisions["calibration"] = dict(plan.problem.calibration)
    document = {
        "format": FORMAT,
        "parc": __version__,
        "name": plan.problem.name,
        "spec_digest": plan.problem.digest,
        "decisions": decisions,
    }
    return dict(rounded_tree(document))


def _layout(layout: Layout, global_batch: int) -> dict[str, Any]:
    derived = {
        "dp": layout.dp,
        "edp": layout.edp,
        "world": layout.world,
        "micro_batches": layout.micro_batches(global_batch),
    }
    return {**as_json(layout), **derived}


def _estimate(plan: Plan) -> dict[str, Any]:
    estimate = plan.estimate
    time = {**as_json(estimate.time), "total_seconds": estimate.time.total_seconds}
    memory = [
        {**as_json(stage), **{name: getattr(stage, name) for name in STAGE_TOTALS}}
        for stage in estimate.memory
    ]
    derived = {
        "memory": memory,
        "time": time,
        "peak_stage": estimate.peak.stage,
        "peak_bytes": estimate.peak.total_bytes,
        "fits": estimate.fits,
        "verdict": estimate.verdict,
    }
    return {**as_json(estimate), **derived}


def _placement(placement: Placement) -> dict[str, Any]:
    return {
        "order": placement.order,
        "ranks_per_node": placement.ranks_per_node,
        "dense": as_json(placement.dense.axes),
        "hosts": [host.name for host in placement.hosts],
    }


def _weighed(placement: Placement) -> dict[str, Any]:
    """What the placement of a job that trains has beside that."""
    return {
        "expert": as_json(placement.expert.axes),
        "alternatives": as_json(placement.alternatives),
        "proof": as_json(placement.proof),
        **({"devices": list(placement.devices)} if placement.devices else {}),
    }


def _search(plan: Plan) -> dict[str, Any]:
    """Candidates without their stage split: plan.json keeps the split of the chosen one only."""
    ranked = []
    for candidate in plan.search.ranked:
        row = as_json(candidate)
        row["layout"]["split"] = candidate.layout.split.form
        if not candidate.placed_seconds:
            del row["placed_seconds"]
        ranked.append(row)
    return {
        "enumerated": plan.search.enumerated,
        "dropped": dict(plan.search.dropped),
        "ranked": ranked,
    }

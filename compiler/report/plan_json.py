"""plan.json (everything decided) and parc.lock (the decisions and what they were made from)."""

from __future__ import annotations

import json
from typing import Any

from parc import __version__
from parc.compiler.ir import Artifact, Cluster, Layout, NodeType, Placement, Plan
from parc.compiler.ir.estimate import STAGE_TOTALS
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.numbers import rounded_tree

FORMAT = 1
PLAN_PATH = "plan.json"
LOCK_PATH = "parc.lock"
WIRING = ("gpu_numa", "gpu_nics")


def plan_artifact(plan: Plan) -> Artifact:
    """plan.json; its schema is schemas/plan.schema.json."""
    return Artifact(PLAN_PATH, _text(plan_document(plan)))


def lock_artifact(plan: Plan) -> Artifact:
    """parc.lock; its schema is schemas/lock.schema.json."""
    return Artifact(LOCK_PATH, _text(lock_document(plan)))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON types: hosts by name, derived figures spelled out, floats rounded."""
    problem = as_json(plan.problem)
    problem["cluster"] = _cluster(plan.problem.cluster)
    document = {
        "format": FORMAT,
        "parc": __version__,
        "problem": problem,
        "layout": _layout(plan.layout, plan.problem.job.global_batch),
        "estimate": _estimate(plan),
        "placement": _placement(plan.placement),
        "search": _search(plan),
    }
    return dict(rounded_tree(document))


def lock_document(plan: Plan) -> dict[str, Any]:
    """The decisions under ``decisions``; the rest says what they were made from."""
    document = {
        "format": FORMAT,
        "parc": __version__,
        "name": plan.problem.name,
        "spec_digest": plan.problem.digest,
        "decisions": {
            "versions": dict(plan.problem.versions),
            "calibration": dict(plan.problem.calibration),
            "layout": as_json(plan.layout),
            "order": plan.placement.order,
            "ranks_per_node": plan.placement.ranks_per_node,
            "hosts": [host.name for host in plan.placement.hosts],
            **_out_of_use(plan.problem.cluster),
        },
    }
    return dict(rounded_tree(document))


def _out_of_use(cluster: Cluster) -> dict[str, Any]:
    """Unavailable hosts, where there are some: a later replan must not take them for idle ones."""
    return {"unavailable": list(cluster.unavailable)} if cluster.unavailable else {}


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """The cluster with hosts as names; a rack says once which NVLink domains it holds.

    Levels, and the switches above a rack, are there where the spec says something above racks.
    """
    levels = {"levels": as_json(cluster.levels)} if cluster.upper else {}
    return {
        **levels,
        "gpu": as_json(cluster.gpu),
        "node": _node(cluster.node),
        "fabric": as_json(cluster.fabric),
        "racks": [
            {
                "name": rack.name,
                "hosts": [host.name for host in rack.hosts],
                "nvlink_domains": sorted({host.nvlink_domain for host in rack.hosts}),
                **({"above": list(rack.hosts[0].above)} if rack.hosts[0].above else {}),
            }
            for rack in cluster.racks
        ],
        "spare": [host.name for host in cluster.spare],
        "unavailable": list(cluster.unavailable),
        "named": cluster.named,
    }


def _node(node: NodeType) -> dict[str, Any]:
    """The node type; what nobody said about the wiring of its GPUs is left out."""
    return {key: value for key, value in as_json(node).items() if value or key not in WIRING}


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
        "expert": as_json(placement.expert.axes),
        "hosts": [host.name for host in placement.hosts],
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
        ranked.append(row)
    return {
        "enumerated": plan.search.enumerated,
        "dropped": dict(plan.search.dropped),
        "ranked": ranked,
    }

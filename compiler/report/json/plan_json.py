"""Content of plan.json (decisions, estimates) and of parc.lock (decisions, file checksums)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from parc import __version__
from parc.compiler.ir import (
    AnyPlan,
    AnyProblem,
    Artifact,
    Cluster,
    Fabric,
    Layout,
    NodeType,
    Placement,
    Plan,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.estimate import STAGE_TOTALS
from parc.compiler.ir.serialize import as_json, field_names
from parc.compiler.ir.serving import POOLS
from parc.compiler.ir.serving_plan import Service
from parc.compiler.report.estimate_basis import basis_document
from parc.compiler.report.formatting import ExactFloat, exact_tree, json_text, round_floats_in_tree
from parc.compiler.topology.hostlist import natural_key

WIRING = ("gpu_numa", "gpu_nics", "rails", "rate_share", "all_to_all_rate_share")
"""Fields of node types and fabrics that plan.json omits if they are unknown."""


def _cluster_section(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as JSON types: hosts by name, and NVLink domains per rack.

    Switch levels, and the switches above a rack, are included only if the spec describes them.
    """
    # Without upper switches, the levels follow from racks and fabric and need not be stored.
    levels = {"levels": as_json(cluster.switch_tiers)} if cluster.upper else {}
    return {
        **levels,
        "gpu": as_json(cluster.gpu),
        "node": _without_unknown_wiring(cluster.node),
        "fabric": _without_unknown_wiring(cluster.fabric),
        "racks": [
            {
                "name": rack.name,
                "hosts": [host.name for host in rack.hosts],
                "nvlink_domains": [host.nvlink_domain for host in rack.hosts],
                **({"above": list(rack.hosts[0].above)} if rack.hosts[0].above else {}),
            }
            for rack in cluster.racks
        ],
        "spare": [host.name for host in cluster.spare],
        "unavailable": list(cluster.unavailable),
        "named": cluster.named,
    }


def _without_unknown_wiring(part: NodeType | Fabric) -> dict[str, Any]:
    """Return ``part`` as JSON types, without fields of WIRING whose value is unknown."""
    return {key: value for key, value in as_json(part).items() if value or key not in WIRING}


def _unavailable_hosts(cluster: Cluster) -> dict[str, Any]:
    """Return a dict with the names of unavailable hosts; an empty dict if there are none.

    The lock stores these names, so that a later ``parc replan`` does not use the hosts.
    """
    names = sorted(cluster.unavailable, key=natural_key)
    return {"unavailable": names} if names else {}


LAYOUT_TOTALS = ("engine_gpus", "gpus", "rank_gpus")
LIMIT_TOTALS = ("cache_tokens", "full_requests")
ESTIMATE_TOTALS = ("kv_tokens", "tokens_per_second_per_gpu")
"""Derived values that plan.json contains in addition to the fields of the IR types."""


def _serving_sections(plan: ServingPlan) -> dict[str, Any]:
    """Return the sections of plan.json whose content is specific to serving jobs."""
    pins = plan.problem.pins
    experts = {
        "all2all": pins.all2all or "auto",
        # null and 0 differ: with 0 additional copies, the engine still balances its experts.
        "redundant_experts": pins.redundant_experts,
    }
    totals = _derived_values(plan.layout, LAYOUT_TOTALS)
    return {
        "layout": {**as_json(plan.layout), **experts, **totals},
        "limits": {**as_json(plan.limits), **_derived_values(plan.limits, LIMIT_TOTALS)},
        "stages": [{**as_json(stage), "blocks": stage.blocks} for stage in plan.stages],
        "estimate": serving_estimate(plan),
        "search": {**as_json(plan.search), "dropped": dict(plan.search.dropped)},
    }


def _service_section(service: Service) -> dict[str, Any]:
    """Return the service as JSON types; the engine is written as its name, not its constants."""
    document: dict[str, Any] = as_json(service)
    return {**document, "setup": {**document["setup"], "engine": service.setup.engine.name}}


def serving_estimate(plan: ServingPlan) -> dict[str, Any]:
    """Return the serving estimate as JSON types, with totals.

    The layout is omitted, because plan.json has a separate section for it.
    """
    estimate = as_json(plan.estimate)
    del estimate["layout"]
    decode = {**estimate["decode"], "total_seconds": plan.estimate.decode.total_seconds}
    totals = _derived_values(plan.estimate, ESTIMATE_TOTALS)
    if plan.problem.service.setup.pool == "prefill":
        # Prompts end with their first token: there is no decode step, and no time per token.
        return {**estimate, **totals, "decode": None, "tpot_seconds": None}
    return {**estimate, **totals, "decode": decode}


def _derived_values(ir_object: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(ir_object, name) for name in names}


FORMAT = 1
PLAN_PATH = "plan.json"
LOCK_PATH = "parc.lock"
_EMPTY = '"lock_digest": ""'


def plan_artifact(plan: AnyPlan) -> Artifact:
    """Return the output file plan.json, which follows schemas/plan.schema.json."""
    return Artifact(PLAN_PATH, json_text(plan_document(plan)))


def lock_artifact(plan: AnyPlan, others: Sequence[Artifact]) -> Artifact:
    """Return the output file parc.lock, which follows schemas/lock.schema.json.

    The lock stores a digest of each file in ``others`` (all other output files) and a digest of its
    own text. The latter is computed while its value in the text is empty. ``--locked`` compares
    decisions instead of digests, because a new version of PARC may write the same decisions as
    different text.
    """
    files = {artifact.path: _text_digest(artifact.text) for artifact in others}
    # The digest covers the text in which it is empty, so that it can be checked later.
    text = json_text({**lock_document(plan), "files": files, "lock_digest": ""})
    return Artifact(LOCK_PATH, text.replace(_EMPTY, f'{_EMPTY[:-1]}{_text_digest(text)}"'))


def _text_digest(text: str) -> str:
    # Names from a spec may contain lone surrogates, which strict UTF-8 cannot encode.
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def plan_document(plan: AnyPlan) -> dict[str, Any]:
    """Return the content of plan.json: inputs, decisions, estimates and derived values."""
    # The spec is not rounded, because `parc import` must return exactly what was compiled.
    written = plan.problem.spec_json
    spec = {"spec": json.loads(written, parse_float=ExactFloat)} if written else {}
    return {
        "format": FORMAT,
        "parc": __version__,
        "problem": _problem_section(plan.problem),
        "placement": _placement_section(plan.placement),
        "basis": basis_document(plan),
        **(_serving_sections(plan) if isinstance(plan, ServingPlan) else _training_sections(plan)),
        **spec,
    }


def _problem_section(problem: AnyProblem) -> dict[str, Any]:
    problem_type: Any = type(problem)
    names = (name for name in field_names(problem_type) if name != "cluster")
    # Targets receive these numbers with all digits, so a verifier compares all digits.
    rest = {name: exact_tree(as_json(getattr(problem, name))) for name in names}
    if isinstance(problem, ServingProblem):
        rest["service"] = _service_section(problem.service)
    return {**rest, "cluster": _cluster_section(problem.cluster)}


def _training_sections(plan: Plan) -> dict[str, Any]:
    """Return the sections of plan.json whose content is specific to training jobs."""
    return {
        "layout": _layout_section(plan.layout, plan.problem.job.global_batch),
        "estimate": _estimate_section(plan),
        "run": as_json(plan.run),
        "placement": {
            **_placement_section(plan.placement),
            **_training_placement_fields(plan.placement),
        },
        "search": _search_section(plan),
    }


def lock_document(plan: AnyPlan) -> dict[str, Any]:
    """Return the decisions, the name and the spec digest of parc.lock, without file digests."""
    name, decisions = plan.problem.name, _compared_decisions(plan)
    if isinstance(plan, ServingPlan) and plan.pair is not None:
        pools = dict(zip(POOLS, map(_compared_decisions, plan.pools), strict=True))
        name, decisions = plan.pair.name, {"versions": dict(plan.problem.versions), **pools}
    document = {
        "format": FORMAT,
        "parc": __version__,
        "name": name,
        "spec_digest": plan.problem.digest,
        "decisions": decisions,
    }
    return dict(round_floats_in_tree(document))


def _compared_decisions(plan: AnyPlan) -> dict[str, Any]:
    """Return the decisions of a plan that ``parc compile --locked`` compares."""
    placement = plan.placement
    decisions = {
        "versions": dict(plan.problem.versions),
        "layout": as_json(plan.layout),
        "order": placement.order,
        "ranks_per_node": placement.ranks_per_node,
        "hosts": [host.name for host in placement.hosts],
        **_unavailable_hosts(plan.problem.cluster),
    }
    if isinstance(plan, ServingPlan):
        decisions["limits"] = as_json(plan.limits)
        # Left out if empty, so that locks of services without a calibration do not change.
        if plan.problem.calibration:
            decisions["calibration"] = dict(plan.problem.calibration)
    else:
        decisions["calibration"] = dict(plan.problem.calibration)
    return decisions


def _layout_section(layout: Layout, global_batch: int) -> dict[str, Any]:
    derived = {
        "dp": layout.dp,
        "edp": layout.edp,
        "world": layout.world,
        "micro_batches": layout.micro_batches(global_batch),
    }
    return {**as_json(layout), **derived}


def _estimate_section(plan: Plan) -> dict[str, Any]:
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


def _placement_section(placement: Placement) -> dict[str, Any]:
    return {
        "order": placement.order,
        "ranks_per_node": placement.ranks_per_node,
        "dense": as_json(placement.dense.axes),
        "hosts": [host.name for host in placement.hosts],
    }


def _training_placement_fields(placement: Placement) -> dict[str, Any]:
    """Return those fields of a placement that only training jobs have, as JSON types."""
    return {
        "expert": as_json(placement.expert.axes),
        "alternatives": as_json(placement.alternatives),
        "proof": as_json(placement.proof),
        **({"devices": list(placement.devices)} if placement.devices else {}),
    }


def _search_section(plan: Plan) -> dict[str, Any]:
    """Return the result of the layout search as JSON types.

    To keep the file small, the split of layers into stages is written as one word for each
    candidate, such as ``even``; the section ``layout`` has the full split of the chosen layout.
    """
    ranked = []
    for candidate in plan.search.ranked:
        row = as_json(candidate)
        row["layout"]["split"] = candidate.layout.split.form
        if not candidate.placed_seconds:  # the placement of most candidates is not evaluated
            del row["placed_seconds"]
        ranked.append(row)
    return {
        "enumerated": plan.search.enumerated,
        "dropped": dict(plan.search.dropped),
        "ranked": ranked,
    }

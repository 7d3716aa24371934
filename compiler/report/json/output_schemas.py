"""The schemas of what PARC reads and writes, made from the models and nouns that they hold.

``python -m parc.compiler.report.json.output_schemas plan > schemas/plan.schema.json``
"""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files
from typing import Any

from parc.compiler.ir import Estimate, Fabric, Gpu, Layout, Level, NodeType, Problem, StepTime
from parc.compiler.ir.estimate import STAGE_TOTALS, StageMemory
from parc.compiler.ir.placement import Axis, PlacementAlternative, Proof
from parc.compiler.ir.plan import Candidate
from parc.compiler.report.json.cluster_json import WIRING
from parc.compiler.report.json.ir_schema import Schema, closed, noun_schema, type_schema
from parc.compiler.report.json.serving_schemas import serving_decisions, serving_plan

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NAMES: Schema = {"type": "array", "items": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def plan_schema() -> Schema:
    """The schema of plan.json: of a job that trains, or of one that serves."""
    nouns: Schema = {}
    nouns["TrainingPlan"] = _training_plan(nouns)
    nouns["ServingPlan"] = serving_plan(nouns, _stamp(), _cluster(nouns))
    return _either("PARC plan", ("TrainingPlan", "ServingPlan"), nouns)


def _either(title: str, names: tuple[str, str], nouns: Schema) -> Schema:
    choices: Schema = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    return _document(title, choices, nouns)


def _training_plan(nouns: Schema) -> Schema:
    counts = dict.fromkeys(("dp", "edp", "world", "micro_batches"), COUNT)
    properties = {
        **_stamp(),
        "problem": _replaced(noun_schema(Problem, nouns), cluster=_cluster(nouns)),
        "layout": _with(noun_schema(Layout, nouns), **counts),
        "estimate": _estimate(nouns),
        "placement": _placement(nouns),
        "search": _search(nouns),
    }
    return closed(properties, "Everything that one compile of a training job decided.")


def lock_schema() -> Schema:
    """The schema of parc.lock: of a job that trains, or of one that serves."""
    nouns: Schema = {}
    nouns["TrainingLock"] = _lock(_optional(_training_decisions(nouns), unavailable=NAMES))
    nouns["ServingLock"] = _lock(_optional(serving_decisions(nouns), unavailable=NAMES))
    return _either("PARC lock", ("TrainingLock", "ServingLock"), nouns)


def _training_decisions(nouns: Schema) -> Schema:
    return closed(
        {
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
            "calibration": {"type": "object", "additionalProperties": NUMBER},
            "layout": noun_schema(Layout, nouns),
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "hosts": NAMES,
        },
        "What --locked compares.",
    )


def _lock(decisions: Schema) -> Schema:
    properties = {
        **_stamp(),
        "name": {"type": "string"},
        "spec_digest": {"type": "string"},
        "decisions": decisions,
    }
    lock = closed(properties, "The decisions of one compile and what they were made from.")
    # Absent from locks of before: what reads a lock must not rely on them.
    files = {"type": "object", "additionalProperties": SHA256}
    return _optional(
        lock,
        files={**files, "description": "SHA-256 of every other file that was written, by path."},
        lock_digest={**SHA256, "description": "SHA-256 of this file with this value left empty."},
    )


def _document(title: str, schema: Schema, nouns: Schema) -> Schema:
    """A whole schema; of ``nouns`` those that something refers to."""
    used: Schema = {}
    fresh = [schema]
    while fresh:
        names = set(re.findall(r"#/\$defs/(\w+)", json.dumps(fresh))) - used.keys()
        fresh = [nouns[name] for name in sorted(names)]
        used |= {name: nouns[name] for name in names}
    return {"$schema": DRAFT, "title": title, **schema, "$defs": used}


def schema_text(name: str) -> str:
    """The text of ``schemas/NAME.schema.json``: spec, plan and lock made anew from the models.

    The one of the rank map is written by hand and read from its file.
    """
    if name == "spec":
        from parc.compiler.spec import schema

        return schema.schema_text()
    if name == "rankmap":
        return (files("parc.schemas") / "rankmap.schema.json").read_text("utf-8")
    document = plan_schema() if name == "plan" else lock_schema()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _stamp() -> dict[str, Any]:
    return {
        "format": {"const": 1},
        "parc": {"type": "string", "description": "The version of PARC that wrote this."},
    }


def _with(schema: Schema, **extra: Schema) -> Schema:
    properties = {**schema["properties"], **extra}
    return {**schema, "properties": properties, "required": sorted(properties)}


def _replaced(schema: Schema, **other: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], **other}}


def _cluster(nouns: Schema) -> Schema:
    rack = closed({"name": {"type": "string"}, "hosts": NAMES, "nvlink_domains": NAMES})
    node, fabric = noun_schema(NodeType, nouns), noun_schema(Fabric, nouns)
    for noun in (node, fabric):
        noun["required"] = [name for name in noun["required"] if name not in WIRING]
    cluster = closed(
        {
            "gpu": noun_schema(Gpu, nouns),
            "node": node,
            "fabric": fabric,
            "racks": {"type": "array", "items": _optional(rack, above=NAMES)},
            "spare": NAMES,
            "unavailable": NAMES,
            "named": {"type": "boolean"},
        },
        "The cluster; hosts by name.",
    )
    return _optional(cluster, levels={"type": "array", "items": noun_schema(Level, nouns)})


def _optional(schema: Schema, **extra: Schema) -> Schema:
    """``schema`` with keys that may be absent."""
    return {**schema, "properties": {**schema["properties"], **extra}}


def _estimate(nouns: Schema) -> Schema:
    stage = _with(noun_schema(StageMemory, nouns), **dict.fromkeys(STAGE_TOTALS, NUMBER))
    schema = _with(
        noun_schema(Estimate, nouns),
        peak_stage=COUNT,
        peak_bytes=NUMBER,
        fits={"type": "boolean"},
        verdict={"enum": ["fits", "close", "exceeds"]},
    )
    time = _with(noun_schema(StepTime, nouns), total_seconds=NUMBER)
    return _replaced(schema, memory={"type": "array", "items": stage}, time=time)


def _placement(nouns: Schema) -> Schema:
    axes = {"type": "array", "items": type_schema(Axis, nouns)}
    schema = closed(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": axes,
            "expert": axes,
            "hosts": {**NAMES, "description": "Host of each node rank."},
            "alternatives": {"type": "array", "items": type_schema(PlacementAlternative, nouns)},
            "proof": type_schema(Proof, nouns),
        }
    )
    return _optional(schema, devices={"type": "array", "items": COUNT})


def _search(nouns: Schema) -> Schema:
    candidate = noun_schema(Candidate, nouns)
    candidate["required"].remove("placed_seconds")
    layout = _replaced(noun_schema(Layout, nouns), split={"type": "string"})
    return closed(
        {
            "enumerated": COUNT,
            "dropped": {"type": "object", "additionalProperties": COUNT},
            "ranked": {"type": "array", "items": _replaced(candidate, layout=layout)},
        }
    )


if __name__ == "__main__":
    sys.stdout.write(schema_text(sys.argv[1]))

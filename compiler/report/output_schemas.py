"""The schemas of what PARC reads and writes, made from the models and nouns that they hold.

``python -m parc.compiler.report.output_schemas plan > schemas/plan.schema.json``
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import Any

from parc.compiler.ir import Estimate, Fabric, Gpu, Layout, NodeType, Problem, StepTime
from parc.compiler.ir.estimate import StageMemory
from parc.compiler.ir.placement import Axis, Crossing
from parc.compiler.ir.plan import Candidate
from parc.compiler.report.noun_schema import Schema, closed, noun_schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NAMES: Schema = {"type": "array", "items": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}


def plan_schema() -> Schema:
    """The schema of plan.json."""
    properties = {
        **_stamp(),
        "problem": _replaced(noun_schema(Problem), cluster=_cluster()),
        "layout": _with(noun_schema(Layout), dp=COUNT, edp=COUNT, world=COUNT, micro_batches=COUNT),
        "estimate": _estimate(),
        "placement": _placement(),
        "search": _search(),
    }
    schema = closed(properties, "Everything that one compile decided.")
    return {"$schema": DRAFT, "title": "PARC plan", **schema}


def lock_schema() -> Schema:
    """The schema of parc.lock."""
    decisions = closed(
        {
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
            "layout": noun_schema(Layout),
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "hosts": NAMES,
        },
        "What --locked compares.",
    )
    properties = {
        **_stamp(),
        "name": {"type": "string"},
        "spec_digest": {"type": "string"},
        "decisions": decisions,
    }
    schema = closed(properties, "The decisions of one compile and what they were made from.")
    return {"$schema": DRAFT, "title": "PARC lock", **schema}


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


def _cluster() -> Schema:
    rack = closed({"name": {"type": "string"}, "hosts": NAMES, "nvlink_domains": NAMES})
    return closed(
        {
            "gpu": noun_schema(Gpu),
            "node": noun_schema(NodeType),
            "fabric": noun_schema(Fabric),
            "racks": {"type": "array", "items": rack},
            "spare": NAMES,
            "unavailable": NAMES,
            "named": {"type": "boolean"},
        },
        "The cluster; hosts by name.",
    )


def _estimate() -> Schema:
    stage = _with(noun_schema(StageMemory), total_bytes=NUMBER, static_bytes=NUMBER)
    schema = _with(
        noun_schema(Estimate), peak_stage=COUNT, peak_bytes=NUMBER, fits={"type": "boolean"}
    )
    time = _with(noun_schema(StepTime), total_seconds=NUMBER)
    return _replaced(schema, memory={"type": "array", "items": stage}, time=time)


def _placement() -> Schema:
    axes = {"type": "array", "items": noun_schema(Axis)}
    return closed(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": axes,
            "expert": axes,
            "hosts": {**NAMES, "description": "Host of each node rank."},
            "alternatives": {"type": "array", "items": noun_schema(Crossing)},
        }
    )


def _search() -> Schema:
    candidate = noun_schema(Candidate)
    layout = _replaced(candidate["properties"]["layout"], split={"type": "string"})
    return closed(
        {
            "enumerated": COUNT,
            "dropped": {"type": "object", "additionalProperties": COUNT},
            "ranked": {"type": "array", "items": _replaced(candidate, layout=layout)},
        }
    )


if __name__ == "__main__":
    sys.stdout.write(schema_text(sys.argv[1]))

"""JSON Schemas of plan.json and parc.lock, generated from the IR types.

The first functions return the parts that are specific to serving jobs.

``python -m parc.compiler.report.json.output_schemas plan > schemas/plan.schema.json``
"""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files
from typing import Any

from parc.compiler.ir import (
    Estimate,
    Fabric,
    Gpu,
    Layout,
    NodeType,
    Problem,
    ServingEstimate,
    ServingLayout,
    ServingProblem,
    ServingSearch,
    StepTime,
    SwitchTier,
)
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.estimate import STAGE_TOTALS, Run, StageMemory
from parc.compiler.ir.placement import Axis, PlacementAlternative, PlacementProof
from parc.compiler.ir.plan import Candidate
from parc.compiler.ir.serving import ServingSetup, StepTerms
from parc.compiler.ir.serving_plan import EngineLimits, StageCache
from parc.compiler.report.estimate_basis import EstimateBasis
from parc.compiler.report.json.ir_schema import Schema, closed_object, dataclass_schema, type_schema
from parc.compiler.report.json.plan_json import ESTIMATE_TOTALS, LAYOUT_TOTALS, LIMIT_TOTALS, WIRING

NAMES: Schema = {"type": "array", "items": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FACTORS: Schema = {"type": "object", "additionalProperties": NUMBER}
SPEC: Schema = {
    "type": "object",
    "description": "Keys of the compiled spec, with numbers in base units, for `parc import`.",
}


def _serving_plan_schema(definitions: Schema, stamp: Schema, cluster: Schema) -> Schema:
    """Return the JSON Schema of the plan.json of a serving job.

    ``stamp`` has the properties that every output file contains; ``cluster`` is the schema of a
    cluster.
    """
    properties = {
        **stamp,
        "problem": _with_required(_serving_problem_schema(definitions), {"cluster": cluster}),
        "layout": _with_required(
            dataclass_schema(ServingLayout, definitions),
            {
                **dict.fromkeys(LAYOUT_TOTALS, COUNT),
                "all2all": {"type": "string"},
                "redundant_experts": type_schema(int | None, definitions),
            },
        ),
        "limits": _with_required(
            dataclass_schema(EngineLimits, definitions), dict.fromkeys(LIMIT_TOTALS, NUMBER)
        ),
        "stages": {
            "type": "array",
            "items": _with_required(dataclass_schema(StageCache, definitions), {"blocks": COUNT}),
        },
        "estimate": _serving_estimate_schema(definitions),
        "placement": _serving_placement_schema(definitions),
        "search": _serving_search_schema(definitions),
    }
    plan = closed_object(properties, "All decisions and estimates of one compile of a service.")
    basis = _with_required(
        dataclass_schema(EstimateBasis, definitions),
        {"constants": {"type": "object", "additionalProperties": {"type": "string"}}},
    )
    # Optional, because plans of older versions have no such section.
    return _with_properties(plan, spec=SPEC, basis=basis)


def _serving_problem_schema(definitions: Schema) -> Schema:
    """Return the JSON Schema of a serving problem, in which the engine is written as a name."""
    # The placeholder keeps dataclass_schema from adding the types of the fields of an engine.
    definitions[EngineConstants.__name__] = {}
    schema = dataclass_schema(ServingProblem, definitions)
    del definitions[EngineConstants.__name__]
    engine = {"type": "string", "description": "Name of the engine."}
    definitions[ServingSetup.__name__]["properties"]["engine"] = engine
    return schema


def _serving_decisions_schema(definitions: Schema) -> Schema:
    """Return the JSON Schema of ``decisions`` in the parc.lock of a serving job."""
    return closed_object(
        {
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
            "layout": dataclass_schema(ServingLayout, definitions),
            "limits": dataclass_schema(EngineLimits, definitions),
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "hosts": NAMES,
        },
        "Decisions that --locked compares.",
    )


def _with_required(schema: Schema, other: Schema) -> Schema:
    """Return the object schema ``schema`` with the properties ``other`` added, all required."""
    properties = {**schema["properties"], **other}
    return {**schema, "properties": properties, "required": sorted(properties)}


def _serving_estimate_schema(definitions: Schema) -> Schema:
    schema = dataclass_schema(ServingEstimate, definitions)
    # The layout is a section of its own, so plan.json omits it here.
    properties = {key: value for key, value in schema["properties"].items() if key != "layout"}
    decode = _with_required(dataclass_schema(StepTerms, definitions), {"total_seconds": NUMBER})
    totals = dict.fromkeys(ESTIMATE_TOTALS, NUMBER)
    # A prefill pool has no decode step.
    answers = {
        "decode": {"anyOf": [decode, {"type": "null"}]},
        "tpot_seconds": {"anyOf": [properties["tpot_seconds"], {"type": "null"}]},
    }
    return _with_required({**schema, "properties": properties}, {**answers, **totals})


def _serving_placement_schema(definitions: Schema) -> Schema:
    return closed_object(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": {"type": "array", "items": type_schema(Axis, definitions)},
            "hosts": {**NAMES, "description": "Host of each node rank."},
        }
    )


def _serving_search_schema(definitions: Schema) -> Schema:
    schema = dataclass_schema(ServingSearch, definitions)
    return _with_required(schema, {"dropped": {"type": "object", "additionalProperties": COUNT}})


DRAFT = "https://json-schema.org/draft/2020-12/schema"
SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def plan_schema() -> Schema:
    """Return the JSON Schema of plan.json, for training jobs and serving jobs."""
    definitions: Schema = {}
    definitions["TrainingPlan"] = _training_plan_schema(definitions)
    definitions["ServingPlan"] = _serving_plan_schema(
        definitions, _common_keys(), _cluster_schema(definitions)
    )
    return _any_of_schemas("PARC plan", ("TrainingPlan", "ServingPlan"), definitions)


def _any_of_schemas(title: str, names: tuple[str, ...], definitions: Schema) -> Schema:
    choices: Schema = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    return _complete_schema(title, choices, definitions)


def _training_plan_schema(definitions: Schema) -> Schema:
    counts = dict.fromkeys(("dp", "edp", "world", "micro_batches"), COUNT)
    properties = {
        **_common_keys(),
        "problem": _with_properties(
            dataclass_schema(Problem, definitions), cluster=_cluster_schema(definitions)
        ),
        "layout": _with_required(dataclass_schema(Layout, definitions), counts),
        "estimate": _estimate_schema(definitions),
        "placement": _placement_schema(definitions),
        "search": _search_schema(definitions),
    }
    plan = closed_object(
        properties, "All decisions and estimates of one compile of a training job."
    )
    basis = dataclass_schema(EstimateBasis, definitions)
    # Optional, because plans of older versions have no such sections.
    return _with_properties(plan, spec=SPEC, basis=basis, run=dataclass_schema(Run, definitions))


def lock_schema() -> Schema:
    """Return the JSON Schema of parc.lock, for training jobs and serving jobs."""
    definitions: Schema = {}
    definitions["TrainingLock"] = _lock_file_schema(
        _with_properties(_training_decisions_schema(definitions), unavailable=NAMES)
    )
    definitions["ServingLock"] = _lock_file_schema(
        _with_properties(
            _serving_decisions_schema(definitions), unavailable=NAMES, calibration=FACTORS
        )
    )
    pool = definitions["ServingLock"]["properties"]["decisions"]
    pools = {"versions": pool["properties"]["versions"], "prefill": pool, "decode": pool}
    definitions["PoolsLock"] = _lock_file_schema(
        closed_object(pools, "Decisions on the two pools of a service.")
    )
    names = ("TrainingLock", "ServingLock", "PoolsLock")
    return _any_of_schemas("PARC lock", names, definitions)


def _training_decisions_schema(definitions: Schema) -> Schema:
    return closed_object(
        {
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
            "calibration": FACTORS,
            "layout": dataclass_schema(Layout, definitions),
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "hosts": NAMES,
        },
        "Decisions that --locked compares.",
    )


def _lock_file_schema(decisions: Schema) -> Schema:
    properties = {
        **_common_keys(),
        "name": {"type": "string"},
        "spec_digest": {"type": "string"},
        "decisions": decisions,
    }
    lock = closed_object(properties, "Decisions of one compile, with the digest of its spec.")
    # Optional, because locks of earlier versions lack them.
    files = {"type": "object", "additionalProperties": SHA256}
    return _with_properties(
        lock,
        files={**files, "description": "SHA-256 of every other output file, by path."},
        lock_digest={**SHA256, "description": "SHA-256 of this file with this value left empty."},
    )


def _complete_schema(title: str, schema: Schema, definitions: Schema) -> Schema:
    """Return a complete JSON Schema document. Unused definitions are omitted from ``$defs``."""
    used: Schema = {}
    # Follow references until no new definition is found.
    fresh = [schema]
    while fresh:
        names = set(re.findall(r"#/\$defs/(\w+)", json.dumps(fresh))) - used.keys()
        fresh = [definitions[name] for name in sorted(names)]
        used |= {name: definitions[name] for name in names}
    return {"$schema": DRAFT, "title": title, **schema, "$defs": used}


def schema_text(name: str) -> str:
    """Return the text of ``schemas/NAME.schema.json`` for the given name.

    The schemas of spec, plan and lock are generated. The schema of the rank map is written by hand,
    so its file is returned.
    """
    if name in {"spec", "site"}:
        from parc.compiler.spec import schema

        return schema.schema_text() if name == "spec" else schema.site_schema_text()
    if name == "rankmap":
        return (files("parc.schemas") / "rankmap.schema.json").read_text("utf-8")
    document = plan_schema() if name == "plan" else lock_schema()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _common_keys() -> dict[str, Any]:
    return {
        "format": {"const": 1},
        "parc": {"type": "string", "description": "Version of PARC that wrote this file."},
    }


def _with_properties(schema: Schema, **other: Schema) -> Schema:
    """Return an object schema in which the properties ``other`` are replaced or added.

    Added properties are optional.
    """
    return {**schema, "properties": {**schema["properties"], **other}}


def _cluster_schema(definitions: Schema) -> Schema:
    domains = {**NAMES, "description": "The NVLink domain of each host, in the order of hosts."}
    rack = closed_object({"name": {"type": "string"}, "hosts": NAMES, "nvlink_domains": domains})
    node, fabric = dataclass_schema(NodeType, definitions), dataclass_schema(Fabric, definitions)
    for part in (node, fabric):
        part["required"] = [name for name in part["required"] if name not in WIRING]
    cluster = closed_object(
        {
            "gpu": dataclass_schema(Gpu, definitions),
            "node": node,
            "fabric": fabric,
            "racks": {"type": "array", "items": _with_properties(rack, above=NAMES)},
            "spare": NAMES,
            "unavailable": NAMES,
            "named": {"type": "boolean"},
        },
        "Cluster, with hosts by name.",
    )
    return _with_properties(
        cluster, levels={"type": "array", "items": dataclass_schema(SwitchTier, definitions)}
    )


def _estimate_schema(definitions: Schema) -> Schema:
    stage = _with_required(
        dataclass_schema(StageMemory, definitions), dict.fromkeys(STAGE_TOTALS, NUMBER)
    )
    schema = _with_required(
        dataclass_schema(Estimate, definitions),
        {
            "peak_stage": COUNT,
            "peak_bytes": NUMBER,
            "fits": {"type": "boolean"},
            "verdict": {"enum": ["fits", "close", "exceeds"]},
        },
    )
    time = _with_required(dataclass_schema(StepTime, definitions), {"total_seconds": NUMBER})
    return _with_properties(schema, memory={"type": "array", "items": stage}, time=time)


def _placement_schema(definitions: Schema) -> Schema:
    axes = {"type": "array", "items": type_schema(Axis, definitions)}
    schema = closed_object(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": axes,
            "expert": axes,
            "hosts": {**NAMES, "description": "Host of each node rank."},
            "alternatives": {
                "type": "array",
                "items": type_schema(PlacementAlternative, definitions),
            },
            "proof": type_schema(PlacementProof, definitions),
        }
    )
    return _with_properties(schema, devices={"type": "array", "items": COUNT})


def _search_schema(definitions: Schema) -> Schema:
    candidate = dataclass_schema(Candidate, definitions)
    # plan.json omits placed_seconds if it is zero, as for most candidates.
    candidate["required"].remove("placed_seconds")
    layout = _with_properties(dataclass_schema(Layout, definitions), split={"type": "string"})
    return closed_object(
        {
            "enumerated": COUNT,
            "dropped": {"type": "object", "additionalProperties": COUNT},
            "ranked": {"type": "array", "items": _with_properties(candidate, layout=layout)},
        }
    )


if __name__ == "__main__":
    sys.stdout.write(schema_text(sys.argv[1]))

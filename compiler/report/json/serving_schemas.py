"""Parts of the schemas of plan.json and parc.lock that are specific to services."""

from __future__ import annotations

from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.placement import Axis
from parc.compiler.ir.serving import ServingSetup, StepTerms
from parc.compiler.ir.serving_plan import EngineLimits, StageCache
from parc.compiler.report.json.ir_schema import Schema, closed, dataclass_schema, type_schema
from parc.compiler.report.json.plan_json import ESTIMATE_TOTALS, LAYOUT_TOTALS, LIMIT_TOTALS

NAMES: Schema = {"type": "array", "items": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}


def serving_plan(definitions: Schema, stamp: Schema, cluster: Schema) -> Schema:
    """Return the schema of plan.json of a service.

    ``stamp`` holds the keys that every output file has, ``cluster`` the schema of a cluster.
    """
    properties = {
        **stamp,
        "problem": _changed(_problem(definitions), {"cluster": cluster}),
        "layout": _changed(
            dataclass_schema(ServingLayout, definitions), dict.fromkeys(LAYOUT_TOTALS, COUNT)
        ),
        "limits": _changed(
            dataclass_schema(EngineLimits, definitions), dict.fromkeys(LIMIT_TOTALS, NUMBER)
        ),
        "stages": {
            "type": "array",
            "items": _changed(dataclass_schema(StageCache, definitions), {"blocks": COUNT}),
        },
        "estimate": _estimate(definitions),
        "placement": _placement(definitions),
        "search": _search(definitions),
    }
    return closed(properties, "All decisions and estimates of one compile of a service.")


def _problem(definitions: Schema) -> Schema:
    """Return the schema of a serving problem, in which the engine is written as its name."""
    # The placeholder keeps dataclass_schema from adding the types of the fields of an engine.
    definitions[EngineConstants.__name__] = {}
    schema = dataclass_schema(ServingProblem, definitions)
    del definitions[EngineConstants.__name__]
    engine = {"type": "string", "description": "Name of the engine."}
    definitions[ServingSetup.__name__]["properties"]["engine"] = engine
    return schema


def serving_decisions(definitions: Schema) -> Schema:
    """Return the schema of ``decisions`` in the parc.lock of a service."""
    return closed(
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


def _changed(schema: Schema, other: Schema) -> Schema:
    properties = {**schema["properties"], **other}
    return {**schema, "properties": properties, "required": sorted(properties)}


def _estimate(definitions: Schema) -> Schema:
    schema = dataclass_schema(ServingEstimate, definitions)
    properties = {key: value for key, value in schema["properties"].items() if key != "layout"}
    decode = _changed(dataclass_schema(StepTerms, definitions), {"total_seconds": NUMBER})
    totals = dict.fromkeys(ESTIMATE_TOTALS, NUMBER)
    return _changed({**schema, "properties": properties}, {"decode": decode, **totals})


def _placement(definitions: Schema) -> Schema:
    return closed(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": {"type": "array", "items": type_schema(Axis, definitions)},
            "hosts": {**NAMES, "description": "Host of each node rank."},
        }
    )


def _search(definitions: Schema) -> Schema:
    schema = dataclass_schema(ServingSearch, definitions)
    return _changed(schema, {"dropped": {"type": "object", "additionalProperties": COUNT}})

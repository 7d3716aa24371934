"""The parts of the schemas of plan.json and parc.lock that are those of a job that serves."""

from __future__ import annotations

from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem, ServingSearch
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.placement import Axis
from parc.compiler.ir.serving import ServingSetup, StepTerms
from parc.compiler.ir.serving_plan import EngineLimits, StageCache
from parc.compiler.report.json.ir_schema import Schema, closed, noun_schema, type_schema
from parc.compiler.report.json.serving_json import ESTIMATE_TOTALS, LAYOUT_TOTALS, LIMIT_TOTALS

NAMES: Schema = {"type": "array", "items": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}


def serving_plan(nouns: Schema, stamp: Schema, cluster: Schema) -> Schema:
    """The schema of plan.json; ``stamp``: the keys of every file, ``cluster``: of a cluster."""
    properties = {
        **stamp,
        "problem": _changed(_problem(nouns), {"cluster": cluster}),
        "layout": _changed(noun_schema(ServingLayout, nouns), dict.fromkeys(LAYOUT_TOTALS, COUNT)),
        "limits": _changed(noun_schema(EngineLimits, nouns), dict.fromkeys(LIMIT_TOTALS, NUMBER)),
        "stages": {
            "type": "array",
            "items": _changed(noun_schema(StageCache, nouns), {"blocks": COUNT}),
        },
        "estimate": _estimate(nouns),
        "placement": _placement(nouns),
        "search": _search(nouns),
    }
    return closed(properties, "Everything that one compile of a serving job decided.")


def _problem(nouns: Schema) -> Schema:
    """Return the schema of a serving problem, in which the engine is written as its name."""
    nouns[EngineConstants.__name__] = {}  # keeps noun_schema from adding the types of its fields
    schema = noun_schema(ServingProblem, nouns)
    del nouns[EngineConstants.__name__]
    engine = {"type": "string", "description": "Name of the engine."}
    nouns[ServingSetup.__name__]["properties"]["engine"] = engine
    return schema


def serving_decisions(nouns: Schema) -> Schema:
    """``decisions`` of parc.lock."""
    return closed(
        {
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
            "layout": noun_schema(ServingLayout, nouns),
            "limits": noun_schema(EngineLimits, nouns),
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "hosts": NAMES,
        },
        "What --locked compares.",
    )


def _changed(schema: Schema, other: Schema) -> Schema:
    properties = {**schema["properties"], **other}
    return {**schema, "properties": properties, "required": sorted(properties)}


def _estimate(nouns: Schema) -> Schema:
    schema = noun_schema(ServingEstimate, nouns)
    properties = {key: value for key, value in schema["properties"].items() if key != "layout"}
    decode = _changed(noun_schema(StepTerms, nouns), {"total_seconds": NUMBER})
    totals = dict.fromkeys(ESTIMATE_TOTALS, NUMBER)
    return _changed({**schema, "properties": properties}, {"decode": decode, **totals})


def _placement(nouns: Schema) -> Schema:
    return closed(
        {
            "order": {"type": "string"},
            "ranks_per_node": COUNT,
            "dense": {"type": "array", "items": type_schema(Axis, nouns)},
            "hosts": {**NAMES, "description": "Host of each node rank."},
        }
    )


def _search(nouns: Schema) -> Schema:
    schema = noun_schema(ServingSearch, nouns)
    return _changed(schema, {"dropped": {"type": "object", "additionalProperties": COUNT}})

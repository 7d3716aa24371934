"""Linter of scripts with ``minserve serve``: each flag, then the layout that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from parc.backends.registry import engine
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.tools.importers.flags import Flag, whole_number
from parc.compiler.tools.lint.check_rules import LaunchFacts, check_service
from parc.compiler.tools.lint.completion import (
    MODEL,
    catalog_name,
    cluster_tree,
    is_catalog_cluster,
    known_cluster,
    resolve_tree,
)
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.partial_ir import hide, with_values
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink
from parc_minserve.read import FLAGS, TABLE, starts_minserve

DEGREES = {"tp": "--tensor-parallel", "dp": "--data-parallel"}


def lint(script: Script, options: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report unknown flags and values, then the rules that the layout breaks."""
    flags = script.flags(FLAGS)
    for flag in flags:
        _check_flag(flag, sink)
    sure = {flag.name: flag for flag in script.sure(flags)}
    if not flags or sink.diagnostics:
        return []
    spans = {TABLE.fields[name]: flag.word.span for name, flag in sure.items() if name in TABLE.fields}
    sink.locate(spans, TABLE.flag_of(), flags[0].word.span)
    facts = _facts(sure, options, sink)
    return [] if facts is None else check_service(facts, engine("minserve"), sink)


def _check_flag(flag: Flag, sink: ScriptSink) -> None:
    """Report F01 for a flag that Minserve does not have, F03 for a value that is not a number."""
    row, near = TABLE.rows.get(flag.name), get_close_matches(flag.name, FLAGS, 1)
    if flag.name not in FLAGS:
        finding = Finding(f"Minserve has no flag {flag.name}", fix=near[0] if near else "")
        sink.report("F01", finding, span=flag.word.span)
    elif row is not None and row.kind == "int" and _number(flag) is None:
        sink.report("F03", Finding(f"{flag.name} needs a whole number"), span=flag.word.span)


def _number(flag: Flag) -> int | None:
    return whole_number(flag.values[0].text) if flag.values else None


def _facts(
    sure: Mapping[str, Flag], options: LintOptions, sink: ScriptSink
) -> LaunchFacts[ServingProblem, ServingLayout] | None:
    """Return the launch as a problem and a layout; unknown facts hide fields of the problem."""
    checkpoint = sure["--model"].values if "--model" in sure else ()
    name = options.model or (catalog_name(checkpoint[0].text) if checkpoint else None)
    degrees = {axis: _number(sure[flag]) or 1 for axis, flag in DEGREES.items() if flag in sure}
    counted = options.gpus is not None or is_catalog_cluster(options)
    tree = {
        "parc": 1,
        "name": "lint",
        "model": name or MODEL,
        "cluster": cluster_tree({} if counted or options.cluster else {"nodes": 64}, options),
        "job": {
            "kind": "serve",
            "traffic": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1},
            "checkpoint": "any",
        },
        "layout": degrees,
        "emit": ["minserve"],
        "versions": {"minserve": options.version},
    }
    problem = resolve_tree(tree, options, sink)
    if not isinstance(problem, ServingProblem):
        return None
    cluster = known_cluster(problem.cluster, options, False, counted)
    hidden = ["service", "goals", *([] if name else ["model"])]
    known = with_values(hide(problem, hidden), cluster=cluster)
    layout = ServingLayout(**degrees)
    return LaunchFacts(problem, layout, known, layout)


LINTER = ScriptLinter(lambda script: starts_minserve(list(script.words)), lint)

"""Facts of a launch of an engine, for its linter: a problem of which only some fields are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.tools.lint.check_rules import LaunchFacts
from parc.compiler.tools.lint.completion import (
    MODEL,
    catalog_name,
    cluster_tree,
    is_catalog_cluster,
    known_cluster,
    resolve_tree,
)
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import hide, with_values

ENOUGH_HOSTS = 64
"""Stand-in for an unknown number of hosts, which must be large enough for the layout to resolve."""


def service_facts(
    engine: str, checkpoint: str, degrees: Mapping[str, int], options: LintOptions
) -> LaunchFacts[ServingProblem, ServingLayout] | None:
    """Return the facts of a launch; None if they do not resolve to a problem.

    Formats, limits and goals are unknown, so that rules on memory are skipped.

    Args:
        engine: name of the backend.
        checkpoint: model that is served, as the command names it; empty: unknown.
        degrees: fields of ``layout`` in the spec, all others are 1: ``{"tp": 8}``.
        options: additional facts of the user.
    """
    name = options.model or catalog_name(checkpoint)
    counted = options.gpus is not None or is_catalog_cluster(options)
    problem = resolve_tree(
        {
            "parc": 1,
            "name": "lint",
            "model": name or MODEL,
            "cluster": cluster_tree({} if counted else {"nodes": ENOUGH_HOSTS}, options),
            "job": {
                "kind": "serve",
                "traffic": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1},
                "checkpoint": "the-checkpoint",
            },
            "layout": dict(degrees),
            "emit": [engine],
            "versions": {engine: options.version},
        },
        options,
        Sink(),  # its findings would be about the stand-ins
    )
    if not isinstance(problem, ServingProblem):
        return None
    known = hide(problem, ["service", "goals", *([] if name else ["model"])])
    cluster = known_cluster(problem.cluster, options, False, counted)
    fields: dict[str, Any] = dict(degrees)
    layout = ServingLayout(**fields)
    return LaunchFacts(problem, layout, with_values(known, cluster=cluster), layout)

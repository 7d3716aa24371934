"""The backend ``preflight``: a program that compares ranks and process groups with the plan."""

from __future__ import annotations

import json

from parc.backends.base import PackageRequirements
from parc.backends.registry import framework
from parc.backends.shared.group_spans import group_spans_by_family
from parc.backends.shared.render import render
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Plan

PROGRAM = "preflight/check_ranks.py"
EXPECTED = "preflight/expected.json"


class Preflight:
    """The backend ``preflight``.

    If a spec emits it, the launch scripts run ``check_ranks.py`` before the training program.
    """

    name = "preflight"
    versions = ("1",)
    """Value of ``format`` in expected.json."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report nothing, because the emitted program can check every placement."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``check_ranks.py``, and ``expected.json`` with the planned placement."""
        return (
            Artifact(PROGRAM, render("preflight", "check_ranks.py.j2", {}), True),
            Artifact(EXPECTED, _expected_placement_json(plan)),
        )


def _expected_placement_json(plan: Plan) -> str:
    """Return the text of ``expected.json``: hosts by node rank, rank counts and process groups.

    Each family of groups is described by its size and spans. Packages that the framework needs in a
    certain version are listed with this version. The list of hosts is empty if the
    hosts have no names.
    """
    placement = plan.placement
    groups = {
        name: {"size": family["size"], "within": family["within"]}
        for name, family in group_spans_by_family(placement).items()
        # A group of one rank cannot fail, and creating it would only slow the start.
        if family["size"] > 1
    }
    target = framework(plan.problem.framework)
    needed = target.required_packages(plan) if isinstance(target, PackageRequirements) else ()
    document = {
        "format": 1,
        "groups": groups,
        "hosts": [host.name for host in placement.hosts] if plan.problem.cluster.named else [],
        "ranks_per_node": placement.ranks_per_node,
        "world": placement.dense.world,
        **({"packages": dict(needed)} if needed else {}),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


BACKEND = Preflight()

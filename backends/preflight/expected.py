"""File ``expected.json`` of the backend ``preflight``, which its program compares with the job."""

from __future__ import annotations

import json

from parc.backends.base import PackageRequirements
from parc.backends.registry import framework
from parc.backends.shared.group_spans import group_spans_by_family
from parc.compiler.ir import Plan


def expected_placement_json(plan: Plan) -> str:
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

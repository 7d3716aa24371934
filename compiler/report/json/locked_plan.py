"""Reader of the plan that a parc.lock stores."""

from __future__ import annotations

from parc.compiler.ir import Layout, LockedPlan, ServingLayout
from parc.compiler.ir.serialize import from_json
from parc.compiler.report.json.decisions import LockUnreadable, decisions

DERIVED_KEYS = ("hosts", "layout", "order", "ranks_per_node")
SERVING_KEY = "limits"
"""Decision that only the lock of a service has."""

DEGREES = (
    *("tp", "pp", "cp", "vpp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch"),
    *("dp", "replicas", "pcp", "dcp"),
)


def locked_plan(text: str) -> LockedPlan:
    """Return the plan in the text of a parc.lock.

    Raises:
        LockUnreadable: a decision is missing, has the wrong type, or contradicts another one.
    """
    found = decisions(text)
    missing = [key for key in DERIVED_KEYS if key not in found]
    if missing:
        raise LockUnreadable(f"it has no {missing[0]}")
    kind = ServingLayout if SERVING_KEY in found else Layout
    try:
        layout: Layout | ServingLayout = from_json(kind, found["layout"])
        hosts = from_json(tuple[str, ...], found["hosts"])
        each = from_json(int, found["ranks_per_node"])
        gone = from_json(tuple[str, ...], found.get("unavailable", []))
    except ValueError as error:
        raise LockUnreadable(str(error)) from None
    wrong = [name for name in DEGREES if getattr(layout, name, 1) < 1]
    if wrong:
        raise LockUnreadable(f"{wrong[0]} is {getattr(layout, wrong[0])}")
    world = layout.world if isinstance(layout, Layout) else layout.gpus
    if each < 1 or len(hosts) * each != world:
        raise LockUnreadable(f"{len(hosts)} hosts x {each} ranks per host are not {world} ranks")
    return LockedPlan(layout, hosts, each, gone)

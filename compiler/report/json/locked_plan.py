"""Reader of parc.lock: the decisions and the plan that it stores, and how a new plan differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from parc.compiler.ir import Layout, LockedPlan, ServingLayout
from parc.compiler.ir.serialize import from_json
from parc.compiler.ir.serving import POOLS


class LockUnreadable(ValueError):
    """Error: a lock file cannot be used. The message states the reason."""


def locked_decisions(text: str) -> dict[str, Any]:
    """Return the ``decisions`` object from the text of a parc.lock.

    Raises:
        LockUnreadable: the text is not JSON or has no decisions.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LockUnreadable(f"the text is not JSON: {error}") from None
    found = document.get("decisions") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise LockUnreadable("the key 'decisions' is missing")
    return found


def changed_decisions(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, change) for each value that differs, such as (``layout.tp``, ``8 -> 4``)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            below = f"{path}.{key}" if path else key
            yield from changed_decisions(old.get(key), new.get(key), below)
    elif old != new:
        yield path, _format_difference(old, new)


def _format_difference(old: Any, new: Any) -> str:
    """Return a change as text, such as ``8 -> 4``.

    If both values are lists of equal length, return the number of differing items and the first
    difference.
    """
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
        first = f"{_clip_json(pairs[0][0])} -> {_clip_json(pairs[0][1])}"
        return f"{len(pairs)} of {len(old)} differ, the first: {first}"
    return f"{_clip_json(old)} -> {_clip_json(new)}"


def _clip_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


DERIVED_KEYS = ("hosts", "layout", "order", "ranks_per_node")
SERVING_KEY = "limits"
"""Decision that only the lock of a serving job has."""

DEGREES = (
    *("tp", "pp", "cp", "vpp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch"),
    *("dp", "replicas", "pcp", "dcp", "gtp", "egtp"),
)


def locked_plan(text: str) -> LockedPlan:
    """Return the plan (layout and hosts) that the text of a parc.lock stores.

    Raises:
        LockUnreadable: a decision is missing, has the wrong type, or contradicts another one.
    """
    return _plan_of_decisions(locked_decisions(text))


def locked_pools(text: str) -> list[LockedPlan]:
    """Return the plans of the prefill pool and of the decode pool that a parc.lock stores.

    Raises:
        LockUnreadable: the lock has no pools, or a decision on a pool is missing or wrong.
    """
    found = locked_decisions(text)
    missing = [pool for pool in POOLS if not isinstance(found.get(pool), dict)]
    if missing:
        raise LockUnreadable(f"the key 'decisions.{missing[0]}' is missing")
    return [_plan_of_decisions(found[pool]) for pool in POOLS]


def _plan_of_decisions(found: dict[str, Any]) -> LockedPlan:
    """Return the plan with the decisions ``found``."""
    missing = [key for key in DERIVED_KEYS if key not in found]
    if missing:
        raise LockUnreadable(f"the key 'decisions.{missing[0]}' is missing")
    # Locks have no key for the kind of job; only those of serving jobs have engine limits.
    kind = ServingLayout if SERVING_KEY in found else Layout
    try:
        layout: Layout | ServingLayout = from_json(kind, found["layout"])
        hosts = from_json(tuple[str, ...], found["hosts"])
        each = from_json(int, found["ranks_per_node"])
        # Locks without unavailable hosts, and those of old versions, lack this key.
        gone = from_json(tuple[str, ...], found.get("unavailable", []))
    except ValueError as error:
        raise LockUnreadable(str(error)) from None
    # A size of 0 would cause a division by zero far from this file.
    wrong = [name for name in DEGREES if getattr(layout, name, 1) < 1]
    if wrong:
        raise LockUnreadable(f"layout.{wrong[0]} is {getattr(layout, wrong[0])}, must be >= 1")
    world = layout.world if isinstance(layout, Layout) else layout.gpus
    if each < 1 or len(hosts) * each != world:
        product = f"hosts x ranks per host = {len(hosts)} x {each} = {len(hosts) * each}"
        raise LockUnreadable(f"{product}, but the layout has {world} ranks")
    return LockedPlan(layout, hosts, each, gone)

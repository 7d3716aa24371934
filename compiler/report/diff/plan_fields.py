"""Comparison of all fields of two JSON trees, and the names and values that a diff shows for them.

Every leaf of both trees is compared, so that a new field of a spec needs no line here. The tables
below only replace fields by a shorter description of the same content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from parc.compiler.diagnostics.secret_values import is_secret_name
from parc.compiler.ir.cluster import CHANGED_SUFFIX
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.hostlist import compress_hosts_in_order

BY_NAME = ("cluster.gpu", "cluster.node", "cluster.fabric")
"""Parts of the cluster whose name replaces the numbers of the catalog entry."""
SOURCES = re.compile(r"(?:^|\.)source$")
"""Fields that cite the origin of other fields."""
HIDDEN = "(hidden)"
"""Text in place of a value that is probably secret."""
_NUMBER = re.compile(
    r"(--[\w-]+[ =]|^[ \t]*[\"']?[\w.-]+[\"']?: )"
    r"([-+]?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][-+]?[0-9]{1,2})?)(?=$|[\s,\]}])"
)
"""Number after a flag or a key. Other words may be versions, in which 1.10 is not 1.1."""
_ASSIGNMENT = re.compile(
    r"(--?[\w-]+[ =]|\b[A-Za-z_]\w*=|[\"']?\b[A-Za-z_]\w*[\"']?: )"
    r"(\"[^\"]*\"|'[^']*'|[^\s\"']+)"
)
"""Value of a flag, a variable or a key."""
SIGNS = " =:\"'"
ENVIRONMENT = "launch.env."


@frozen
class FieldChange:
    """Field whose value differs between two plans.

    A plan that lacks the field has the value None.
    """

    name: str
    old: Any
    new: Any

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        """Type of the change from the old to the new plan: added, removed or changed."""
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"


def hide_secrets(name: str, old: Any, new: Any) -> tuple[Any, Any]:
    """Return two different values of ``name``, or texts in their place if they are secrets."""
    if not is_secret_name(name):
        return old, new
    return tuple(  # type: ignore[return-value]
        None if value is None else f"{HIDDEN[:-1]} {side})"
        for value, side in ((old, "old value"), (new, "new value"))
    )


def hide_in_text(text: str) -> str:
    """Return ``text`` without the values of variables and flags whose names look like secrets."""
    return _ASSIGNMENT.sub(
        lambda found: f"{found[1]}{HIDDEN}" if is_secret_name(found[1].strip(SIGNS)) else found[0],
        text,
    )


def _hide_in_value(value: Any) -> Any:
    """Return a text or a list of words without the values of secrets."""
    if isinstance(value, str):
        return hide_in_text(value)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return value
    flags = ["", *value]
    return [
        HIDDEN
        if flag.startswith("-") and is_secret_name(flag) and not one.startswith("-")
        else hide_in_text(one)
        for flag, one in zip(flags, value, strict=False)
    ]


def leaf_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Return the leaves that differ between two flat mappings, sorted by path.

    Values that differ only in notation, such as 1 and 1.0, are equal.
    """
    return tuple(
        _leaf_change(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if not is_equal(old.get(path), new.get(path))
    )


def _leaf_change(path: str, old: Any, new: Any) -> FieldChange:
    if path.startswith(ENVIRONMENT):
        old, new = hide_secrets(path.removeprefix(ENVIRONMENT), old, new)
    one, two = _hide_in_value(old), _hide_in_value(new)
    if one == two:
        # Only a secret differs.
        one, two = f"{one} (old value)", f"{two} (new value)"
    return FieldChange(path, one, two)


def is_equal(old: Any, new: Any) -> bool:
    """Return True if two values of a plan mean the same; an empty list is like an absent one."""
    # True == 1 in Python, but not in a plan.
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    return bool(old == new) or (old in (None, [], {}) and new in (None, [], {}))


def plain_numbers(line: str) -> str:
    """Return a line of a file with the numbers after flags and keys in one notation."""
    return _NUMBER.sub(lambda found: f"{found[1]}{plain_number(found[2])}", line)


def plain_number(text: str) -> str:
    """Return a number in decimal notation, without trailing zeros; other texts as they are.

    The texts 1, 1.0 and 1.00 are equal, and so are 1e-4 and 0.0001.
    """
    whole = re.fullmatch(r"([-+]?[0-9]{1,15})\.0+", text)
    if whole is not None:
        return whole[1]
    if not re.fullmatch(r"[-+]?[0-9]{1,15}(?:\.[0-9]{1,15})?[eE][-+]?[0-9]{1,2}", text):
        return text
    digits = f"{Decimal(text):f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def flatten(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of each leaf of ``tree``.

    A list of plain values is one leaf. Pairs of a name and a value are read as a mapping, and other
    lists by index.
    """
    for key, value in tree.items():
        yield from _flatten_value(value, f"{path}.{key}" if path else str(key))


def _flatten_value(value: Any, here: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from flatten(value, here)
    elif isinstance(value, list) and _is_pairs(value):
        yield from flatten(dict(value), here)
    elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
        for index, one in enumerate(value):
            yield from _flatten_value(one, f"{here}[{index}]")
    else:
        yield here, value


def _is_pairs(value: list[Any]) -> bool:
    """Return True for pairs with different names, such as ``[["A", "1"], ["B", "2"]]``."""
    pairs = [one for one in value if isinstance(one, list) and len(one) == 2]
    names = {one[0] for one in pairs if isinstance(one[0], str)}
    return bool(value) and len(names) == len(value)


def problem_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Return all changes in section ``problem`` of plan.json, except that of its digest."""
    before, after = (dict(_problem_leaves(one)) for one in (old, new))
    _count_layers_with_experts(before, after)
    changes = leaf_changes(before, after)
    changed = {one.name for one in changes}
    rows = [one for one in changes if not _follows_from_name(one.name, before, after, changed)]
    names = {f"{part}.name": part for part in BY_NAME}
    return tuple(replace(one, name=names.get(one.name, one.name)) for one in rows)


def _problem_leaves(problem: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    rest = {key: value for key, value in problem.items() if key != "digest"}
    cluster = rest.get("cluster")
    if isinstance(cluster, Mapping):
        racks = cluster.get("racks", [])
        yield "cluster.hosts", sum(len(rack["hosts"]) for rack in racks)
        for rack in racks:
            yield from _rack_leaves(rack)
        rest["cluster"] = {key: value for key, value in cluster.items() if key != "racks"}
    goals = rest.get("goals")
    if isinstance(goals, Mapping) and isinstance(goals.get("latency_limits"), list):
        for limit in goals["latency_limits"]:
            yield f"goals.{limit['latency']}.{limit['statistic']}", limit["seconds"]
        rest["goals"] = {key: goals[key] for key in goals if key != "latency_limits"}
    # The spec calls the section of fixed sizes ``layout``.
    pins = rest.pop("pins", None)
    if isinstance(pins, Mapping):
        rest["layout"] = pins
    yield from flatten(rest)


def _rack_leaves(rack: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the hosts of a rack as one text, and the other fields of the rack."""
    path, hosts = f"cluster.racks.{rack['name']}", rack["hosts"]
    yield path, compress_hosts_in_order(hosts)
    for key, value in rack.items():
        # Without NVLink between hosts, each host is its own domain.
        if key not in ("name", "hosts") and value != hosts:
            yield from _flatten_value(value, f"{path}.{key}")


def _count_layers_with_experts(*sides: dict[str, Any]) -> None:
    """Replace the pattern of layers with experts by their number, unless the numbers are equal."""
    path = "model.experts.pattern"
    patterns = [side.get(path) for side in sides]
    counts = [sum(one) if isinstance(one, list) else None for one in patterns]
    for side, count in zip(sides, counts, strict=True):
        if counts[0] != counts[1]:
            side.pop(path, None)
        if count is not None:
            side["model.experts.layers"] = count


def _follows_from_name(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], changed: set[str]
) -> bool:
    """Return True if a changed leaf is implied by another row.

    The numbers of a catalog entry follow from its name if the name differs in more than its suffix
    for changed fields. A citation follows from the field beside it.
    """
    for part in BY_NAME:
        name = f"{part}.name"
        if not path.startswith(f"{part}."):
            continue
        names = [_without_suffix(side.get(name)) for side in (old, new)]
        if names[0] != names[1]:
            return path != name
        return (path == name or SOURCES.search(path) is not None) and bool(
            any(one.startswith(f"{part}.") for one in changed - {name, path})
        )
    return SOURCES.search(path) is not None and f"{path.rpartition('.')[0]}.name" in changed


def _without_suffix(name: Any) -> Any:
    return name.removesuffix(CHANGED_SUFFIX) if isinstance(name, str) else name


def spec_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], shown: Iterable[str]
) -> tuple[FieldChange, ...]:
    """Return the changes of the spec that no path of ``shown`` names.

    A path is shown if a path of ``shown`` is the same, or lies above or below it.
    """
    rows = set(shown)
    tops = {part for path in rows for part in _parents(path)}
    return tuple(
        one
        for one in leaf_changes(dict(flatten(old)), dict(flatten(new)))
        # The base of a changed catalog entry is part of its name.
        # The hosts of racks are compared as lists of hosts.
        if one.name not in tops
        and not one.name.startswith("cluster.racks[")
        and not rows.intersection(_parents(one.name))
        and not one.name.endswith(".base")
    )


def _parents(path: str) -> Iterator[str]:
    """Yield ``path`` and the sections around it."""
    parts = re.split(r"(?=[.\[])", path)
    for end in range(1, len(parts) + 1):
        yield "".join(parts[:end])

"""Differences between two sides in spec fields, layout, memory and step time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from parc.compiler.ir import StageMemory, StepTime
from parc.compiler.report.diff.side import Side

SHOWN_ELSEWHERE = frozenset({"digest", "emit", "launch", "name", "pins", "versions"})
"""Keys of ``problem`` that other sections show: layout, arguments, directives."""
BY_NAME = ("gpu", "node", "fabric")
"""Parts of the cluster that are compared by the name of their catalog entry."""
LAYOUT_FIELDS = (
    *("tp", "cp", "pp", "vpp", "dp", "dp_replicate", "ep", "etp", "edp", "world"),
    *(
        "micro_batch",
        "micro_batches",
        "cp_comm",
        "cp_a2a",
        "schedule",
        "sequence_parallel",
        "zero_stage",
        "order",
    ),
)
EXPERT_DEGREES = frozenset({"ep", "etp", "edp"})


@dataclass(frozen=True, slots=True)
class Change:
    """Value that differs; None on the side that lacks it."""

    name: str
    old: Any
    new: Any

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        """Type of the change, from the old side to the new one."""
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the changes of all keys whose values differ, sorted by key."""
    return tuple(
        Change(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def _changed_in_order(
    old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]
) -> tuple[Change, ...]:
    """Return the changes among ``names``, in their order."""
    return tuple(
        Change(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )


def input_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of model, job, goals and cluster, which come from spec and catalog."""
    return changes(dict(_inputs(old)), dict(_inputs(new)))


def layout_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of the layout, degrees first; expert degrees only with experts."""
    before, after = _layout(old), _layout(new)
    hidden = frozenset() if old.experts or new.experts else EXPERT_DEGREES
    return _changed_in_order(before, after, [name for name in before if name not in hidden])


def memory_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of memory, in bytes, on the fullest stage of each side."""
    names = [field.name for field in fields(StageMemory) if field.name != "stage"]
    return _changed_in_order(_memory(old), _memory(new), [*names, "total_bytes", "limit_bytes"])


def time_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of the terms of the step time and of their sum, in seconds."""
    names = [field.name for field in fields(StepTime)]
    before, after = old.plan["estimate"]["time"], new.plan["estimate"]["time"]
    return _changed_in_order(before, after, [*names, "total_seconds"])


def rate_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of MFU and tokens per second."""
    names = ("mfu", "tokens_per_second")
    before, after = old.plan["estimate"], new.plan["estimate"]
    return changes({name: before[name] for name in names}, {name: after[name] for name in names})


def _inputs(side: Side) -> Iterator[tuple[str, Any]]:
    problem = {
        key: value for key, value in side.plan["problem"].items() if key not in SHOWN_ELSEWHERE
    }
    cluster = problem.pop("cluster", {})
    model = problem.get("model", {})
    for name, version in side.plan["problem"].get("versions", []):
        yield f"versions.{name}", version
    for name, value in problem.pop("calibration", []):
        yield f"calibration.{name}", f"{value:.4g}"
    for part in BY_NAME:
        yield f"cluster.{part}", cluster.get(part, {}).get("name")
    yield "cluster.hosts", sum(len(rack["hosts"]) for rack in cluster.get("racks", []))
    for name in ("spare", "unavailable"):
        yield f"cluster.{name}", ", ".join(cluster.get(name, [])) or None
    experts = model.get("experts")
    # The pattern has one flag per layer, so only its number of layers with experts is compared.
    if isinstance(experts, dict) and "pattern" in experts:
        experts = {**experts, "layers": sum(experts["pattern"]), "pattern": None}
    problem["model"] = {**model, "experts": experts, "source": None}
    yield from _flatten(problem, "")


def _flatten(tree: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _flatten(value, here)
        else:
            yield here, value


def _layout(side: Side) -> dict[str, Any]:
    layout = side.plan["layout"]
    split, recompute = layout.get("split", {}), layout.get("recompute", {})
    words = [recompute.get("granularity"), "+".join(recompute.get("modules", []))]
    words += [recompute.get("method"), recompute.get("layers")]
    layers = [sum(chunk["layers"] for chunk in stage) for stage in split.get("chunks", [])]
    return {
        **{name: layout.get(name) for name in LAYOUT_FIELDS},
        "recompute": " ".join(str(word) for word in words if word),
        "split": split.get("text") or split.get("form"),
        "layers_by_stage": _fold_runs(layers),
    }


def _fold_runs(counts: list[int]) -> str:
    """Return the counts with equal neighbours folded: ``11, 14x11, 13``."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    return ", ".join(f"{size}x{count}" if size > 1 else str(count) for size, count in runs)


def _memory(side: Side) -> dict[str, Any]:
    estimate = side.plan["estimate"]
    peak = next(row for row in estimate["memory"] if row["stage"] == estimate["peak_stage"])
    return {**peak, "limit_bytes": estimate["limit_bytes"]}

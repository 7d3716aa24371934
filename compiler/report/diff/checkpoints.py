"""Check whether a checkpoint of the old plan loads with the new plan.

Weights of another shape never load. Everything else depends on the format in which the framework
saves its state, so the framework's backend compares it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from parc.backends.registry import backend_declaration
from parc.compiler.report.diff.changes import FieldChange, changed_fields
from parc.compiler.report.diff.read_side import DiffSide

NOT_IN_WEIGHTS = frozenset({"name", "family", "source", "norm_epsilon", "init_std"})
"""Model fields that do not affect the shape of any weight."""
NOT_IN_EXPERT_WEIGHTS = frozenset(
    {"top_k", "score_function", "pre_softmax", "groups", "group_top_k"}
    | {"scaling_factor", "aux_loss_coefficient"}
)
"""Fields of section ``experts`` that do not affect the shape of any weight."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Part of the old plan's checkpoint that the new plan can load, and the reasons."""

    verdict: Literal["loads", "weights only", "does not load", "unknown"]
    reasons: tuple[str, ...]


def loadable_state(old: DiffSide, new: DiffSide) -> Checkpoint:
    """Return the part of the old plan's checkpoint that the new plan can load, with reasons."""
    shapes = weight_changes(old, new)
    if shapes:
        return Checkpoint("does not load", tuple(describe_change(change) for change in shapes))
    saved, loaded = (side.plan["problem"].get("framework", "") for side in (old, new))
    if saved != loaded:
        return Checkpoint("unknown", (f"{saved} saves the checkpoint and {loaded} loads it",))
    compare = _checkpoint_comparison(saved)
    if compare is None:
        return Checkpoint("unknown", (f"PARC has no rules for checkpoints of {saved}",))
    return compare(old, new)


def _checkpoint_comparison(framework: str) -> Callable[[DiffSide, DiffSide], Checkpoint] | None:
    """Return the function ``compare_checkpoints`` of a framework's backend.

    Return None if the backend is not installed or does not define this function.
    """
    try:
        found = backend_declaration(framework)
    except KeyError:  # plan.json of a plugin that is not installed here
        return None
    if not found.checkpoints:
        return None
    compare: Callable[[DiffSide, DiffSide], Checkpoint] = found.module(
        found.checkpoints
    ).compare_checkpoints
    return compare


def weight_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to model fields that determine the shape or number of weights.

    A nested section such as ``mamba`` is compared field by field if both models have the section.
    """
    found: list[FieldChange] = []
    for change in changed_fields(_fields_of_weights(old), _fields_of_weights(new)):
        if isinstance(change.old, dict) and isinstance(change.new, dict):
            parts = changed_fields(change.old, change.new)
            found += [replace(part, name=f"{change.name}.{part.name}") for part in parts]
        else:
            found.append(change)
    return tuple(found)


def _fields_of_weights(side: DiffSide) -> dict[str, Any]:
    model = dict(side.plan["problem"]["model"])
    experts, position = model.pop("experts", None) or {}, model.pop("position", None) or {}
    fields = {name: value for name, value in model.items() if name not in NOT_IN_WEIGHTS}
    fields |= {
        f"experts.{name}": value
        for name, value in experts.items()
        if name not in NOT_IN_EXPERT_WEIGHTS
    }
    # Learned positions are a table of weights; rotary ones have no weights.
    if position.get("kind") == "learned":
        fields["position.rows"] = str(position.get("max_positions"))
    return fields


def describe_change(change: FieldChange) -> str:
    """Return a change in one phrase: name, old value, new value."""
    if change.name == "split":
        return "layers per stage differ"
    return f"{change.name} {_format_value(change.old)} -> {_format_value(change.new)}"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "present"
    if value in (None, ""):
        return "absent"
    text = str(value)
    return text if len(text) <= 30 else f"{text[:27]}..."

"""Comparison of two plans, of their files, and of the checkpoints that the new plan can load.

Weights of another shape never load. Everything else depends on the format in which the framework
saves its state, so the framework's backend compares it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any, Literal

from parc.backends.registry import backend_declaration, reader_of_backend
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.diff.changes import (
    changed_fields,
    changed_settings,
    changed_texts,
    input_changes,
    layout_changes,
    memory_changes,
    rate_changes,
    run_changes,
    serving_layout_changes,
    serving_memory_changes,
    serving_rate_changes,
    serving_time_changes,
    time_changes,
)
from parc.compiler.report.diff.file_changes import FileChange, file_changes
from parc.compiler.report.diff.plan_fields import FieldChange
from parc.compiler.report.diff.rank_changes import (
    AxisGroupDiff,
    RankMoves,
    group_changes,
    rank_moves,
)
from parc.compiler.report.diff.read_side import DiffSide, NotAnOutputDirectory
from parc.compiler.report.formatting import round_floats_in_tree

NOT_IN_WEIGHTS = frozenset({"name", "family", "source", "norm_epsilon", "init_std"})
"""Model fields that do not affect the shape of any weight."""
NOT_IN_EXPERT_WEIGHTS = frozenset(
    {"top_k", "score_function", "pre_softmax", "groups", "group_top_k"}
    | {"scaling_factor", "aux_loss_coefficient"}
)
"""Fields of section ``experts`` that do not affect the shape of any weight."""


@frozen
class Diff:
    """Differences between two plans. A field is empty if the plans agree on its topic."""

    old: str
    new: str
    inputs: tuple[FieldChange, ...]
    layout: tuple[FieldChange, ...]
    moves: RankMoves | None
    """Ranks that move; None if one of the plans has no rank map."""
    groups: tuple[AxisGroupDiff, ...]
    arguments: tuple[FieldChange, ...]
    environment: tuple[FieldChange, ...]
    directives: tuple[FieldChange, ...]
    memory: tuple[FieldChange, ...]
    time: tuple[FieldChange, ...]
    rates: tuple[FieldChange, ...]
    run: tuple[FieldChange, ...]
    """Length and cost of the run; empty for a serving job."""
    checkpoint: Checkpoint | None
    """Checkpoint compatibility; None for a serving job, which has no checkpoint."""
    basis: tuple[str, str] = ("", "")
    """What the estimates of both plans rest on; empty texts if both rest on the same runs."""
    files: tuple[FileChange, ...] = ()
    """Output files that differ. They contain everything that another field describes."""

    @property
    def has_changes(self) -> bool:
        """True if the two plans or their files differ."""
        return self.has_planned_changes or bool(self.files)

    @property
    def has_planned_changes(self) -> bool:
        """True if the two plans, or the settings in their launch files, differ."""
        parts = (self.inputs, self.layout, self.groups, self.arguments, self.environment)
        costs = (self.directives, self.memory, self.time, self.rates, self.run)
        return any(parts) or any(costs) or (self.moves is not None and self.moves.has_changes)

    def to_json(self) -> dict[str, Any]:
        """Return the diff as JSON types, with numbers rounded as in plan.json."""
        document = {"format": 1, "changed": self.has_changes, **as_json(self)}
        return dict(round_floats_in_tree(document))


def diff(old: DiffSide, new: DiffSide) -> Diff:
    """Return the differences between two plans, their rank maps and their launch files.

    Raises:
        NotAnOutputDirectory: a plan.json does not match its schema, or one plan is for training
            and the other for serving.
    """
    try:
        return _compare_plans(old, new)
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration):
        # A file that breaks the schema is an error of the user; any other cause is a bug in PARC.
        for side in (old, new):
            _check_plan_schema(side)
        raise


def _check_plan_schema(side: DiffSide) -> None:
    # Imported only for a damaged file, because jsonschema takes long to import.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    text = (files("parc.schemas") / "plan.schema.json").read_text("utf-8")
    error = best_match(Draft202012Validator(json.loads(text)).iter_errors(side.plan))
    if error is not None:
        reason = error.message if len(error.message) < 120 else f"{error.message[:117]}..."
        raise NotAnOutputDirectory(
            f"{side.name}/plan.json at {error.json_path}: {reason}"
        ) from None


def _compare_plans(old: DiffSide, new: DiffSide) -> Diff:
    if old.serves != new.serves:
        trains, serves = (new, old) if old.serves else (old, new)
        raise NotAnOutputDirectory(f"{trains.name} trains a model and {serves.name} serves one")
    moves: RankMoves | None = None
    # Without both rank maps the other parts of the plans are still compared.
    groups: tuple[AxisGroupDiff, ...] = ()
    if old.ranks is not None and new.ranks is not None:
        moves = rank_moves(old.ranks, new.ranks)
        groups = group_changes(old.ranks, new.ranks, old.has_experts or new.has_experts)
    return Diff(
        old=old.name,
        new=new.name,
        inputs=input_changes(old, new),
        layout=serving_layout_changes(old, new) if old.serves else layout_changes(old, new),
        moves=moves,
        groups=groups,
        arguments=changed_settings(old.arguments, new.arguments),
        environment=changed_texts(old.environment, new.environment),
        directives=changed_texts(old.directives, new.directives),
        memory=serving_memory_changes(old, new) if old.serves else memory_changes(old, new),
        time=serving_time_changes(old, new) if old.serves else time_changes(old, new),
        rates=serving_rate_changes(old, new) if old.serves else rate_changes(old, new),
        run=run_changes(old, new),
        checkpoint=None if old.serves else loadable_state(old, new),
        basis=_compared_bases(old, new),
        files=file_changes(old.files, new.files),
    )


def _compared_bases(old: DiffSide, new: DiffSide) -> tuple[str, str]:
    """Return the bases of both estimates as text; empty if no reader needs them."""
    # Plans of older versions have no such section.
    empty = {"text": "", "measured": True}
    first, second = (side.plan.get("basis", empty) for side in (old, new))
    if first == second and first["measured"]:
        return "", ""
    return str(first["text"]), str(second["text"])


@frozen
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
    compare: Callable[[DiffSide, DiffSide], Checkpoint] = reader_of_backend(
        found, found.checkpoints, "compare_checkpoints"
    )
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

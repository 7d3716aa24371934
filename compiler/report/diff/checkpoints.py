"""Check whether a checkpoint of the old plan loads with the new plan.

The rules are those of Megatron-Core 0.19: megatron/training/checkpointing.py
(check_checkpoint_args and the choice of the optimizer's sharding type) and the sharded state dicts
of megatron/core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from parc.compiler.report.diff.changes import Change, changes
from parc.compiler.report.diff.side import Side

NOT_IN_WEIGHTS = frozenset({"name", "family", "source", "norm_epsilon"})
NOT_IN_EXPERT_WEIGHTS = frozenset(
    {"top_k", "score_function", "pre_softmax", "groups", "group_top_k"}
    | {"scaling_factor", "aux_loss_coefficient"}
)
MESH = ("tp", "pp", "vpp", "ep", "etp")
VOCAB_UNIT = 128
"""Megatron's default of --make-vocab-size-divisible-by."""
FULLY_RESHARDABLE = "--dist-ckpt-optim-fully-reshardable"
SCHEDULE = (
    *("--lr", "--min-lr", "--lr-decay-style", "--lr-decay-iters", "--lr-warmup-iters"),
    *("--lr-warmup-fraction", "--weight-decay", "--train-iters", "--global-batch-size"),
)
"""Flags of the optimizer's scheduler, which counts in samples and so depends on the batch size."""
OVERRIDE_SCHEDULE = "--override-opt-param-scheduler"
SCHEDULE_UNCHECKED = (
    OVERRIDE_SCHEDULE,
    "--use-checkpoint-opt-param-scheduler",
    "--finetune",
    "--no-load-optim",
)
"""Flags that turn off Megatron's comparison of the checkpoint's scheduler with the run's."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Result of the check, with its reasons."""

    verdict: Literal["loads", "weights only", "does not load"]
    reasons: tuple[str, ...]


def checkpoint(old: Side, new: Side) -> Checkpoint:
    """Compare the state that the old plan saves with the state that the new plan builds."""
    shapes = _weight_changes(old, new)
    if shapes:
        return Checkpoint("does not load", tuple(_describe_change(change) for change in shapes))
    mesh = _degree_changes(old, new)
    if old.arguments.get("--ckpt-format", "torch_dist") == "torch":
        fixed = [change for change in mesh if change.name != "dp"]
        if fixed or _padded_vocab(old) != _padded_vocab(new):
            reasons = [
                f"format torch stores one file per rank, but {_describe_change(one)}"
                for one in fixed
            ]
            return Checkpoint("does not load", (*reasons, *_vocab_note(old, new)))
    notes = [*_vocab_note(old, new)]
    moved = [change for change in mesh if change.name in (*MESH, "split")]
    if any(change.name in ("tp", "pp") for change in moved):
        notes.append("random generator states are not restored, because tp or pp differs")
    # dp_reshardable is Megatron's default for a distributed optimizer.
    pinned = old.plan["layout"].get("zero_stage") == 1 and FULLY_RESHARDABLE not in old.arguments
    if moved and pinned:
        why = ", ".join(_describe_change(change) for change in moved)
        fix = f"save with {FULLY_RESHARDABLE}, or load with --no-load-optim"
        return Checkpoint(
            "weights only",
            (f"optimizer state is saved as dp_reshardable, but {why}: {fix}", *notes),
        )
    if mesh:
        notes.insert(
            0, "torch_dist reshards " + ", ".join(_describe_change(change) for change in mesh)
        )
    return Checkpoint("loads", (*notes, *_schedule_note(old, new)))


def _weight_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of model fields that set the shape or number of weights.

    If both sides have a part such as ``mamba``, its differing fields are listed.
    """
    found: list[Change] = []
    for change in changes(_weights(old), _weights(new)):
        if isinstance(change.old, dict) and isinstance(change.new, dict):
            parts = changes(change.old, change.new)
            found += [replace(part, name=f"{change.name}.{part.name}") for part in parts]
        else:
            found.append(change)
    return tuple(found)


def _weights(side: Side) -> dict[str, Any]:
    model = dict(side.plan["problem"]["model"])
    experts, position = model.pop("experts", None) or {}, model.pop("position", None) or {}
    fields = {name: value for name, value in model.items() if name not in NOT_IN_WEIGHTS}
    fields |= {
        f"experts.{name}": value
        for name, value in experts.items()
        if name not in NOT_IN_EXPERT_WEIGHTS
    }
    # Learned positions are a table of weights; the flag sets its rows.
    if position.get("kind") == "learned":
        rows = side.arguments.get("--max-position-embeddings", position.get("max_positions"))
        fields["position.rows"] = str(rows)
    return fields


def _degree_changes(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changed degrees; the split of layers only if pp and vpp are unchanged."""
    found = changes(_degrees(old), _degrees(new))
    staged = any(change.name in ("pp", "vpp") for change in found)
    return tuple(change for change in found if change.name != "split" or not staged)


def _degrees(side: Side) -> dict[str, Any]:
    layout = side.plan["layout"]
    split = layout.get("split", {})
    layers = [[chunk["layers"] for chunk in stage] for stage in split.get("chunks", [])]
    names = (*MESH, "dp", "cp") if side.experts else ("tp", "pp", "vpp", "dp", "cp")
    return {**{name: layout.get(name) for name in names}, "split": str(layers)}


def _padded_vocab(side: Side) -> int:
    """Return the rows of the embedding: a multiple of make-vocab-size-divisible-by x tp."""
    vocab, tp = side.plan["problem"]["model"]["vocab"], max(side.plan["layout"]["tp"], 1)
    unit = side.arguments.get("--make-vocab-size-divisible-by", "")
    step = (int(unit) if unit.isdecimal() and 0 < len(unit.lstrip("0")) < 9 else VOCAB_UNIT) * tp
    return int(-(-vocab // step) * step)


def _vocab_note(old: Side, new: Side) -> tuple[str, ...]:
    before, after = _padded_vocab(old), _padded_vocab(new)
    if before == after:
        return ()
    return (f"padded vocabulary: {before} -> {after} rows (only torch_dist can load it)",)


def _schedule_note(old: Side, new: Side) -> tuple[str, ...]:
    """Return a note if Megatron would stop because the flags of the scheduler differ.

    The check is an assertion in OptimizerParamScheduler.load_state_dict.
    """
    differ = [flag for flag in SCHEDULE if old.arguments.get(flag) != new.arguments.get(flag)]
    if not differ or any(flag in new.arguments for flag in SCHEDULE_UNCHECKED):
        return ()
    flags = ", ".join(differ)
    return (f"Megatron stops on resume if {flags} differ, unless {OVERRIDE_SCHEDULE} is set",)


def _describe_change(change: Change) -> str:
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

"""Megatron's conditions for loading a checkpoint into another layout, for ``parc diff``.

The rules come from Megatron-Core 0.19: megatron/training/checkpointing.py
(check_checkpoint_args and the choice of the optimizer's sharding type) and the sharded state dicts
of megatron/core.
"""

from __future__ import annotations

from typing import Any

from parc.backends.megatron.tokenizers import tokenizer_adds_token
from parc.compiler.report.diff.changes import changed_fields
from parc.compiler.report.diff.diff import Checkpoint, describe_change
from parc.compiler.report.diff.plan_fields import FieldChange
from parc.compiler.report.diff.read_side import DiffSide

MESH = ("tp", "pp", "vpp", "ep", "etp")
VOCAB_UNIT = 128
"""Megatron's default of --make-vocab-size-divisible-by."""
POSITION_ROWS = "--max-position-embeddings"
"""Flag with the number of rows of a table of learned positions."""
FULLY_RESHARDABLE = "--dist-ckpt-optim-fully-reshardable"
FORMAT, FSDP = "--ckpt-format", "fsdp_dtensor"
"""Flag of the checkpoint format, and the format of Megatron-FSDP. No other format can be loaded
with Megatron-FSDP, and vice versa (validate_args)."""
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


def compare_checkpoints(old: DiffSide, new: DiffSide) -> Checkpoint:
    """Return how much of a checkpoint of the old plan the new plan can load, with the reasons.

    Call this function only if the models of both plans have weights of the same shapes.
    """
    rows = [side.arguments.get(POSITION_ROWS) for side in (old, new)]
    if rows[0] != rows[1] and _has_learned_positions(new):
        return Checkpoint("does not load", (f"{POSITION_ROWS} {rows[0]} -> {rows[1]}",))
    mesh = _changed_parallel_sizes(old, new)
    before, after = (side.arguments.get(FORMAT, "torch_dist") for side in (old, new))
    if FSDP in (before, after):
        reasons = [f"{FORMAT} {before} -> {after}: convert the checkpoint first"]
        if before == after:
            # Sharded tensors are stored by the data-parallel ranks of one mesh of all other axes.
            fixed = [change for change in mesh if change.name not in ("dp", "cp")]
            reasons = [f"format {FSDP}, but {describe_change(one)}" for one in fixed]
        if reasons:
            return Checkpoint("does not load", (*reasons, *_note_vocab_change(old, new)))
    if before == "torch":
        fixed = [change for change in mesh if change.name != "dp"]
        if fixed or _padded_vocab(old) != _padded_vocab(new):
            reasons = [
                f"format torch stores one file per rank, but {describe_change(one)}"
                for one in fixed
            ]
            return Checkpoint("does not load", (*reasons, *_note_vocab_change(old, new)))
    notes = [*_note_vocab_change(old, new)]
    moved = [change for change in mesh if change.name in (*MESH, "split")]
    if any(change.name in ("tp", "pp") for change in moved):
        notes.append("random generator states are not restored, because tp or pp differs")
    # dp_reshardable is Megatron's default for a distributed optimizer.
    pinned = old.plan["layout"].get("zero_stage") == 1 and FULLY_RESHARDABLE not in old.arguments
    if moved and pinned:
        why = ", ".join(describe_change(change) for change in moved)
        fix = f"save with {FULLY_RESHARDABLE}, or load with --no-load-optim"
        return Checkpoint(
            "weights only",
            (f"optimizer state is saved as dp_reshardable, but {why}: {fix}", *notes),
        )
    if mesh:
        notes.insert(
            0, f"{after} reshards " + ", ".join(describe_change(change) for change in mesh)
        )
    return Checkpoint("loads", (*notes, *_note_schedule_change(old, new)))


def _changed_parallel_sizes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the parallel sizes that differ between the old plan and the new plan.

    A changed split of the layers is included only if pp and vpp are unchanged.
    """
    found = changed_fields(_parallel_sizes(old), _parallel_sizes(new))
    staged = any(change.name in ("pp", "vpp") for change in found)
    return tuple(change for change in found if change.name != "split" or not staged)


def _parallel_sizes(side: DiffSide) -> dict[str, Any]:
    layout = side.plan["layout"]
    split = layout.get("split", {})
    layers = [[chunk["layers"] for chunk in stage] for stage in split.get("chunks", [])]
    names = (*MESH, "dp", "cp") if side.has_experts else ("tp", "pp", "vpp", "dp", "cp")
    return {**{name: layout.get(name) for name in names}, "split": str(layers)}


def _padded_vocab(side: DiffSide) -> int:
    """Return the number of embedding rows after padding.

    The number is a multiple of --make-vocab-size-divisible-by x tp.
    """
    problem, tp = side.plan["problem"], max(side.plan["layout"]["tp"], 1)
    version = dict(problem.get("versions", ())).get("megatron")
    tokenizer = side.arguments.get("--tokenizer-type", "")
    vocab = problem["model"]["vocab"] + (
        version is not None and tokenizer_adds_token(tokenizer, version)
    )
    unit = side.arguments.get("--make-vocab-size-divisible-by", "")
    step = (int(unit) if unit.isdecimal() and 0 < len(unit.lstrip("0")) < 9 else VOCAB_UNIT) * tp
    return int(-(-vocab // step) * step)


def _note_vocab_change(old: DiffSide, new: DiffSide) -> tuple[str, ...]:
    before, after = _padded_vocab(old), _padded_vocab(new)
    if before == after:
        return ()
    return (f"padded vocabulary: {before} -> {after} rows (only torch_dist can load it)",)


def _note_schedule_change(old: DiffSide, new: DiffSide) -> tuple[str, ...]:
    """Return a note if Megatron would stop because a flag of the learning-rate schedule changed.

    The result is () if Megatron would not stop. Megatron checks these flags by an assertion in
    OptimizerParamScheduler.load_state_dict.
    """
    differ = [flag for flag in SCHEDULE if old.arguments.get(flag) != new.arguments.get(flag)]
    if not differ or any(flag in new.arguments for flag in SCHEDULE_UNCHECKED):
        return ()
    change = f"{', '.join(differ)} {'changes' if len(differ) == 1 else 'change'}"
    return (f"Megatron stops on resume because {change}, unless {OVERRIDE_SCHEDULE} is set",)


def _has_learned_positions(side: DiffSide) -> bool:
    """Return True if the model has learned positions, a weight table added to the embedding."""
    position = side.plan["problem"]["model"].get("position") or {}
    return bool(position.get("kind") == "learned")

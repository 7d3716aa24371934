"""Differences between two plans in inputs, layout, memory and times.

The second half of the module compares the plans of serving jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from parc.compiler.ir import StageMemory, StepTime
from parc.compiler.report.diff.plan_fields import (
    FieldChange,
    flatten,
    hide_secrets,
    is_equal,
    plain_number,
    problem_changes,
    spec_changes,
)
from parc.compiler.report.diff.read_side import DiffSide

LAYOUT_FIELDS = (
    *("tp", "gtp", "cp", "pp", "vpp", "dp", "dp_replicate", "ep", "etp", "egtp", "edp", "world"),
    *(
        "micro_batch",
        "micro_batches",
        "cp_comm",
        "cp_a2a",
        "schedule",
        "sequence_parallel",
        "zero_stage",
        "cuda_graphs",
        "order",
    ),
)
EXPERT_DEGREES = frozenset({"ep", "etp", "egtp", "edp"})


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """Return a FieldChange for each key whose values differ, sorted by key."""
    return _changed_in_order(old, new, sorted(old.keys() | new.keys()))


def changed_texts(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[FieldChange, ...]:
    """Return the variables or directives whose texts differ, sorted by name, without secrets."""
    return tuple(
        FieldChange(one.name, *hide_secrets(one.name, one.old, one.new))
        for one in changed_fields(old, new)
    )


def changed_settings(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[FieldChange, ...]:
    """Return the flags or variables whose texts differ, sorted by name, without secrets.

    Numbers in another notation, such as 1.0 and 1.00, are equal.
    """
    return tuple(
        FieldChange(one.name, *hide_secrets(one.name, one.old, one.new))
        for one in changed_fields(old, new)
        if one.kind != "changed" or plain_number(one.old) != plain_number(one.new)
    )


def _changed_in_order(
    old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]
) -> tuple[FieldChange, ...]:
    """Return a FieldChange for each of ``names`` whose values differ, in this order."""
    return tuple(
        FieldChange(name, old.get(name), new.get(name))
        for name in names
        if not is_equal(old.get(name), new.get(name))
    )


def input_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return all changes to the inputs of a compile: section ``problem`` of plan.json and the spec.

    The checkpoint interval is compared only if a spec sets it, because the plan decides it
    otherwise.
    """
    problem = problem_changes(old.plan["problem"], new.plan["problem"])
    if not any("checkpoint_interval" in _spec_job(side) for side in (old, new)):
        problem = tuple(one for one in problem if one.name != "job.checkpoint_interval")
    spec = spec_changes(
        old.plan.get("spec") or {}, new.plan.get("spec") or {}, (one.name for one in problem)
    )
    # Sizes that the section of the layout shows with the same values are not repeated.
    layout = {f"layout.{one.name}": one for one in _layout_changes(old, new)}
    rows = (*problem, *spec)
    shown = (one for one in rows if replace(one, name="") != _unnamed(layout.get(one.name)))
    return tuple(sorted(shown, key=lambda one: one.name))


def _unnamed(change: FieldChange | None) -> FieldChange | None:
    return None if change is None else replace(change, name="")


def _layout_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    return serving_layout_changes(old, new) if old.serves else layout_changes(old, new)


def _spec_job(side: DiffSide) -> Mapping[str, Any]:
    """Return section ``job`` of the spec in plan.json; empty in a plan of an older version."""
    job = (side.plan.get("spec") or {"job": {}}).get("job")
    return job if isinstance(job, dict) else {}


def layout_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to the training layout, parallel sizes first.

    The parallel sizes of experts are omitted if neither model has experts.
    """
    before, after = _layout_fields(old), _layout_fields(new)
    # For dense models ep, etp and edp follow from the other sizes, so a change of them is noise.
    hidden = frozenset() if old.has_experts or new.has_experts else EXPERT_DEGREES
    return _changed_in_order(before, after, [name for name in before if name not in hidden])


def memory_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes in memory use, in bytes per GPU, on the fullest stage of each plan."""
    names = [field.name for field in fields(StageMemory) if field.name != "stage"]
    return _changed_in_order(
        _peak_memory_fields(old), _peak_memory_fields(new), [*names, "total_bytes", "limit_bytes"]
    )


def time_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes, in seconds, to the step time and to each of its terms."""
    names = [field.name for field in fields(StepTime)]
    # Plans of older versions lack terms that were added since; these are not part of their total.
    absent = dict.fromkeys(names, 0.0)
    before, after = ({**absent, **side.plan["estimate"]["time"]} for side in (old, new))
    return _changed_in_order(before, after, [*names, "total_seconds"])


RUN_FIELDS = (
    *("checkpoint_steps", "wall_seconds", "gpu_hours", "energy_kwh", "cost", "effective_share"),
)
"""Fields of ``run`` in plan.json that are compared."""


def run_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to the length and the cost of the run.

    The result is empty if a plan is of an older version of PARC, or of a serving job.
    """
    before, after = old.plan.get("run"), new.plan.get("run")
    return _changed_in_order(before, after, RUN_FIELDS) if before and after else ()


def rate_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to the training rates: MFU and tokens per second."""
    names = ("mfu", "tokens_per_second")
    before, after = old.plan["estimate"], new.plan["estimate"]
    return changed_fields(
        {name: before[name] for name in names}, {name: after[name] for name in names}
    )


def _layout_fields(side: DiffSide) -> dict[str, Any]:
    layout = side.plan["layout"]
    split, recompute = layout.get("split", {}), layout.get("recompute", {})
    words = [recompute.get("granularity"), "+".join(recompute.get("modules", []))]
    words += [recompute.get("method"), recompute.get("layers")]
    layers = [sum(chunk["layers"] for chunk in stage) for stage in split.get("chunks", [])]
    return {
        **{name: layout.get(name) for name in LAYOUT_FIELDS},
        "recompute": " ".join(str(word) for word in words if word),
        "split": split.get("text") or split.get("form"),
        "layers_by_stage": _fold_equal_layer_counts(layers),
        **_other_fields(layout, (*LAYOUT_FIELDS, "dp_shard", "recompute", "split")),
    }


def _other_fields(section: Mapping[str, Any], shown: Iterable[str]) -> dict[str, Any]:
    """Return all leaves of a section of plan.json by path, without those of ``shown``."""
    return dict(flatten({key: value for key, value in section.items() if key not in shown}))


def _fold_equal_layer_counts(counts: list[int]) -> str:
    """Return ``counts`` as text in which equal neighbors are folded.

    For example, 11, 11, 13 becomes ``2x11, 13``.
    """
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    return ", ".join(f"{size}x{count}" if size > 1 else str(count) for size, count in runs)


def _peak_memory_fields(side: DiffSide) -> dict[str, Any]:
    estimate = side.plan["estimate"]
    peak = next(row for row in estimate["memory"] if row["stage"] == estimate["peak_stage"])
    return {**peak, "limit_bytes": estimate["limit_bytes"]}


SERVING_LAYOUT_FIELDS = (
    "tp",
    "pp",
    "pcp",
    "dcp",
    "dp",
    "ep",
    "replicas",
    "redundant_experts",
    "gpus",
)
LIMIT_FIELDS = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "block_tokens",
    "blocks",
    "cache_tokens",
)
MEMORY_FIELDS = ("weights_bytes", "overhead_bytes", "cache_bytes", "longest_bytes")
TIME_FIELDS = ("ttft_seconds", "tpot_seconds", "prefill_seconds")
RATE_FIELDS = ("tokens_per_second", "requests_per_second", "max_concurrency")


def serving_layout_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to a serving layout: parallel sizes, layers per stage, engine limits."""
    before, after = _service_layout_fields(old), _service_layout_fields(new)
    return _changed_in_order(before, after, before)


def serving_memory_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes in memory use, in bytes per GPU, of a serving job.

    Each plan is represented by the pipeline stage with the fewest KV cache blocks.
    """
    before, after = _fullest_stage_memory(old), _fullest_stage_memory(new)
    return _changed_in_order(before, after, MEMORY_FIELDS)


def serving_time_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes, in seconds, to time to first token, time per token and prefill time."""
    before, after = _estimate_fields(old, TIME_FIELDS), _estimate_fields(new, TIME_FIELDS)
    return _changed_in_order(before, after, TIME_FIELDS)


def serving_rate_changes(old: DiffSide, new: DiffSide) -> tuple[FieldChange, ...]:
    """Return the changes to tokens per second, requests per second and maximum concurrency."""
    return changed_fields(_estimate_fields(old, RATE_FIELDS), _estimate_fields(new, RATE_FIELDS))


def _service_layout_fields(side: DiffSide) -> dict[str, Any]:
    layout, limits = side.plan["layout"], side.plan["limits"]
    stages = ", ".join(str(stage["layers"]) for stage in side.plan["stages"])
    return {
        **{name: layout[name] for name in SERVING_LAYOUT_FIELDS},
        "layers_by_stage": stages,
        **{name: limits[name] for name in LIMIT_FIELDS},
        **_other_fields(layout, (*SERVING_LAYOUT_FIELDS, "rank_gpus", "engine_gpus")),
        **_other_fields(limits, (*LIMIT_FIELDS, "full_requests")),
    }


def _fullest_stage_memory(side: DiffSide) -> dict[str, Any]:
    fullest = min(side.plan["stages"], key=lambda stage: stage["blocks"])
    return {name: fullest[name] for name in MEMORY_FIELDS}


def _estimate_fields(side: DiffSide, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: side.plan["estimate"][name] for name in names}

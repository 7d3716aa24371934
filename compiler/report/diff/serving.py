"""Differences between two serving plans: layout, memory of the fullest stage, times, rates."""

from __future__ import annotations

from typing import Any

from parc.compiler.report.diff.changes import Change, changes
from parc.compiler.report.diff.side import Side

LAYOUT_FIELDS = ("tp", "pp", "pcp", "dcp", "dp", "ep", "replicas", "redundant_experts", "gpus")
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


def serving_layout(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of degrees, stages and engine limits."""
    return _changed_in_order(_layout(old), _layout(new))


def serving_memory(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of memory, in bytes per rank, on the stage with the least cache."""
    return _changed_in_order(_memory(old), _memory(new))


def serving_time(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of latencies: time to first token, time per token, prefill."""
    return _changed_in_order(_estimate(old, TIME_FIELDS), _estimate(new, TIME_FIELDS))


def serving_rates(old: Side, new: Side) -> tuple[Change, ...]:
    """Return the changes of throughput and concurrency."""
    return changes(_estimate(old, RATE_FIELDS), _estimate(new, RATE_FIELDS))


def _changed_in_order(before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    """Return the values that differ, in the order of ``before``."""
    return tuple(
        Change(name, before[name], after[name])
        for name in before
        if before[name] != after.get(name)
    )


def _layout(side: Side) -> dict[str, Any]:
    layout, limits = side.plan["layout"], side.plan["limits"]
    stages = ", ".join(str(stage["layers"]) for stage in side.plan["stages"])
    return {
        **{name: layout[name] for name in LAYOUT_FIELDS},
        "layers_by_stage": stages,
        **{name: limits[name] for name in LIMIT_FIELDS},
    }


def _memory(side: Side) -> dict[str, Any]:
    fullest = min(side.plan["stages"], key=lambda stage: stage["blocks"])
    return {name: fullest[name] for name in MEMORY_FIELDS}


def _estimate(side: Side, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: side.plan["estimate"][name] for name in names}

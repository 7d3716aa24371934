"""Hints at a global batch that more data-parallel ranks can divide."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parc.compiler.checks.advise_batch import LARGEST_CHANGE, better_divisible_batches
from tests.compiled import Spec, changed, findings_of, plan_of

SPEC: Spec = {
    "parc": 1,
    "name": "odd",
    "model": "qwen3-8b",
    "cluster": {"node": "hgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 7},
    "emit": ["fsdp"],
}


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"job.global_batch": 30},
        {
            **{"model": "llama-3-70b", "emit": ["megatron"], "job.global_batch": 1000},
            **{"cluster.nodes": 128, "job.sequence_length": 8192},
        },
        {
            **{"model": "qwen3-30b-a3b", "emit": ["megatron"], "job.global_batch": 509},
            **{"cluster.nodes": 4, "job.sequence_length": 8192},
        },
    ],
    ids=["7", "30", "1,000", "a pipeline instead of replicas"],
)
def test_the_batch_gives_the_promised_throughput(edits: dict[str, Any]) -> None:
    spec = changed(SPEC, edits)
    (found,) = findings_of(spec, "PARC-G14")
    promised = re.search(r"would train (\d+) % more", found.message)
    batch = re.fullmatch(r"job.global_batch: (\d+)", found.fix)
    assert promised
    assert batch
    better_spec = changed(spec, {"job.global_batch": int(batch[1])})
    better = plan_of(better_spec)
    gain = better.estimate.tokens_per_second / plan_of(spec).estimate.tokens_per_second - 1
    assert 100 * gain == pytest.approx(int(promised[1]), abs=1)
    assert better.layout.dp > plan_of(spec).layout.dp
    assert findings_of(better_spec, "PARC-G14") == []


@pytest.mark.parametrize(
    "edits",
    [{"job.global_batch": 64}, {"layout": {"dp": 1}}, {"goals": {"maximize": "fewest-gpus"}}],
    ids=["divisible", "fixed dp", "another goal"],
)
def test_no_hint_without_a_gain_or_if_the_spec_decides(edits: dict[str, Any]) -> None:
    assert findings_of(changed(SPEC, edits), "PARC-G14") == []


def test_a_layout_that_may_exceed_the_memory_is_no_reason_for_another_batch() -> None:
    # On one host, every layout with replicas might run out of memory.
    spec = changed(SPEC, {"model": "qwen3-30b-a3b", "emit": ["megatron"]})
    assert findings_of(changed(spec, {"job.global_batch": 509}), "PARC-G14") == []


@pytest.mark.parametrize("world", [8, 24, 288, 16_384])
@pytest.mark.parametrize("batch", [1, 7, 30, 250, 1000, 2049])
@pytest.mark.parametrize("dp", [1, 2, 8])
def test_batches_are_close_and_divisible_by_a_larger_size(world: int, batch: int, dp: int) -> None:
    found = better_divisible_batches(batch, world, dp)
    sizes = [one for one in range(dp + 1, world + 1) if world % one == 0]
    for one in found:
        assert 0 < abs(one - batch) <= LARGEST_CHANGE * batch
        assert any(one % size == 0 for size in sizes)
    # Each further batch is closer, or it would not be worth a search.
    distances = [abs(one - batch) for one in found]
    assert distances == sorted(set(distances), reverse=True)

"""A limit that allows a single size selects it like a fixed size, also if PARC would not try it."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.ir import Plan
from tests.compiled import changed, messages_of, planned

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": ["megatron"]},
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 2048, "global_batch": 64},
}


@pytest.mark.parametrize(
    ("target", "axis", "size"),
    [
        ("megatron", "cp", 2),  # ranks would have fewer tokens than MIN_CP_TOKENS
        ("megatron", "tp", 16),  # groups leave the NVLink domain
        ("megatron", "micro_batch", 16),  # larger than MAX_MICRO_BATCH
        ("megatron", "pp", 4),
        ("torchtitan", "cp", 2),
        ("accelerate", "micro_batch", 4),  # needs fewer hosts
    ],
)
def test_a_limit_to_a_single_size_finds_a_layout_if_the_size_can_be_fixed(
    target: str, axis: str, size: int
) -> None:
    spec = changed(SPEC, {"emit": [target]})
    if (axis, size) == ("micro_batch", 16):
        spec = changed(spec, {"job.global_batch": 512, "job.sequence_length": 512})
    fixed, _ = planned(changed(spec, {f"layout.{axis}": size}))
    limited, sink = planned(changed(spec, {f"goals.limits.{axis}.only": [size]}))
    assert isinstance(fixed, Plan)
    assert isinstance(limited, Plan), messages_of(sink)
    assert getattr(limited.layout, axis) == size


def test_usual_sizes_are_preferred_if_a_limit_allows_some() -> None:
    limited, _ = planned(changed(SPEC, {"goals.limits.micro_batch.min": 2}))
    assert isinstance(limited, Plan)
    assert 2 <= limited.layout.micro_batch <= 8

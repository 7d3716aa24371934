"""Tests of models with several types of token mixers: flags, programs and stages."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.megatron.capabilities import recompute_levels
from parc.backends.megatron.stages.balance_pattern import balance_pattern
from parc.backends.megatron.verify_arguments import read_arguments
from tests.backends.megatron.boundaries import DENSE, LINEAR, PATTERN
from tests.compiled import Spec, changed, error_codes, files_of, plan_of, planned

Values = tuple[str, ...] | None


def flags(base: Spec, **changes: object) -> dict[str, tuple[str, ...]]:
    """Return the flags of ``megatron/args.sh``; ``changes`` have two underscores for each dot."""
    spec = changed(base, {key.replace("__", "."): value for key, value in changes.items()})
    return read_arguments(files_of(spec)["megatron/args.sh"]).flags


def test_linear_attention_is_an_attention_variant_of_gpt() -> None:
    said = flags(LINEAR)
    assert said["experimental-attention-variant"] == ("gated_delta_net",)
    assert said["linear-attention-freq"] == ("4",)
    assert said["linear-num-key-heads"] == ("12",)
    assert said["attention-output-gate"] == ()
    assert "hybrid-layer-pattern" not in said
    assert not any(flag.startswith(("linear", "experimental", "mamba")) for flag in flags(DENSE))


@pytest.mark.parametrize(
    ("layout", "pattern"),
    [
        ({"pp": 1}, "M-M*M-M*M-M*M-M*"),
        ({"vpp": 1, "first_stage_layers": 6}, "M-M*M-|M*M-M*M-M*"),
        ({"pipeline_layout": "Et*9|t*7L"}, "M-M*M-M*M|-M*M-M*"),
        ({"vpp": 1, "count_embedding": True, "count_loss": True}, "M-M*M-M*|M-M*M-M*"),
        ({"vpp": 2, "pipeline_layout": "Et*3|t*5|t*4|t*4L"}, "M-M|*M-M*|M-M*|M-M*"),
    ],
)
def test_only_the_pattern_contains_the_stages_of_a_pattern(layout: Spec, pattern: str) -> None:
    changes = {f"layout__{key}": value for key, value in layout.items()}
    said = flags(PATTERN, **changes)
    assert said["hybrid-layer-pattern"] == (pattern,)
    others = ("pipeline-model-parallel-layout", "num-virtual-stages-per-pipeline-rank")
    ends = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    counted = [flag for flag in said if flag.startswith("account-for")]
    assert [flag for flag in (*others, *ends, "moe-layer-freq") if flag in said] + counted == []


@pytest.mark.parametrize(
    ("version", "program", "stack"),
    [
        ("0.17", "pretrain_mamba.py", "mamba_stack_spec"),
        ("0.18", "pretrain_hybrid.py", "hybrid_stack_spec"),
        ("0.20", "pretrain_hybrid.py", "hybrid_stack_spec"),
    ],
)
def test_a_pattern_has_the_program_and_the_stack_of_the_version(
    version: str, program: str, stack: str
) -> None:
    spec = changed(PATTERN, {"versions.megatron": version})
    assert plan_of(spec).problem.launch.program == program
    assert flags(spec)["spec"][1] == stack
    assert plan_of(changed(LINEAR, {"versions.megatron": version})).problem.launch.program == (
        "pretrain_gpt.py"
    )


@pytest.mark.parametrize(
    ("base", "program", "sound"),
    [
        (PATTERN, "/opt/megatron/pretrain_gpt.py", False),
        (PATTERN, "/opt/megatron/pretrain_mamba.py", True),
        (PATTERN, "train.py", True),
        (LINEAR, "pretrain_hybrid.py", False),
        (DENSE, "pretrain_mamba.py", False),
        (DENSE, "pretrain_gpt.py", True),
    ],
)
def test_a_program_of_megatron_that_builds_another_model_is_rejected(
    base: Spec, program: str, *, sound: bool
) -> None:
    codes = error_codes(changed(base, {"launch.program": program}))
    assert codes == (set() if sound else {"E10"})


@pytest.mark.parametrize(
    ("pattern", "levels"),
    [
        ("M*M*", [()]),
        ("M-M*", [("mlp",)]),
        ("MEM*", [("layernorm", "moe_act"), ("layernorm", "moe")]),
        ("MEM-", [("layernorm", "moe_act"), ("layernorm", "mlp", "moe")]),
    ],
)
def test_modules_that_a_pattern_lacks_are_not_recomputed(
    pattern: str, levels: list[tuple[str, ...]]
) -> None:
    experts = {"count": 12, "top_k": 2, "size": 768} if "E" in pattern else None
    model = {"pattern": pattern * 4, "experts": experts}
    problem = plan_of(changed(PATTERN, {f"model.{k}": v for k, v in model.items()})).problem
    found = [
        one.modules for one in recompute_levels(problem.model) if one.granularity == "selective"
    ]
    assert found == [one for one in levels if one]


@given(st.lists(st.floats(0.1, 4.0), min_size=1, max_size=60), st.integers(1, 12), st.floats(0, 5))
def test_stages_of_a_pattern_contain_every_layer_once_and_are_as_even_as_possible(
    loads: list[float], count: int, loss: float
) -> None:
    stages = balance_pattern(tuple(loads), count, loss)
    if stages is None:
        assert count > len(loads)
        return
    counts = [stage.layers for stage in stages]
    assert sum(counts) == len(loads)
    assert min(counts) >= 1
    assert [stage.loss for stage in stages] == [False] * (count - 1) + [True]
    if loss == 0 and max(loads) * count <= sum(loads):
        ends = list(accumulate(loads, initial=0.0))
        cuts = list(accumulate(counts, initial=0))
        heaviest = max(ends[b] - ends[a] for a, b in pairwise(cuts))
        assert heaviest <= sum(loads) / count + max(loads) + 1e-9


def test_a_pattern_has_a_layer_for_every_stage() -> None:
    _, sink = planned(changed(PATTERN, {"layout.pp": 2, "layout.vpp": 9}))
    (found,) = [one.finding for one in sink.diagnostics if one.code == "PARC-P02"]
    assert found.label == "18 stages, must be at most 16"

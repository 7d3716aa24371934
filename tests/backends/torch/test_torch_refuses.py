"""Test that more than a hundred random specs that violate torch's arithmetic are rejected."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parc.backends.torchtitan import split
from parc.compiler.ir import Problem
from tests.backends.torch.specs import valid_spec
from tests.compiled import Spec, changed, planned, resolved

SEEDS = range(220)
REPLACEMENTS: dict[str, tuple[Any, ...]] = {
    "layout.tp": (3, 5, 6, 7),
    "layout.dp": (3, 5, 6, 12, 24, 48),
    "layout.dp_shard": (3, 5, 6, 7),
    "layout.micro_batch": (3, 5, 7),
    "job.global_batch": (17, 30, 50, 100),
    "job.sequence_length": (1001, 1022, 1028),
    "model.kv_heads": (1, 2),
    "model.vocab": (32001, 32002),
}


def variation(seed: int) -> Spec:
    """Return a valid spec with one or two values changed."""
    dice = Random(f"fsdp variation {seed}")
    chosen = dice.sample(list(REPLACEMENTS), dice.choice((1, 2)))
    return changed(
        valid_spec("fsdp", seed), {path: dice.choice(REPLACEMENTS[path]) for path in chosen}
    )


def has_remainder(spec: Spec) -> bool:
    """Return True if the mesh, the tensor-parallel plan or the batch has a remainder."""
    layout, job, model = spec["layout"], spec["job"], spec["model"]
    world, tp = spec["cluster"]["nodes"] * 8, layout["tp"]
    dp = layout.get("dp", world // tp)
    shard = layout.get("dp_shard", dp)
    widths = (model["heads"], model["kv_heads"], model["ffn"], model["vocab"])
    return (
        tp * dp > world
        or ("dp" not in layout and world % tp > 0)
        or dp % shard > 0
        or job["global_batch"] % (layout["micro_batch"] * dp) > 0
        or any(width % tp for width in widths)
        or job["sequence_length"] % tp > 0
    )


def test_specs_with_remainders_are_rejected() -> None:
    specs = {seed: variation(seed) for seed in SEEDS}
    bad = {seed: spec for seed, spec in specs.items() if has_remainder(spec)}
    assert len(bad) >= 100
    passed = []
    for seed, spec in bad.items():
        plan, sink = planned({**spec, "goals": {"idle_hosts": "forbid"}})
        if plan is not None:
            passed.append(seed)
        assert sink.failed() or seed in passed
    assert passed == []


@pytest.mark.parametrize(
    ("model", "lacks"),
    [
        ("qwen2.5-7b", "no biases of queries, keys and values"),
        ("mistral-7b-v0.1", "no sliding window"),
        ("pythia-1b", "no rotation of 0.25 of a head"),
        (
            "nemotron-h-8b",
            "no Mamba layers, no pattern of layers of one part each, no ungated relu2 MLP, "
            "no attention without positions",
        ),
    ],
)
def test_the_label_lists_the_parts_that_the_emitted_programs_lack(model: str, lacks: str) -> None:
    changed_model = {"base": model, "vocab": 64000}
    _, sink = planned(valid_spec("accelerate", 0) | {"model": changed_model})
    (label,) = [one.finding.label for one in sink.diagnostics if one.code == "PARC-E10"]
    assert label.startswith("PARC's own decoder has no ")
    assert lacks in label
    assert label.endswith("the spec changes a catalog model, so no config.json describes it")


@pytest.mark.parametrize(
    ("pp", "vpp", "fix"),
    [
        (17, 1, "layout.pp: 16"),
        (32, 1, "layout.pp: 16"),
        (8, 3, "layout.vpp: 2"),
        (3, 6, "layout.vpp: 4"),
        (16, 2, "layout.vpp: 1"),
        (17, 2, "layout.pp: 8"),
        (17, 17, ""),
    ],
)
def test_too_many_stages_for_16_layers_are_fixed_by_one_edit_if_one_is_enough(
    pp: int, vpp: int, fix: str
) -> None:
    problem, _ = resolved(valid_spec("torchtitan", 0))
    assert isinstance(problem, Problem)
    assert problem.model.layers == 16
    assert split.find_split(problem, pp, vpp) is None
    code, _, finding = split.why_no_split(problem, pp, vpp)
    assert (code, finding.fix) == ("P02", fix)
    assert ("for example" in finding.help) == bool(fix)
    path, _, size = fix.partition(": ")
    assert not fix or split.find_split(
        problem,
        int(size) if path == "layout.pp" else pp,
        int(size) if path == "layout.vpp" else vpp,
    )


@pytest.mark.parametrize(
    ("model", "layout", "fix"),
    [
        ("mixtral-8x7b", {}, "emit: [fsdp]"),
        ("mixtral-8x7b", {"pp": 2}, "emit: [megatron]"),
        ("gemma-2-2b", {"tp": 2}, ""),
    ],
)
def test_a_model_outside_of_the_registry_gets_a_framework_for_the_sizes_of_the_spec(
    model: str, layout: Spec, fix: str
) -> None:
    spec = {
        "parc": 1,
        "name": "refused",
        "model": model,
        "cluster": {"node": "dgx-h100", "nodes": 32},
        "job": {"sequence_length": 1024, "global_batch": 1024},
        "layout": layout,
    }
    plan, sink = planned({**spec, "emit": ["torchtitan"]})
    assert plan is None
    (found,) = (one.finding for one in sink.diagnostics if one.code == "PARC-E12")
    assert found.fix == fix
    assert ("without layout.tp" in found.help) == (layout == {"tp": 2})
    if fix:
        plan, sink = planned({**spec, "emit": [fix.partition("[")[2].rstrip("]")]})
        assert plan is not None, sink.diagnostics

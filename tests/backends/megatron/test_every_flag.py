"""Flags that one setting adds to Megatron's arguments, and flags that it removes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from parc.backends.megatron.arguments.arguments import PACKAGE, planned_arguments
from parc.backends.shared.field_table import flag_table
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import NO_OFFLOAD, Layout, Plan, Problem, ProfiledSteps, Recompute
from parc.compiler.resolve.resolve_model import resolve_model
from tests.backends.megatron.boundaries import DENSE, ROUTED
from tests.compiled import plan_of

FULL = Recompute("full", (), "block", 3)
SELECTIVE = Recompute("selective", ("core_attn", "layernorm"), None, None)
FP8 = "+--fp8-format hybrid +--fp8-recipe tensorwise +--fp8-param-gather"
FP4 = "+--fp4-format e2m1 +--fp4-recipe nvfp4"
BF16_MOMENTS = "+--use-precision-aware-optimizer +--exp-avg-dtype bf16 +--exp-avg-sq-dtype bf16"
GRAPHS = "+--cuda-graph-impl transformer_engine +--te-rng-tracker"
FLEX = "+--moe-token-dispatcher-type flex ---moe-token-dispatcher-type alltoall"
JOBS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("dense", {"gradient_precision": "bf16"}, "+--grad-reduce-in-bf16"),
    ("dense", {"moment_precision": "bf16"}, BF16_MOMENTS),
    ("dense", {"precision": "fp16"}, "+--fp16 ---bf16"),
    ("dense", {"precision": "fp16", "gradient_precision": "bf16"}, "+--fp16 ---bf16"),
    ("dense", {"precision": "fp8"}, FP8),
    ("routed", {"precision": "fp8"}, f"{FP8} +--moe-router-padding-for-quantization"),
    (
        "dense",
        {"precision": "mxfp8"},
        "+--fp8-format e4m3 +--fp8-recipe mxfp8 +--fp8-param-gather "
        "+--reuse-grad-buf-for-mxfp8-param-ag",
    ),
    ("dense", {"precision": "nvfp4"}, f"{FP4} +--fp4-param-gather"),
    ("dense", {"precision": "nvfp4", "moment_precision": "bf16"}, f"{FP4} {BF16_MOMENTS}"),
    ("dense", {"moe_dispatcher": "deepep"}, ""),
    ("routed", {"moe_dispatcher": "deepep"}, f"{FLEX} +--moe-flex-dispatcher-backend deepep"),
    ("routed", {"moe_dispatcher": "hybridep"}, f"{FLEX} +--moe-flex-dispatcher-backend hybridep"),
    ("routed", {"moe_dispatcher": "alltoall"}, ""),
    ("dense", {"moe_overlap": True}, ""),
    ("routed", {"moe_overlap": True}, "+--overlap-moe-expert-parallel-comm +--delay-wgrad-compute"),
    (
        "dense",
        {"lr_decay": "wsd", "wsd_decay_steps": 100},
        "+--lr-decay-style WSD +--lr-wsd-decay-iters 100 +--lr-wsd-decay-style linear "
        "---lr-decay-style cosine",
    ),
    ("dense", {"lr_decay": "constant"}, "+--lr-decay-style constant ---lr-decay-style cosine"),
    ("dense", {"lr_decay_steps": 500}, "+--lr-decay-iters 500"),
    (
        "dense",
        {"warmup_fraction": None, "warmup_steps": 20},
        "+--lr-warmup-iters 20 ---lr-warmup-fraction 0.01",
    ),
    ("dense", {"adam_epsilon": 1e-6}, "+--adam-eps 1e-06"),
    ("dense", {"seed": 7}, "+--seed 7"),
    ("dense", {"data": ("/a", "/b")}, "+--data-path /a /b +--split 100,0,0 ---mock-data"),
    (
        "dense",
        {"checkpoint_dir": "/c"},
        "+--save /c +--save-interval 1000 +--load /c +--exit-signal-handler",
    ),
    (
        "dense",
        {"checkpoint_dir": "/c", "async_checkpoint": True},
        "+--save /c +--save-interval 1000 +--load /c +--exit-signal-handler "
        "+--async-save +--use-persistent-ckpt-worker +--async-strategy mcore",
    ),
    ("dense", {"async_checkpoint": True}, ""),
    ("dense", {"fused_loss": True}, "+--cross-entropy-loss-fusion"),
    ("dense", {"tp_overlap": True}, "+--tp-comm-overlap"),
    (
        "dense",
        {"precision": "fp8", "fp8_recipe": "delayed"},
        "+--fp8-format hybrid +--fp8-recipe delayed +--fp8-param-gather "
        "+--fp8-amax-history-len 1024 +--fp8-amax-compute-algo max",
    ),
    (
        "dense",
        {"precision": "fp8", "fp8_recipe": "blockwise"},
        "+--fp8-format hybrid +--fp8-recipe blockwise",
    ),
    ("dense", {"fp8_recipe": "delayed"}, ""),
    ("routed", {"moe_imbalance": 1.5}, "---moe-router-force-load-balancing"),
    (
        "routed",
        {"data": ("/a",)},
        "+--data-path /a +--split 100,0,0 ---mock-data ---moe-router-force-load-balancing",
    ),
    ("dense", {"load_dir": "/l"}, "+--load /l +--exit-on-missing-checkpoint"),
    ("dense", {"load_dir": "/l", "kind": "finetune"}, "+--pretrained-checkpoint /l"),
    ("dense", {"kind": "finetune"}, "+--finetune"),
)
LAYOUTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("dense", {"cuda_graphs": True}, f"{GRAPHS} +--cuda-graph-modules attn mlp"),
    (
        "routed",
        {"cuda_graphs": True},
        f"{GRAPHS} +--cuda-graph-modules attn moe_router moe_preprocess",
    ),
    (
        "dense",
        {"cuda_graphs": "full_iteration"},
        "+--cuda-graph-impl full_iteration +--te-rng-tracker +--no-check-for-nan-in-loss-and-grad",
    ),
    ("dense", {"zero_stage": 0}, "---overlap-param-gather ---use-distributed-optimizer"),
    ("dense", {"dp_replicate": 3, "dp_shard": 1}, "+--num-distributed-optimizer-instances 3"),
    (
        "dense",
        {"cp": 2, "cp_comm": "a2a"},
        "+--context-parallel-size 2 +--cp-comm-type a2a ---context-parallel-size 1",
    ),
    (
        "dense",
        {"cp": 8, "cp_comm": "a2a+p2p", "cp_a2a": 2},
        "+--context-parallel-size 8 +--cp-comm-type a2a+p2p "
        "+--hierarchical-context-parallel-sizes 2 4 ---context-parallel-size 1",
    ),
    ("routed", {"order": "tp-cp-ep-pp-dp"}, "+--use-tp-pp-dp-mapping"),
    ("dense", {"sequence_parallel": False}, "---sequence-parallel"),
    (
        "routed",
        {"etp": 2},
        "+--expert-tensor-parallel-size 2 ---expert-tensor-parallel-size 1",
    ),
    ("dense", {"gtp": 3, "dp_shard": 1}, "+--tensor-parallel-num-weight-shards 12"),
    ("routed", {"egtp": 3}, "+--expert-tensor-parallel-num-weight-shards 3"),
    (
        "dense",
        {"recompute": SELECTIVE},
        "+--recompute-granularity selective +--recompute-modules core_attn layernorm",
    ),
    (
        "routed",
        {"offload": replace(NO_OFFLOAD, activations=("experts", "norms"))},
        "+--fine-grained-activation-offloading "
        "+--offload-modules expert_fc1 moe_act attn_norm mlp_norm",
    ),
    (
        "dense",
        {"recompute": FULL},
        "+--recompute-granularity full +--recompute-method block +--recompute-num-layers 3",
    ),
)


@cache
def base_plan(base: str) -> Plan:
    spec = {"dense": DENSE, "routed": ROUTED}[base]
    return plan_of({**spec, "layout": {**spec["layout"], "cuda_graphs": False}, "launch": {}})


def flags_of(problem: Problem, layout: Layout) -> set[str]:
    return {" ".join((one.flag, *one.values)) for one in planned_arguments(problem, layout)}


def difference(before: set[str], after: set[str]) -> list[str]:
    return sorted(
        [*(f"+{flag}" for flag in after - before), *(f"-{one}" for one in before - after)]
    )


def parts(expected: str) -> list[str]:
    """Return the signed flags of ``expected``, each with its values."""
    marked = expected.replace(" +--", "\n+--").replace(" ---", "\n---")
    return sorted(marked.splitlines())


@pytest.mark.parametrize(("base", "changes", "expected"), JOBS, ids=str)
def test_a_setting_of_the_job_changes_exactly_its_flags(
    base: str, changes: dict[str, Any], expected: str
) -> None:
    plan = base_plan(base)
    changed = replace(plan.problem, job=replace(plan.problem.job, **changes))
    before = flags_of(plan.problem, plan.layout)
    assert difference(before, flags_of(changed, plan.layout)) == parts(expected)


@pytest.mark.parametrize(("base", "changes", "expected"), LAYOUTS, ids=str)
def test_a_setting_of_the_layout_changes_exactly_its_flags(
    base: str, changes: dict[str, Any], expected: str
) -> None:
    plan = base_plan(base)
    before = flags_of(plan.problem, plan.layout)
    after = flags_of(plan.problem, replace(plan.layout, **changes))
    assert difference(before, after) == parts(expected)


LAUNCHES: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"tensorboard_dir": "/t"}, {}, "+--tensorboard-dir /t"),
    (
        {"wandb_project": "p"},
        {},
        "+--wandb-project p +--wandb-exp-name boundary +--wandb-save-dir wandb",
    ),
    (
        {"wandb_project": "p"},
        {"checkpoint_dir": "/c"},
        "+--wandb-project p +--wandb-exp-name boundary +--save /c +--save-interval 1000 +--load /c "
        "+--exit-signal-handler",
    ),
    (
        {"profile": ProfiledSteps(4, 6, (0, 8))},
        {},
        "+--profile +--profile-step-start 4 +--profile-step-end 6 +--profile-ranks 0 8",
    ),
    ({"omit": ("--manual-gc", "--log-throughput")}, {}, "---manual-gc ---log-throughput"),
)


@pytest.mark.parametrize(("changes", "job", "expected"), LAUNCHES, ids=str)
def test_a_setting_of_the_launch_changes_exactly_its_flags(
    changes: dict[str, Any], job: dict[str, Any], expected: str
) -> None:
    plan = base_plan("dense")
    launch, changed_job = (
        replace(one, **new)
        for one, new in ((plan.problem.launch, changes), (plan.problem.job, job))
    )
    changed = replace(plan.problem, launch=launch, job=changed_job)
    before = flags_of(plan.problem, plan.layout)
    assert difference(before, flags_of(changed, plan.layout)) == parts(expected)


@pytest.mark.parametrize(
    ("activation", "gated", "bias", "expected"),
    [
        ("silu", True, False, ["--disable-bias-linear", "--swiglu"]),
        ("gelu", False, False, ["--disable-bias-linear"]),
        ("gelu", False, True, ["--no-bias-gelu-fusion"]),
        ("relu2", False, False, ["--disable-bias-linear", "--squared-relu"]),
        ("relu2", False, True, ["--no-bias-gelu-fusion", "--squared-relu"]),
    ],
)
def test_activation_and_biases_of_a_model_have_their_flags(
    activation: str, gated: bool, bias: bool, expected: list[str]
) -> None:
    plan = base_plan("dense")
    model = plan.problem.model
    ffn = replace(model.ffn, activation=activation, gated=gated, bias=bias)
    attention = replace(model.attention, output_bias=bias, qkv_bias=bias)
    changed = replace(plan.problem, model=replace(model, ffn=ffn, attention=attention))
    about = ("gelu", "glu", "relu", "bias")
    found = flags_of(changed, plan.layout)
    assert sorted(flag for flag in found if any(word in flag for word in about)) == expected


def test_every_derived_flag_of_a_model_is_written_for_some_model_but_not_for_all() -> None:
    seen: dict[str, set[tuple[str, ...] | None]] = {}
    derived = {row.setting for row in flag_table(PACKAGE).rows if row.group in ("model", "experts")}
    library = Library(None)
    for name in library.names("models"):
        model = resolve_model(name, library, Sink())
        assert model is not None
        plan = base_plan("dense" if model.experts is None else "routed")
        found = planned_arguments(replace(plan.problem, model=model), plan.layout)
        values = {one.flag: tuple(one.values) for one in found}
        for flag in derived:
            seen.setdefault(flag, set()).add(values.get(flag))
    # These depend on the job, or are the same for every model.
    job = {"--moe-flex-dispatcher-backend", "--overlap-moe-expert-parallel-comm"}
    job |= {"--moe-router-padding-for-quantization", "--mtp-num-layers", "--delay-wgrad-compute"}
    job |= {"--mtp-loss-scaling-factor"}
    constant = {"--attention-dropout", "--hidden-dropout", "--make-vocab-size-divisible-by"}
    # The catalog has no model whose experts work on a latent width.
    absent = {"--moe-latent-size"}
    assert {flag for flag, values in seen.items() if len(values) == 1} == job | constant | absent


def test_experts_on_a_latent_width_have_their_flag() -> None:
    plan = base_plan("routed")
    model = plan.problem.model
    assert model.experts is not None
    changed = replace(model, experts=replace(model.experts, latent_size=1024))
    before = flags_of(plan.problem, plan.layout)
    after = flags_of(replace(plan.problem, model=changed), plan.layout)
    assert difference(before, after) == ["+--moe-latent-size 1024"]

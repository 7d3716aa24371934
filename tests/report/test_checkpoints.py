"""Tests of the check of checkpoints: Megatron-Core's rules for torch_dist and torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.ir import Plan
from parc.compiler.ir.model import Mamba
from parc.compiler.report.diff.diff import Checkpoint, loadable_state
from tests.placement.placement_plans import cluster, layout, plan
from tests.report.sides import side_of

ON = cluster(8)
OLD = plan(ON, layout(tp=8, pp=2, dp=4))


def check(new: Plan, old: Plan = OLD, args: str = "A=(\n)\n") -> Checkpoint:
    return loadable_state(side_of(old, args=args), side_of(new))


def test_an_unchanged_plan_loads_without_notes() -> None:
    assert check(OLD) == Checkpoint("loads", ())


def test_another_dp_loads_everything() -> None:
    found = check(plan(ON, layout(tp=8, pp=2, dp=2)))
    assert found.verdict == "loads"
    assert found.reasons == ("torch_dist reshards dp 4 -> 2",)


@pytest.mark.parametrize("degrees", [{"tp": 4, "pp": 2, "dp": 8}, {"tp": 8, "pp": 4, "dp": 2}])
def test_another_tp_or_pp_loads_weights_but_not_the_sharded_optimizer(
    degrees: dict[str, int],
) -> None:
    found = check(plan(ON, layout(**degrees)))
    assert found.verdict == "weights only"
    assert "--dist-ckpt-optim-fully-reshardable" in found.reasons[0]


def test_a_fully_reshardable_optimizer_loads_under_any_mesh() -> None:
    args = "A=(\n  --dist-ckpt-optim-fully-reshardable\n)\n"
    assert check(plan(ON, layout(tp=4, pp=4, dp=4)), args=args).verdict == "loads"


def test_an_optimizer_that_is_not_sharded_loads_under_any_mesh() -> None:
    old = replace(OLD, layout=replace(OLD.layout, zero_stage=0))
    assert check(plan(ON, layout(tp=4, pp=4, dp=4)), old).verdict == "loads"


def test_the_format_torch_needs_the_same_mesh() -> None:
    args = "A=(\n  --ckpt-format torch\n)\n"
    assert check(plan(ON, layout(tp=4, pp=2, dp=8)), args=args).verdict == "does not load"
    assert check(plan(ON, layout(tp=8, pp=2, dp=2)), args=args).verdict == "loads"


def test_another_model_does_not_load() -> None:
    model = replace(OLD.problem.model, hidden=2048)
    found = check(replace(OLD, problem=replace(OLD.problem, model=model)))
    assert found == Checkpoint("does not load", ("hidden 1024 -> 2048",))


def test_fields_of_a_changed_part_are_listed() -> None:
    mamba = Mamba(heads=32, head_dim=64, state_size=128, groups=8, conv_size=4)
    model = replace(OLD.problem.model, mamba=mamba, pattern="M*" * (OLD.problem.model.layers // 2))
    wider = replace(model, mamba=replace(mamba, heads=64))
    before, after = (
        replace(OLD, problem=replace(OLD.problem, model=one)) for one in (model, wider)
    )
    assert check(after, before) == Checkpoint("does not load", ("mamba.heads 32 -> 64",))
    reasons = check(OLD, before).reasons
    assert "mamba present -> absent" in reasons
    assert any(one.startswith("pattern M*M*") and one.endswith("-> absent") for one in reasons)


def test_top_k_and_name_do_not_change_weights() -> None:
    old = plan(ON, layout(tp=1, dp=64, ep=8), experts=8)
    model = old.problem.model
    assert model.experts is not None
    other = replace(model, name="other", experts=replace(model.experts, top_k=1))
    assert check(replace(old, problem=replace(old.problem, model=other)), old).verdict == "loads"


def test_a_padded_vocabulary_that_tp_changes_is_listed() -> None:
    found = check(plan(ON, layout(tp=4, pp=2, dp=8)))
    assert any("32768 -> 32256 rows" in reason for reason in found.reasons)


LESS = "A=(\n  --lr 0.0001\n  --min-lr 1e-05\n  --adam-beta2 0.95\n)\n"
MORE = LESS.replace("0.0001", "0.0002").replace("0.95", "0.99")


@pytest.mark.parametrize("flag", ["", "--override-opt-param-scheduler", "--finetune"])
def test_another_learning_rate_loads_but_needs_an_override(flag: str) -> None:
    after = MORE.replace(")", f"  {flag}\n)")
    found = loadable_state(side_of(OLD, args=LESS), side_of(OLD, args=after))
    assert found.verdict == "loads"
    assert ("stops on resume because --lr changes, unless" in " ".join(found.reasons)) == (not flag)


def test_another_adam_beta_does_not_concern_the_scheduler() -> None:
    after = LESS.replace("0.95", "0.99")
    assert loadable_state(side_of(OLD, args=LESS), side_of(OLD, args=after)) == Checkpoint(
        "loads", ()
    )


def test_another_framework_than_megatron_is_not_compared_by_the_rules_of_megatron() -> None:
    old = side_of(OLD)
    problem = {**old.plan["problem"], "framework": "deepspeed"}
    sharded = replace(old, plan={**old.plan, "problem": problem})
    found = loadable_state(sharded, sharded)
    assert found == Checkpoint("unknown", ("PARC has no rules for checkpoints of deepspeed",))
    assert loadable_state(old, sharded).verdict == "unknown"

"""Unknown fields of the IR: reading one names the fact; any other failure of a rule is a bug."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from parc.compiler.ir import Layout, NodeType, Plan, Problem
from parc.compiler.ir.finding import Finding
from parc.compiler.ir.rule import Rule
from parc.compiler.tools.lint import check_rules
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import (
    UnknownFact,
    build_partial_instance,
    find_missing_fact,
    is_field_known,
    mark_fields_unknown,
    with_field_values,
)
from tests.lint.scripts import MEGATRON

LAYOUT = Layout(**{name: 1 for name in Layout.__dataclass_fields__})


def test_reading_an_unknown_field_names_type_and_field() -> None:
    partial = mark_fields_unknown(LAYOUT, ["pp", "vpp"])
    assert (partial.tp, is_field_known(partial, "tp"), is_field_known(partial, "pp")) == (
        1,
        True,
        False,
    )
    with pytest.raises(UnknownFact, match=r"^Layout\.pp$"):
        partial.pp  # noqa: B018  # reading is the point
    assert find_missing_fact(lambda: print(partial.vpp)) == "Layout.vpp"
    assert find_missing_fact(lambda: None) is None


def test_an_unknown_field_is_not_absent() -> None:
    with pytest.raises(UnknownFact):
        getattr(mark_fields_unknown(LAYOUT, ["pp"]), "pp", 8)


def test_a_partial_object_is_an_instance_of_its_type_until_all_of_it_is_known() -> None:
    partial = mark_fields_unknown(LAYOUT, ["pp"])
    assert isinstance(partial, Layout)
    assert type(partial) is not Layout
    whole = with_field_values(partial, pp=1)
    assert type(whole) is Layout
    assert whole == LAYOUT
    assert replace(partial, pp=4).pp == 4


def test_what_follows_from_an_unknown_field_is_unknown() -> None:
    with pytest.raises(UnknownFact, match=r"Layout\.dp_shard"):
        mark_fields_unknown(LAYOUT, ["dp_shard"]).world  # noqa: B018


def test_a_partial_object_is_built_from_its_known_fields() -> None:
    plan = build_partial_instance(Plan, layout=LAYOUT)
    assert plan.layout is LAYOUT
    with pytest.raises(UnknownFact, match=r"Plan\.problem"):
        plan.problem  # noqa: B018


def never_explained(problem: Problem, layout: Layout) -> Finding:
    raise AssertionError


def reads_no_field(problem: Problem, layout: Layout) -> bool:
    return bool(problem.modle)  # type: ignore[attr-defined]


def reads_a_half_built_object(problem: Problem, layout: Layout) -> bool:
    return object.__new__(NodeType).gpus == 8


@pytest.mark.parametrize("broken", [reads_no_field, reads_a_half_built_object])
def test_a_bug_in_a_rule_is_not_taken_for_an_unknown_fact(
    broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule("D01", ("layout.tp",), broken, never_explained)  # type: ignore[arg-type]
    monkeypatch.setattr(check_rules, "all_rules", lambda *_: (rule,))
    with pytest.raises(AttributeError):
        lint_text(MEGATRON, "run.sh", LintOptions())


@pytest.mark.parametrize("hidden", [4096, 4097])
def test_a_hidden_size_that_heads_do_not_divide_does_not_hide_other_findings(hidden: int) -> None:
    text = MEGATRON.replace("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 3")
    assert text != MEGATRON
    changed = re.sub(r"--hidden-size \d+", f"--hidden-size {hidden}", text)
    sink = lint_text(changed, "run.sh", LintOptions())[0]
    found = {one.code.removeprefix("PARC-") for one in sink.diagnostics}
    assert found >= {"D01"}
    assert ("D07" in found) is (hidden == 4097)

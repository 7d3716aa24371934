"""Tests of edits of a spec's text: only the edited value changes."""

from __future__ import annotations

import pytest

from parc.compiler.spec.edit_text import edit_text

BLOCK = """\
# head
model: llama-3-8b   # the model
cluster:
  node: dgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-02]"}   # first
    - name: r02
      nodes: "r02n[01-02]"
layout: {tp: 3, cp: 1,  pp: 2}  # pins
goals:
  # why
  maximize: throughput

emit:
  - megatron   # one
  - slurm
job:
  steps: 10
# tail
"""


@pytest.mark.parametrize(
    ("override", "old", "new"),
    [
        ("layout.tp=8", "{tp: 3, cp", "{tp: 8, cp"),
        ("layout.dp=8", "pp: 2}  #", "pp: 2, dp: 8}  #"),
        ("~layout.cp", "{tp: 3, cp: 1,  pp: 2}", "{tp: 3, pp: 2}"),
        ("~layout.pp", "cp: 1,  pp: 2}", "cp: 1}"),
        ("job.seed=1", "  steps: 10\n", "  steps: 10\n  seed: 1\n"),
        ("cluster.failures.repair=2h", '02]"\nlay', '02]"\n  failures: {repair: 2h}\nlay'),
        ("launch.slurm.account=a", "  steps: 10\n", "  steps: 10\nlaunch: {slurm: {account: a}}\n"),
        ("~emit[1]", "  - slurm\n", ""),
        ("~emit[0]", "  - megatron   # one\n", ""),
        ("~cluster.racks[0].nodes", ', nodes: "r01n[01-02]"}', "}"),
        ("~cluster.racks[1].name", "name: r02\n      ", ""),
        ("~goals.maximize", "  # why\n  maximize: throughput", "  # why\n  {}"),
        ("~job.steps", "job:\n  steps: 10", "job: {}"),
        ("model.layers=4", "llama-3-8b ", "{base: llama-3-8b, layers: 4} "),
        ("~layout.vpp", "", ""),
        ("~job=work", "job:\n", "work:\n"),
        ("~layout.cp=context", "cp: 1", "context: 1"),
        ("~cluster.racks[0].name=label", "{name: r01", "{label: r01"),
    ],
)
def test_an_edit_changes_only_the_edited_value(override: str, old: str, new: str) -> None:
    expected = BLOCK.replace(old, new, 1)
    assert edit_text(BLOCK, [override]) == expected


@pytest.mark.parametrize(
    ("overrides", "old", "new"),
    [
        (["~cluster.node", "cluster.nodes=dgx-h100"], "  node: dgx-h100\n", "  nodes: dgx-h100\n"),
        (["~goals.maximize", "goals.tie=1"], "maximize: throughput", "tie: 1"),
        (["~layout.cp", 'layout.ep="1"'], "cp: 1,", 'ep: "1",'),
        (["~model", "models=llama-3-8b"], "model: llama-3-8b   #", "models: llama-3-8b   #"),
        (["~layout.cp", "job.seed=1"], "cp: 1,  pp: 2}", "pp: 2}"),
    ],
)
def test_a_removed_and_a_new_key_of_one_mapping_are_a_renaming(
    overrides: list[str], old: str, new: str
) -> None:
    edited = edit_text(BLOCK, overrides)
    assert edited is not None
    assert edited.replace("  seed: 1\n", "") == BLOCK.replace(old, new, 1)


def test_line_ends_stay_as_they_are() -> None:
    text = "job:\r\n  steps: 1 # c\r\nname: a"
    assert edit_text(text, ["job.seed=2", "parc=1"]) == (
        "job:\r\n  steps: 1 # c\r\n  seed: 2\r\nname: a\r\nparc: 1"
    )


def test_an_edit_that_would_change_another_value_is_refused() -> None:
    shared = "job: &a {steps: 1}\ngoals: *a\n"
    assert edit_text(shared, ["job.steps=2"]) is None
    assert edit_text("emit: [a]\n", ["emit[3]=b"]) is None
    assert edit_text("a: [\n", ["a=1"]) is None
    assert edit_text("a: 1\n", ["~b=c"]) is None
    assert edit_text("a: 1\nb: 2\n", ["~a=b"]) is None

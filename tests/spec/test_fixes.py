"""Fixes as edits: their forms, their application, and the withdrawal of those that fail."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.fixes import overrides_of_fix, withdraw_failed_fixes
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.override import apply_overrides
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.reading.yaml_tree import read_tree

SPEC = """\
parc: 1
name: x
model: llama-3-8b
cluster: {node: dgx-h100, nodes: 4}
job: {sequence_length: 8192, global_batch: 64}
"""


@pytest.mark.parametrize(
    ("fix", "overrides"),
    [
        ("layout.tp: 8", ("layout.tp=8",)),
        ("cluster.racks[0].nodes: 4", ("cluster.racks[0].nodes=4",)),
        ("job.global_batch.tokens: 16Mi   (2048 sequences)", ("job.global_batch.tokens=16Mi",)),
        ("layout.recompute: {granularity: full}", ("layout.recompute={granularity: full}",)),
        ("layout.tp: 8   (instead of layout.tensor)", ("~layout.tensor", "layout.tp=8")),
        ("remove layout.vpp", ("~layout.vpp",)),
        ("remove layout.vpp, layout.pp", ("~layout.vpp", "~layout.pp")),
        ("remove layout.vpp, so that PARC chooses it", ("~layout.vpp",)),
        ("remove name, or set a value", ("~name",)),
        ("remove emit[1], and set layout.tp: 4", ("~emit[1]", "layout.tp=4")),
        ("rename jobs to job", ("~jobs=job",)),
        ("rename cluster.fabrics to fabric", ("~cluster.fabrics=fabric",)),
        ('rename job."globa l" to global_batch', ('~job."globa l"=global_batch',)),
        ("launch.kubernetes.resources.rdma/hca: 1", ("launch.kubernetes.resources.rdma/hca=1",)),
    ],
)
def test_a_fix_is_read_as_overrides(fix: str, overrides: tuple[str, ...]) -> None:
    assert overrides_of_fix(fix) == overrides


@pytest.mark.parametrize(
    "fix",
    [
        "",
        "use a smaller model",
        "rename the job to x",
        'rename "a=b" to job',
        "layout.ep: on, with tp or dp above 1",
        "model.ffn: <number>",
        "launch.kubernetes.queue: NAME",
        "job.load_dir: /path/to/checkpoint",
        "layout.tp: ...",
        "remove --tensor-model-parallel-size from launch.args, and set layout.tp: 4",
        "remove name, and set layout.tp: ...",
    ],
)
def test_a_fix_that_needs_the_user_has_no_overrides(fix: str) -> None:
    assert overrides_of_fix(fix) == ()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("~a", {"b": {"c": 1}, "d": [1, 2, 3]}),
        ("~b.c", {"a": 1, "b": {}, "d": [1, 2, 3]}),
        ("~d[1]", {"a": 1, "b": {"c": 1}, "d": [1, 3]}),
        ("~x.y", {"a": 1, "b": {"c": 1}, "d": [1, 2, 3]}),
        ("~d[7]", {"a": 1, "b": {"c": 1}, "d": [1, 2, 3]}),
        ("~a.b.c", {"a": 1, "b": {"c": 1}, "d": [1, 2, 3]}),
    ],
)
def test_an_override_with_a_tilde_removes_a_setting(override: str, expected: object) -> None:
    tree = read_tree("a: 1\nb: {c: 1}\nd: [1, 2, 3]\n", "x", Sink())
    assert tree is not None
    sink = Sink()
    changed = apply_overrides(tree, [override], sink)
    assert changed.value == expected
    assert not sink.diagnostics
    # No position is left of a value that is gone.
    assert changed.values.keys() <= {"", "a", "b", "b.c", "d", "d[0]", "d[1]", "d[2]"}
    assert override.lstrip("~") not in changed.values


@pytest.mark.parametrize("override", ["~", "~.a", "~a b"])
def test_a_removal_without_a_path_is_rejected(override: str) -> None:
    sink = Sink()
    assert load_spec(SpecSource("x", SPEC, None), [override], sink) is None
    assert [found.code for found in sink.diagnostics] == ["PARC-X15"]


def fixes_of(*overrides: str) -> dict[str, str]:
    sink = Sink()
    resolve_spec(SpecSource("x", SPEC, None), overrides, sink)
    return {found.path: found.finding.fix for found in sink.diagnostics}


@pytest.mark.parametrize("key", ["containers", "container_memory"])
def test_a_key_of_slurm_is_not_taken_for_an_unrelated_key(key: str) -> None:
    path = f"launch.slurm.{key}"
    assert fixes_of(f"{path}=x") == {path: ""}


def test_modules_of_slurm_are_neither_moved_nor_removed() -> None:
    # The message names launch.setup, whose lines are commands; a name of a module is not one.
    assert fixes_of("launch.slurm.modules=x") == {"launch.slurm.modules": ""}


def test_an_abbreviated_zero_stage_is_not_taken_for_zero_plus() -> None:
    fix = "layout.zero_stage: 1   (instead of layout.zero)"
    assert fixes_of("layout.zero=1") == {"layout.zero": fix}


def test_a_fix_that_does_not_work_is_withdrawn() -> None:
    # bfloat16 is not a value of the key that is meant, so setting it there would not work.
    assert fixes_of("job.dtype=bfloat16") == {"job.dtype": ""}
    assert fixes_of("job.dtype=bf16") == {
        "job.dtype": "job.precision: bf16   (instead of job.dtype)"
    }


def test_only_fixes_that_fail_are_withdrawn() -> None:
    sink, tried = Sink(), []

    def attempt(edits: object) -> Sink:
        tried.append(edits)
        result = Sink()
        if edits == ("a=1",):
            result.report("X02", "still wrong", at="a")
        return result

    sink.report("X02", Finding("wrong", fix="a: 1"), at="a")
    sink.report("X02", Finding("wrong", fix="b: 1"), at="b")
    sink.report("X02", Finding("wrong", fix="b: 1"), at="c")
    sink.report("X02", Finding("wrong", fix="look it up"), at="d")
    withdraw_failed_fixes(sink, attempt)
    assert [found.finding.fix for found in sink.diagnostics] == ["", "b: 1", "b: 1", "look it up"]
    assert len(tried) == 2  # equal fixes are tried once

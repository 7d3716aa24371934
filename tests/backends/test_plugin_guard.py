"""Mistakes of plugins are findings that name the plugin, the member and the value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from parc.backends.built_in import BUILT_IN
from parc.backends.plugins import optional_parts
from parc.backends.registry import engine, framework, supported_versions
from parc.compiler import pipeline
from parc.compiler.cli import main
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Layout, ServingLayout
from tests.backends.plugin_distributions import delegating_module, scanned, write_distribution

SPEC: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "micro_batch": 1},
}
SERVICE: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "llama-3.1-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 500, "output_tokens": 100, "concurrency": 8},
        "max_model_len": 8192,
    },
    "layout": {"tp": 1, "dp": 1},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions, and of specs."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def run(folder: Path, command: str, tree: dict[str, Any], **changes: Any) -> Result:
    """Run ``parc COMMAND`` on ``tree`` with other sections; compile writes to ``out``.

    The rules of a built-in backend look up its version, which the spec therefore sets.
    """
    spec = folder / "spec.yaml"
    binding = [one for one in BUILT_IN if one.binds_layout]
    names = [one.name for one in binding if one.is_engine == (tree is SERVICE)]
    versions = {name: supported_versions(name)[1] for name in names}
    emitted = {"emit": ["mylab", "rankmap"], "versions": versions}
    spec.write_text(json.dumps(tree | emitted | changes, indent=1), encoding="utf-8")
    output = ["-o", str(folder / "out")] if command == "compile" else []
    return CliRunner().invoke(main, [command, str(spec), *output])


def compiled(folder: Path, members: str, base: str = "megatron", **changes: Any) -> Result:
    """Compile the training spec with a framework that has ``members``."""
    write_distribution(folder, "mylab", delegating_module(base, members))
    return run(folder, "compile", SPEC, **changes)


def report_of(result: Result) -> str:
    """Return the output of a command that failed with a diagnostic."""
    assert result.exit_code == 1, result.output
    assert "internal error" not in result.output
    return result.output


WRONG_MEMBERS = {
    "raises": (
        "def rank_orders(self, problem):\n    return 1 / 0",
        "rank_orders() of parc-mylab 1.0 raised ZeroDivisionError: division by zero",
    ),
    "exits": (
        "def emit(self, plan):\n    raise SystemExit(3)",
        "emit() of parc-mylab 1.0 raised SystemExit: 3",
    ),
    "other type": (
        "def launch_command(self, plan):\n    return None",
        "launch_command() of parc-mylab 1.0 returned None, must be LaunchCommand",
    ),
    "text in place of texts": (
        'def rank_orders(self, problem):\n    return "tp-cp-ep-dp-pp"',
        "must be a tuple of (text, ...)",
    ),
    "nothing to try": (
        "def layout_variants(self, problem):\n    return ()",
        "layout_variants() of parc-mylab 1.0 returned (), must contain at least one value",
    ),
    "NaN": (
        "def training_memory_model(self, problem):\n"
        "    found = BASE.training_memory_model(problem)\n"
        '    return replace(found, state=replace(found.state, weight=float("nan")))',
        "returned a value whose state.weight is nan, must be a finite number",
    ),
    "negative": (
        "def training_memory_model(self, problem):\n"
        "    return replace(BASE.training_memory_model(problem), loss_bytes=-1.0)",
        "whose loss_bytes is -1.0, must be at least 0",
    ),
    "literal": (
        "def layout_variants(self, problem):\n"
        '    return tuple(replace(one, cp_comm="smoke") for one in BASE.layout_variants(problem))',
        "whose [0].cp_comm is 'smoke', must be one of 'p2p'",
    ),
    "layers": (
        "def find_split(self, problem, pp, vpp):\n"
        "    found = BASE.find_split(problem, pp, vpp)\n"
        "    chunk = replace(found.chunks[0][0], layers=1)\n"
        "    return replace(found, chunks=((chunk,),) * pp)",
        "must contain each of the 32 layers of the model once",
    ),
    "vocabulary": (
        "def padded_vocab(self, problem, tp):\n    return 0",
        "padded_vocab() of parc-mylab 1.0 returned 0, the vocabulary has 128256 entries",
    ),
    "axes": (
        "def device_meshes(self, layout):\n"
        '    return (Mesh.from_sizes((("tp", layout.tp), ("dp", layout.dp))),) * 2',
        "a mesh of the dense layers without the axes cp, pp",
    ),
    "families": (
        "def group_families(self, layout):\n"
        '    return (GroupFamily("x", "dense", ("nowhere",), column=True),)',
        "the family x over unknown axes: ('nowhere',)",
    ),
    "variable": (
        'def environment(self, plan):\n    return (("A;rm", "1"),)',
        "environment() of parc-mylab 1.0 returned 'A;rm', which is not a name of",
    ),
    "file of another target": (
        'def emit(self, plan):\n    return (Artifact("torchrun/launch.sh", "x"),)',
        "emit() of parc-mylab 1.0 returned the file 'torchrun/launch.sh', must be in the folder",
    ),
    "file outside": (
        'def emit(self, plan):\n    return (Artifact("mylab/../../x", "x"),)',
        "must be in the folder mylab",
    ),
    "file twice": (
        "def emit(self, plan):\n    return (Artifact(FILE, '1'), Artifact(FILE, '2'))",
        "returned the file 'mylab/settings.txt' twice",
    ),
    "rule fails": (
        "def rules(self, problem):\n"
        '    return (Rule("D01", ("layout.tp",), lambda p, l: 1 / 0, lambda p, l: None),)',
        "rule D01 on layout.tp of parc-mylab 1.0 raised ZeroDivisionError",
    ),
    "rule reads more": (
        "def rules(self, problem):\n"
        '    explain = lambda p, l: Finding("no")\n'
        '    return (Rule("D01", ("layout.tp",), lambda p, l: l.dp != 4, explain, ("tp",)),)',
        "rule D01 on layout.tp of parc-mylab 1.0 reads layout.dp_replicate, which its field reads",
    ),
    "rule of another code": (
        "def rules(self, problem):\n"
        '    return (Rule("Q99", ("layout.tp",), lambda p, l: True, lambda p, l: None),)',
        "rule Q99 on layout.tp of parc-mylab 1.0 raised KeyError",
    ),
    "explanation": (
        "def rules(self, problem):\n"
        '    return (Rule("D01", ("layout.tp",), lambda p, l: True, lambda p, l: "no"),)',
        "explain() of rule D01 on layout.tp of parc-mylab 1.0 returned 'no', must be Finding",
    ),
    "factor": (
        'stack = KernelStack("mylab", rows={"hopper": Efficiency(gemm=-3.0)})',
        "stack of parc-mylab 1.0 is a value whose rows['hopper'].gemm is -3.0, must be at least 0",
    ),
    "property": (
        'stack = KernelStack("mylab", like="torch-native", properties={"measured": True})',
        "stack of parc-mylab 1.0 has the property 'measured', must be one of",
    ),
    "versions": ('versions = "0.5"', "versions of parc-mylab 1.0 is '0.5', must be a tuple"),
    "default version": ('default_version = "9"', "which lacks the default_version '9'"),
    "impossible speed": (
        'stack = KernelStack("mylab", rows={"hopper": Efficiency(gemm=0.01, attention=0.01)})',
        "must be at most 100 %",
    ),
    "crash of PARC": (
        "def rules(self, problem):\n"
        '    explain = lambda p, l: Finding("no", fix="layout.nothing: 1")\n'
        '    return (Rule("D01", ("layout.nothing",), lambda p, l: True, explain),)',
        "PARC stopped with TypeError",
    ),
}


@pytest.mark.parametrize("case", WRONG_MEMBERS)
def test_a_wrong_member_is_a_finding_of_the_plugin(folder: Path, case: str) -> None:
    members, message = WRONG_MEMBERS[case]
    # The script of torchrun contains the command and the environment of the framework.
    report = report_of(compiled(folder, members, emit=["mylab", "rankmap", "torchrun"]))
    assert "error[PARC-X23]: the backend plugin 'mylab' cannot be used:" in report
    assert message in report
    assert not (folder / "out").exists()
    assert run(folder, "check", SPEC, emit=["megatron", "rankmap"]).exit_code == 0


@pytest.mark.parametrize("command", ["check", "estimate", "search"])
def test_every_command_reports_the_plugin(folder: Path, command: str) -> None:
    write_distribution(folder, "mylab", delegating_module("megatron", WRONG_MEMBERS["NaN"][0]))
    report = report_of(run(folder, command, SPEC))
    assert "training_memory_model() of parc-mylab 1.0 returned" in report


def test_a_missing_plan_without_an_error_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "plan_problem", lambda *_: None)
    report = report_of(compiled(folder, ""))
    assert "parc-mylab 1.0 leaves no layout, and no error states why" in report
    with pytest.raises(AssertionError, match="neither a plan nor an error"):
        pipeline.plan_job(_resolved_problem(folder, emit=["megatron"]), Sink())


def _resolved_problem(folder: Path, **changes: Any) -> Any:
    from parc.compiler.spec.reading.source import SpecSource

    source = SpecSource("spec.yaml", json.dumps(SPEC | changes), folder)
    found = pipeline.resolve_spec(source, (), Sink())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("members", "layout", "message"),
    [
        (
            "def layout_variants(self, problem):\n"
            "    return tuple(replace(one, zero_stage=1) for one in BASE.layout_variants(problem))",
            {"zero_stage": 0},
            "ignores the value in layout_variants(): the spec has 0, the plan 1",
        ),
        (
            "def find_split(self, problem, pp, vpp):\n"
            "    free = replace(problem.pins, first_stage_layers=None)\n"
            "    return BASE.find_split(replace(problem, pins=free), pp, vpp)",
            {"pp": 2, "first_stage_layers": 10},
            "ignores the value in find_split(): the spec has 10, the plan 16",
        ),
    ],
)
def test_a_value_of_the_spec_that_the_plan_lacks_is_an_error(
    folder: Path, members: str, layout: dict[str, Any], message: str
) -> None:
    report = report_of(compiled(folder, members, layout={"tp": 2, **layout}))
    assert "PARC-X23" in report
    assert message in report
    assert f"layout.{list(layout)[-1]}" in report


def test_a_rank_order_that_the_framework_does_not_offer_is_an_error(folder: Path) -> None:
    members = 'def rank_orders(self, problem):\n    return ("tp-cp-ep-dp-pp",)'
    report = report_of(compiled(folder, members, layout={"tp": 2, "order": "tp-cp-ep-pp-dp"}))
    assert "PARC-E11" in report
    assert "= fix:  layout.order: tp-cp-ep-dp-pp" in report


def test_meshes_in_another_order_than_the_rank_order_are_an_error(folder: Path) -> None:
    members = (
        "def device_meshes(self, layout):\n"
        '    names = ("cp", "dp", "tp", "pp")\n'
        "    dense = Mesh.from_sizes(tuple((one, getattr(layout, one)) for one in names))\n"
        "    return dense, BASE.device_meshes(layout)[1]"
    )
    report = report_of(compiled(folder, members))
    assert "the dense mesh varies dp faster than tp, but the rank order is tp-cp-ep-dp" in report


def test_experts_and_dense_layers_have_the_same_pipeline_stages(folder: Path) -> None:
    members = (
        "def rules(self, problem):\n"
        '    return tuple(one for one in BASE.rules(problem) if one.code != "D14")'
    )
    layout = {"tp": 2, "pp": 2, "ep": 4, "etp": 1, "cp": 1, "order": "tp-cp-ep-pp-dp"}
    changes = {"model": "qwen3-30b-a3b", "cluster": {"node": "dgx-h100", "nodes": 8}}
    report = report_of(compiled(folder, members, layout=layout, **changes))
    assert "PARC-D14" in report
    assert "rank 2 is in pipeline stage 1 of the dense layers and in stage 0 of the exp" in report


def test_a_plugin_without_files_is_reported(folder: Path) -> None:
    result = compiled(folder, "def emit(self, plan):\n    return ()")
    assert result.exit_code == 0
    assert "mylab emits no file for this job" in result.output


WRONG_ENGINES = {
    "constants": (
        "def constants(self):\n"
        "    found = BASE.constants()\n"
        "    slow = replace(found.scheduling, step_seconds=-2.0)\n"
        "    return replace(found, scheduling=slow)",
        "scheduling.step_seconds is -2, must be from 0 to 10",
    ),
    "limits": (
        "def default_batch(self, gpu):\n    return (0, 0)",
        "default_batch() of parc-mylab 1.0 returned (0, 0), must be at least 1",
    ),
    "context": (
        "def context_tokens(self, model):\n    return None",
        "context_tokens() of parc-mylab 1.0 returned None, must be integer",
    ),
    "features": (
        'def service_features(self, model):\n    return frozenset({"telepathy"})',
        "service_features() of parc-mylab 1.0 returned the unknown feature 'telepathy'",
    ),
    "script": (
        'host_script = "mylab/other.sh"',
        "parc-mylab 1.0 does not emit mylab/other.sh, which its member host_script names",
    ),
}


@pytest.mark.parametrize("case", WRONG_ENGINES)
def test_a_wrong_member_of_an_engine_is_a_finding(folder: Path, case: str) -> None:
    members, message = WRONG_ENGINES[case]
    write_distribution(folder, "mylab", delegating_module("vllm", members, serves=True))
    assert message in report_of(run(folder, "compile", SERVICE))


@pytest.mark.parametrize("name", [one.name for one in BUILT_IN if one.binds_layout])
def test_the_guard_accepts_all_values_of_built_in_backends(folder: Path, name: str) -> None:
    serves = any(one.name == name and one.is_engine for one in BUILT_IN)
    write_distribution(folder, "mylab", delegating_module(name, serves=serves))
    changes = {} if serves else {"layout": {"micro_batch": 1}}
    result = run(folder, "compile", SERVICE if serves else SPEC, **changes)
    assert result.exit_code == 0, result.output
    assert "PARC-X23" not in result.output
    find: Any = engine if serves else framework
    found, own = find("mylab"), find(name)
    assert found is find("mylab"), "guards are compared by identity"
    assert [one for one in optional_parts() if isinstance(found, one)] == [
        one for one in optional_parts() if isinstance(own, one)
    ]
    assert type(own).__module__.startswith("parc.backends."), "built-in backends have no guard"


def test_rules_cannot_read_fields_that_they_do_not_list() -> None:
    from parc.backends.plugin_guard import _declared_fields, _UndeclaredRead

    serving = _declared_fields(ServingLayout, ("tp",))(ServingLayout(tp=4, dp=2))
    assert serving.tp == 4
    with pytest.raises(_UndeclaredRead, match="dp"):
        assert serving.dp
    with pytest.raises(_UndeclaredRead, match="pcp"):
        assert serving.rank_gpus
    whole = object.__new__(Layout)
    vars(whole).update(tp=4, gtp=1)
    view = _declared_fields(Layout, ("tp",))(whole)
    with pytest.raises(_UndeclaredRead, match="gtp"):
        assert view.gtp, "a default must not replace a field that a rule does not list"

"""``parc import`` of an output folder: the compiled spec, and changed files (PARC-"I08")."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, AnyProblem, Plan, ServingPlan, ServingProblem
from parc.compiler.pipeline import emit_plan, plan_job, resolve_spec
from parc.compiler.report.json.plan_json import plan_artifact
from parc.compiler.search.choose_step_tokens import with_step_tokens
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.importers.format_fragment import fragment_yaml
from parc.compiler.tools.importers.import_files import import_files
from tests.cli.specs import SPEC, parc, write_spec
from tests.compiled import EXAMPLES, ROOT, emitted, example
from tests.laws.test_identity import random_spec

WALK = int(os.environ.get("PARC_IDENTITY", "0"))
"""Number of random plans whose imported spec is compiled; 0: compile only a few examples."""


def imported_spec(plan_json: str) -> str:
    """Return the spec that ``parc import`` prints for the text of a plan.json."""
    sink = Sink()
    found = import_files("auto", [(plan_json, "plan.json")], sink)
    assert found is not None, [one.finding.message for one in sink.diagnostics]
    return fragment_yaml(found.fragment, found.kinds, sink)


def with_choices(problem: AnyProblem, plan: AnyPlan) -> AnyProblem:
    """Return ``problem`` with two values of ``plan`` if its spec leaves them to PARC.

    They are the checkpoint interval and the maximum number of tokens per step.
    """
    if isinstance(problem, ServingProblem):
        assert isinstance(plan, ServingPlan)
        chosen = plan.search.step_tokens
        return problem if chosen is None else with_step_tokens(problem, chosen.chosen)
    if problem.job.checkpoint_interval is not None:
        return problem
    assert isinstance(plan, Plan)
    interval = plan.run.best_checkpoint_steps
    return replace(problem, job=replace(problem.job, checkpoint_interval=interval))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_imported_plan_of_an_example_is_the_same_problem(name: str) -> None:
    plan = example(name)
    text = imported_spec(plan_artifact(plan).text)
    sink = Sink()
    again = resolve_spec(SpecSource("again.yaml", text, ROOT / "examples" / name), (), sink)
    assert again is not None
    assert with_choices(again, plan) == plan.problem
    # Compiling a problem is deterministic, so that a few examples suffice for the bytes.
    if WALK or name in ("gpt2-small", "llama-2-70b-serve"):
        copy = plan_job(again, sink)
        assert copy is not None
        assert emitted(copy) == emitted(plan)


def test_the_imported_plan_of_a_random_spec_is_the_same_problem() -> None:
    same = seed = 0
    while same < max(WALK, 10):
        tree = random_spec(random.Random(seed))
        seed += 1
        sink = Sink()
        problem = resolve_spec(SpecSource("spec.yaml", json.dumps(tree), ROOT), (), sink)
        plan = None if problem is None or sink.failed() else plan_job(problem, sink)
        if plan is None:
            continue
        again = imported_spec(plan_artifact(plan).text)
        copy = resolve_spec(SpecSource("again.yaml", again, ROOT), (), Sink())
        assert copy is not None
        assert with_choices(copy, plan) == plan.problem, tree
        same += 1
        if WALK:
            second = plan_job(copy, Sink())
            assert second is not None
            assert emit_plan(second, Sink()) == emit_plan(plan, Sink()), tree


def test_an_output_folder_is_imported_and_compiles_to_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert parc("compile", write_spec(tmp_path), "-o", str(first)).exit_code == 0
    again = str(tmp_path / "again.yaml")
    result = parc("import", "auto", str(first), "-o", again)
    assert (result.exit_code, result.stderr) == (0, "")
    assert parc("compile", again, "-o", str(second)).exit_code == 0
    files = {path.relative_to(first): path.read_bytes() for path in first.rglob("*.*")}
    assert {path.relative_to(second): path.read_bytes() for path in second.rglob("*.*")} == files


def test_a_changed_launch_file_is_reported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    args = out / "megatron" / "args.sh"
    args.write_bytes(args.read_bytes().replace(b"\n", b"\r\n"))
    assert "PARC-" not in parc("import", "auto", str(out)).stderr
    args.write_text(args.read_text().replace("--micro-batch-size 1", "--micro-batch-size 2"))
    result = parc("import", "auto", str(out))
    assert result.exit_code == 0
    assert "warning[PARC-I08]: megatron/args.sh was changed" in result.stderr


def test_a_folder_and_a_plan_that_hold_no_spec_are_refused(tmp_path: Path) -> None:
    result = parc("import", "auto", str(tmp_path))
    assert result.exit_code == 2
    assert "is a folder without plan.json" in result.stderr
    old = tmp_path / "plan.json"
    old.write_text('{"estimate": {}, "problem": {}}')
    result = parc("import", "auto", str(old))
    assert result.exit_code == 1
    assert "does not contain the section spec" in result.stderr
    for text in ('{"estimate": ', '{"estimate": {}, "spec": 3}', '{"estimate": {}, "spec": null}'):
        old.write_text(text)
        assert parc("import", "parc-plan", str(old)).exit_code == 1


def test_files_that_the_spec_names_are_listed(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=leaf1 Nodes=r01n[01-02]\n")
    racks = SPEC[SPEC.index("  racks:") : SPEC.index("job:")]
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace(racks, "  topology: topology.conf\n"))
    assert parc("compile", str(spec), "-o", str(tmp_path / "out")).exit_code == 0
    result = parc("import", "auto", str(tmp_path / "out"), "--format", "json")
    note = "cluster.topology names the file topology.conf, relative to the original spec"
    assert json.loads(result.stdout)["notes"] == [note]


def test_a_plan_cannot_be_combined_with_another_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", write_spec(tmp_path), "-o", str(out)).exit_code == 0
    result = parc("import", "auto", str(out), str(out))
    assert result.exit_code == 1
    assert "PARC-I05" in result.stderr


def test_a_missing_file_is_an_error_of_one_line() -> None:
    result = parc("import", "auto", "absent.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("parc: cannot read 'absent.json'")

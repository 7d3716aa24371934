"""Problems, plans, files and finding codes of specs that tests write as mappings."""

from __future__ import annotations

import copy
import json
import os
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import parc
from parc.backends.registry import default_targets
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import AnyPlan, AnyProblem, Plan
from parc.compiler.pipeline import emit_plan, plan_spec, resolve_spec
from parc.compiler.spec.load import read_spec_tree
from parc.compiler.spec.reading.source import SpecSource, read_source
from parc.compiler.verify.verify_pools import verify_output

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/spec.yaml"))
Spec = dict[str, Any]
Files = dict[str, str]
"""Path -> text."""


def changed(base: Spec, changes: Spec) -> Spec:
    """Return a copy of ``base`` with the value at each dotted path replaced."""
    spec = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = spec
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return spec


def source_of(spec: Spec) -> SpecSource:
    """Return a spec as JSON text, which is valid YAML, with one line per key."""
    return SpecSource("spec.yaml", json.dumps(spec, indent=1), None)


def resolved(spec: Spec) -> tuple[AnyProblem | None, Sink]:
    """Return the problem and the findings."""
    sink = Sink()
    return resolve_spec(source_of(spec), (), sink), sink


def planned(spec: Spec) -> tuple[AnyPlan | None, Sink]:
    """Return the plan as ``parc check`` computes it, and the findings."""
    sink = Sink()
    return plan_spec(source_of(spec), (), sink), sink


def plan_of(spec: Spec) -> Plan:
    """Return the plan of a training spec without errors."""
    plan, sink = planned(spec)
    assert isinstance(plan, Plan), messages_of(sink)
    return plan


SHARED_PLANS = "PARC_TESTS_SHARED_PLANS"
"""Variable with the folder of the plans that the workers of a test run share."""


@cache
def example(name: str) -> AnyPlan:
    """Return the plan of ``examples/<name>``, which one of the workers of a test run makes."""
    if SHARED_PLANS not in os.environ:
        return _planned_example(name)
    folder = Path(os.environ[SHARED_PLANS])
    stored = folder / f"{name}.pickle"
    if not stored.is_file():
        draft = folder / f"{name}-{os.getpid()}"
        draft.write_bytes(pickle.dumps(_planned_example(name)))
        draft.replace(stored)  # at once, because another worker may read it
    plan: AnyPlan = pickle.loads(stored.read_bytes())
    return plan


def _planned_example(name: str) -> AnyPlan:
    sink = Sink()
    plan = plan_spec(read_source(str(ROOT / "examples" / name / "spec.yaml")), (), sink)
    assert plan is not None, messages_of(sink)
    return plan


@cache
def example_targets(name: str) -> tuple[str, ...]:
    """Return the targets of ``examples/<name>``; the plan, which is slow, is not made."""
    sink = Sink()
    source = read_source(str(ROOT / "examples" / name / "spec.yaml"))
    tree = read_spec_tree(source, (), sink)
    assert tree is not None, messages_of(sink)
    kind = tree["job"].get("kind", "train")
    return tuple(tree.get("emit", default_targets(kind)))


def examples(framework: str) -> dict[str, AnyPlan]:
    """Return name -> plan of the examples for one framework or engine."""
    plans = {name: example(name) for name in EXAMPLES if framework in example_targets(name)}
    return {name: plan for name, plan in plans.items() if plan.problem.framework == framework}


def emitted(plan: AnyPlan) -> Files:
    """Return all files of a plan, after the verification found no error."""
    sink = Sink()
    artifacts = emit_plan(plan, sink)
    assert not sink.failed(), messages_of(sink)
    return {artifact.path: artifact.text for artifact in artifacts}


def example_files(name: str) -> Files:
    """Return all files of ``examples/<name>``, which are emitted once per process."""
    return dict(_example_files(name))


@cache
def _example_files(name: str) -> Files:
    return emitted(example(name))


def write_files(files: Files, folder: Path, executable: bool = False) -> None:
    """Write ``files`` below ``folder``, whose folders are created."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        if executable:
            target.chmod(0o755)


def files_of(spec: Spec) -> Files:
    """Return all files of a training spec."""
    return emitted(plan_of(spec))


def error_codes(spec: Spec) -> set[str]:
    """Return the short codes of the errors in a spec."""
    found = planned(spec)[1].diagnostics
    return {one.code.removeprefix("PARC-") for one in found if one.severity == "error"}


def verification_codes(files: Files) -> set[str]:
    """Return the short codes that the verification reports for emitted files."""
    sink = Sink()
    verify_output(files, sink)
    return {one.code.removeprefix("PARC-") for one in sink.diagnostics}


def findings_of(spec: Spec, code: str) -> list[Finding]:
    """Return the findings with ``code``, such as ``PARC-G05``, on a spec."""
    return [found.finding for found in parc.check(spec) if found.code == code]


def messages_of(sink: Sink) -> list[str]:
    """Return the messages of all findings, for assertions that expect none."""
    return [found.finding.message for found in sink.diagnostics]

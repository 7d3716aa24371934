"""Tests of the Python API: examples in docstrings and in docs/python.md, notebooks, tables."""

from __future__ import annotations

import doctest
import html
import importlib.util
import pickle
import re
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from numbers import Integral
from pathlib import PurePosixPath
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

import parc
from parc.compiler import api
from parc.compiler.report import notebook
from parc.compiler.report.page.report_page import report_artifact
from tests.project_files import ROOT

SPEC = {
    "parc": 1,
    "name": "demo",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
}
SERVICE = {
    "parc": 1,
    "name": "chat",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"kind": "serve", "traffic": {"input_tokens": 512, "output_tokens": 128}},
}
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
PUBLIC = (
    *(
        "parc.compiler.api." + name
        for name in ("compile", "estimate", "check", "sweep", "SpecError")
    ),
    *("parc.compiler.report.notebook.PlanView." + name for name in ("to_records", "to_pandas")),
)


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Return the docstrings of a module that have examples; ``spec`` is that of the package."""
    given = {"parc": parc, "spec": {**SPEC, "layout": {"tp": 8}}}
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=given)
    return [one for one in found if one.examples]


EXAMPLES = {one.name: one for module in (parc, api, notebook) for one in examples(module)}


def test_every_public_name_has_an_example() -> None:
    assert set(EXAMPLES) == {"parc", *PUBLIC}
    names = {one.rpartition(".")[2] for one in PUBLIC if ".api." in one}
    assert names | {"__version__"} == set(parc.__all__)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs(name: str) -> None:
    if name.endswith("to_pandas") and importlib.util.find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(EXAMPLES[name]).failed == 0


def test_the_page_documents_each_name_and_its_examples_run() -> None:
    documented = re.findall(r"^\| `parc\.(\w+)", PAGE, re.MULTILINE)
    assert set(documented) == set(parc.__all__)
    tables = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert tuple(tables) == notebook.TABLES
    test = doctest.DocTestParser().get_doctest(PAGE, {}, "python.md", None, 0)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


@pytest.mark.parametrize("spec", [SPEC, SERVICE], ids=["training", "service"])
def test_a_plan_shows_its_report_and_has_tables_of_plain_values(
    spec: dict[str, object],
) -> None:
    plan = parc.compile(spec)
    assert isinstance(plan, notebook.TrainingPlan) == (spec is SPEC)
    assert len(repr(plan)) < 200
    page = plan._repr_html_()
    (document,) = re.findall(r'srcdoc="([^"]*)"', page)
    assert html.unescape(document) == report_artifact(plan).text
    assert html.escape(repr(plan)) in page
    for table in notebook.TABLES:
        rows = plan.to_records(table)
        assert rows
        assert {tuple(row) for row in rows} == {tuple(rows[0])}
        assert all(isinstance(value, str | int | float) for row in rows for value in row.values())
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_an_unknown_table_is_an_error_with_the_valid_names() -> None:
    with pytest.raises(ValueError, match="no table 'cost'; valid values: candidates, memory"):
        parc.compile(SPEC).to_records("cost")


class Scalar:
    """Number or array of another library; like those of numpy, it is not a subclass of ``int``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


class Whole:
    """Whole number without any method of numpy."""

    def __int__(self) -> int:
        return 8


Integral.register(Whole)


def test_numbers_and_containers_of_other_libraries_are_accepted() -> None:
    plain = parc.compile({**SPEC, "layout": {"tp": 8}})
    for eight in (Scalar(8), Whole()):
        job = MappingProxyType({"sequence_length": Scalar(4096), "global_batch": Scalar(64)})
        found = parc.compile(OrderedDict({**SPEC, "job": job, "layout": {"tp": eight}}))
        assert (found.layout, found.problem.digest) == (plain.layout, plain.problem.digest)
    assert parc.check({**SPEC, "launch": {"env": {"X": PurePosixPath("/a")}}}) == parc.check(SPEC)
    goals = {"memory_headroom": Fraction(1, 16)}
    assert parc.compile({**SPEC, "goals": goals}).problem.goals.memory_headroom == 0.0625


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"job": {"sequence_length": object(), "global_batch": 64}}, "job.sequence_length"),
        ({"emit": ["megatron", {"slurm"}]}, "emit[1]"),
        ({"layout": {(1, 2): 3}}, "layout"),
        ({"job": {"global_batch": 2j}}, "job.global_batch"),
    ],
)
def test_other_objects_are_findings(parts: dict[str, Any], path: str) -> None:
    (found,) = parc.check({**SPEC, **parts})
    assert (found.code, found.path) == ("PARC-X02", path)
    with pytest.raises(parc.SpecError, match="has a value of the type"):
        parc.compile({**SPEC, **parts})


def test_a_spec_that_contains_itself_is_a_finding() -> None:
    job: dict[str, Any] = {}
    job["job"] = job
    assert [found.code for found in parc.check({**SPEC, "job": job})] == ["PARC-X02"]


def test_values_of_a_sweep_may_be_numbers_of_other_libraries() -> None:
    with ThreadPoolExecutor(1) as threads:
        found = parc.sweep(SPEC, {"job.global_batch": [Scalar(32), 64]}, executor=threads)
        assert [row.values for row in found.rows] == [
            (("job.global_batch", "32"),),
            (("job.global_batch", "64"),),
        ]
        with pytest.raises(parc.SpecError):
            parc.sweep(SPEC, {"job.global_batch": [object()]}, executor=threads)

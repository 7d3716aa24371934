"""Tests of the Python API: examples in docstrings and in docs/python.md, notebooks, tables."""

from __future__ import annotations

import doctest
import html
import importlib.util
import pickle
import re
from types import ModuleType

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

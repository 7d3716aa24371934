"""The pages of the cost model agree with the code; figures and generated parts are current."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import fitted_classes
from benchmarks.accuracy.pages import plots
from benchmarks.accuracy.pages.bar_plot import Bars, bars_svg
from benchmarks.accuracy.pages.comparison_plot import Point, ScatterChart, comparison_svg
from benchmarks.accuracy.pages.cost_page import BLOCK, fill_blocks, measured_blocks, written_blocks
from benchmarks.accuracy.pages.page import LOCKED
from benchmarks.accuracy.pages.page_tables import table_under
from benchmarks.accuracy.pages.plots import errors_by_group, main, step_times
from benchmarks.accuracy.serving.engines import ENGINES
from benchmarks.accuracy.sources import is_locked
from parc.compiler.catalog.library import Library
from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.spec.schema import all_fields
from tests.project_files import ROOT

DOCS = ROOT / "docs"
PAGES = (DOCS / "cost-model.md", *sorted((DOCS / "cost-model").glob("*.md")))
PAGE = "\n".join(path.read_text("utf-8") for path in PAGES)
"""Text of all pages of the cost model."""
ACCURACY = (DOCS / "accuracy.md").read_text("utf-8")
KERNELS = (DOCS / "kernel-fits.md").read_text("utf-8")
FIGURES = sorted((DOCS / "cost-model").glob("*.svg"))
IN_SYMBOLS = {"sequence_length", "global_batch", "precision"}
"""Fields of ``job`` that the page names without their path."""
LARGEST = 75_000
"""Largest size of a figure in bytes."""
SVG = "{http://www.w3.org/2000/svg}"
READINGS = (
    Point(1.0, 1.0, "red", "dense"),
    Point(10.0, 12.0, "red", "MoE"),
    Point(50.0, 900.0, "blue", "dense"),
)
CHART = ScatterChart("A title", "time, seconds", READINGS, ("red", "blue"), ("dense", "MoE"))


def elements(text: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(SVG + tag))


def words(text: str) -> list[str]:
    return [element.text or "" for element in elements(text, "text")]


@pytest.mark.parametrize("name", TERMS)
def test_every_term_is_on_the_page_with_its_formula_and_source(name: str) -> None:
    term = TERMS[name]
    assert f"| `{name}` | {term.title} | {term.formula} | {term.source} |" in PAGE


@pytest.mark.parametrize(
    "name", [*SCHEDULES, *fitted_classes(), *Library().names("generations"), *ENGINES]
)
def test_every_schedule_class_and_engine_has_a_row(name: str) -> None:
    assert f"\n| `{name}` |" in PAGE or f"\n| {name} |" in PAGE


def test_the_page_names_every_field_of_the_job_that_a_formula_reads() -> None:
    modules = [path.read_text("utf-8") for path in (ROOT / "compiler/cost").rglob("*.py")]
    nodes = (node for module in modules for node in ast.walk(ast.parse(module)))
    read = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("job")
    }
    fields = {name for name in read if f"job.{name}" in all_fields()} - IN_SYMBOLS
    assert {"moe_overlap", "tp_overlap"} <= fields
    assert [name for name in sorted(fields) if f"`job.{name}" not in PAGE] == []


def test_the_tables_that_follow_from_code_and_other_pages_are_current() -> None:
    blocks = written_blocks(KERNELS)
    stale = [name for name, text in blocks.items() if f"\n{text}\n\n<!-- end -->" not in PAGE]
    assert stale == [], "run: python -m benchmarks.accuracy.pages.plots"


def test_every_marked_block_of_the_page_is_generated() -> None:
    known = {*written_blocks(KERNELS), *measured_blocks([], [])}
    assert sorted(found["name"] for found in BLOCK.finditer(PAGE)) == sorted(known)


def test_every_figure_is_shown_once_with_alternative_text() -> None:
    shown = re.findall(r"!\[([^]]{20,})]\(cost-model/([a-z-]+\.svg)\)", PAGE)
    assert sorted(name for _, name in shown) == [path.name for path in FIGURES]
    assert len(FIGURES) == 4


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_is_small_and_readable_on_light_and_dark_pages(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.encode()) < LARGEST
    assert "prefers-color-scheme:dark" in text
    assert [len(elements(text, tag)) for tag in ("title", "desc")] == [1, 1]
    assert 'class="page"' in text


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_labels_its_axes_with_quantity_and_unit(path: Path) -> None:
    labels = words(path.read_text("utf-8"))
    units = [
        word for word in labels if word.endswith((", seconds", ", milliseconds", ", GB", ", %"))
    ]
    assert units


@pytest.mark.parametrize(
    "draw", [lambda: comparison_svg(CHART), lambda: bars_svg(errors_by_group(ACCURACY))]
)
def test_a_figure_is_reproducible(draw: Callable[[], str]) -> None:
    assert draw() == draw()


def test_an_exact_prediction_is_on_the_diagonal() -> None:
    text = comparison_svg(CHART)
    point = elements(text, "circle")[0]
    x, y = float(point.attrib["cx"]), float(point.attrib["cy"])
    assert x - 64 == pytest.approx(350 - y, abs=0.1)


def test_a_ratio_beyond_the_axis_is_drawn_on_its_edge() -> None:
    text = comparison_svg(CHART)
    assert min(float(point.attrib["cy"]) for point in elements(text, "circle")) == 50


def test_colors_without_a_reading_are_not_in_the_legend() -> None:
    chart = ScatterChart("A title", "time, seconds", READINGS, ("red", "green", "blue"), ("dense",))
    assert "red (2)" in words(comparison_svg(chart))
    assert not [word for word in words(comparison_svg(chart)) if word.startswith("green")]


def test_bars_are_as_long_as_their_errors() -> None:
    text = bars_svg(Bars("A title", "error, %", ("one", "two"), (("group (3)", (4.0, 8.0)),)))
    bars = [box for box in elements(text, "rect") if box.attrib.get("height") == "10"][2:]
    short, long = (float(box.attrib["width"]) for box in bars)
    assert long == pytest.approx(2 * short, abs=0.2)
    assert {"4.0", "8.0", "group (3)", "error, %"} <= set(words(text))


def test_bars_show_the_errors_of_the_accuracy_page() -> None:
    table = table_under(ACCURACY, LOCKED)
    errors = dict(zip(table.column("group"), table.column("locked"), strict=True))
    bars = {name.rpartition(" (")[0]: errors for name, errors in errors_by_group(ACCURACY).groups}
    assert {name: f"{bars[f'locked: {name}'][0]:.1f}" for name in errors} == errors


def test_a_block_that_is_missing_from_the_page_is_an_error() -> None:
    page = "<!-- generated: one -->\nold\n<!-- end -->\n"
    assert fill_blocks(page, {"one": "new"}) == "<!-- generated: one -->\n\nnew\n\n<!-- end -->\n"
    with pytest.raises(KeyError, match="two"):
        fill_blocks(page, {"two": "new"})


def test_the_generator_writes_four_figures_and_fills_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []  # the figure of step times, which takes seconds

    def draw_step_times(cases: Sequence[Case]) -> ScatterChart:
        drawn.append(step_times(cases))
        return drawn[-1]

    monkeypatch.setattr(plots, "step_times", draw_step_times)
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(ROOT / "README.md", tmp_path)
    for name in ("accuracy.md", "kernel-fits.md"):
        shutil.copy(DOCS / name, docs)
    (docs / "cost-model").mkdir()
    for page in PAGES:
        text = BLOCK.sub(lambda found: found["head"] + found["tail"], page.read_text("utf-8"))
        (docs / page.relative_to(DOCS)).write_text(text, "utf-8")
    assert main(["--docs", str(docs)]) == 0
    for page in PAGES:
        written = (docs / page.relative_to(DOCS)).read_text("utf-8")
        assert written == page.read_text("utf-8"), page.name
    assert [path.name for path in sorted((docs / "cost-model").glob("*.svg"))] == [
        path.name for path in FIGURES
    ]
    (chart,) = drawn
    cases = [case for case in load(None).cases if case.scored and not is_locked(case)]
    assert len(chart.readings) == len(cases), "every open row is a point"
    assert {row.color for row in chart.readings} <= set(chart.colors)
    assert {row.shape for row in chart.readings} <= set(chart.shapes)
    assert len(chart.colors) <= 5

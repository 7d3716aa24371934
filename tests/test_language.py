"""The language check finds private words and docstrings that open with a fragment."""

from __future__ import annotations

import pytest

from tests.check_language import (
    docstring_findings,
    percent_findings,
    percent_format_findings,
    second_docstring_findings,
    word_findings,
)
from tests.project_files import ROOT

PATH = ROOT / "compiler" / "example.py"


@pytest.mark.parametrize(
    "line",
    [
        *("def mend_pins():", "class Untold:", "# the second route", "x = judge_plan(plan)"),
        *("# a text that is no number", "# They are no ranks."),
    ],
)
def test_a_private_word_is_found_in_names_and_comments(line: str) -> None:
    assert len(list(word_findings(PATH, line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "recommended",
        "headroom",
        "judicious",
        "bathrooms",
        "amended",
        "There is no rank",
        "is no longer",
    ],
)
def test_a_longer_word_that_contains_a_private_word_is_accepted(line: str) -> None:
    assert list(word_findings(PATH, line)) == []


def test_a_docstring_that_opens_with_a_relative_clause_is_found() -> None:
    bad = 'def f():\n    """What is left of the ranks."""\n'
    good = 'def f():\n    """Return the remaining ranks."""\n'
    assert len(list(docstring_findings(PATH, bad))) == 1
    assert list(docstring_findings(PATH, good)) == []


def test_a_second_docstring_of_a_field_is_found() -> None:
    good = 'class A:\n    a: int\n    """First."""\n    b: int\n    """Second."""\n'
    assert len(list(second_docstring_findings(PATH, good.replace("    b: int\n", "")))) == 1
    assert list(second_docstring_findings(PATH, good)) == []


@pytest.mark.parametrize("text", ["The error is 5.6%.", "| +9.6% |", "```\n1%\n```\n3%"])
def test_a_percentage_without_a_space_is_found(text: str) -> None:
    assert len(list(percent_findings(PATH, text))) == 1


@pytest.mark.parametrize(
    "text", ["5.6 %", "`memory_headroom: 8%`", "a percentage, like 8%, or 0.08", "array 1-8%1"]
)
def test_a_value_of_the_spec_may_have_no_space(text: str) -> None:
    assert list(percent_findings(PATH, text)) == []


def test_a_format_of_a_percentage_without_a_space_is_found() -> None:
    assert len(list(percent_format_findings(PATH, 'f"{share:.1%} of all"'))) == 1
    assert list(percent_format_findings(PATH, 'f"{share * 100:.1f} % of all"')) == []

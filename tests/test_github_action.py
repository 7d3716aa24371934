"""Tests of the text and of the comment of the GitHub Action; tests/conformance runs its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from ruamel.yaml import YAML

from tests.github_action import GitHubApi, comparison, github_api
from tests.project_files import ROOT

ACTION = (ROOT / "action.yml").read_text("utf-8")
compare = comparison()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[GitHubApi]]:
    """Serve the fake of the API, to which the variables of the process point."""
    with github_api() as (fake, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield fake


def test_every_input_has_a_use_and_is_documented() -> None:
    inputs = YAML(typ="safe").load(ACTION)["inputs"]
    used = set(re.findall(r"inputs\.([a-z-]+)", ACTION))
    page = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    assert used == set(inputs)
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(inputs)


def test_scripts_of_the_action_contain_no_expression() -> None:
    # GitHub would insert the text of an expression into the script, as code.
    steps = YAML(typ="safe").load(ACTION)["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 3
    assert not any("${{" in script for script in scripts)


def test_one_comment_is_written_and_then_updated(api: type[GitHubApi]) -> None:
    compare.update_comment("7", f"{compare.MARKER}\nfirst", True)
    compare.update_comment("7", f"{compare.MARKER}\nsecond", True)
    compare.update_comment("7", f"{compare.MARKER}\nnone", False)
    assert [one["body"] for one in api.comments] == [f"{compare.MARKER}\nnone"]


def test_without_changes_no_comment_is_written(api: type[GitHubApi]) -> None:
    compare.update_comment("7", compare.body([], 1000), False)
    assert api.comments == []


def test_the_comment_is_found_on_a_later_page_and_not_taken_from_a_person(
    api: type[GitHubApi],
) -> None:
    api.add(f"{compare.MARKER}\nof a person", "User")
    for number in range(150):
        api.add(f"review {number}")
    own = api.add(f"{compare.MARKER}\nold")
    compare.update_comment("7", f"{compare.MARKER}\nnew", True)
    assert own["body"] == f"{compare.MARKER}\nnew"
    assert len(api.comments) == 152
    assert api.comments[0]["body"].endswith("of a person")


def test_tables_that_exceed_a_comment_are_left_out_but_no_summary() -> None:
    found = [compare.Section(f"### `{name}`", "\n| row |" * 2000) for name in "abcdef"]
    text = compare.body(found, 50_000)
    assert len(text) <= 50_000
    assert text.count("### `") == 6
    assert text.count("<details>") == text.count("</details>") == 3
    assert "are in the summary of the job" in text
    whole = compare.body(found, 1_000_000)
    assert whole.count("<details>") == 6
    assert "are in the summary of the job" not in whole


def test_a_path_cannot_end_its_code() -> None:
    assert compare.code("a`<b>\nc") == "`a'<b> c`"

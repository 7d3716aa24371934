"""CONTRIBUTING.md: its recipes name files and commands that exist."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from tests.project_files import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL))
EXPECTED = {
    "Add a GPU": ("catalog/gpus/", "catalog/kernels/"),
    "Add a GPU generation": ("catalog/generations/", "docs/cost-model/"),
    "Add a Hugging Face family": ("huggingface/families/", "tests/catalog/family_counts.yaml"),
    "Add a layout rule with a diagnostic": ("diagnostics/codes/", "docs/diagnostics.md"),
    "Change a flag of a framework": ("backends/megatron/flags.yaml", "known_flags.json"),
    "Add a lint rule": ("coupled_flags.py", "tests/lint/scripts.py"),
    "Add a backend": ("backends/built_in.py", "pyproject.toml", "examples/plugin"),
    "Add a field of the spec": ("compiler/ir/problem.py", "schemas/spec.schema.json"),
    "Add or change a formula of the cost model": ("cost/step/terms.py", "docs/accuracy.md"),
}
"""Title of a recipe -> some of the files that it touches."""
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b(?!\.md)")
"""Names that the reader replaces: GPU, MODEL_TYPE, CODE."""


def spans() -> list[str]:
    """Return all texts between backticks, with line breaks replaced."""
    return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", TEXT)]


def paths() -> list[str]:
    """Return the paths in spans, in arguments of commands and in links."""
    named = {word for span in spans() for word in span.split()}
    named |= {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", TEXT)}
    folders = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
    return sorted(one for one in named if one.startswith(folders) or one.endswith(".md"))


def exists(path: str) -> bool:
    """Return True for an existing path; a placeholder stands for the name of any file or folder."""
    pattern = PLACEHOLDER.sub("*", path) if path not in ("CHANGELOG.md", "README.md") else path
    if "*" not in pattern:
        return (ROOT / path).exists()
    found = (one.relative_to(ROOT).as_posix() for one in ROOT.glob(pattern))
    return any(fnmatchcase(one, pattern.rstrip("/")) for one in found)


@pytest.mark.parametrize("path", paths())
def test_a_path_in_the_page_exists(path: str) -> None:
    assert exists(path)


def test_a_path_that_does_not_exist_is_noticed() -> None:
    assert not exists("compiler/catalog/gpu/GPU.yaml")
    assert not exists("compiler/catalog/gpus/GPU.json")
    assert exists("compiler/catalog/gpus/GPU.yaml")


def test_make_targets_in_the_page_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {span.split()[1] for span in spans() if span.startswith("make ")}
    assert {"test", "check", "golden", "docs", "schemas", "accuracy", "layouts"} <= named
    assert named <= targets


def test_commands_of_parc_in_the_page_exist() -> None:
    import click

    from parc.compiler.cli import main

    commands = main.list_commands(click.Context(main))
    named = {found for span in spans() for found in re.findall(r"\bparc ([a-z]+)", span)}
    assert {"catalog", "import", "lint", "backends"} <= named <= set(commands)


def test_modules_that_the_page_runs_exist() -> None:
    named = {found for span in spans() for found in re.findall(r"-m ([a-z_.]+)", span)}
    own = {one for one in named if one.startswith("benchmarks.")}
    assert own
    paths = [ROOT / one.replace(".", "/") for one in own]
    assert [
        path
        for path in paths
        if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file()
    ] == []
    assert named - own == {"parc", "pytest"}


def test_the_page_has_exactly_the_expected_recipes() -> None:
    assert list(RECIPES) == list(EXPECTED)


@pytest.mark.parametrize("title", EXPECTED)
def test_a_recipe_has_steps_files_commands_and_a_check(title: str) -> None:
    recipe = RECIPES[title]
    steps = [int(number) for number in re.findall(r"^(\d)\. ", recipe, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 4
    assert re.search(r"^Check ", recipe, re.MULTILINE)
    assert re.search(r"`python -m (pytest|parc)", recipe)
    assert "tests/" in recipe
    assert [one for one in EXPECTED[title] if one not in recipe] == []


def test_the_page_has_at_most_200_lines() -> None:
    assert TEXT.count("\n") <= 200

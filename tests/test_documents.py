"""README, changelog, license, Makefile and examples agree with the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.project_files import ROOT

EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/spec.yaml"))
MODELINE = "# yaml-language-server: $schema=../../schemas/spec.schema.json\n"
README = (ROOT / "README.md").read_text("utf-8")


def test_there_are_at_least_eight_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_an_example_starts_with_the_modeline_and_has_the_name_of_its_folder(folder: Path) -> None:
    text = (folder / "spec.yaml").read_text("utf-8")
    assert text.startswith(MODELINE)
    assert f"\nname: {folder.name}\n" in text


def test_the_schema_in_the_modeline_exists() -> None:
    assert (EXAMPLES[0] / "../../schemas/spec.schema.json").resolve().is_file()


def test_the_page_of_the_output_folder_shows_one_of_the_examples() -> None:
    page = (ROOT / "docs" / "output.md").read_text("utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert set(shown) & {(folder / "spec.yaml").read_text("utf-8") for folder in EXAMPLES}


def test_the_readme_lists_exactly_the_commands() -> None:
    import click

    from parc.compiler.cli import main

    rows = set(re.findall(r"^\| `parc ([a-z]+)", README, re.MULTILINE))
    assert rows == set(main.list_commands(click.Context(main)))


def test_make_targets_in_documents_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    documents = README + (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"[`$] ?make ([a-z]+)", documents))
    assert {"demo", "test"} <= named <= targets


def test_links_between_documents_have_targets() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
    broken = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(document.read_text("utf-8")))
        if not target.startswith(("http", "mailto:")) and not _exists(document, target)
    ]
    assert not broken


def test_a_link_to_a_missing_heading_is_noticed() -> None:
    assert _exists(ROOT / "README.md", "docs/spec.md#serving-job.traffic")
    assert _exists(ROOT / "docs/index.md", "#install")
    assert not _exists(ROOT / "README.md", "docs/spec.md#no-such-heading")
    assert not _exists(ROOT / "README.md", "docs/no-such-page.md")


def test_the_navigation_of_the_website_lists_every_page() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sorted(listed) == sorted(pages)


def _exists(document: Path, link: str) -> bool:
    """Return True if the file of a relative link exists and has the heading or anchor."""
    name, _, anchor = link.partition("#")
    path = document.parent / name if name else document
    return path.exists() and (not anchor or anchor in _anchors(path))


@cache
def _anchors(page: Path) -> frozenset[str]:
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", _without_code(text), re.MULTILINE)
    plain = (re.sub(r"[^\w -]", "", heading.lower()).strip() for heading in headings)
    return frozenset(
        {re.sub(r" +", "-", one) for one in plain} | set(re.findall(r'<a id="([^"]+)">', text))
    )


def _without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert text.rstrip().endswith("limitations under the License.")


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_make_without_a_target_lists_every_documented_target() -> None:
    if not _has_make():
        pytest.skip("make is not installed")
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "check", "conformance", "golden", "schemas"):
        assert f"make {target} " in done.stdout


def test_make_demo_rejects_an_old_python_in_one_clear_sentence(tmp_path: Path) -> None:
    if not _has_make():
        pytest.skip("make is not installed")
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n', "utf-8")
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    done = subprocess.run(
        ["make", "demo", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "PARC needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.1" in done.stderr


def test_python_dash_m_parc_prints_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parc", "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "compile" in done.stdout


def _has_make() -> bool:
    from shutil import which

    return which("make") is not None


def _cells(page: str, label: str) -> list[str]:
    """Return the cells of the last row of a page whose first cell is ``label``, after this cell."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    rows = re.findall(rf"^\| {re.escape(label)} \| (.*) \|$", text, re.MULTILINE)
    return [cell.strip() for cell in rows[-1].split(" | ")]


def test_the_readme_and_the_page_of_limits_state_the_errors_of_services() -> None:
    words = " ".join(README.split())
    limits = " ".join((ROOT / "docs" / "supported.md").read_text("utf-8").split())
    _, median, *_, unseen, _ = _cells("accuracy.md", "**all others**")
    assert f"(median error {float(median):.0f} % on published benchmarks, " in limits
    assert f"{float(unseen):.0f} % for sources that were left out of the fit)" in limits
    found = {row[0]: row[1:] for row in _service_rows()}
    for tool, column in (("PARC", 2), ("AIConfigurator", 3)):
        errors = [found[name][column - 1].split()[0] for name in ("TPOT", "TTFT", "tokens/s")]
        assert f"\n| {tool} | {' | '.join(f'{error} %' for error in errors)} |\n" in README
    assert f"Median errors on {found['tokens/s'][0]} published measurements" in words


def _service_rows() -> list[list[str]]:
    """Return (quantity, rows, PARC, AIConfigurator) for all engines, from the page on services."""
    text = (ROOT / "docs" / "serving.md").read_text("utf-8")
    return [row.split(" | ") for row in re.findall(r"^\| all \| (.*) \|$", text, re.MULTILINE)]

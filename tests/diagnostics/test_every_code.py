"""Tests of the diagnostic codes: a bad spec with its exact text, an entry in the table, a section
in the docs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.codes import all_codes, code_title
from parc.compiler.diagnostics.render import render
from parc.compiler.pipeline import plan_spec
from parc.compiler.report.text.diagnostics_page import FAMILIES, diagnostics_page
from parc.compiler.spec.reading.source import SpecSource

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CODES = {info.code: info for info in all_codes()}
FOLDERS = sorted(path.name for path in HERE.iterdir() if (path / "spec.yaml").is_file())

WITHOUT_SOURCES = "AGHIKOQX"
"""Families whose rules are PARC's own, so that no external page can be cited."""
ELSEWHERE: dict[str, str] = {
    **{f"A{number:02d}": "tests/verify/test_verify_plan.py" for number in range(1, 10)},
    **dict.fromkeys(("A10", "A11", "A12"), "tests/verify/test_verify_checksums.py"),
    "A13": "tests/verify/test_verify_plugins.py",
    "A14": "tests/verify/test_verify_decisions.py",
    "A18": "tests/verify/edited/test_edits_kubernetes.py",
    "A19": "tests/verify/edited/test_edits_kubernetes.py",
    **{f"O{number:02d}": "tests/cli/test_compile.py" for number in range(1, 4)},
    "O04": "tests/cli/test_replan.py",
    "O05": "tests/cli/test_compile.py",
    **{f"Q{number:02d}": "tests/cli/test_calibrate.py" for number in range(1, 7)},
    **dict.fromkeys(("Q09", "Q10"), "tests/cli/test_calibrate_service.py"),
    "D15": "tests/diagnostics/test_second_nets.py",
    "I12": "tests/diagnostics/test_many_findings.py",
    **dict.fromkeys(("V32", "V33"), "tests/resolve/test_resolve_engine.py"),
    "X21": "tests/resolve/test_resolve_targets.py",
    "X23": "tests/backends/test_plugins.py",
    "I08": "tests/cli/test_import_output.py",
    **dict.fromkeys(("I09", "I10"), "tests/lint/test_nothing_silent.py"),
    "L11": "tests/backends/test_launch_rules.py",
    **dict.fromkeys(
        ("B02", "B03", "F04", "L01", "L02", "L04", "L05", "L08", "R06", "R13", "S14"),
        "tests/lint/scripts.py",
    ),
    "R16": "tests/lint/test_lint_text.py",
}
"""Codes that no spec causes -> the test that causes them.

Codes A need files that were edited, O an output directory, Q measurements; D15 is a second check
behind an earlier one; V32, V33 and X23 need a faulty plugin; X21 is tested in its pass. The
remaining codes are mistakes in external scripts, which PARC does not write.
"""


def rendered(code: str) -> tuple[list[str], str]:
    """Return the codes that the bad spec of ``code`` causes, and the text; set.txt has ``--set``
    arguments.
    """
    folder = HERE / code
    extra = folder / "set.txt"
    overrides = extra.read_text("utf-8").splitlines() if extra.is_file() else []
    sink = Sink()
    text = (folder / "spec.yaml").read_bytes().decode("utf-8", "replace")
    plan_spec(SpecSource("spec.yaml", text, folder), overrides, sink)
    return [found.code for found in sink.diagnostics], render([sink])


@pytest.mark.parametrize("code", FOLDERS)
def test_a_bad_spec_gives_exactly_the_expected_text(
    code: str, request: pytest.FixtureRequest
) -> None:
    codes, text = rendered(code)
    assert f"PARC-{code}" in codes
    golden = HERE / code / "expected.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8", newline="\n")
    assert text == golden.read_text("utf-8")


def test_the_title_of_a_code_equals_that_of_its_full_entry() -> None:
    assert {code: code_title(code) for code in CODES} == {
        code: info.title for code, info in CODES.items()
    }


def test_codes_and_folders_are_the_same_set() -> None:
    assert sorted(CODES) == sorted({*FOLDERS, *ELSEWHERE})
    assert not set(FOLDERS) & set(ELSEWHERE)


@pytest.mark.parametrize("code", ELSEWHERE)
def test_a_code_without_a_spec_is_tested_in_the_listed_file(code: str) -> None:
    assert f'"{code}"' in (ROOT / ELSEWHERE[code]).read_text("utf-8").replace("PARC-", "")


def test_the_page_of_the_diagnostics_is_current() -> None:
    assert (ROOT / "docs" / "diagnostics.md").read_text("utf-8") == diagnostics_page(), (
        "run make docs"
    )


def test_every_code_has_a_section_and_every_family_a_name() -> None:
    text = diagnostics_page()
    for code in CODES:
        assert f"\n### PARC-{code}\n" in text
    assert {code[0] for code in CODES} <= FAMILIES.keys()


@pytest.mark.parametrize("code", CODES)
def test_an_entry_has_a_reason_a_fix_an_example_and_sources(code: str) -> None:
    info = CODES[code]
    assert info.severity in ("error", "warning", "advice")
    for text in (info.title, info.rule, info.why, info.fix, info.bad):
        assert text.strip()
    assert info.sources or code[0] in WITHOUT_SOURCES


def test_every_reported_code_has_an_entry() -> None:
    import re

    used = {
        code
        for package in ("compiler", "backends")
        for path in (ROOT / package).rglob("*.py")
        for code in re.findall(r'"([A-Z]\d\d)"', path.read_text("utf-8"))
    }
    assert sorted(used - CODES.keys()) == []
